"""Links of readers and books with torch_geometric: weighted edges both ways, ranked pairs."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import HeteroConv, SAGEConv

READERS, BOOKS, FEATURES, WIDTH, EDGES, KNOWN, NEGATIVES = 12, 12, 6, 16, 40, 10, 3
RATE, DECAY, NORM_DECAY, SLOPE, HEAT = 1e-2, 0.9, 1e-3, 0.1, 0.5
READS, READ_BY = ("reader", "reads", "book"), ("book", "read_by", "reader")


def both_ways(edges):
    """Edges from readers to books, and the same from books to readers."""
    return {READS: edges, READ_BY: edges.flip(0)}


def convolution(inside):
    kinds = (READS, READ_BY)
    return HeteroConv(
        {kind: SAGEConv((inside, inside), WIDTH, aggr="mean") for kind in kinds}, aggr="sum"
    )


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.readers = nn.Linear(FEATURES, WIDTH)
        self.books = nn.Linear(FEATURES + 2, WIDTH)
        self.first, self.second = convolution(WIDTH), convolution(WIDTH)
        self.norms = nn.ModuleDict({name: nn.LayerNorm(WIDTH) for name in ("reader", "book")})

    def between(self, nodes):
        return {name: F.leaky_relu(self.norms[name](x), SLOPE) for name, x in nodes.items()}

    def unit(self, x):
        return F.normalize(x, dim=-1)

    def forward(self, readers, books, edges):
        nodes = {"reader": self.readers(readers), "book": self.books(books)}
        edges = both_ways(edges)
        nodes = self.second(self.between(self.first(nodes, edges)), edges)
        return self.unit(nodes["reader"]), self.unit(nodes["book"])


def build():
    model = Network()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.4)
    return model


def optimizer(model):
    return torch.optim.Adagrad(model.parameters(), lr=RATE, initial_accumulator_value=1e-3)


def batch(generator):
    """Features, edges that messages take, edges that are ranked, and books that are not read."""
    dtype = torch.get_default_dtype()
    readers = torch.randn(READERS, FEATURES, generator=generator).to(dtype)
    books = torch.randn(BOOKS, FEATURES + 2, generator=generator).to(dtype)
    numbers = torch.randperm(READERS * BOOKS, generator=generator)[:EDGES]
    edges = torch.stack([numbers // BOOKS, numbers % BOOKS])
    negatives = torch.randint(BOOKS, (KNOWN * NEGATIVES,), generator=generator)
    return readers, books, edges, negatives


def split(edges):
    """The last edges are ranked; messages do not take them."""
    return edges[:, :-KNOWN], edges[:, -KNOWN:]


def scores_of(readers, books, pairs):
    return (readers[pairs[0]] * books[pairs[1]]).sum(dim=-1) / HEAT


def against(ranked, negatives):
    """For each ranked edge its reader, with some books that the reader has not read."""
    return torch.stack([ranked[0].repeat_interleave(NEGATIVES), negatives])


def loss_of(read, unread):
    """A book that was read is ranked before those that were not (BPR)."""
    return -F.logsigmoid(read.repeat_interleave(NEGATIVES) - unread).mean()


def penalty(model):
    return NORM_DECAY * sum(weight.square().sum() for weight in model.parameters())


def descend(model, readers, books, edges, negatives):
    messages, ranked = split(edges)
    readers, books = model(readers, books, messages)
    read = scores_of(readers, books, ranked)
    unread = scores_of(readers, books, against(ranked, negatives))
    (loss_of(read, unread) + penalty(model)).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    optimizer.step()
