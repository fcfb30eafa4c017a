"""Contrastive learning: an encoder, its slow copy, and a queue of keys."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, KEYS, BATCH, SIZE = 8, 16, 4, 12
TEMPERATURE, MOMENTUM = 0.2, 0.9


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 8, 3, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 12, 3, 2, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(12)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return F.adaptive_avg_pool2d(x, 1).flatten(1)


def projector():
    return nn.Sequential(nn.Linear(12, 16), nn.ReLU(inplace=True), nn.Linear(16, WIDTH))


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.project = projector()

    def forward(self, x):
        return self.project(self.backbone(x))


class MoCo(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = Encoder()
        self.key = copy.deepcopy(self.query)
        self.key.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(WIDTH, KEYS), dim=0))
        self.register_buffer("pointer", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.key.parameters(), self.query.parameters(), strict=True):
            slow.mul_(MOMENTUM).add_(fast, alpha=1 - MOMENTUM)

    @torch.no_grad()
    def enqueue(self, keys):
        start = int(self.pointer)
        self.queue[:, start : start + len(keys)] = keys.T
        self.pointer[0] = (start + len(keys)) % KEYS

    @torch.no_grad()
    def keys_of(self, x, order):
        """Keys of shuffled pictures, put back in their order."""
        k = self.key(x[order])
        k = F.normalize(k, dim=1)
        return k[torch.argsort(order)]

    def logits(self, q, k):
        positive = torch.einsum("nc,nc->n", q, k).unsqueeze(-1)
        negative = torch.einsum("nc,ck->nk", q, self.queue.clone().detach())
        logits = torch.cat([positive, negative], dim=1)
        return logits / TEMPERATURE

    def forward(self, left, right, order):
        q = F.normalize(self.query(left), dim=1)
        self.follow()
        k = self.keys_of(right, order)
        logits = self.logits(q, k)
        self.enqueue(k)
        return logits


def contrastive_loss(logits):
    labels = torch.zeros(len(logits), dtype=torch.long)
    return F.cross_entropy(logits, labels)


def build():
    return MoCo()


def optimizer(model):
    own = [p for p in model.parameters() if p.requires_grad]
    made = torch.optim.SGD(own, lr=0.05, momentum=0.9, weight_decay=1e-4)
    model.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made, 10)
    return made


def batch(generator):
    left = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    right = left.flip(-1) + 0.3 * torch.randn(left.shape, generator=generator)
    return left, right, torch.randperm(BATCH, generator=generator)


def step(model, optimizer, batch):
    loss = contrastive_loss(model(*batch))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    model.schedule.step()
