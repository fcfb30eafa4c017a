"""Regression by an MLP whose optimizer states are spread over the ranks (ZeRO-1)."""

import itertools

import torch
import torch.distributed as dist
from common import average, launch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

LAYOUTS = {"one": 1, "zero2": 2, "zero4": 4}
VARIANTS = ("", "sgd")
BUGS = {
    "update_not_sent": {
        "layout": "zero2",
        "rank": 1,
        "near": ["broadcast", "step", "update of the weights"],
    },
    "rate_of_one_rank": {"layout": "zero4", "near": ["ZeroRedundancy", "Adam", "step"]},
    "mean_of_sums": {"layout": "zero2", "variant": "sgd", "near": ["mse_loss", "smooth_l1"]},
    "second_layer_scaled": {"layout": "zero2", "rank": 0, "near": [r"body\.(2|3)"]},
    "previous_batch": {"layout": "zero4", "rank": 1, "near": [r"body\.0"]},
}


class Regressor(nn.Module):
    def __init__(self):
        super().__init__()
        widths = (14, 40, 40, 3)
        layers = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.SiLU()]
        self.body = nn.Sequential(*layers[:-1])
        self.wrong_factor = None

    def forward(self, features):
        if self.wrong_factor is None:
            return self.body(features)
        middle = self.body[:3](features) * self.wrong_factor  # bug: second_layer_scaled
        return self.body[3:](middle)


def optimizer_of(run, model):
    kind = torch.optim.SGD if run.variant == "sgd" else torch.optim.Adam
    options = {"lr": 0.05, "momentum": 0.9} if run.variant == "sgd" else {"lr": 0.01}
    if run.ranks == 1:
        return kind(model.parameters(), **options)
    if run.bug("rate_of_one_rank") and run.rank == 1:
        options["lr"] = 0.02
    return ZeroRedundancyOptimizer(model.parameters(), kind, **options)


def train(run):
    torch.manual_seed(99)
    inner = Regressor()
    model = DistributedDataParallel(inner) if run.ranks > 1 else inner
    optimizer = optimizer_of(run, model)
    if run.bug("second_layer_scaled", 0):
        inner.wrong_factor = 1.1
    draw = torch.Generator().manual_seed(2)
    inputs = torch.randn(run.steps, 12, 14, generator=draw)
    wanted = inputs[..., :3].sin() + 0.1 * torch.randn(run.steps, 12, 3, generator=draw)
    losses = []
    for number in range(run.steps):
        x, y = (each[number].chunk(run.ranks)[run.rank] for each in (inputs, wanted))
        if number == 1 and run.bug("previous_batch", 1):
            x = inputs[0].chunk(run.ranks)[run.rank]
        last = inner.body[-1].weight
        before = last.detach().clone()
        with run.step(model):
            guess = model(x)  # bug: previous_batch
            count = wanted[0].numel() if run.bug("mean_of_sums") else y.numel()
            loss = nn.functional.mse_loss(guess, y, reduction="sum") / count  # bug: mean_of_sums
            loss.backward()
            optimizer.step()  # bug: rate_of_one_rank, update_not_sent
            optimizer.zero_grad()
        if run.bug("update_not_sent", 1):
            last.data.copy_(before)
        losses.append(average(loss.item()))
    if dist.is_initialized():
        dist.barrier()
    return losses, {name: each.detach().clone() for name, each in inner.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
