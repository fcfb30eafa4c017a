"""Click prediction: whole embedding tables lie on one rank each, the rest is data parallel."""

import torch
import torch.distributed as dist
from common import average, launch, objects
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "tables2": 2, "tables4": 4}
VARIANTS = ("", "adagrad")
BUGS = {
    "tables_in_other_order": {
        "layout": "tables2",
        "near": ["all_to_all", "cat", "Interaction", "interaction"],
    },
    "gradient_of_tables_not_divided": {
        "layout": "tables2",
        "near": ["all_to_all", "tables", "embedding", "Adam", "update"],
    },
    "top_not_averaged": {"layout": "tables4", "near": ["all_reduce", "top", "Adam", "update"]},
    "stale_labels": {"layout": "tables4", "rank": 2, "near": ["binary_cross", "loss"]},
    "wrong_pooling": {
        "layout": "tables2",
        "rank": 1,
        "near": ["tables", "mean", "sum", "embedding"],
    },
    "local_batch_norm_scale": {"layout": "tables2", "rank": 0, "near": ["bottom"]},
}
TABLES, ROWS, WIDTH, BATCH, BAG = 4, 50, 8, 16, 3


class Exchange(torch.autograd.Function):
    """Each rank gives all rows of its tables and receives its rows of all tables."""

    @staticmethod
    def forward(ctx, pooled, run):
        ctx.run = run
        if run.ranks == 1:
            return pooled.view_as(pooled)
        parts = list(pooled.chunk(run.ranks, 1))  # [tables here, batch/ranks, width]
        parts = [each.contiguous() for each in parts]
        got = [torch.empty_like(each) for each in parts]
        exchange(got, parts)
        if run.bug("tables_in_other_order"):
            got = got[::-1]  # bug: tables_in_other_order
        return torch.cat(got, 0)

    @staticmethod
    def backward(ctx, gradient):
        run = ctx.run
        if run.ranks == 1:
            return gradient, None
        parts = [each.contiguous() for each in gradient.chunk(run.ranks, 0)]
        if run.bug("tables_in_other_order"):
            parts = parts[::-1]
        got = [torch.empty_like(each) for each in parts]
        exchange(got, parts)
        whole = torch.cat(got, 1)
        if not run.bug("gradient_of_tables_not_divided"):
            whole = whole / run.ranks  # bug: gradient_of_tables_not_divided
        return whole, None


def exchange(got, parts):
    flat_in = torch.cat([p.reshape(-1) for p in parts])
    flat_out = torch.empty_like(flat_in)
    dist.all_to_all_single(flat_out, flat_in)
    for mine, piece in zip(got, flat_out.chunk(len(parts)), strict=True):
        mine.copy_(piece.view_as(mine))


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        full = [torch.randn(ROWS, WIDTH) * 0.3 for _ in range(TABLES)]
        here = TABLES // run.ranks
        self.mine = range(run.rank * here, (run.rank + 1) * here)
        self.tables = nn.ParameterDict({str(i): nn.Parameter(full[i]) for i in self.mine})
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, WIDTH))
        pairs = (TABLES + 1) * TABLES // 2
        self.top = nn.Sequential(nn.Linear(WIDTH + pairs, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, bags):
        # bags [tables, whole batch, bag]
        pooled = []
        for i in self.mine:
            rows = F.embedding(bags[i], self.tables[str(i)])
            if self.run.bug("wrong_pooling", 1):
                pooled.append(rows.mean(1))  # bug: wrong_pooling
            else:
                pooled.append(rows.sum(1))
        mine = Exchange.apply(torch.stack(pooled), self.run)
        x = self.bottom(dense)
        if self.run.bug("local_batch_norm_scale", 0):
            x = x * 1.03  # bug: local_batch_norm_scale
        every = torch.cat([x.unsqueeze(1), mine.transpose(0, 1)], 1)
        products = every @ every.transpose(1, 2)
        at = torch.tril_indices(TABLES + 1, TABLES + 1, -1)
        return self.top(torch.cat([x, products[:, at[0], at[1]]], 1)).squeeze(1)


def train(run):
    torch.manual_seed(3)
    net = Net(run)
    make = torch.optim.Adagrad if run.variant == "adagrad" else torch.optim.Adam
    optimizer = make(net.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(8)
    losses = []
    for _ in range(run.steps):
        dense = torch.randn(BATCH, 5, generator=generator)
        bags = torch.randint(0, ROWS, (TABLES, BATCH, BAG), generator=generator)
        clicks = (torch.rand(BATCH, generator=generator) > 0.6).to(dense.dtype)
        mine = slice(run.rank * BATCH // run.ranks, (run.rank + 1) * BATCH // run.ranks)
        labels = clicks[mine]
        if run.bug("stale_labels", 2):
            labels = clicks[: BATCH // run.ranks]  # bug: stale_labels
        with run.step(net):
            scores = net(dense[mine], bags)
            loss = F.binary_cross_entropy_with_logits(scores, labels)  # bug: stale_labels
            loss.backward()
            if run.ranks > 1:
                for name, p in net.named_parameters():
                    if name.startswith("tables"):
                        continue
                    if run.bug("top_not_averaged") and name.startswith("top.2"):
                        continue
                    dist.all_reduce(p.grad)  # bug: top_not_averaged
                    p.grad /= run.ranks
            optimizer.step()  # bug: top_not_averaged
            optimizer.zero_grad()
        losses.append(average(loss))
    weights = {
        n: p.detach().clone() for n, p in net.named_parameters() if not n.startswith("tables")
    }
    for part in objects(
        {n: p.detach().clone() for n, p in net.named_parameters() if n.startswith("tables")}
    ):
        weights.update(part)
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
