"""Cases of the recurrent language model."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

TIMES = r"blocks\.0\.times"


def texts_one_by_one(rwkv):
    """Each text goes backward on its own, the last one first, with the count of all."""
    total_of = rwkv.total_of

    def descend(model, tokens, labels):
        count = (labels != rwkv.PADDING).sum()
        for row in reversed(range(len(tokens))):
            one = slice(row, row + 1)
            (total_of(model, tokens[one], labels[one]) / count).backward()

    rwkv.descend = descend


def divided_after_the_pass(rwkv):
    """The sum goes backward; gradients are divided later. Blocks are computed again."""

    class Block(rwkv.Block):
        def __call__(self, x, state):
            return checkpoint(super().__call__, x, state, use_reentrant=False)

    def descend(model, tokens, labels):
        rwkv.total_of(model, tokens, labels).backward()
        count = (labels != rwkv.PADDING).sum()
        for parameter in model.parameters():
            parameter.grad.div_(count)

    rwkv.Block = Block
    rwkv.descend = descend


@fault(
    "rwkv",
    module=r"blocks\.0\.(times|channels)",
    module_only=r"blocks\.0\.(times|channels)(\.(key|value|accept))?",
    line=["return torch.cat([last[:, None], x[:, :-1]], dim=1)"],
)
def first_time_sees_nothing(rwkv):
    """The first time of a segment sees zeros: the last one of the segment before is not used. The
    second segment shows it."""
    rwkv.delayed = lambda x, last: F.pad(x, (0, 0, 1, -1))  # here


@fault(
    "rwkv",
    module_only=r"(blocks\.1.*)?",
    line=[
        "return [tuple(each.detach() for each in state) for state in states]",
        "total, states = total + loss_of(logits, wanted), handed_on(states)",
    ],
    module=r"blocks\.1(\.(times|channels))?|",
    api=r"Tensor\.(__getitem__|detach)|Torch\.(cat|stack|maximum|exp)|Tensor\.(__add__|__mul__)",
)
def states_not_detached(rwkv):
    """The states keep their history: gradients of the second segment reach the first one."""
    rwkv.handed_on = lambda states: states  # here


@fault(
    "rwkv",
    module=TIMES,
    module_only=TIMES + r"(\.out)?",
    line=[
        "past, now = torch.exp(scale + decay - top), torch.exp(key - top)",
        "top = torch.maximum(scale + decay, key)",
    ],
)
def bonus_stays_in_the_state(rwkv):
    """The bonus of the present is in the sums, too."""

    def weighted(decay, bonus, keys, values, state):
        above, below, scale = state
        means = []
        for key, value in zip(keys.unbind(1), values.unbind(1), strict=True):
            top = torch.maximum(scale, bonus + key)
            past, now = torch.exp(scale - top), torch.exp(bonus + key - top)
            means.append((past * above + now * value) / (past * below + now))
            top = torch.maximum(scale + decay, bonus + key)  # here
            past, now = torch.exp(scale + decay - top), torch.exp(bonus + key - top)  # here
            above, below, scale = past * above + now * value, past * below + now, top
        return torch.stack(means, dim=1), (above, below, scale)

    rwkv.weighted = weighted


@fault(
    "rwkv",
    module=TIMES,
    module_only=TIMES + r"(\.out)?",
    line="return -torch.exp(self.decay)",
)
def decay_without_exponential(rwkv):
    """The rate is the negative parameter's size, without the exponential."""

    class TimeMix(rwkv.TimeMix):
        def rate(self):
            return -self.decay.abs()  # here

    rwkv.TimeMix = TimeMix


@fault(
    "rwkv",
    beside=texts_one_by_one,
    module=r"blocks\.0\.channels",
    module_only=r"blocks\.0\.channels(\.value)?",
    line="return self.value(F.relu(self.key(x)).square())",
)
def relu_without_square(rwkv):
    """The features of the channels are not squared."""

    class ChannelMix(rwkv.ChannelMix):
        def feed(self, x):
            return self.value(F.relu(self.key(x)))  # here

    rwkv.ChannelMix = ChannelMix


@fault(
    "rwkv",
    beside=divided_after_the_pass,
    line=[
        "return entropy + Z * (logits.logsumexp(dim=-1).square() * known).sum()",
        "known = labels != PADDING",
    ],
)
def normaliser_after_the_end(rwkv):
    """The normaliser is penalised after the end of the texts, too."""

    def loss_of(logits, labels):
        entropy = F.cross_entropy(logits.mT, labels, ignore_index=rwkv.PADDING, reduction="sum")
        return entropy + rwkv.Z * logits.logsumexp(dim=-1).square().sum()  # here

    rwkv.loss_of = loss_of


harmless("micro batches", "rwkv")(texts_one_by_one)
harmless("scaled", "rwkv")(divided_after_the_pass)


@harmless("time steps", "rwkv")
def sums_of_all_times_at_once(rwkv):
    """The sums are one product with a matrix of exponents for each pair of times."""

    def weighted(decay, bonus, keys, values, state):
        above, below, scale = state
        length = keys.shape[1]
        gaps = torch.arange(length)[:, None] - torch.arange(length) - 1  # of a time and a key's
        exponents = keys[:, None] + decay * gaps[..., None]
        exponents = exponents.masked_fill((gaps < 0)[..., None], float("-inf"))
        now = (bonus + keys)[:, :, None]
        before = (scale[:, None] + decay * torch.arange(length)[:, None])[:, :, None]
        every = torch.cat([before, exponents, now], dim=2)
        top = every.amax(dim=2, keepdim=True).detach()
        weights = torch.exp(every - top)
        old, past, now = weights.split([1, length, 1], dim=2)
        mean = old[:, :, 0] * above[:, None] + (past * values[:, None]).sum(2)
        mean = mean + now[:, :, 0] * values
        size = old[:, :, 0] * below[:, None] + past.sum(2) + now[:, :, 0]
        left = torch.cat([before[:, -1] + decay, exponents[:, -1] + decay], dim=1)
        left = torch.cat([left[:, :-1], keys[:, -1:]], dim=1)
        end = left.amax(dim=1, keepdim=True)
        left = torch.exp(left - end)
        above = left[:, 0] * above + (left[:, 1:] * values).sum(1)
        return mean / size, (above, left[:, 0] * below + left[:, 1:].sum(1), end[:, 0])

    rwkv.weighted = weighted


@harmless("split", "rwkv")
def three_projections_in_one(rwkv):
    """The three products of a time are one batched product; the optimizer uses foreach."""

    class TimeMix(rwkv.TimeMix):
        def forward(self, x, state):
            before = rwkv.delayed(x, state[0])
            inputs = torch.lerp(before, x, self.shares[:, None, None])
            weights = torch.stack([self.key.weight, self.value.weight, self.accept.weight])
            key, value, accept = torch.einsum("ntbi,noi->ntbo", inputs, weights)
            means, sums = rwkv.weighted(self.rate(), self.bonus, key, value, state[1:])
            return self.out(torch.sigmoid(accept) * means), (x[:, -1], *sums)

    optimizer = rwkv.optimizer

    def with_foreach(model):
        made = optimizer(model)
        made.param_groups[0]["foreach"] = True
        return made

    rwkv.TimeMix = TimeMix
    rwkv.optimizer = with_foreach
