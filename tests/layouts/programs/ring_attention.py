"""Ring attention: keys and values travel, and the softmax of their parts is merged."""

import torch
import torch.distributed as dist
from common import launch
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "ring2": 2, "ring4": 4}
VARIANTS = ("", "sgd")
BUGS = {
    "not_rescaled": {"layout": "ring2", "near": ["attention", "Ring", "blocks.0"]},
    "positions_of_rank_0": {"layout": "ring4", "near": ["embedding", "position", "__add__"]},
    "weights_not_summed": {
        "layout": "ring2",
        "near": ["all_reduce", "Adam", "update", "head", "parameters_grad"],
    },
    "one_block_skipped": {"layout": "ring4", "rank": 2, "near": ["attention", "Ring", "blocks.0"]},
    "loss_of_parts_twice": {"layout": "ring2", "near": ["cross_entropy", "loss", "div", "nll"]},
}
WORDS, WIDTH, HEADS, BATCH, LENGTH = 30, 16, 2, 3, 8


def shift(run, tensor):
    if run.ranks == 1:
        return tensor
    got = torch.empty_like(tensor)
    to, origin = (run.rank + 1) % run.ranks, (run.rank - 1) % run.ranks
    work = dist.batch_isend_irecv(
        [dist.P2POp(dist.isend, tensor.contiguous(), to), dist.P2POp(dist.irecv, got, origin)]
    )
    for each in work:
        each.wait()
    return got


class Gathered(torch.autograd.Function):
    """All parts in order; the gradient is the sum of what each rank gives for this part."""

    @staticmethod
    def forward(ctx, x, run):
        ctx.run = run
        if run.ranks == 1:
            return x.view_as(x)
        parts, here = [None] * run.ranks, x
        for step in range(run.ranks):
            parts[(run.rank - step) % run.ranks] = here
            if step < run.ranks - 1:
                here = shift(run, here)
        return torch.cat(parts, 1)

    @staticmethod
    def backward(ctx, g):
        run = ctx.run
        if run.ranks == 1:
            return g, None
        g = g.contiguous()
        dist.all_reduce(g)
        return g.chunk(run.ranks, 1)[run.rank].contiguous(), None


class Attention(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.q, self.kv, self.out = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x):
        b, n, _ = x.shape
        kv = Gathered.apply(self.kv(x), self.run)
        q = self.q(x).view(b, n, HEADS, -1).transpose(1, 2)
        k, v = (
            each.reshape(b, -1, HEADS, WIDTH // HEADS).transpose(1, 2) for each in kv.chunk(2, -1)
        )
        at = self.run.rank * n
        total, weights, top = 0, 0, torch.full((b, HEADS, n, 1), -1e30)
        parts = max(self.run.ranks, 2)
        for number, (kk, vv) in enumerate(zip(k.chunk(parts, 2), v.chunk(parts, 2), strict=True)):
            size = kk.shape[2]
            if self.layer == 0 and number == 1 and self.run.bug("one_block_skipped", 2):
                continue  # bug: one_block_skipped
            rows = torch.arange(at, at + n).unsqueeze(1)
            columns = torch.arange(number * size, (number + 1) * size)
            scores = q @ kk.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
            scores = scores.masked_fill(columns > rows, -1e30)
            new = torch.maximum(top, scores.amax(-1, keepdim=True))
            p = (scores - new).exp()
            p = p.masked_fill(columns > rows, 0.0)
            factor = (top - new).exp()
            if self.layer == 0 and self.run.bug("not_rescaled"):
                factor = factor * 0 + 1  # bug: not_rescaled
            total = total * factor + p @ vv
            weights = weights * factor + p.sum(-1, keepdim=True)
            top = new
        y = total / weights
        return self.out(y.transpose(1, 2).reshape(b, n, -1))


class Block(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(WIDTH), Attention(run, layer)
        self.mlp = nn.Sequential(
            nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.GELU(), nn.Linear(32, WIDTH)
        )

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.mlp(x)


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.embed, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block(run, i) for i in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        n = tokens.shape[1]
        at = 0 if self.run.bug("positions_of_rank_0") else self.run.rank * n
        x = self.embed(tokens) + self.place(torch.arange(at, at + n))  # bug: positions_of_rank_0
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def train(run):
    torch.manual_seed(19)
    net = Net(run)
    optimizer = (
        torch.optim.SGD(net.parameters(), lr=0.1)
        if run.variant == "sgd"
        else torch.optim.Adam(net.parameters(), lr=0.01)
    )
    generator = torch.Generator().manual_seed(2)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
        x, y = (
            tokens[:, :-1].chunk(run.ranks, 1)[run.rank],
            tokens[:, 1:].chunk(run.ranks, 1)[run.rank],
        )
        with run.step(net):
            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), reduction="sum")
            loss = loss / (BATCH * LENGTH)
            if run.bug("loss_of_parts_twice"):
                loss = loss * 2  # bug: loss_of_parts_twice
            loss.backward()
            if run.ranks > 1:
                for name, p in net.named_parameters():
                    if not (run.bug("weights_not_summed") and name.startswith("head")):
                        dist.all_reduce(p.grad)  # bug: weights_not_summed
            optimizer.step()  # bug: weights_not_summed
            optimizer.zero_grad()
        total = loss.detach().clone()
        if run.ranks > 1:
            dist.all_reduce(total)
        losses.append(total.item())
    return losses, {n: p.detach().clone() for n, p in net.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
