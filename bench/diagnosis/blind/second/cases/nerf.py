"""Cases of the radiance field."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

FIELD = r"(coarse|fine)"


def rays_in_three_parts(nerf):
    """A third of the rays goes backward at a time; each counts its share."""
    descend, loss_of = nerf.descend, nerf.loss_of
    nerf.loss_of = lambda *arguments: loss_of(*arguments) / 3

    def parts(model, *rays):
        for number in (2, 0, 1):
            descend(model, *(each[number::3] for each in rays))

    nerf.descend = parts


def fields_computed_again(nerf):
    """Fields are computed again in the backward pass; the loss is multiplied by 512, and gradients
    are divided."""
    descend, loss_of = nerf.descend, nerf.loss_of
    nerf.loss_of = lambda *arguments: loss_of(*arguments) * 512

    class Field(nerf.Field):
        def __call__(self, places, views):
            return checkpoint(super().__call__, places, views, use_reentrant=False)

    def unscaled(model, *rays):
        descend(model, *rays)
        torch._foreach_div_([parameter.grad for parameter in model.parameters()], 512)

    nerf.Field = Field
    nerf.descend = unscaled


@fault(
    "nerf",
    module_only=r"fine(\.enter)?|",
    line=[
        "return torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]]",
        "return (1 - torch.exp(-thickness)) * clear_of(thickness)",
    ],
)
def light_passes_the_sample_itself(nerf):
    """The light that reaches a sample has passed the sample itself: the product is not shifted."""
    nerf.clear_of = lambda thickness: torch.cumprod(torch.exp(-thickness), dim=-1)  # here


@fault(
    "nerf",
    module_only=r"coarse(\.density)?|",
    line=[
        "weights = weights[:, 1:-1].detach() + FAINT",
        "return (1 - torch.exp(-thickness)) * clear_of(thickness)",
    ],
)
def samples_not_detached(nerf):
    """The gradient of the fine picture goes through the depths of its samples into the coarse
    field."""

    def finer(depths, weights, noise):
        weights = weights[:, 1:-1] + nerf.FAINT  # here
        share = weights / weights.sum(dim=-1, keepdim=True)  # here
        below = torch.cat([torch.zeros_like(share[:, :1]), share.cumsum(dim=-1)], dim=-1)  # here
        edges = (depths[:, 1:] + depths[:, :-1]) / 2
        index = torch.searchsorted(below.detach(), noise.contiguous(), right=True)
        index = index.clamp(1, share.shape[1]) - 1
        start, width = below.gather(1, index), share.gather(1, index)  # here
        low, high = edges.gather(1, index), edges.gather(1, index + 1)
        return low + (noise - start) / width * (high - low)  # here

    nerf.finer = finer


@fault(
    "nerf",
    steps=3,
    api="Optimizer.Lion.step",
    update=True,
    line=[
        "return torch.lerp(gradient, momentum, betas[0]).sign()",
        "momentum.lerp_(gradient, 1 - betas[1])",
    ],
)
def momentum_by_the_first_beta(nerf):
    """The momentum is kept with the beta of the direction; the second step shows it."""

    class Lion(nerf.Lion):
        def follow(self, gradient, momentum, betas):
            momentum.lerp_(gradient, 1 - betas[0])  # here

    nerf.Lion = Lion


@fault(
    "nerf",
    module=FIELD,
    module_only=FIELD + r"(\.enter)?",
    line=[
        "frequencies = 2.0 ** torch.arange(count) * math.pi",
        "angles = (x[..., None, :] * frequencies",
    ],
)
def frequencies_begin_with_two(nerf):
    """The frequencies begin one octave too high: at 2 pi, in place of pi."""

    def encoded(x, count):
        frequencies = 2.0 ** torch.arange(1, count + 1) * math.pi  # here
        angles = (x[..., None, :] * frequencies[:, None]).flatten(-2)  # here
        return torch.cat([x, angles.sin(), angles.cos()], dim=-1)

    nerf.encoded = encoded


@fault(
    "nerf",
    beside=rays_in_three_parts,
    module_only=r"fine(\.enter)?|",
    line=[
        "thickness = density * gaps * directions.norm(dim=-1, keepdim=True)",
        "return (1 - torch.exp(-thickness)) * clear_of(thickness)",
    ],
)
def gaps_of_directions_of_length_one(nerf):
    """Gaps are not multiplied by the length of the direction, which is not 1."""

    def weights_of(density, depths, directions):
        last = torch.full_like(depths[:, :1], nerf.LAST)
        gaps = torch.cat([depths.diff(dim=-1), last], dim=-1)
        thickness = density * gaps  # here
        return (1 - torch.exp(-thickness)) * nerf.clear_of(thickness)  # here

    nerf.weights_of = weights_of


@fault(
    "nerf",
    beside=fields_computed_again,
    module_only=r"fine(\.enter)?|",
    line="return torch.cat([depths, more], dim=-1).sort(dim=-1).values",
    api=r"Tensor\.sort|Torch\.cat",
)
def samples_not_sorted(nerf):
    """Coarse and fine samples of a ray are joined without an order: gaps become negative."""
    nerf.joined = lambda depths, more: torch.cat([depths, more], dim=-1)  # here


harmless("micro batches", "nerf")(rays_in_three_parts)
harmless("recomputed", "nerf")(fields_computed_again)


@harmless("loss", "nerf")
def light_by_a_sum(nerf):
    """What passes is the exponential of a sum, and not a product of exponentials."""

    def clear_of(thickness):
        return torch.exp(thickness - thickness.cumsum(dim=-1))

    def loss_of(rough, sharp, colours):
        both = torch.stack([rough, sharp]) - colours
        return both.square().sum() / colours.numel()

    nerf.clear_of = clear_of
    nerf.loss_of = loss_of


@harmless("split", "nerf")
def places_by_a_product_of_their_own(nerf):
    """The layer after the first ones is two products, of the places and of the features."""

    class Field(nerf.Field):
        def come_again(self, places, x):
            weight = self.again.weight
            own = F.linear(places, weight[:, : nerf.PLACE])
            return own + F.linear(x, weight[:, nerf.PLACE :], self.again.bias)

    nerf.Field = Field
