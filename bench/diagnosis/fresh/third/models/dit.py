"""A diffusion transformer of sequences: zero gates, guided EMA weights as a teacher, velocities."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

LENGTH, CHANNELS, PATCH, WIDTH, HEADS, LAYERS, LABELS, BATCH, WAVES = 12, 3, 2, 16, 2, 2, 4, 6, 8
GUIDANCE, TAUGHT, DECAY, LARGEST, RATE = 1.8, 0.3, 0.9, 1.0, 3e-3


def signal(times):
    """The shares of the signal and of the noise."""
    angle = 0.5 * math.pi * times
    return torch.cos(angle), torch.sin(angle)


def noised(x, noise, times):
    alpha, sigma = (each[:, None, None] for each in signal(times))
    return alpha * x + sigma * noise


def velocity(x, noise, times):
    alpha, sigma = (each[:, None, None] for each in signal(times))
    return alpha * noise - sigma * x


def waves(times):
    speeds = torch.exp(torch.arange(WAVES // 2) * (-math.log(1000.0) / (WAVES // 2 - 1)))
    angles = 1000.0 * times[:, None] * speeds
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


def places():
    """Fixed places of the patches."""
    speeds = 10.0 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    angles = torch.arange(LENGTH // PATCH)[:, None] * speeds
    return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)


def modulated(x, shift, scale):
    return x * (1 + scale[:, None]) + shift[:, None]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norms = nn.ModuleList(
            nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6) for _ in range(2)
        )
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.GELU("tanh"), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.adapt = nn.Linear(WIDTH, 6 * WIDTH)

    def attend(self, q, k, v):
        return (q @ k.transpose(-1, -2) / math.sqrt(WIDTH // HEADS)).softmax(dim=-1) @ v

    def mix(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))

    def forward(self, x, condition):
        shift, scale, gate, low, size, door = self.adapt(condition).chunk(6, dim=-1)
        x = x + gate[:, None] * self.mix(modulated(self.norms[0](x), shift, scale))
        return x + door[:, None] * self.feed(modulated(self.norms[1](x), low, size))


class Net(nn.Module):
    """Label number LABELS stands for none."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(PATCH * CHANNELS, WIDTH)
        self.time = nn.Sequential(nn.Linear(WAVES, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.label = nn.Embedding(LABELS + 1, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, elementwise_affine=False, eps=1e-6)
        self.adapt = nn.Linear(WIDTH, 2 * WIDTH)
        self.leave = nn.Linear(WIDTH, PATCH * CHANNELS)
        self.register_buffer("places", places())

    def forward(self, x, times, labels):
        h = self.enter(x.reshape(len(x), -1, PATCH * CHANNELS)) + self.places
        condition = F.silu(self.time(waves(times)) + self.label(labels))
        for block in self.blocks:
            h = block(h, condition)
        shift, scale = self.adapt(condition).chunk(2, dim=-1)
        return self.leave(modulated(self.norm(h), shift, scale)).view_as(x)


class Both(nn.Module):
    """The net, and the slow copy, which teaches it."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        for block in self.net.blocks:  # gates begin small: at zero, nothing could be seen
            nn.init.normal_(block.adapt.weight, std=0.05)
        self.slow = copy.deepcopy(self.net).requires_grad_(False)
        self.steps = 0


def with_dropped(labels, dropped):
    return torch.where(dropped, LABELS, labels)


@torch.no_grad()
def guided(slow, x, times, labels):
    """What the slow copy says, led away from what it says without a label."""
    with_label = slow(x, times, labels)
    without = slow(x, times, torch.full_like(labels, LABELS))
    return without + GUIDANCE * (with_label - without)


def weight_of(times):
    """Of the loss of the velocity: the ratio of signal to noise, at most five (min-SNR)."""
    alpha, sigma = signal(times)
    ratio = (alpha / sigma).square()
    return ratio.clamp(max=5.0) / (ratio + 1)


def loss_of(predicted, wanted, times):
    each = (predicted - wanted).square().mean(dim=(1, 2))
    return (weight_of(times) * each).mean()


def losses_of(model, data):
    x = noised(data["x"], data["noise"], data["times"])
    labels = with_dropped(data["labels"], data["dropped"])
    predicted = model.net(x, data["times"], labels)
    wanted = velocity(data["x"], data["noise"], data["times"])
    taught = guided(model.slow, x, data["times"], data["labels"])
    learned = loss_of(predicted, wanted, data["times"])
    return learned, TAUGHT * loss_of(predicted, taught, data["times"])


def backward(model, data):
    sum(losses_of(model, data)).backward()


@torch.no_grad()
def follow(model):
    """The slow copy follows quickly at first."""
    model.steps += 1
    decay = min(DECAY, (1 + model.steps) / (4 + model.steps))
    for slow, fast in zip(model.slow.parameters(), model.net.parameters(), strict=True):
        slow.mul_(decay).add_(fast, alpha=1 - decay)


def build():
    return Both()


def optimizer(model):
    return torch.optim.AdamW(model.net.parameters(), lr=RATE, betas=(0.9, 0.99), weight_decay=0.02)


def batch(generator):
    return {
        "x": torch.randn(BATCH, LENGTH, CHANNELS, generator=generator),
        "noise": torch.randn(BATCH, LENGTH, CHANNELS, generator=generator),
        "times": torch.rand(BATCH, generator=generator) * 0.9 + 0.05,
        "labels": torch.randint(0, LABELS, (BATCH,), generator=generator),
        "dropped": torch.tensor([0, 1, 0, 0, 1, 0]).bool(),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.net.parameters(), LARGEST)
    optimizer.step()
    follow(model)
