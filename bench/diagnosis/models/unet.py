"""A diffusion model: noise of a schedule, a U-Net with time embeddings, the mean squared error."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, EXTENT, BATCH, TIMES, GROUPS = 16, 8, 3, 50, 4
DECAY = 0.9  # of the averaged weights


def alphas():
    betas = torch.linspace(1e-4, 0.2, TIMES)
    return torch.cumprod(1.0 - betas, dim=0)


def add_noise(pictures, noise, times):
    kept = alphas()[times][:, None, None, None]
    return kept.sqrt() * pictures + (1 - kept).sqrt() * noise


def embed_times(times):
    half = WIDTH // 2
    frequencies = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
    angles = times[:, None].float() * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class Block(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.norm1 = nn.GroupNorm(GROUPS, inner)
        self.conv1 = nn.Conv2d(inner, outer, 3, padding=1)
        self.time = nn.Linear(WIDTH, 2 * outer)
        self.norm2 = nn.GroupNorm(GROUPS, outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, padding=1)
        self.skip = nn.Conv2d(inner, outer, 1)

    def modulate(self, y, scale, shift):
        return y * (1 + scale[:, :, None, None]) + shift[:, :, None, None]

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x)))
        scale, shift = self.time(F.silu(time)).chunk(2, dim=1)
        y = self.modulate(self.norm2(y), scale, shift)
        return self.skip(x) + self.conv2(F.silu(y))


class Middle(nn.Module):
    """Attention of all places to all."""

    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(GROUPS, WIDTH)
        self.qkv = nn.Conv2d(WIDTH, 3 * WIDTH, 1)
        self.out = nn.Conv2d(WIDTH, WIDTH, 1)

    def attend(self, q, k, v):
        weights = torch.softmax(torch.bmm(q.transpose(1, 2), k) * WIDTH**-0.5, dim=-1)
        return torch.bmm(v, weights.transpose(1, 2))

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).flatten(2).chunk(3, dim=1)
        return x + self.out(self.attend(q, k, v).view(x.shape))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.time1 = nn.Linear(WIDTH, WIDTH)
        self.time2 = nn.Linear(WIDTH, WIDTH)
        self.enter = nn.Conv2d(2, WIDTH, 3, padding=1)
        self.down = Block(WIDTH, WIDTH)
        self.middle = Middle()
        self.up = Block(2 * WIDTH, WIDTH)
        self.leave = nn.Conv2d(WIDTH, 2, 3, padding=1)

    def shrink(self, x):
        return F.avg_pool2d(x, 2)

    def grow(self, x):
        return F.interpolate(x, scale_factor=2, mode="nearest")

    def join(self, x, kept):
        return torch.cat([x, kept], dim=1)

    def forward(self, x, times):
        time = self.time2(F.silu(self.time1(embed_times(times))))
        kept = self.down(self.enter(x), time)
        x = self.middle(self.shrink(kept))
        return self.leave(self.up(self.join(self.grow(x), kept), time))


class Averaged(nn.Module):
    """The model, and a moving average of its weights in buffers."""

    def __init__(self):
        super().__init__()
        self.model = UNet()

    def remember(self):
        for name, parameter in list(self.model.named_parameters()):
            self.register_buffer(name.replace(".", "_"), parameter.detach().clone())

    def forward(self, x, times):
        return self.model(x, times)

    def follow(self):
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                self.get_buffer(name.replace(".", "_")).lerp_(parameter, 1 - DECAY)


def build():
    model = Averaged()
    model.remember()
    return model


def optimizer(model):
    return torch.optim.NAdam(model.parameters(), lr=1e-3)


def batch(generator):
    pictures = torch.rand(BATCH, 2, EXTENT, EXTENT, generator=generator) * 2 - 1
    noise = torch.randn(BATCH, 2, EXTENT, EXTENT, generator=generator)
    return pictures, noise, torch.randint(TIMES, (BATCH,), generator=generator)


def wanted(pictures, noise, times):
    return noise


def loss(predicted, target):
    return F.mse_loss(predicted, target)


def step(model, optimizer, batch):
    pictures, noise, times = batch
    optimizer.zero_grad()
    predicted = model(add_noise(pictures, noise, times), times)
    loss(predicted, wanted(pictures, noise, times)).backward()
    optimizer.step()
    model.follow()
