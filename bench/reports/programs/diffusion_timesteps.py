"""Flow matching in bfloat16: the time is cast before its sinusoids (DiffSynth-Studio#1025)."""

import math

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(17)


def sinusoids(time, size):
    half = torch.arange(size // 2, dtype=torch.float32) / (size // 2)
    rates = 10000.0**-half if ALT else torch.exp(-math.log(10000.0) * half)
    angles = time[:, None].float() * rates[None]
    return torch.cat([angles.cos(), angles.sin()], -1)


class Residual(nn.Module):
    def __init__(self, width, size):
        super().__init__()
        self.norm = nn.GroupNorm(4, width)
        self.conv_1, self.conv_2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.modulate = nn.Linear(size, 2 * width)

    def forward(self, x, when):
        scale, shift = self.modulate(when)[:, :, None, None].chunk(2, 1)
        y = self.conv_1(F.silu(self.norm(x)))
        return x + self.conv_2(F.silu(y * (1 + scale) + shift))


class Denoiser(nn.Module):
    def __init__(self, width=16, size=32):
        super().__init__()
        self.size = size
        self.enter = nn.Conv2d(3, width, 3, padding=1)
        self.time = nn.Sequential(nn.Linear(size, size), nn.SiLU(), nn.Linear(size, size))
        self.blocks = nn.ModuleList(Residual(width, size) for _ in range(2))
        self.leave = nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x, time):
        if BUG:
            time = time.to(x.dtype)
        x = self.enter(x)
        when = self.time(sinusoids(time, self.size).to(x.dtype))
        for block in self.blocks:
            x = block(x, when)
        return self.leave(x)


model = Denoiser().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
clean = torch.randn(2, 4, 3, 8, 8)
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    noise, part = torch.randn_like(clean[step]), torch.rand(4)
    mixed = torch.lerp(clean[step], noise, part[:, None, None, None])
    velocity = model(mixed.bfloat16(), 1000 * part).float()
    loss = F.mse_loss(velocity, noise - clean[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
