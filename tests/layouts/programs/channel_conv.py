"""A residual network whose convolutions are divided by their output channels."""

import torch
import torch.distributed as dist
from common import launch, whole
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "ch2": 2, "ch4": 4}
VARIANTS = ("", "sgd")
BUGS = {
    "gathered_in_other_order": {"layout": "ch2", "near": ["all_gather", "cat", "Gather"]},
    "gradient_not_summed": {
        "layout": "ch4",
        "near": ["stem", "blocks.0", "Sum", "Spread"],
        "within": "blocks.1",
    },
    "norm_of_one_rank": {"layout": "ch4", "rank": 2, "near": ["blocks.1.norm", "blocks.1"]},
    "head_bias_twice": {"layout": "ch2", "near": ["head", "all_reduce"]},
    "kernel_of_one_rank": {"layout": "ch2", "rank": 1, "near": ["blocks.0.conv"]},
}
CHANNELS, BATCH, LAYERS = 8, 6, 2


class Spread(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run, skip):
        ctx.run, ctx.skip = run, skip
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        if ctx.run.ranks > 1 and not ctx.skip:
            g = g.contiguous()
            dist.all_reduce(g)
        return g, None, None


class Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run):
        ctx.run = run
        if run.ranks == 1:
            return x.view_as(x)
        parts = [torch.empty_like(x) for _ in range(run.ranks)]
        dist.all_gather(parts, x.contiguous())
        if run.bug("gathered_in_other_order"):
            parts = parts[::-1]  # bug: gathered_in_other_order
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, g):
        if ctx.run.ranks == 1:
            return g, None
        at = ctx.run.rank
        if ctx.run.bug("gathered_in_other_order"):
            at = ctx.run.ranks - 1 - at
        return g.chunk(ctx.run.ranks, 1)[at].contiguous(), None


class Block(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        part = CHANNELS // run.ranks
        conv = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        norm = nn.BatchNorm2d(CHANNELS)
        at = slice(run.rank * part, (run.rank + 1) * part)
        with torch.random.fork_rng():
            self.conv = nn.Conv2d(CHANNELS, part, 3, padding=1)
        self.conv.weight.data = conv.weight.data[at].clone()
        self.conv.bias.data = conv.bias.data[at].clone()
        self.norm = nn.BatchNorm2d(part)
        assert norm.weight is not None

    def forward(self, x):
        skip = self.layer == 1 and self.run.bug("gradient_not_summed")
        y = Spread.apply(x, self.run, skip)  # bug: gradient_not_summed
        y = self.conv(y)
        if self.layer == 0 and self.run.bug("kernel_of_one_rank", 1):
            y = y + 0.05  # bug: kernel_of_one_rank
            y = y * y.sign()
        if self.layer == 1 and self.run.bug("norm_of_one_rank", 2):
            self.norm.momentum, self.norm.eps = 0.1, 0.3  # bug: norm_of_one_rank
        y = F.silu(self.norm(y))
        return x + Gather.apply(y, self.run)


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.stem = nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Block(run, i) for i in range(LAYERS))
        full = nn.Linear(CHANNELS * 4, 5)
        per = CHANNELS * 4 // run.ranks
        with torch.random.fork_rng():
            self.head = nn.Linear(per, 5, bias=False)
        self.head.weight.data = full.weight.data[:, run.rank * per : (run.rank + 1) * per].clone()
        self.bias = nn.Parameter(full.bias.data.clone())

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        x = F.adaptive_avg_pool2d(x, 2).flatten(1)
        per = x.shape[1] // self.run.ranks
        x = Spread.apply(x, self.run, False)
        y = self.head(x[:, self.run.rank * per : (self.run.rank + 1) * per])
        if self.run.bug("head_bias_twice"):
            y = y + self.bias
        y = Sum.apply(y, self.run)  # bug: head_bias_twice
        return y if self.run.bug("head_bias_twice") else y + self.bias


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run):
        x = x.clone()
        if run.ranks > 1:
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


def train(run):
    torch.manual_seed(21)
    net = Net(run)
    if run.variant == "sgd":
        optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    else:
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(run.steps):
        x = torch.randn(BATCH, 3, 12, 12, generator=generator)
        y = torch.randint(0, 5, (BATCH,), generator=generator)
        with run.step(net):
            loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    dims = {"head.weight": 1}
    out = {}
    for name, p in net.named_parameters():
        out[name] = whole(p, 0 if name.startswith("blocks") else dims.get(name))
    return losses, out


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
