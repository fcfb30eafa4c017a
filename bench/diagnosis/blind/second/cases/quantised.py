"""Cases of the training that is aware of quantisation."""

import torch
from case import fault, harmless
from torch.nn import functional as F

LAST = r"student(\.head)?|"


def pictures_turned_round(quantised):
    """The rows of the batch are in another order."""
    descend = quantised.descend
    order = torch.tensor([5, 0, 7, 2, 6, 1, 4, 3])
    quantised.descend = lambda model, x, labels: descend(model, x[order], labels[order])


def losses_scaled_apart(quantised):
    """Both losses are multiplied by 256 and go backward one after the other; gradients are
    divided before the step."""

    def descend(model, pictures, labels):
        logits = model.student(pictures)
        with torch.no_grad():
            teacher = model.teacher(pictures)
        hard = (1 - quantised.TAUGHT) * F.cross_entropy(logits, labels)
        (256 * hard).backward(retain_graph=True)
        (256 * quantised.TAUGHT * quantised.taught(logits, teacher)).backward()
        for parameter in model.student.parameters():
            parameter.grad.mul_(1 / 256)

    quantised.descend = descend


@fault(
    "quantised",
    module=r"student\.layers\.0",
    module_only=r"student\.layers\.0(\.norm)?",
    line=[
        "scale = weight.detach().abs().amax(dim=tuple(range(1, weight.dim()))",
        "return quantised(weight, scale, 0, -most, most)",
    ],
)
def one_scale_for_all_channels(quantised):
    """The weight has one scale, in place of one for each output channel."""

    def coarse_weight(weight):
        most = 2 ** (quantised.BITS - 1) - 1
        scale = weight.detach().abs().amax() / most  # here
        return quantised.quantised(weight, scale, 0, -most, most)  # here

    quantised.coarse_weight = coarse_weight


@fault(
    "quantised",
    module=r"student\.enter",
    line=[
        "return scale, (-self.low / scale).round()",
        "whole = (rounded(x / scale) + zero).clamp(low, high)",
    ],
)
def zero_is_no_whole_number(quantised):
    """The number of zero is not rounded: zero is not on the grid."""

    class Observer(quantised.Observer):
        def grid(self):
            scale = (self.high - self.low) / quantised.LEVELS
            return scale, -self.low / scale  # here

    quantised.Observer = Observer


@fault(
    "quantised",
    module=r"student\.layers\.2\.observer",
    line=[
        "whole = (rounded(x / scale) + zero).clamp(low, high)",
        "return x + (x.round() - x).detach()",
        "return (whole - zero) * scale",
    ],
    api=r"Tensor\.(clamp|detach)",
)
def gradient_where_cut_off(quantised):
    """The gradient goes through where values are cut off, too: all of the grid is detached."""

    def on_grid(x, scale, zero, low, high):
        whole = ((x / scale).round() + zero).clamp(low, high)  # here
        return x + ((whole - zero) * scale - x).detach()  # here

    quantised.quantised = on_grid


@fault("quantised", module=r"teacher\.layers\.0\.norm", api="Functional.batch_norm")
def teacher_in_training(quantised):
    """The teacher is in training mode: its norms take the batch, and follow it."""

    class Pair(quantised.Pair):
        def settle(self):
            self.teacher.train()

    quantised.Pair = Pair


@fault(
    "quantised",
    beside=pictures_turned_round,
    module=r"student\.enter",
    line=["    self.follow(x)", "return quantised(x, *self.grid(), 0, LEVELS)"],
    api=r"Tensor\.(lerp_|__sub__|__truediv__|__neg__|round)|Torch\.quantile",
)
def ends_of_the_step_before(quantised):
    """The grid is made before its ends follow the batch: it is a step late."""

    class Observer(quantised.Observer):
        def forward(self, x):
            x, seen = quantised.quantised(x, *self.grid(), 0, quantised.LEVELS), x  # here
            self.follow(seen)  # here
            return x

    quantised.Observer = Observer


@fault(
    "quantised",
    beside=losses_scaled_apart,
    module_only=LAST,
    line=["return (wanted * (wanted.log() - own)).sum(dim=-1).mean() * HEAT**2"],
)
def square_of_the_heat_forgotten(quantised):
    """The divergence is not multiplied by the square of the heat."""

    def taught(logits, teacher):
        wanted = (teacher / quantised.HEAT).softmax(dim=-1)
        own = (logits / quantised.HEAT).log_softmax(dim=-1)
        return (wanted * (wanted.log() - own)).sum(dim=-1).mean()  # here

    quantised.taught = taught


harmless("rows", "quantised")(pictures_turned_round)
harmless("scaled", "quantised")(losses_scaled_apart)


@harmless("fused", "quantised")
def grids_of_pytorch(quantised):
    """The grids are PyTorch's: one operation for a tensor, another one for channels."""

    class Observer(quantised.Observer):
        def forward(self, x):
            self.follow(x)
            scale, zero = self.grid()
            return torch.fake_quantize_per_tensor_affine(
                x, scale.item(), int(zero), 0, quantised.LEVELS
            )

    def coarse_weight(weight):
        most = 2 ** (quantised.BITS - 1) - 1
        scale = weight.detach().flatten(1).abs().amax(dim=1) / most
        zeros = torch.zeros(len(scale), dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(weight, scale, zeros, 0, -most, most)

    quantised.Observer = Observer
    quantised.coarse_weight = coarse_weight


@harmless("loss", "quantised")
def divergence_of_pytorch(quantised):
    """The divergence by kl_div of logarithms, the entropy by nll_loss."""

    def taught(logits, teacher):
        own, wanted = (F.log_softmax(each / quantised.HEAT, -1) for each in (logits, teacher))
        each = F.kl_div(own, wanted, reduction="batchmean", log_target=True)
        return quantised.HEAT * quantised.HEAT * each

    def loss_of(logits, teacher, labels):
        hard = F.nll_loss(F.log_softmax(logits, dim=-1), labels)
        return hard + quantised.TAUGHT * (taught(logits, teacher) - hard)

    quantised.taught = taught
    quantised.loss_of = loss_of
