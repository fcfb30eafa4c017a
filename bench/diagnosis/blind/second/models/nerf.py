"""A radiance field: coarse and fine samples on rays, composed to colours, trained by Lion."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, RAYS, COARSE, FINE = 24, 12, 8, 6
NEAR, FAR, LAST = 0.5, 3.0, 10.0
OF_PLACES, OF_VIEWS = 4, 2  # frequencies
PLACE, VIEW = 3 + 6 * OF_PLACES, 3 + 6 * OF_VIEWS
RATE, RATE_DECAY, DECAY = 1e-3, 0.9, 0.01
FAINT = 1e-4


def encoded(x, count):
    """x, and its sines and cosines at doubled frequencies."""
    frequencies = 2.0 ** torch.arange(count) * math.pi
    angles = (x[..., None, :] * frequencies[:, None]).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], dim=-1)


class Field(nn.Module):
    """Density and colour of places; the places come in again after the first layers."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(PLACE, WIDTH)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.again = nn.Linear(PLACE + WIDTH, WIDTH)
        self.density = nn.Linear(WIDTH, 1)
        self.bottle = nn.Linear(WIDTH, WIDTH)
        self.view = nn.Linear(WIDTH + VIEW, WIDTH // 2)
        self.colour = nn.Linear(WIDTH // 2, 3)

    def come_again(self, places, x):
        return self.again(torch.cat([places, x], dim=-1))

    def forward(self, places, views):
        places = encoded(places, OF_PLACES)
        x = F.relu(self.first(F.relu(self.enter(places))))
        x = F.relu(self.come_again(places, x))
        density = F.softplus(self.density(x)[..., 0] - 1)
        views = encoded(views, OF_VIEWS)[:, None].expand(-1, x.shape[1], -1)
        x = F.relu(self.view(torch.cat([self.bottle(x), views], dim=-1)))
        return density, self.colour(x).sigmoid()


class Fields(nn.Module):
    def __init__(self):
        super().__init__()
        self.coarse, self.fine = Field(), Field()

    def forward(self, origins, directions, noise, finer_noise):
        """Both pictures of the rays: the fine one has the coarse samples, too."""
        depths = depths_of(noise)
        rough, weights = render(self.coarse, origins, directions, depths)
        more = finer(depths, weights, finer_noise)
        sharp, _ = render(self.fine, origins, directions, joined(depths, more))
        return rough, sharp


def depths_of(noise):
    """One depth in each of as many equal parts of the ray."""
    return NEAR + (FAR - NEAR) * (torch.arange(COARSE) + noise) / COARSE


def clear_of(thickness):
    """The share of the light that reaches each sample: it passes those before it."""
    passed = torch.cumprod(torch.exp(-thickness), dim=-1)
    return torch.cat([torch.ones_like(passed[:, :1]), passed[:, :-1]], dim=-1)


def weights_of(density, depths, directions):
    gaps = torch.cat([depths.diff(dim=-1), torch.full_like(depths[:, :1], LAST)], dim=-1)
    thickness = density * gaps * directions.norm(dim=-1, keepdim=True)
    return (1 - torch.exp(-thickness)) * clear_of(thickness)


def render(field, origins, directions, depths):
    places = origins[:, None] + directions[:, None] * depths[..., None]
    density, colours = field(places, F.normalize(directions, dim=-1))
    weights = weights_of(density, depths, directions)
    picture = (weights[..., None] * colours).sum(dim=1)
    return picture + (1 - weights.sum(dim=-1, keepdim=True)), weights  # before white


def finer(depths, weights, noise):
    """Depths by the inverse of the distribution that the weights are; no gradient goes through."""
    weights = weights[:, 1:-1].detach() + FAINT
    share = weights / weights.sum(dim=-1, keepdim=True)
    below = torch.cat([torch.zeros_like(share[:, :1]), share.cumsum(dim=-1)], dim=-1)
    edges = (depths[:, 1:] + depths[:, :-1]) / 2
    index = torch.searchsorted(below, noise.contiguous(), right=True).clamp(1, share.shape[1]) - 1
    start, width = below.gather(1, index), share.gather(1, index)
    low, high = edges.gather(1, index), edges.gather(1, index + 1)
    return low + (noise - start) / width * (high - low)


def joined(depths, more):
    return torch.cat([depths, more], dim=-1).sort(dim=-1).values


class Lion(torch.optim.Optimizer):
    """The sign of momentum and gradient; the decay is decoupled."""

    def __init__(self, weights, lr, betas=(0.9, 0.99), decay=0.0):
        super().__init__(weights, {"lr": lr, "betas": betas, "decay": decay})

    def direction(self, gradient, momentum, betas):
        return torch.lerp(gradient, momentum, betas[0]).sign()

    def follow(self, gradient, momentum, betas):
        momentum.lerp_(gradient, 1 - betas[1])

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                move = self.direction(weight.grad, state["momentum"], group["betas"])
                weight.mul_(1 - group["lr"] * group["decay"]).add_(move, alpha=-group["lr"])
                self.follow(weight.grad, state["momentum"], group["betas"])


def build():
    return Fields()


def optimizer(model):
    made = Lion(model.parameters(), RATE, decay=DECAY)
    model.schedule = torch.optim.lr_scheduler.ExponentialLR(made, RATE_DECAY)
    return made


def batch(generator):
    dtype = torch.get_default_dtype()
    origins = torch.randn(RAYS, 3, generator=generator).to(dtype) * 0.3
    directions = torch.randn(RAYS, 3, generator=generator).to(dtype)
    noise = torch.rand(RAYS, COARSE, generator=generator).to(dtype)
    finer_noise = torch.rand(RAYS, FINE, generator=generator).to(dtype)
    return (
        origins,
        directions,
        noise,
        finer_noise,
        torch.rand(RAYS, 3, generator=generator).to(dtype),
    )


def loss_of(rough, sharp, colours):
    return F.mse_loss(sharp, colours) + F.mse_loss(rough, colours)


def descend(model, *rays):
    *rays, colours = rays
    loss_of(*model(*rays), colours).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    optimizer.step()
    model.schedule.step()
