"""Batch norms by hand, with the statistics of all ranks."""

import torch
import torch.distributed as dist
from common import average, launch
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "dp2": 2, "dp4": 4}
VARIANTS = ("", "rmsprop")
BUGS = {
    "variance_of_one_rank": {"layout": "dp2", "near": ["norms.1", "norm", "all_reduce", "rsqrt"]},
    "count_not_summed": {
        "layout": "dp4",
        "near": ["norms.0", "norm", "all_reduce", "div", "truediv"],
    },
    "picture_of_another": {"layout": "dp2", "rank": 1, "near": ["conv2d", "convs.0"]},
    "exchange_before_backward_of_head": {
        "layout": "dp2",
        "near": ["all_reduce", "head", "RMSprop", "Adam", "update", "parameters_grad"],
    },
}
BATCH = 8


class SumOver(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, run):
        ctx.run = run
        x = x.clone()
        if run.ranks > 1:
            dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.clone()
        if ctx.run.ranks > 1:
            dist.all_reduce(g)
        return g, None


class Norm(nn.Module):
    def __init__(self, run, channels, number):
        super().__init__()
        self.run, self.number = run, number
        self.weight, self.bias = (
            nn.Parameter(torch.ones(channels)),
            nn.Parameter(torch.zeros(channels)),
        )
        self.register_buffer("mean", torch.zeros(channels))
        self.register_buffer("variance", torch.ones(channels))

    def forward(self, x):
        n = x.shape[0] * x.shape[2] * x.shape[3]
        if not (self.number == 0 and self.run.bug("count_not_summed")):
            n = n * self.run.ranks  # bug: count_not_summed
        mean = SumOver.apply(x.sum((0, 2, 3)), self.run) / n
        centred = x - mean[:, None, None]
        squares = centred.square().sum((0, 2, 3))
        if self.number == 1 and self.run.bug("variance_of_one_rank"):
            variance = squares / n * self.run.ranks  # bug: variance_of_one_rank
        else:
            variance = SumOver.apply(squares, self.run) / n
        with torch.no_grad():
            self.mean.lerp_(mean, 0.1)
            self.variance.lerp_(variance, 0.1)
        return (
            centred * (variance + 1e-5).rsqrt()[:, None, None] * self.weight[:, None, None]
            + self.bias[:, None, None]
        )


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(1, 6, 3), nn.Conv2d(6, 8, 3)])
        self.norms = nn.ModuleList([Norm(run, 6, 0), Norm(run, 8, 1)])
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = F.relu(norm(conv(x)))
        return self.head(x.amax((2, 3)))


def train(run):
    torch.manual_seed(37)
    net = Net(run)
    make = torch.optim.RMSprop if run.variant == "rmsprop" else torch.optim.Adam
    optimizer = make(net.parameters(), lr=0.005)
    generator = torch.Generator().manual_seed(15)
    losses = []
    for _ in range(run.steps):
        x = torch.randn(BATCH, 1, 9, 9, generator=generator)
        y = torch.randint(0, 4, (BATCH,), generator=generator)
        x, y = x.chunk(run.ranks)[run.rank], y.chunk(run.ranks)[run.rank]
        if run.bug("picture_of_another", 1):
            x = x.roll(1, 0)
        with run.step(net):
            loss = F.cross_entropy(net(x), y)  # bug: picture_of_another
            (loss / run.ranks).backward()
            if run.ranks > 1:
                for name, p in net.named_parameters():
                    if run.bug("exchange_before_backward_of_head") and name == "head.weight":
                        continue
                    dist.all_reduce(p.grad)  # bug: exchange_before_backward_of_head
            optimizer.step()  # bug: exchange_before_backward_of_head
            optimizer.zero_grad()
        losses.append(average(loss))
    return losses, {
        **{n: p.detach().clone() for n, p in net.named_parameters()},
        **{n: p.clone() for n, p in net.named_buffers()},
    }


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
