"""Molecules by GPSConv of torch_geometric: walks, missing labels, masked atoms, balanced tasks."""

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.nn import GINEConv, GPSConv, global_add_pool

ATOMS, BONDS, TASKS, WIDTH, LAYERS, WALKS = 6, 3, 4, 12, 2, 4
HIDDEN_ATOM, HIDE, ATOM_WEIGHT, FORGET = ATOMS, 0.25, 0.4, 0.9
LR, WARMUP = 5e-3, 4


def make_layer(heads=3):
    mlp = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
    conv = GINEConv(mlp, train_eps=True, edge_dim=WIDTH)
    return GPSConv(WIDTH, conv, heads=heads, norm="layer_norm")


class Molecules(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms = nn.Embedding(ATOMS + 1, WIDTH)
        self.walks = nn.Linear(WALKS, WIDTH)
        self.bonds = nn.Embedding(BONDS, WIDTH)
        self.layers = nn.ModuleList([make_layer() for _ in range(LAYERS)])
        self.tasks = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, TASKS))
        self.which_atom = nn.Linear(WIDTH, ATOMS)
        self.register_buffer("positive", torch.full((TASKS,), 2.0))
        self.register_buffer("negative", torch.full((TASKS,), 3.0))

    def forward(self, atoms, edges, kinds, graph):
        x = self.atoms(atoms) + self.walks(returns(edges, len(atoms)))
        bonds = self.bonds(kinds)
        for layer in self.layers:
            x = layer(x, edges, graph, edge_attr=bonds)
        return x


def both_ways(bonds, kinds):
    return torch.cat([bonds, bonds.flip(0)], dim=1), torch.cat([kinds, kinds])


def walk_matrix(edges, count):
    near = torch.zeros(count, count)
    near[edges[0], edges[1]] = 1.0
    return near / near.sum(dim=1, keepdim=True)


def returns(edges, count):
    """How probable it is that a random walk is back after 1, 2, ... steps."""
    once = walk_matrix(edges, count)
    power, found = once, []
    for _ in range(WALKS):
        found.append(power.diagonal())
        power = power @ once
    return torch.stack(found, dim=1)


def pooled(x, graph, graphs):
    return global_add_pool(x, graph, size=graphs)


def hidden(atoms, draw):
    where = draw < HIDE
    return atoms.masked_fill(where, HIDDEN_ATOM), where


def entropy(logits, labels, weight):
    """Binary entropies, in which the positive ones weigh `weight`."""
    return F.binary_cross_entropy_with_logits(logits, labels, pos_weight=weight, reduction="none")


def balance(model):
    return model.negative / model.positive


def task_loss(model, logits, labels):
    known = ~labels.isnan()
    losses = entropy(logits, labels.nan_to_num(), balance(model))
    return (losses * known).sum()


def atom_loss(logits, atoms, where):
    return F.cross_entropy(logits[where], atoms[where], reduction="sum")


def losses(model, data):
    """The sum over labels that are known, and that over hidden atoms."""
    atoms, where = hidden(data["atoms"], data["draw"])
    edges, kinds = both_ways(data["bonds"], data["kinds"])
    x = model(atoms, edges, kinds, data["graph"])
    logits = model.tasks(pooled(x, data["graph"], len(data["labels"])))
    atom_sum = atom_loss(model.which_atom(x), data["atoms"], where)
    return task_loss(model, logits, data["labels"]), atom_sum


def counts(data):
    return (~data["labels"].isnan()).sum(), (data["draw"] < HIDE).sum()


def total_loss(task_sum, atom_sum, labels, atoms):
    return task_sum / labels + ATOM_WEIGHT * atom_sum / atoms


def count_labels(model, labels):
    """How often each task was positive and negative of late."""
    model.positive.mul_(FORGET).add_((labels == 1).sum(dim=0))
    model.negative.mul_(FORGET).add_((labels == 0).sum(dim=0))


def backward(model, data):
    total_loss(*losses(model, data), *counts(data)).backward()


def build():
    return Molecules().train()


def optimizer(model, **more):
    made = torch.optim.RAdam(model.parameters(), lr=LR, betas=(0.9, 0.95), **more)
    warm = torch.optim.lr_scheduler.LinearLR(made, 0.25, total_iters=WARMUP)
    model.scheduler = warm
    return made


def batch(generator):
    """Rings with a bond across, one after the other."""
    sizes = [5, 7, 4, 6, 5, 8]
    bonds, first = [], 0
    for size in sizes:
        ring = torch.arange(size)
        pairs = torch.stack([ring, (ring + 1) % size])
        pairs = torch.cat([pairs, torch.tensor([[0], [size // 2]])], dim=1)
        bonds.append(first + pairs)
        first += size
    bonds = torch.cat(bonds, dim=1)
    labels = torch.randint(0, 2, (len(sizes), TASKS), generator=generator).to(torch.zeros(()))
    missing = torch.rand(labels.shape, generator=generator) < 0.3
    missing[:, 0] = False
    return {
        "atoms": torch.randint(0, ATOMS, (first,), generator=generator),
        "bonds": bonds,
        "kinds": torch.randint(0, BONDS, (bonds.shape[1],), generator=generator),
        "graph": torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes)),
        "labels": labels.masked_fill(missing, float("nan")),
        "draw": torch.rand(first, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    count_labels(model, batch["labels"])
    backward(model, batch)
    optimizer.step()
    model.scheduler.step()
