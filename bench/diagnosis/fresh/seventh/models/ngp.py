"""A radiance field of hashed grids: packed samples, an occupancy grid, a scaled loss, EMA."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

RAYS, SAMPLES, NEAR, FAR, GRID = 10, 12, 0.2, 2.2, 6
LEVELS, TABLE, FEATURES, COARSEST, GROWTH = 3, 64, 2, 3, 1.7
GEOMETRY, HIDDEN = 6, 12
GRID_DECAY, GRID_MOST, OPACITY_WEIGHT, DISTORTION_WEIGHT = 0.8, 4.0, 0.05, 0.3
LR, LR_DECAY, MAX_NORM, EMA_DECAY = 0.02, 0.8, 2.0, 0.6
FIRST_SCALE, SCALE_INTERVAL = 256.0, 2
PRIMES = (1, 2654435761, 805459861)


class TruncExp(torch.autograd.Function):
    """exp, whose gradient does not explode."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.exp(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * torch.exp(x.clamp(max=2.0))


def hashed(corner):
    """Places in the table, of whole coordinates."""
    value = corner[..., 0] * PRIMES[0]
    value = torch.bitwise_xor(value, corner[..., 1] * PRIMES[1])
    return torch.bitwise_xor(value, corner[..., 2] * PRIMES[2]) % TABLE


def interpolate(values, part):
    """Values of the eight corners, (N, 8, F), at the parts of the way, (N, 3)."""
    x, y, z = part[:, None].unbind(dim=-1)
    low, high = values[:, :4], values[:, 4:]
    face = low * (1 - x)[..., None] + high * x[..., None]
    edge = face[:, :2] * (1 - y)[..., None] + face[:, 2:] * y[..., None]
    return edge[:, 0] * (1 - z) + edge[:, 1] * z


class HashGrid(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.rand(LEVELS, TABLE, FEATURES) - 0.5)
        bits = torch.arange(8)
        self.register_buffer("corners", torch.stack([bits // 4, bits // 2 % 2, bits % 2], dim=1))

    def forward(self, x):
        """Of points in the cube from -1 to 1."""
        found = []
        for level in range(LEVELS):
            place = (x + 1) / 2 * int(COARSEST * GROWTH**level)
            low = place.floor()
            index = hashed(low.long()[:, None] + self.corners)
            found.append(interpolate(self.table[level][index], place - low))
        return torch.cat(found, dim=-1)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoding = HashGrid()
        self.sigma_net = nn.Sequential(
            nn.Linear(LEVELS * FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1 + GEOMETRY)
        )
        self.color_net = nn.Sequential(
            nn.Linear(GEOMETRY + 4, HIDDEN), nn.ReLU(inplace=True), nn.Linear(HIDDEN, 3)
        )

    def density(self, x):
        hidden = self.sigma_net(self.encoding(x))
        return TruncExp.apply(hidden[:, 0]), hidden[:, 1:]

    def forward(self, x, direction):
        sigma, geometry = self.density(x)
        harmonics = torch.cat([torch.ones_like(direction[:, :1]), direction], dim=-1)
        color = self.color_net(torch.cat([geometry, harmonics], dim=-1))
        return sigma, torch.sigmoid(color)


class Radiance(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = Field()
        self.register_buffer("grid", torch.full((GRID**3,), 0.5))
        self.register_buffer("occupied", torch.ones(GRID**3, dtype=torch.bool))
        self.scale, self.good_steps = FIRST_SCALE, 0
        self.ema_field = copy.deepcopy(self.field).requires_grad_(False)


def cells(x):
    """The cell of the grid of each point; points outside are in that of the border."""
    index = ((x + 1) / 2 * GRID).long().clamp(0, GRID - 1)
    return (index[:, 0] * GRID + index[:, 1]) * GRID + index[:, 2]


def centres(jitter):
    """A point in each cell."""
    index = torch.arange(GRID)
    index = torch.cartesian_prod(index, index, index)
    return (index + jitter) / GRID * 2 - 1


@torch.no_grad()
def update_grid(model, jitter):
    """The largest density of late in each cell; cells below the mean are empty."""
    sigma, _ = model.field.density(centres(jitter))
    model.grid.mul_(GRID_DECAY)
    torch.maximum(model.grid, sigma, out=model.grid)
    model.occupied.copy_(model.grid > model.grid.mean().clamp(max=GRID_MOST))


def march(model, origins, directions, jitter):
    """The samples of all rays, without those in empty cells: packed, with the ray of each."""
    edges = torch.linspace(NEAR, FAR, SAMPLES + 1)
    length = edges[1:] - edges[:-1]
    t = edges[:-1] + length * jitter
    x = origins[:, None] + t[..., None] * directions[:, None]
    keep = model.occupied[cells(x.flatten(0, 1))].view_as(t) & (x.abs().amax(dim=-1) < 1)
    ray = torch.arange(len(t))[:, None].expand_as(t)[keep]
    return x[keep], ray, t[keep], length.expand_as(t)[keep]


def sum_before(values, ray, count):
    """Of the samples of the same ray that stand before each one."""
    before = torch.cumsum(values, dim=0) - values
    total = torch.zeros(count, dtype=values.dtype).index_add(0, ray, values)
    return before - (torch.cumsum(total, dim=0) - total)[ray]


def weights_of(sigma, length, ray, count):
    depth = sigma * length
    return torch.exp(-sum_before(depth, ray, count)) * (1 - torch.exp(-depth))


def composite(weights, values, ray, count):
    return torch.zeros(count, values.shape[1], dtype=values.dtype).index_add(
        0, ray, weights[:, None] * values
    )


def distortion(weights, t, length, ray, count):
    """How far the weights of a ray lie apart."""
    w_before = sum_before(weights, ray, count)
    wt_before = sum_before(weights * t, ray, count)
    between = 2 * weights * (t * w_before - wt_before)
    return (between + weights.square() * length / 3).sum() / count


def opacity_entropy(opacity):
    opacity = opacity.clamp(1e-5, 1 - 1e-5)
    return -(opacity * opacity.log() + (1 - opacity) * torch.log1p(-opacity))


def render(model, field, batch):
    origins, directions = batch["origins"], batch["directions"]
    count = len(origins)
    x, ray, t, length = march(model, origins, directions, batch["jitter"])
    sigma, color = field(x, directions[ray])
    weights = weights_of(sigma, length, ray, count)
    opacity = composite(weights, torch.ones_like(t)[:, None], ray, count)
    pixel = composite(weights, color, ray, count)
    return pixel, opacity, distortion(weights, t, length, ray, count)


def with_background(color, opacity, background):
    return color + (1 - opacity) * background


def target_of(batch):
    rgba = batch["rgba"]
    return rgba[:, :3] * rgba[:, 3:] + batch["background"] * (1 - rgba[:, 3:])


def loss_of(model, batch):
    color, opacity, spread = render(model, model.field, batch)
    pixel = with_background(color, opacity, batch["background"])
    loss = F.huber_loss(pixel, target_of(batch), delta=0.1)
    loss = loss + OPACITY_WEIGHT * opacity_entropy(opacity).mean()
    return loss + DISTORTION_WEIGHT * spread


def backward(model, batch):
    (loss_of(model, batch) * model.scale).backward()


def unscale(model):
    """Whether all gradients are finite."""
    grads = [p.grad for p in model.field.parameters()]
    torch._foreach_mul_(grads, 1 / model.scale)
    return bool(torch.stack([g.isfinite().all() for g in grads]).all())


def update_scale(model, finite):
    if not finite:
        model.scale, model.good_steps = model.scale / 2, 0
        return
    model.good_steps += 1
    if model.good_steps == SCALE_INTERVAL:
        model.scale, model.good_steps = model.scale * 2, 0


@torch.no_grad()
def update_ema(model):
    averaged, weights = list(model.ema_field.parameters()), list(model.field.parameters())
    torch._foreach_mul_(averaged, EMA_DECAY)
    torch._foreach_add_(averaged, weights, alpha=1 - EMA_DECAY)


@torch.no_grad()
def validate(model, batch):
    """The error of the averaged weights, of the first rays."""
    few = {name: value[:4] for name, value in batch.items() if name != "cells"}
    color, opacity, _ = render(model, model.ema_field, few)
    pixel = with_background(color, opacity, few["background"])
    model.error = F.mse_loss(pixel, target_of(few)).item()


def build():
    return Radiance()


def param_groups(model):
    nets = [*model.field.sigma_net.parameters(), *model.field.color_net.parameters()]
    return [
        {"params": [model.field.encoding.table], "weight_decay": 0.0},
        {"params": nets, "weight_decay": 1e-2},
    ]


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), lr=LR, betas=(0.9, 0.99), eps=1e-8, **more)
    model.scheduler = torch.optim.lr_scheduler.ExponentialLR(made, LR_DECAY)
    return made


def batch(generator):
    """Rays from a sphere to points near the middle; the colors of a soft ball."""
    draw = torch.randn(2, RAYS, 3, generator=generator)
    origins = F.normalize(draw[0], dim=-1) * 1.2
    directions = F.normalize(0.3 * draw[1] - origins, dim=-1)
    nearest = torch.linalg.cross(origins, directions).norm(dim=-1, keepdim=True)
    color = torch.sigmoid(2 * torch.sin(3 * origins + directions))
    return {
        "origins": origins,
        "directions": directions,
        "rgba": torch.cat([color, torch.sigmoid(8 * (0.5 - nearest))], dim=-1),
        "background": torch.rand(RAYS, 3, generator=generator),
        "jitter": torch.rand(RAYS, SAMPLES, generator=generator),
        "cells": torch.rand(GRID**3, 3, generator=generator),
    }


def step(model, optimizer, batch):
    update_grid(model, batch["cells"])
    optimizer.zero_grad()
    backward(model, batch)
    finite = unscale(model)
    nn.utils.clip_grad_norm_(model.field.parameters(), MAX_NORM)
    if finite:
        optimizer.step()
    update_scale(model, finite)
    model.scheduler.step()
    update_ema(model)
    validate(model, batch)
