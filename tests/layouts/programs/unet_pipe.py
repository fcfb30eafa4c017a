"""An hourglass network whose skip connections cross the stages of a pipeline."""

import torch
import torch.distributed as dist
from common import launch, objects
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "stages2": 2}
VARIANTS = ("", "adagrad")
BUGS = {
    "skip_of_micro_batch_before": {"layout": "stages2", "rank": 1, "near": ["cat", "recv", "up"]},
    "gradient_of_skip_lost": {
        "layout": "stages2",
        "rank": 0,
        "near": ["down.0", "recv", "add", "backward"],
    },
    "not_divided_by_micro_batches": {"layout": "stages2", "near": ["mse_loss", "div", "mean"]},
    "time_of_one_stage": {
        "layout": "stages2",
        "rank": 1,
        "near": ["up.0", "time", "silu", "Linear"],
    },
}
BATCH, PARTS, WIDTH = 8, 2, 12


class Down(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Linear(4, WIDTH)
        self.layers = nn.ModuleList(
            [nn.Conv1d(3, WIDTH, 3, padding=1), nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)]
        )

    def forward(self, x, t):
        skip = F.silu(self.layers[0](x) + self.time(t)[:, :, None])
        return F.silu(self.layers[1](skip)), skip


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.time = nn.Linear(4, WIDTH)
        self.wide = nn.ConvTranspose1d(WIDTH, WIDTH, 2, stride=2)
        self.out = nn.Conv1d(2 * WIDTH, 3, 3, padding=1)

    def forward(self, x, skip, t):
        x = self.wide(x) + self.time(t)[:, :, None]
        return self.out(torch.cat([F.silu(x), skip], 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = Down(), Up()

    def forward(self, x, t):
        return self.up(*self.down(x, t), t)


def data(generator):
    clean = torch.randn(BATCH, 3, 8, generator=generator)
    noise = torch.randn(BATCH, 3, 8, generator=generator)
    t = torch.rand(BATCH, 4, generator=generator)
    return clean * t[:, :1, None] + noise * (1 - t[:, :1, None]), noise, t


def train(run):
    torch.manual_seed(43)
    net = Net()
    part = net if run.ranks == 1 else (net.down, net.up)[run.rank]
    model = net if run.ranks == 1 else nn.ModuleDict({("down", "up")[run.rank]: part})
    make = torch.optim.Adagrad if run.variant == "adagrad" else torch.optim.AdamW
    optimizer = make(part.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(4)
    losses = []
    for _ in range(run.steps):
        pieces = list(zip(*(each.chunk(PARTS) for each in data(generator)), strict=True))
        total = 0.0
        scale = 1 if run.bug("not_divided_by_micro_batches") else PARTS
        with run.step(model):
            if run.ranks == 1:
                for x, noise, t in pieces:
                    loss = F.mse_loss(net(x, t), noise) / scale
                    loss.backward()
                    total += loss.item()
            elif run.rank == 0:
                kept = []
                for x, _, t in pieces:
                    out = part(x, t)
                    for each in out:
                        dist.send(each.detach().contiguous(), 1)
                    kept.append(out)
                for out in kept:
                    grads = [torch.empty_like(each) for each in out]
                    for g in grads:
                        dist.recv(g, 1)
                    if run.bug("gradient_of_skip_lost"):
                        torch.autograd.backward(out[0], grads[0])  # bug: gradient_of_skip_lost
                    else:
                        torch.autograd.backward(out, grads)
            else:
                got, last = [], None
                for x, _, _ in pieces:
                    n = len(x)
                    h, skip = torch.empty(n, WIDTH, 4), torch.empty(n, WIDTH, 8)
                    dist.recv(h, 0)
                    dist.recv(skip, 0)
                    used = (
                        last if last is not None and run.bug("skip_of_micro_batch_before") else skip
                    )
                    last = skip
                    got.append((h.requires_grad_(), used.clone().requires_grad_()))
                for (h, skip), (_, noise, t) in zip(got, pieces, strict=True):
                    if run.bug("time_of_one_stage"):
                        t = t * 0.5
                    loss = F.mse_loss(part(h, skip, t), noise) / scale  # bug: time_of_one_stage
                    loss.backward()
                    total += loss.item()
                    dist.send(h.grad, 0)
                    dist.send(skip.grad, 0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(sum(objects(total)) if run.ranks > 1 else total)
    prefix = "" if run.ranks == 1 else ("down.", "up.")[run.rank]
    weights = {}
    for each in objects({prefix + n: p.detach().clone() for n, p in part.named_parameters()}):
        weights.update(each)
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
