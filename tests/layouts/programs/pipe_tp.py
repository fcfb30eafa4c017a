"""Two stages of two tensor-parallel ranks each, by hand; micro-batches one after the other.

Ranks 0 and 1 are the first stage, 2 and 3 the second. Each rank sends to its partner of the next
stage what all ranks of its stage have.
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from common import launch, objects

LAYOUTS = {"one": 1, "tp2": 2, "pp2": 2, "pp2tp2": 4}
VARIANTS = ("", "clipped")
BUGS = {
    "reduced_alone": {"layout": "pp2tp2", "within": r"levels\.2", "near": [r"levels\.2\.narrow"]},
    "partial_sent": {"layout": "pp2tp2", "near": [r"levels\.1\.narrow", r"levels\.2\.ln"]},
    "loss_not_divided": {"layout": "pp2", "near": ["l1_loss|huber_loss|mse_loss"]},
    "one_pair_stale": {"layout": "pp2tp2", "rank": 1, "near": [r"levels\.2\.ln"]},
    "norm_of_stage": {
        "layout": "pp2tp2",
        "variant": "clipped",
        "near": ["sqrt", r"Tensor\.mul_", "NAdam"],
    },
    "wide_shards_swapped": {
        "layout": "tp2",
        "within": r"levels\.1",
        "near": [r"levels\.1\.wide", r"levels\.1\.narrow"],
    },
    "gradient_scaled": {"layout": "pp2tp2", "rank": 2, "near": [r"levels\.1.*backward"]},
}
WIDTH, MICRO, SIZE, STEPS = 20, 3, 2, 5


class Place:
    """Stage and tensor rank of this process, and its group."""

    def __init__(self, run):
        self.stages = 2 if run.layout.startswith("pp2") else 1
        self.tensor = run.ranks // self.stages
        self.stage, self.t = run.rank // self.tensor, run.rank % self.tensor
        self.group = None
        if self.tensor > 1:
            for stage in range(self.stages):
                ranks = range(stage * self.tensor, (stage + 1) * self.tensor)
                group = dist.new_group(list(ranks))
                self.group = group if run.rank in ranks else self.group
        self.before, self.after = run.rank - self.tensor, run.rank + self.tensor

    @property
    def last(self):
        return self.stage == self.stages - 1


class Fan(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x

    @staticmethod
    def backward(ctx, gradient):
        if ctx.group is not None:
            gradient = gradient.clone()
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        if group is not None:
            x = x.clone()
            dist.all_reduce(x, group=group)  # bug: reduced_alone
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class WideLayer(nn.Module):
    def __init__(self, place, swapped=False):
        super().__init__()
        full = torch.randn(3 * WIDTH, WIDTH) * 0.2
        part = (1 - place.t) if swapped else place.t
        self.weight = nn.Parameter(full.chunk(place.tensor)[part].clone())
        self.group = place.group

    def forward(self, x):
        return F.linear(Fan.apply(x, self.group), self.weight)  # bug: wide_shards_swapped


class NarrowLayer(nn.Module):
    def __init__(self, place):
        super().__init__()
        full = torch.randn(WIDTH, 3 * WIDTH) * 0.2
        self.weight = nn.Parameter(full.chunk(place.tensor, 1)[place.t].clone())
        self.bias = nn.Parameter(torch.randn(WIDTH) * 0.1)
        self.group = place.group

    def forward(self, x):
        y = Join.apply(F.linear(x, self.weight), self.group)  # bug: reduced_alone
        return y + self.bias


class Level(nn.Module):
    def __init__(self, place, swapped=False):
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.wide, self.narrow = WideLayer(place, swapped), NarrowLayer(place)

    def forward(self, x):
        return x + self.narrow(F.mish(self.wide(self.ln(x))))


class Part(nn.Module):
    """The levels of a stage."""

    def __init__(self, run, place):
        super().__init__()
        torch.manual_seed(59)
        self.read = nn.Linear(4, WIDTH)
        levels = [Level(place, i == 1 and run.bug("wide_shards_swapped")) for i in range(4)]
        self.write = nn.Linear(WIDTH, 3)
        each = 4 // place.stages
        mine = range(place.stage * each, (place.stage + 1) * each)
        self.levels = nn.ModuleDict({str(i): levels[i] for i in mine})
        self.read = self.read if place.stage == 0 else None
        self.write = self.write if place.last else None
        if run.bug("reduced_alone"):
            alone = [dist.new_group([rank]) for rank in range(run.ranks)][run.rank]
            if place.stage == 1:
                self.levels["2"].narrow.group = alone
        if run.bug("partial_sent") and place.stage == 0:
            self.levels["1"].narrow.group = None

    def forward(self, x):
        x = self.read(x) if self.read is not None else x
        for level in self.levels.values():
            x = level(x)
        return self.write(x) if self.write is not None else x


def micro_batch(run, place, part, x, y, stale):
    """One micro-batch forward and backward; returns its loss, and what was sent."""
    shape = (SIZE, STEPS, WIDTH)
    given = x
    if place.stage > 0:
        given = torch.zeros(shape, dtype=x.dtype)
        dist.recv(given, place.before)  # bug: partial_sent, one_pair_stale
        given.requires_grad_()
    out = part(given)
    if place.last:
        loss = F.huber_loss(out, y)
        if not run.bug("loss_not_divided"):
            loss = loss / MICRO  # bug: loss_not_divided
        loss.backward()
    else:
        message = out.detach() if stale is None else stale
        dist.send(message, place.after)  # bug: partial_sent, one_pair_stale
        gradient = torch.zeros(shape, dtype=x.dtype)
        dist.recv(gradient, place.after)  # bug: gradient_scaled
        out.backward(gradient)
    if place.stage > 0:
        back = given.grad * 1.1 if run.bug("gradient_scaled", 2) else given.grad
        dist.send(back, place.before)  # bug: gradient_scaled
    return loss.item() if place.last else 0.0, out.detach()


def is_cut(name):
    return name.endswith(("wide.weight", "narrow.weight"))


def clip(run, place, part, limit=0.05):
    """By the norm over all stages; a weight that each tensor rank has counts once."""
    total = torch.zeros(())
    for name, parameter in part.named_parameters():
        square = parameter.grad.square().sum()
        total = total + (square if is_cut(name) else square / place.tensor)
    if run.ranks > 1:
        group = place.group if run.bug("norm_of_stage") else dist.group.WORLD
        dist.all_reduce(total, group=group)  # bug: norm_of_stage
    factor = (limit / total.sqrt()).clamp(max=1.0)
    for parameter in part.parameters():
        parameter.grad.mul_(factor)


def train(run):
    place = Place(run)
    part = Part(run, place)
    optimizer = torch.optim.NAdam(part.parameters(), lr=3e-3)
    source = torch.Generator().manual_seed(7)
    losses = []
    for _ in range(run.steps):
        x = torch.randn(MICRO, SIZE, STEPS, 4, generator=source)
        y = torch.randn(MICRO, SIZE, STEPS, 3, generator=source)
        total, sent = 0.0, None
        with run.step(part):
            for number in range(MICRO):
                stale = sent if number == 1 and run.bug("one_pair_stale", 1) else None
                loss, sent = micro_batch(run, place, part, x[number], y[number], stale)
                total += loss
            if run.variant == "clipped":
                clip(run, place, part)
            optimizer.step()  # bug: norm_of_stage
            optimizer.zero_grad()
        losses.append(total)
    weights = {}
    for name, each in part.named_parameters():
        parts = objects(each.detach().clone(), place.group) if place.group else [each.detach()]
        dim = 1 if name.endswith("narrow.weight") else 0
        weights[name] = torch.cat(parts, dim) if is_cut(name) else parts[place.t]
    return (losses if place.last else []), weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
