"""Stages under torch.distributed.pipelining: GPipe, 1F1B, and interleaved virtual stages.

The golden trains micro-batch by micro-batch; that of variant "whole" the whole batch at once.
"""

import torch
from common import launch
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
)
from torch.nn import functional as F

LAYOUTS = {"one": 1, "gpipe2": 2, "onef2": 2, "gpipe4": 4, "virtual2": 2}
VARIANTS = ("", "whole")
BUGS = {
    "loss_summed": {"layout": "gpipe2", "near": ["mse_loss"]},
    "targets_of_first": {"layout": "onef2", "rank": 1, "near": ["mse_loss"]},
    "stage_scaled": {"layout": "gpipe4", "rank": 2, "within": r"rows\.2", "near": [r"rows\.2"]},
    "stale_stage": {"layout": "gpipe2", "rank": 1, "near": [r"rows\.3", "SGD", "update of"]},
    "gradients_not_scaled": {"layout": "onef2", "near": ["parameters_grad", "SGD"]},
    "first_row_of_other_seed": {
        "layout": "virtual2",
        "rank": 0,
        "within": r"rows\.2",
        "near": [r"rows\.2"],
    },
}
SIZE, ROWS, MICRO, BATCH = 20, 4, 4, 8


class GatedRow(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.RMSNorm(SIZE)
        self.left, self.right = nn.Linear(SIZE, 32), nn.Linear(SIZE, 32)
        self.back = nn.Linear(32, SIZE)
        self.wrong = 1.0

    def forward(self, x):
        y = self.scale(x)
        y = torch.sigmoid(self.left(y)) * self.right(y)
        if self.wrong != 1.0:
            y = y * self.wrong  # bug: stage_scaled
        return x + self.back(y)  # bug: first_row_of_other_seed


class Network(nn.Module):
    """A run of rows, with the first and the last layer where they belong."""

    def __init__(self, first=0, last=ROWS):
        super().__init__()
        torch.manual_seed(83)
        enter, leave = nn.Linear(6, SIZE), nn.Linear(SIZE, 2)
        rows = [GatedRow() for _ in range(ROWS)]
        self.enter = enter if first == 0 else None
        self.rows = nn.ModuleDict({str(i): rows[i] for i in range(first, last)})
        self.leave = leave if last == ROWS else None

    def forward(self, x):
        x = self.enter(x) if self.enter is not None else x
        for row in self.rows.values():
            x = row(x)
        return self.leave(x) if self.leave is not None else x


class Loss:
    """Mean squares; as each bug has it."""

    def __init__(self, run):
        self.run, self.first = run, None

    def __call__(self, guess, wanted):
        if self.run.bug("targets_of_first", 1):
            self.first = wanted if self.first is None else self.first
            wanted = self.first
        if self.run.bug("loss_summed"):
            return F.mse_loss(guess, wanted, reduction="sum")  # bug: loss_summed
        return F.mse_loss(guess, wanted)  # bug: targets_of_first


def cut(run):
    """The stages of this process, and the schedule that runs them."""
    virtual = 2 if run.layout == "virtual2" else 1
    count = run.ranks * virtual
    each = ROWS // count
    places = range(run.rank, count, run.ranks)
    networks = [Network(place * each, (place + 1) * each) for place in places]
    stages = [
        PipelineStage(network, place, count, torch.device("cpu"))
        for network, place in zip(networks, places, strict=True)
    ]
    options = {"loss_fn": Loss(run), "scale_grads": not run.bug("gradients_not_scaled")}
    if virtual > 1:
        return networks, ScheduleInterleaved1F1B(stages, MICRO, **options)
    kind = Schedule1F1B if run.layout == "onef2" else ScheduleGPipe
    return networks, kind(stages[0], MICRO, **options)


def plant(run, networks):
    if run.bug("stage_scaled", 2):
        networks[0].rows["2"].wrong = 1.1
    if run.bug("first_row_of_other_seed", 0):
        torch.manual_seed(84)
        networks[1].rows["2"] = GatedRow()


def train_whole(run, network, optimizer, x, y):
    """One process. Returns the loss."""
    parts = 1 if run.variant == "whole" else MICRO
    total = 0.0
    for one, other in zip(x.chunk(parts), y.chunk(parts), strict=True):
        loss = F.mse_loss(network(one), other)
        (loss / parts).backward()
        total += loss.item() / parts
    optimizer.step()
    return total


def train(run):
    networks, schedule = ([Network()], None) if run.ranks == 1 else cut(run)
    plant(run, networks)
    parameters = [each for network in networks for each in network.parameters()]
    optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
    numbers = torch.Generator().manual_seed(123)
    all_losses = []
    for _ in range(run.steps):
        x = torch.randn(BATCH, 5, 6, generator=numbers)
        y = torch.randn(BATCH, 5, 2, generator=numbers)
        optimizer.zero_grad()
        kept = [each.detach().clone() for each in parameters]
        with run.step(networks if len(networks) > 1 else networks[0]):
            if schedule is None:
                all_losses.append(train_whole(run, networks[0], optimizer, x, y))
            else:
                losses = []
                given = (x,) if run.rank == 0 else ()
                wanted = {"target": y, "losses": losses} if run.rank == run.ranks - 1 else {}
                schedule.step(*given, **wanted)
                optimizer.step()  # bug: stale_stage, gradients_not_scaled
                if losses:
                    all_losses.append(torch.stack(losses).mean().item())
        if run.bug("stale_stage", 1):
            for parameter, old in zip(parameters[-10:], kept[-10:], strict=True):
                parameter.data.copy_(old)
    named = [pair for network in networks for pair in network.named_parameters()]
    return all_losses, {name: each.detach().clone() for name, each in named}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
