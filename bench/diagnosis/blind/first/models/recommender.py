"""Recommendations as of DLRM: bags of embeddings, dense features, dot products of all pairs."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

DENSE, WIDTH, BATCH, LARGEST = 5, 12, 8, 4
TABLES = (31, 17, 23)
HASH = 13  # of the items that are counted by a hash
LR_TABLES, LR_REST, DROPPED = 0.05, 2e-3, 0.0
WEIGHT = 3.0  # of the positive clicks


class Bags(nn.Module):
    """A table for each kind of item; the items of a row are averaged with weights."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(
            nn.EmbeddingBag(size, WIDTH, mode="sum", include_last_offset=True) for size in TABLES
        )

    def forward(self, bags):
        return [
            table(items, offsets, per_sample_weights=weights)
            for table, (items, offsets, weights) in zip(self.tables, bags, strict=True)
        ]


class Net(nn.Module):
    """Layers with activations, the last without."""

    def __init__(self, *widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in itertools.pairwise(widths))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.bags = Bags()
        self.hashed = nn.Embedding(HASH, WIDTH)
        self.bottom = Net(DENSE, 2 * WIDTH, WIDTH)
        count = len(TABLES) + 2
        self.top = Net(WIDTH + count * (count - 1) // 2, 16, 1)

    def bucket(self, users):
        return (users * 7 + 3) % HASH

    def products(self, vectors):
        """Products of all pairs, below the diagonal."""
        rows, columns = torch.tril_indices(vectors.shape[1], vectors.shape[1], offset=-1)
        return torch.bmm(vectors, vectors.transpose(1, 2))[:, rows, columns]

    def forward(self, dense, users, bags):
        x = self.bottom(torch.log1p(dense))
        vectors = torch.stack([x, self.hashed(self.bucket(users)), *self.bags(bags)], dim=1)
        return self.top(torch.cat([x, self.products(vectors)], dim=1))[:, 0]


class Both:
    """Adagrad for the tables, Adam for the rest."""

    def __init__(self, model):
        tables = [*model.bags.parameters(), *model.hashed.parameters()]
        rest = [*model.bottom.parameters(), *model.top.parameters()]
        self.tables = torch.optim.Adagrad(tables, lr=LR_TABLES)
        self.rest = torch.optim.Adam(rest, lr=LR_REST)

    def zero_grad(self):
        self.tables.zero_grad()
        self.rest.zero_grad()

    def step(self):
        self.tables.step()
        self.rest.step()


def build():
    model = Recommender()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model


def optimizer(model):
    return Both(model)


def batch(generator):
    """Dense features, users, items with weights in a padded form and their counts, clicks."""
    dtype = torch.get_default_dtype()
    dense = torch.rand(BATCH, DENSE, generator=generator).to(dtype) * 9
    users = torch.randint(1000, (BATCH,), generator=generator)
    items = torch.stack(
        [torch.randint(size, (BATCH, LARGEST), generator=generator) for size in TABLES], dim=1
    )
    counts = torch.randint(1, LARGEST + 1, (BATCH, len(TABLES)), generator=generator)
    weights = torch.rand(BATCH, len(TABLES), LARGEST, generator=generator).to(dtype) + 0.2
    clicks = (torch.rand(BATCH, generator=generator) < 0.4).to(dtype)
    return dense, users, items, counts, weights, clicks


def bags_of(items, counts, weights):
    """(items, offsets, weights) of each kind, without the padding."""
    made = []
    for kind in range(len(TABLES)):
        known = torch.arange(LARGEST) < counts[:, kind, None]
        offsets = F.pad(counts[:, kind].cumsum(0), (1, 0))
        shares = weights[:, kind] * known
        shares = shares / shares.sum(1, keepdim=True)
        made.append((items[:, kind][known], offsets, shares[known]))
    return made


def losses(logits, clicks):
    return F.binary_cross_entropy_with_logits(
        logits, clicks, pos_weight=logits.new_tensor(WEIGHT), reduction="none"
    )


def descend(model, dense, users, items, counts, weights, clicks):
    logits = model(dense, users, bags_of(items, counts, weights))
    losses(logits, clicks).mean().backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    optimizer.step()
