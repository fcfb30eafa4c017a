"""A vision transformer in bfloat16 with two-dimensional rotary positions.

The frequencies are a buffer, so `model.to(torch.bfloat16)` rounds them (transformers#25681).
"""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(15)


class Rotary(nn.Module):
    def __init__(self, size, grid):
        super().__init__()
        frequencies = 1.0 / 100 ** (torch.arange(0, size // 2, 2).float() / (size // 2))
        if BUG:
            self.register_buffer("frequencies", frequencies, persistent=False)
        else:
            self.frequencies = frequencies
        self.grid = grid

    def forward(self, like):
        place, frequencies = torch.arange(self.grid).float(), self.frequencies.float()
        angles = place[:, None] * frequencies[None, :] if ALT else torch.outer(place, frequencies)
        rows = angles[:, None, :].expand(-1, self.grid, -1)
        columns = angles[None, :, :].expand(self.grid, -1, -1)
        angles = torch.cat([rows, columns], -1).flatten(0, 1).repeat_interleave(2, -1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)


def rotate(x, cos, sin):
    pairs = torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)
    return x * cos + pairs * sin


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.leave = nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x, cos, sin):
        y = self.norm_1(x)
        parts = (layer(y) for layer in (self.query, self.key, self.value))
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), rotate(k, cos, sin), v)
        x = x + self.leave(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class VisionTransformer(nn.Module):
    def __init__(self, grid=16, width=32, heads=2, classes=6):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.rotary = Rotary(width // heads, grid)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(2))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        cos, sin = self.rotary(x)
        for block in self.blocks:
            x = block(x, cos, sin)
        return self.head(x.mean(1))


model = VisionTransformer().to(torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, labels = torch.randn(2, 2, 3, 64, 64), torch.randint(0, 6, (2, 2))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    loss = F.cross_entropy(model(images[step].bfloat16()).float(), labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
