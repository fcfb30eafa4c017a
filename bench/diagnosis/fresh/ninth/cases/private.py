"""Cases of the private training."""

import torch
from case import fault, harmless
from torch.func import functional_call
from torch.nn import functional as F


@fault(
    "private",
    line=[
        "labels = label.expand(len(logits))",
        "return F.cross_entropy(logits, labels, label_smoothing=SMOOTHING)",
    ],
)
def views_averaged_before_the_loss(private):
    """The loss is that of the mean answer to the views, not the mean of their losses."""

    def entropy(logits, label):
        logits = logits.mean(dim=0, keepdim=True)  # here
        return F.cross_entropy(  # here
            logits, label.expand(1), label_smoothing=private.SMOOTHING
        )

    private.entropy = entropy


@fault(
    "private",
    line=[
        "self.first_norm = nn.GroupNorm(2, WIDTH)",
        "x = F.max_pool2d(torch.tanh(self.first_norm(self.first(pictures))), 2)",
    ],
    api=r"Module\.(.*\.)?first_norm\.GroupNorm|Functional\.group_norm|Torch\.group_norm",
    module=r"|((net|averaged)\.)?(first_norm)?",
)
def one_group_of_channels(private):
    """The first norm is over all channels, not over those of a group."""

    class Net(private.Net):
        def __init__(self):
            super().__init__()
            self.first_norm.num_groups = 1  # here

    private.Net = Net


@fault(
    "private",
    line=[
        "squares = [g.flatten(1).square().sum(dim=1) for g in gradients.values()]",
        "return torch.stack(squares).sum(dim=0).sqrt()",
    ],
)
def lengths_added(private):
    """The lengths of the gradients of all weights are added, not their squares."""

    def lengths(gradients):
        parts = [g.flatten(1).square().sum(dim=1).sqrt() for g in gradients.values()]  # here
        return torch.stack(parts).sum(dim=0)  # here

    private.lengths = lengths


@fault("private", line="return (bound / length.clamp_min(TINY)).clamp(max=1.0)")
def short_ones_grow(private):
    """All gradients get the length of the bound, shorter ones as well."""

    def factors(length, bound):
        return bound / length.clamp_min(private.TINY)  # here

    private.factors = factors


@fault("private", line="sums = clipped_sum(found, factors(length, model.bound) * drawn)")
def rows_that_were_not_drawn(private):
    """The gradients of rows that only fill the batch are in the sum."""

    def gather(model, data):
        pictures = private.views(data["pictures"], data["shifts"], data["mirror"])
        found, values = private.sample_gradients(model.net, pictures, data["labels"])
        length, drawn = private.lengths(found), data["drawn"]
        sums = private.clipped_sum(found, private.factors(length, model.bound))  # here
        short = ((length <= model.bound) * drawn).sum()
        return sums, short, (values * drawn).sum()

    private.gather = gather


@fault(
    "private",
    line=[
        "scale = noise_level(t) * bound",
        "return {name: each + scale * part.view_as(each) for (name, each), part in parts}",
    ],
)
def noise_without_the_bound(private):
    """The noise is not in units of the bound."""
    noised = private.noised

    def without(sums, bound, draw, t):
        return noised(sums, torch.ones_like(bound), draw, t)  # here

    private.noised = without


@fault("private", line="p.grad = sums[name] / EXPECTED")
def divided_by_those_drawn(private):
    """The sum is divided by the samples that were drawn, whose number is to be a secret."""

    def give(model, sums, data):
        sums = private.noised(sums, model.bound, data["noise"], model.updates)
        for name, p in model.net.named_parameters():
            p.grad = sums[name] / data["drawn"].sum()  # here

    private.give = give


@fault("private", line="model.bound.mul_(torch.exp(-BOUND_RATE * (share - QUANTILE)))")
def bound_runs_away(private):
    """The bound grows when fewer gradients than wanted are longer."""

    def adapt(model, short, draw):
        share = (short + private.COUNT_NOISE * draw) / private.EXPECTED
        model.bound.mul_(torch.exp(private.BOUND_RATE * (share - private.QUANTILE)))  # here

    private.adapt = adapt


@fault(
    "private",
    line=[
        "return min(KEPT, (1 + t) / (10 + t))",
        "decay = kept(model.updates)",
        "mean.mul_(decay).add_(p, alpha=1 - decay)",
    ],
)
def first_weights_remembered(private):
    """The average forgets the first weights as slowly as later ones."""
    private.kept = lambda t: private.KEPT  # here


@harmless("loss", "private")
def smoothing_written_out(private):
    """The smoothed entropy is one of two parts."""

    def entropy(logits, label):
        chances = logits.log_softmax(dim=-1)
        hot = torch.arange(private.CLASSES) == label
        right = (chances * hot).sum(dim=-1)
        smooth = private.SMOOTHING
        return -((1 - smooth) * right + smooth * chances.mean(dim=-1)).mean()

    private.entropy = entropy


@harmless("fused", "private")
def lengths_of_rows(private):
    """All gradients of a sample are one row."""

    def lengths(gradients):
        rows = torch.cat([g.reshape(len(g), -1) for g in gradients.values()], dim=1)
        return torch.linalg.vector_norm(rows, dim=1)

    private.lengths = lengths


@harmless("fused", "private")
def sums_by_products(private):
    """The clipped sum of a weight is one product of a vector and a matrix."""

    def clipped_sum(gradients, factor):
        return {n: (factor @ g.flatten(1)).view(g.shape[1:]) for n, g in gradients.items()}

    private.clipped_sum = clipped_sum


@harmless("split", "private")
def head_in_two_products(private):
    """The head is two products, of one half of the channels each."""

    class Net(private.Net):
        def classified(self, x):
            half = private.WIDTH // 2
            left = x[:, :half] @ self.head.weight[:, :half].t()
            return left + x[:, half:] @ self.head.weight[:, half:].t() + self.head.bias

    private.Net = Net


ROWS = ("pictures", "labels", "drawn", "shifts", "mirror")


def _rows(data, chosen):
    return {name: value[chosen] if name in ROWS else value for name, value in data.items()}


@harmless("rows", "private", group="whole step")
def rows_turned(private):
    """The rows stand in the opposite order."""
    gather = private.gather

    def turned(model, data):
        return gather(model, _rows(data, torch.arange(private.ROWS - 1, -1, -1)))

    private.gather = turned


@harmless("micro batches", "private", group="whole step")
def three_rows_and_five(private):
    """The sums of three rows and those of the other five are added."""
    gather = private.gather

    def in_parts(model, data):
        parts = [gather(model, _rows(data, c)) for c in (slice(0, 3), slice(3, None))]
        sums, short, losses = zip(*parts, strict=True)
        return {name: sums[0][name] + sums[1][name] for name in sums[0]}, sum(short), sum(losses)

    private.gather = in_parts


@harmless("micro batches", "private", group="whole step")
def a_backward_pass_for_each_sample(private):
    """There is no vmap: each sample has a forward and a backward pass."""

    def sample_gradients(net, pictures, labels):
        weights = dict(net.named_parameters())
        found, losses = [], []
        for x, y in zip(pictures, labels, strict=True):
            loss = private.entropy(functional_call(net, weights, (x,)), y)
            found.append(torch.autograd.grad(loss, list(weights.values())))
            losses.append(loss.detach())
        stacked = [torch.stack(each) for each in zip(*found, strict=True)]
        return dict(zip(weights, stacked, strict=True)), torch.stack(losses)

    private.sample_gradients = sample_gradients


@harmless("padding", "private", group="whole step")
def two_more_rows(private):
    """Two more rows, which were not drawn, fill the batch."""
    gather = private.gather

    def filled(model, data):
        more = {name: torch.cat([data[name], data[name][:2]]) for name in ROWS}
        more["drawn"] = F.pad(data["drawn"], (0, 2))
        return gather(model, data | more)

    private.gather = filled


@harmless("scaled", "private", group="whole step")
def losses_scaled(private):
    """The loss of a sample is scaled, as for float16, and its gradient unscaled."""
    sample_loss, sample_gradients = private.sample_loss, private.sample_gradients
    private.sample_loss = lambda *inputs: sample_loss(*inputs) * 512.0

    def unscaled(net, pictures, labels):
        found, losses = sample_gradients(net, pictures, labels)
        return {name: g / 512.0 for name, g in found.items()}, losses / 512.0

    private.sample_gradients = unscaled
