"""A diffusion transformer: adaptive norms, a cosine schedule, velocities, an average of weights."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, PATCH, EXTENT, CHANNELS, BATCH, CLASSES = 32, 4, 2, 8, 2, 4, 5
SIZE, PLACES = WIDTH // HEADS, (EXTENT // PATCH) ** 2
TIMES, GAMMA, DECAY, LR = 100, 5.0, 0.95, 2e-3


def kept(times):
    """The share of the signal of a time, by a cosine."""
    angle = (times.to(torch.get_default_dtype()) / TIMES + 0.008) / 1.008 * math.pi / 2
    return angle.cos().square().clamp(1e-4, 0.9999)


def noisy(pictures, noise, share):
    share = share[:, None, None, None]
    return share.sqrt() * pictures + (1 - share).sqrt() * noise


def velocity(pictures, noise, share):
    share = share[:, None, None, None]
    return share.sqrt() * noise - (1 - share).sqrt() * pictures


def weight_of(share):
    """Weights of the times by their ratio of signal to noise, at most GAMMA (min-SNR)."""
    ratio = share / (1 - share)
    return ratio.clamp(max=GAMMA) / (ratio + 1)


def waves(times):
    half = WIDTH // 2
    steps = torch.exp(-math.log(10000) * torch.arange(half) / half)
    angles = times[:, None].to(steps.dtype) * steps
    return torch.cat([angles.cos(), angles.sin()], dim=-1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.adapt = nn.Linear(WIDTH, 6 * WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)

    def norm(self, x, shift, scale):
        return F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale[:, None]) + shift[:, None]

    def attend(self, x):
        q, k, v = self.qkv(x).view(*x.shape[:2], 3, HEADS, SIZE).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) * SIZE**-0.5).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))

    def feed(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))

    def forward(self, x, condition):
        parts = self.adapt(F.silu(condition)).chunk(6, dim=-1)
        x = x + parts[2][:, None] * self.attend(self.norm(x, parts[0], parts[1]))
        return x + parts[5][:, None] * self.feed(self.norm(x, parts[3], parts[4]))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv2d(CHANNELS, WIDTH, PATCH, stride=PATCH)
        self.places = nn.Parameter(torch.zeros(1, PLACES, WIDTH))
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.classes = nn.Embedding(CLASSES, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.leave = nn.Linear(WIDTH, CHANNELS * PATCH**2)

    def patches(self, x):
        return self.enter(x).flatten(2).transpose(1, 2) + self.places

    def pictures(self, x):
        side = EXTENT // PATCH
        x = self.leave(x).view(-1, side, side, PATCH, PATCH, CHANNELS)
        return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, CHANNELS, EXTENT, EXTENT)

    def forward(self, x, times, classes):
        condition = self.time(waves(times)) + self.classes(classes)
        x = self.patches(x)
        for block in self.blocks:
            x = block(x, condition)
        return self.pictures(x)


class Averaged(nn.Module):
    """The model, and the average of its weights, which the optimizer does not see."""

    def __init__(self):
        super().__init__()
        self.net = Transformer()

    def remember(self):
        self.names = [name for name, _ in self.net.named_parameters()]
        for name, parameter in self.net.named_parameters():
            self.register_buffer("ema_" + name.replace(".", "_"), parameter.detach().clone())

    def averages(self):
        return [self.get_buffer("ema_" + name.replace(".", "_")) for name in self.names]

    def follow(self):
        with torch.no_grad():
            for average, parameter in zip(self.averages(), self.net.parameters(), strict=True):
                average.mul_(DECAY).add_(parameter, alpha=1 - DECAY)

    def forward(self, x, times, classes):
        return self.net(x, times, classes)


def build():
    model = Averaged()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.15)
    model.remember()
    return model


def optimizer(model):
    return torch.optim.AdamW(model.net.parameters(), lr=LR)


def batch(generator):
    dtype = torch.get_default_dtype()
    pictures = torch.randn(BATCH, CHANNELS, EXTENT, EXTENT, generator=generator).to(dtype)
    noise = torch.randn(BATCH, CHANNELS, EXTENT, EXTENT, generator=generator).to(dtype)
    times = torch.randint(5, TIMES - 5, (BATCH,), generator=generator)
    return pictures, noise, times, torch.randint(CLASSES, (BATCH,), generator=generator)


def loss(predicted, wanted, share):
    each = (predicted - wanted).square().mean(dim=(1, 2, 3))
    return (weight_of(share) * each).mean()


def descend(model, batch):
    pictures, noise, times, classes = batch
    share = kept(times)
    predicted = model(noisy(pictures, noise, share), times, classes)
    loss(predicted, velocity(pictures, noise, share), share).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, batch)
    optimizer.step()
    model.follow()
