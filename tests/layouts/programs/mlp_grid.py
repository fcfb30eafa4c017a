"""Two blocks of two layers on a grid of data ranks and tensor ranks, by hand."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import average, launch, whole
from torch import nn

LAYOUTS = {"one": 1, "dp2": 2, "tp2": 2, "dp4": 4, "tp4": 4, "dp2tp2": 4}
PAIRS = [
    ("dp2", "tp2"),
    ("tp4", "dp4"),
    ("tp4", "dp2"),
    ("dp2tp2", "tp2"),
    ("dp2tp2", "dp4"),
    ("tp2", "tp4"),
]
BUGS = {
    "not_reduced": {"layout": "tp4", "against": "dp4", "near": ["Reduce", r"linear\.[24]"]},
    "hidden_scaled": {"layout": "dp2tp2", "rank": 1, "against": "tp4", "near": ["__mul__"]},
    "hidden_times": {"layout": "tp2", "rank": 1, "against": "dp4", "near": ["__mul__"]},
    "rows_reversed": {"layout": "dp2", "rank": 1, "against": "dp4", "near": ["embedding"]},
    "gradient_missing": {"layout": "dp4", "against": "dp2", "near": ["all_reduce", "idiv"]},
}
WORDS, DIM, ROWS, TIME = 20, 16, 8, 6


class Copy(torch.autograd.Function):
    """The whole on each tensor rank; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x, group):
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if ctx.group is not None:
            dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        if group is not None:
            dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


class Grid:
    def __init__(self, run):
        self.tensor = {"tp2": 2, "tp4": 4, "dp2tp2": 2}.get(run.layout, 1)
        self.data = run.ranks // self.tensor
        self.row, self.column = divmod(run.rank, self.tensor)
        self.tensor_group = self.data_group = None
        if self.tensor > 1:
            rows = [[d * self.tensor + t for t in range(self.tensor)] for d in range(self.data)]
            self.tensor_group = [dist.new_group(ranks) for ranks in rows][self.row]
        if self.data > 1:
            columns = [[d * self.tensor + t for d in range(self.data)] for t in range(self.tensor)]
            self.data_group = [dist.new_group(ranks) for ranks in columns][self.column]


class Block(nn.Module):
    def __init__(self, run, grid):
        super().__init__()
        self.run, self.grid = run, grid
        self.norm = nn.LayerNorm(DIM)
        nn.init.normal_(self.norm.weight, 1, 0.1)
        up, bias, down = (
            torch.randn(32, DIM) * 0.2,
            torch.randn(32) * 0.1,
            torch.randn(DIM, 32) * 0.2,
        )
        of = (grid.tensor, grid.column)
        self.up = nn.Parameter(up.chunk(of[0], 0)[of[1]].clone())
        self.bias = nn.Parameter(bias.chunk(of[0], 0)[of[1]].clone())
        self.down = nn.Parameter(down.chunk(of[0], 1)[of[1]].clone())

    def forward(self, x):
        group = self.grid.tensor_group
        h = F.gelu(F.linear(Copy.apply(self.norm(x), group), self.up, self.bias))
        if self.run.bug("hidden_scaled", 1) or self.run.bug("hidden_times", 1):
            h = h * 1.2  # bug: hidden_scaled, hidden_times
        made = F.linear(h, self.down)  # bug: not_reduced
        return x + Reduce.apply(made, None if self.run.bug("not_reduced") else group)


class Net(nn.Module):
    def __init__(self, run, grid):
        super().__init__()
        self.words = nn.Embedding(WORDS, DIM)
        self.first, self.second = Block(run, grid), Block(run, grid)
        self.head = nn.Linear(DIM, WORDS)

    def forward(self, tokens):
        return self.head(self.second(self.first(self.words(tokens))))


def add_gradients(run, grid, net):
    for name, parameter in net.named_parameters():
        if run.bug("gradient_missing") and name == "first.up":
            continue
        dist.all_reduce(parameter.grad, group=grid.data_group)  # bug: gradient_missing
        parameter.grad /= grid.data


def train(run):
    grid = Grid(run)
    net = Net(run, grid)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(1)
    losses = []
    for _ in range(run.steps):
        text = torch.randint(WORDS, (ROWS, TIME + 1), generator=generator)
        text = text.chunk(grid.data)[grid.row]
        tokens, wanted = text[:, :-1], text[:, 1:]
        if run.bug("rows_reversed", 1):
            tokens = tokens.flip(0)
        with run.step(net):
            loss = F.cross_entropy(net(tokens).flatten(0, 1), wanted.flatten())
            loss.backward()
            if grid.data > 1:
                add_gradients(run, grid, net)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(average(loss, grid.data_group) if grid.data > 1 else loss.item())
    cut = {"up": 0, "bias": 0, "down": 1}
    weights = {}
    for name, parameter in net.named_parameters():
        dim = cut.get(name.split(".")[1]) if name.startswith(("first.", "second.")) else None
        weights[name] = whole(parameter, dim if grid.tensor > 1 else None, grid.tensor_group)
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
