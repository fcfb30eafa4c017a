"""A classifier of vectors under DistributedDataParallel; each rank has its part of the batch."""

import contextlib

import torch
import torch.nn as nn
from common import average, launch
from torch.nn.parallel import DistributedDataParallel as DDP

LAYOUTS = {"one": 1, "ddp2": 2, "ddp4": 4}
VARIANTS = ("", "clipped")
BUGS = {
    "same_batch": {"layout": "ddp2", "rank": 1, "near": [r"stem\.0", r"Module\.stem"]},
    "loss_times_ranks": {"layout": "ddp2", "near": ["criterion", "cross_entropy"]},
    "other_head": {"layout": "ddp4", "rank": 2, "near": [r"Module\.head", r"^head \("]},
    "no_sync_left_on": {
        "layout": "ddp2",
        "variant": "clipped",
        "near": ["parameters_grad", "clip_grad_norm_", r"SGD\.step"],
    },
    "hidden_scaled": {"layout": "ddp2", "rank": 1, "within": r"tower\.1", "near": [r"tower\.1"]},
    "other_noise": {"layout": "ddp4", "rank": 3, "near": ["stem"]},
}


class Residual(nn.Module):
    def __init__(self, width, scale=1.0):
        super().__init__()
        self.scale = scale
        wide = 2 * width
        self.inner = nn.Sequential(nn.Linear(width, wide), nn.ReLU(), nn.Linear(wide, width))

    def forward(self, x):
        y = self.inner(x)
        if self.scale != 1.0:
            y = y * self.scale  # bug: hidden_scaled
        return torch.add(x, y)


class Classifier(nn.Module):
    def __init__(self, features=20, width=24, classes=5):
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(features, width), nn.Tanh())
        self.tower = nn.Sequential(Residual(width), Residual(width))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.tower(self.stem(x)))  # bug: other_head


def batches(run, count, size=16):
    """The rank's part of each batch: features, with noise for robustness, and classes."""
    generator = torch.Generator().manual_seed(77)
    rows = size // run.ranks
    mine = slice(run.rank * rows, (run.rank + 1) * rows)
    if run.bug("same_batch", 1):
        mine = slice(0, rows)
    for number in range(count):
        x = torch.randn(size, 20, generator=generator)
        y = torch.randint(5, (size,), generator=generator)
        seed = 900 + number + (50 if run.bug("other_noise", 3) else 0)
        noise = torch.randn(size, 20, generator=torch.Generator().manual_seed(seed))
        yield (x + 0.05 * noise)[mine], y[mine]


def train(run):
    torch.manual_seed(3)
    net = Classifier()
    if run.bug("hidden_scaled", 1):
        net.tower[1].scale = 1.1
    model = DDP(net) if run.ranks > 1 else net
    if run.bug("other_head", 2):
        with torch.no_grad():
            net.head.weight.add_(0.05 * torch.randn(net.head.weight.shape))
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for x, y in batches(run, run.steps):
        broken = run.bug("no_sync_left_on")
        with run.step(model), model.no_sync() if broken else contextlib.nullcontext():
            optimizer.zero_grad()
            loss = criterion(model(x), y)  # bug: same_batch, other_noise, loss_times_ranks
            scaled = loss * run.ranks if run.bug("loss_times_ranks") else loss
            scaled.backward()  # bug: loss_times_ranks, no_sync_left_on
            if run.variant == "clipped":
                nn.utils.clip_grad_norm_(model.parameters(), 0.5)  # bug: no_sync_left_on
            optimizer.step()
        losses.append(average(loss.item()))
    return losses, {name: each.detach().clone() for name, each in net.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
