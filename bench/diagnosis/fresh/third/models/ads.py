"""Clicks and sales of advertisements: weighted bags, a cross network, Adagrad and SGD together."""

import torch
from torch import nn
from torch.nn import functional as F

TABLES, DENSE, WIDTH, RANK, BATCH, LARGEST = (19, 11, 26), 4, 6, 4, 8, 4
HALF, NEGATIVES, SALES = 3.0, 0.25, 0.7
RATE_TABLES, RATE, MOMENTUM, DECAY, WARM = 0.05, 0.02, 0.9, 0.05, 3


class Cross(nn.Module):
    """The input, crossed with itself by a product of low rank."""

    def __init__(self, width):
        super().__init__()
        self.narrow = nn.Linear(width, RANK, bias=False)
        self.wide = nn.Linear(RANK, width)

    def forward(self, first, x):
        return first * self.wide(self.narrow(x)) + x


class Tables(nn.Module):
    """One table for each kind of item; places that are empty hold item 0."""

    def __init__(self):
        super().__init__()
        self.bags = nn.ModuleList(
            nn.EmbeddingBag(size, WIDTH, mode="sum", padding_idx=0) for size in TABLES
        )

    def forward(self, items, weights):
        parts = zip(self.bags, items.unbind(1), weights.unbind(1), strict=True)
        return torch.stack([bag(i, per_sample_weights=w) for bag, i, w in parts], dim=1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = Tables()
        self.norm = nn.BatchNorm1d(DENSE)
        width = DENSE + WIDTH * len(TABLES)
        self.crosses = nn.ModuleList(Cross(width) for _ in range(2))
        self.click = nn.Linear(width + 1, 1)
        self.sale = nn.Linear(width + 1, 1)

    def forward(self, dense, items, weights):
        """Logits of a click, and of a sale behind a click."""
        fields = self.tables(items, weights)
        first = x = torch.cat([self.norm(dense), fields.flatten(1)], dim=1)
        for cross in self.crosses:
            x = cross(first, x)
        x = torch.cat([x, pairs_of(fields)], dim=1)
        return self.click(x).squeeze(1), self.sale(x).squeeze(1)


def pairs_of(fields):
    """The sum of the products of all pairs of fields (a factorization machine)."""
    total = fields.sum(dim=1).square()
    own = fields.square().sum(dim=1)
    return 0.5 * (total - own).sum(dim=1, keepdim=True)


def shares_of(items, ages):
    """What is old weighs less; the items of one bag weigh one together."""
    known = items != 0
    shares = torch.exp(-ages / HALF) * known
    return shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-6)


def click_loss(logits, clicked):
    """Rows without a click were thinned out before: each stands for several."""
    weight = torch.where(clicked > 0, 1.0, 1 / NEGATIVES)
    each = F.binary_cross_entropy_with_logits(logits, clicked, reduction="none")
    return (weight * each).sum() / weight.sum()


def sale_loss(click, sale, sold):
    """A sale needs a click: its probability is a product, learned from all rows."""
    probability = torch.sigmoid(click) * torch.sigmoid(sale)
    return F.binary_cross_entropy(probability, sold)


def losses_of(model, data):
    weights = shares_of(data["items"], data["ages"])
    click, sale = model(data["dense"].log1p(), data["items"], weights)
    return click_loss(click, data["clicked"]), SALES * sale_loss(click, sale, data["sold"])


def backward(model, data):
    click, sale = losses_of(model, data)
    (click + sale).backward()


def decayed(name, weight):
    return weight.dim() > 1


class Both:
    """Adagrad for the tables, SGD for what is dense."""

    def __init__(self, model, **more):
        rest = [(n, w) for n, w in model.named_parameters() if not n.startswith("tables.")]
        groups = [
            {"params": [w for n, w in rest if decayed(n, w)], "weight_decay": DECAY},
            {"params": [w for n, w in rest if not decayed(n, w)], "weight_decay": 0.0},
        ]
        self.tables = torch.optim.Adagrad(model.tables.parameters(), lr=RATE_TABLES, **more)
        self.rest = torch.optim.SGD(groups, lr=RATE, momentum=MOMENTUM, nesterov=True, **more)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.rest, lambda step: min(1.0, (step + 1) / WARM)
        )

    def zero_grad(self):
        self.tables.zero_grad()
        self.rest.zero_grad()

    def step(self):
        self.tables.step()
        self.rest.step()
        self.schedule.step()


def build():
    model = Model()
    for bag in model.tables.bags:
        nn.init.normal_(bag.weight, std=0.4)
    return model


def optimizer(model):
    return Both(model)


def batch(generator):
    def uniform(*shape):
        return torch.rand(*shape, generator=generator)

    items = [torch.randint(1, size, (BATCH, LARGEST), generator=generator) for size in TABLES]
    counts = torch.randint(1, LARGEST + 1, (BATCH, len(TABLES), 1), generator=generator)
    clicked = uniform(BATCH).lt(0.5)
    clicked[:2] = torch.tensor([True, False])
    return {
        "dense": uniform(BATCH, DENSE) * 9,
        "items": torch.stack(items, dim=1) * (torch.arange(LARGEST) < counts),
        "ages": uniform(BATCH, len(TABLES), LARGEST) * 6,
        "clicked": clicked.to(torch.get_default_dtype()),
        "sold": (clicked & uniform(BATCH).lt(0.6)).to(torch.get_default_dtype()),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    optimizer.step()
