"""Cases of the mixture of experts."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault("moe", module="layers.0.mixture.router", line="weights = weights / weights.sum")
def weights_not_normalised(moe):
    """The weights of the chosen experts are not normalised after topk."""

    class Router(moe.Router):
        def forward(self, x):
            probabilities = F.linear(x, self.weight).softmax(dim=-1)
            weights, chosen = probabilities.topk(moe.TOP, dim=-1)
            return probabilities, weights, chosen  # here

    moe.Router = Router


@fault("moe", api="Tensor.softmax", module="layers.0.mixture.router")
def softmax_over_tokens(moe):
    """The router's softmax goes over the tokens."""

    class Router(moe.Router):
        def forward(self, x):
            logits = F.linear(x, self.weight)
            probabilities = logits.softmax(dim=0)  # here
            weights, chosen = probabilities.topk(moe.TOP, dim=-1)
            weights = weights / weights.sum(dim=-1, keepdim=True)
            return probabilities, weights, chosen

    moe.Router = Router


@fault("moe", api="Tensor.topk", module="layers.0.mixture.router")
def worst_experts(moe):
    """The experts with the smallest probabilities are chosen."""

    class Router(moe.Router):
        def forward(self, x):
            logits = F.linear(x, self.weight)
            probabilities = logits.softmax(dim=-1)
            weights, chosen = probabilities.topk(moe.TOP, dim=-1, largest=False)  # here
            weights = weights / weights.sum(dim=-1, keepdim=True)
            return probabilities, weights, chosen

    moe.Router = Router


@fault("moe", module="layers.0.mixture", line="rows, places = (chosen == index)")
def experts_shifted(moe):
    """Tokens go to the neighbour of the chosen expert."""

    class Mixture(moe.Mixture):
        def mix(self, x, weights, chosen):
            return super().mix(x, weights, (chosen + 1) % moe.EXPERTS)  # here

    moe.Mixture = Mixture


@fault(
    "moe",
    module="layers.0.mixture",
    line="result = result.index_add(0, rows, part)",
    api=r"Tensor.index_(copy|add)",
)
def second_expert_overwrites(moe):
    """The result of a token's later expert replaces that of the first instead of being added."""

    class Mixture(moe.Mixture):
        def mix(self, x, weights, chosen):
            result = torch.zeros_like(x)
            for index, expert in enumerate(self.experts):
                rows, places = (chosen == index).nonzero(as_tuple=True)
                if len(rows):
                    part = expert(x[rows]) * weights[rows, places, None]
                    result = result.index_copy(0, rows, part)  # here
            return result

    moe.Mixture = Mixture


@fault("moe", module="layers.0.mixture", line="part = expert(x[rows]) * weights[rows")
def weight_of_the_first_place(moe):
    """Every expert is weighted as if it were the first choice."""

    class Mixture(moe.Mixture):
        def mix(self, x, weights, chosen):
            result = torch.zeros_like(x)
            for index, expert in enumerate(self.experts):
                rows, _ = (chosen == index).nonzero(as_tuple=True)
                if len(rows):
                    part = expert(x[rows]) * weights[rows, 0, None]  # here
                    result = result.index_add(0, rows, part)
            return result

    moe.Mixture = Mixture


@fault("moe", module=r"layers\.[01]\.mixture", line="return EXPERTS * (share")
def balance_not_scaled(moe):
    """The loss of balance lacks the number of experts."""

    def balance(probabilities, chosen):
        share = F.one_hot(chosen, moe.EXPERTS).float().mean(dim=(0, 1))
        return (share * probabilities.mean(dim=0)).sum()  # here

    moe.balance = balance


@fault("moe", line="return value + BALANCE * extra")
def balance_forgotten(moe):
    """The loss of balance is not added."""

    def loss(model, tokens):
        logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())  # here

    moe.loss = loss


@fault(
    "moe",
    api=r"Functional.pad",
    module="layers.0",
    line="past = F.pad(",
    module_only=r"layers.0(.lookback)?",
)
def lookback_sees_the_future(moe):
    """The convolution is padded at both sides: it sees the next token."""

    class Layer(moe.Layer):
        def forward(self, x):
            past = F.pad(self.norm1(x).transpose(1, 2), (1, 1))  # here
            x = x + self.lookback(past).transpose(1, 2)
            return x + self.mixture(self.norm2(x))

    moe.Layer = Layer


@fault("moe", module=r"layers.0.mixture.experts.3.up", api="Functional.linear")
def expert_transposed(moe):
    """The second matrix of expert 3 was loaded with two columns exchanged."""

    right = moe.build

    def build():
        model = right()
        weight = model.layers[0].mixture.experts[3].up.weight.data
        weight[:, [0, 1]] = weight[:, [1, 0]]
        return model

    moe.build = build


@harmless("experts", "moe")
def experts_batched(moe):
    """All experts compute all tokens by batched products; a sparse matrix of weights mixes them."""

    class Mixture(moe.Mixture):
        def mix(self, x, weights, chosen):
            up = torch.stack([e.up.weight for e in self.experts])
            down = torch.stack([e.down.weight for e in self.experts])
            first = torch.stack([e.up.bias for e in self.experts])[:, None]
            last = torch.stack([e.down.bias for e in self.experts])[:, None]
            every = torch.baddbmm(first, x.expand(moe.EXPERTS, *x.shape), up.transpose(1, 2))
            every = torch.baddbmm(last, F.relu(every), down.transpose(1, 2))
            share = torch.zeros(len(x), moe.EXPERTS).scatter(1, chosen, weights)
            return torch.einsum("ne,enw->nw", share, every)

    moe.Mixture = Mixture


@harmless("experts", "moe")
def experts_by_sorting(moe):
    """Tokens are sorted by expert, split, and put back."""

    class Mixture(moe.Mixture):
        def mix(self, x, weights, chosen):
            order = chosen.flatten().argsort(stable=True)
            counts = torch.bincount(chosen.flatten(), minlength=moe.EXPERTS).tolist()
            parts = x[order // moe.TOP].split(counts)
            done = [e(p) for e, p in zip(self.experts, parts, strict=True) if len(p)]
            back = torch.empty_like(order)
            back[order] = torch.arange(len(order))
            done = torch.cat(done)[back].view(*chosen.shape, -1)
            return (done * weights[..., None]).sum(dim=1)

    moe.Mixture = Mixture


@harmless("reordered", "moe")
def experts_backwards(moe):
    """The experts run in the opposite order."""

    class Mixture(moe.Mixture):
        def mix(self, x, weights, chosen):
            result = torch.zeros_like(x)
            for index in reversed(range(moe.EXPERTS)):
                rows, places = (chosen == index).nonzero(as_tuple=True)
                if len(rows):
                    part = self.experts[index](x[rows]) * weights[rows, places, None]
                    result = result.index_add(0, rows, part)
            return result

    moe.Mixture = Mixture


@harmless("fused", "moe")
def normalised_by_softmax(moe):
    """The weights of the chosen experts by a softmax over their logits."""

    class Router(moe.Router):
        def forward(self, x):
            logits = F.linear(x, self.weight)
            best, chosen = logits.topk(moe.TOP, dim=-1)
            return logits.softmax(dim=-1), best.softmax(dim=-1), chosen

    moe.Router = Router


@harmless("loss", "moe")
def losses_apart(moe):
    """The losses go backward one after the other."""

    def loss(model, tokens):
        logits = model(tokens[:, :-1])
        value = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        return [value, *(moe.BALANCE * layer.mixture.balance for layer in model.layers)]

    moe.loss = loss
    moe.backward = lambda parts: torch.autograd.backward(parts)


@harmless("renamed", "moe")
def expert_is_a_sequence(moe):
    """An expert is a Sequential with a module for the activation."""

    class Expert(nn.Sequential):
        def __init__(self):
            up, down = nn.Linear(moe.WIDTH, 2 * moe.WIDTH), nn.Linear(2 * moe.WIDTH, moe.WIDTH)
            super().__init__(up, nn.ReLU(), down)

    moe.Expert = Expert
