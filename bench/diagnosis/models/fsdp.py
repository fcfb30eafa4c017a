"""Two processes with fully_shard: weights in shards, gradients clipped by their common norm."""

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

RANKS = 2
WIDTH, CLASSES, BATCH, CLIP = 16, 4, 4, 0.5


class Block(nn.Module):
    eps = 1e-5

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=self.eps)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


def sharded(model):
    for block in list(model)[:2]:
        fully_shard(block)
    return fully_shard(model)


def build():
    return sharded(nn.Sequential(Block(), Block(), nn.Linear(WIDTH, CLASSES)))


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-2)


def batch(generator):
    x = torch.randn(BATCH, WIDTH, generator=generator)
    return x, torch.randint(CLASSES, (BATCH,), generator=generator)


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def loss(logits, labels):
    return F.cross_entropy(logits, labels)


def step(model, optimizer, batch):
    x, labels = batch
    optimizer.zero_grad()
    loss(model(x), labels).backward()
    clip(model)
    optimizer.step()
