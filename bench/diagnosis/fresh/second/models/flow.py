"""A normalizing flow of couplings and invertible convolutions, trained by SAM with RAdam inside."""

import math

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, SIZE, HIDDEN, FLOWS, BATCH = 2, 4, 12, 2, 6
LEVELS, RADIUS = 32, 0.05


def squeeze(x):
    """Each square of four pixels becomes four channels."""
    b, c, h, w = x.shape
    x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 1, 3, 5, 2, 4)
    return x.reshape(b, 4 * c, h // 2, w // 2)


class ActNorm(nn.Module):
    """Scale and shift of channels; the first batch initialises them."""

    def __init__(self, channels):
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.log_scale = nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("ready", torch.tensor(False))

    @torch.no_grad()
    def initialise(self, x):
        deviation = x.std(dim=(0, 2, 3), keepdim=True, unbiased=False)
        self.shift.copy_(-x.mean(dim=(0, 2, 3), keepdim=True))
        self.log_scale.copy_(-torch.log(deviation + 1e-6))
        self.ready.fill_(True)

    def forward(self, x):
        if not self.ready:
            self.initialise(x)
        y = (x + self.shift) * self.log_scale.exp()
        pixels = x.shape[2] * x.shape[3]
        return y, pixels * self.log_scale.sum()


class Mixing(nn.Module):
    """An invertible convolution of one pixel, as a product of triangles."""

    def __init__(self, channels):
        super().__init__()
        whole = torch.linalg.qr(torch.randn(channels, channels))[0]
        order, lower, upper = torch.linalg.lu(whole)
        self.register_buffer("order", order)
        self.register_buffer("sign", upper.diagonal().sign())
        self.lower = nn.Parameter(lower.tril(-1))
        self.upper = nn.Parameter(upper.triu(1))
        self.log_diagonal = nn.Parameter(upper.diagonal().abs().log())

    def matrix(self):
        lower = self.lower.tril(-1) + torch.eye(len(self.order))
        upper = self.upper.triu(1) + torch.diag(self.sign * self.log_diagonal.exp())
        return self.order @ lower @ upper

    def forward(self, x):
        y = F.conv2d(x, self.matrix()[:, :, None, None])
        return y, x.shape[2] * x.shape[3] * self.log_diagonal.sum()


class Coupling(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = nn.Conv2d(channels // 2, HIDDEN, 3, padding=1)
        self.last = nn.Conv2d(HIDDEN, channels, 3, padding=1)
        nn.init.normal_(self.last.weight, std=0.05)

    def forward(self, x):
        kept, changed = x.chunk(2, dim=1)
        log_scale, shift = self.last(F.relu(self.first(kept))).chunk(2, dim=1)
        log_scale = 2 * torch.tanh(log_scale / 2)
        changed = changed * log_scale.exp() + shift
        return torch.cat([kept, changed], dim=1), log_scale.sum(dim=(1, 2, 3))


class Flow(nn.Module):
    def __init__(self):
        super().__init__()
        channels = 4 * CHANNELS
        self.steps = nn.ModuleList(
            part
            for _ in range(FLOWS)
            for part in (ActNorm(channels), Mixing(channels), Coupling(channels))
        )
        self.mean = nn.Parameter(torch.zeros(channels))
        self.log_std = nn.Parameter(torch.zeros(channels))

    def log_prior(self, z):
        mean, log_std = self.mean[:, None, None], self.log_std[:, None, None]
        value = -0.5 * ((z - mean) * torch.exp(-log_std)).square() - log_std
        return (value - 0.5 * math.log(2 * math.pi)).sum(dim=(1, 2, 3))

    def forward(self, x):
        z, log_det = squeeze(x), x.new_zeros(len(x))
        for part in self.steps:
            z, more = part(z)
            log_det = log_det + more
        return self.log_prior(z) + log_det


def bits(log_p, x):
    """The negative logarithm as bits of a value, which has LEVELS levels."""
    values = x[0].numel()
    return (-log_p / values + math.log(LEVELS)) / math.log(2)


def prepared(pictures, noise):
    """Levels become values around zero; the noise fills the space between."""
    return (pictures + noise) / LEVELS - 0.5


def loss_of(model, pictures, noise):
    x = prepared(pictures, noise)
    return bits(model(x), x).mean()


class SAM:
    """The gradient at the worst point nearby moves the weights."""

    def __init__(self, weights, inside, radius):
        self.weights, self.inside, self.radius = list(weights), inside, radius

    @torch.no_grad()
    def climb(self):
        norm = torch.stack([w.grad.norm() for w in self.weights]).norm()
        self.moves = [self.radius / (norm + 1e-12) * w.grad for w in self.weights]
        for weight, move in zip(self.weights, self.moves, strict=True):
            weight.add_(move)

    @torch.no_grad()
    def back(self):
        for weight, move in zip(self.weights, self.moves, strict=True):
            weight.sub_(move)


def build():
    return Flow()


def optimizer(model):
    inside = torch.optim.RAdam(model.parameters(), lr=2e-3, betas=(0.9, 0.99))
    model.sam = SAM(model.parameters(), inside, RADIUS)
    return inside


def batch(generator):
    pictures = torch.randint(0, LEVELS, (BATCH, CHANNELS, SIZE, SIZE), generator=generator)
    return pictures, torch.rand(BATCH, CHANNELS, SIZE, SIZE, generator=generator)


def gradients(model, pictures, noise):
    model.zero_grad()
    loss_of(model, pictures, noise).backward()


def step(model, optimizer, batch):
    gradients(model, *batch)
    model.sam.climb()
    gradients(model, *batch)
    model.sam.back()
    optimizer.step()
