"""A potential like PaiNN: energies, forces and stress of periodic boxes, by second derivatives."""

import math

import torch
from torch import nn
from torch.nn import functional as F

SPECIES, WIDTH, RADIAL, LAYERS, CUTOFF = 3, 8, 6, 2, 2.2
SIZES, BOX = (5, 3, 6, 4), 3.0
ENERGY_WEIGHT, FORCE_WEIGHT, STRESS_WEIGHT = 1.0, 4.0, 10.0
LR, DECAY, MAX_NORM = 5e-3, 0.9, 1.0


def minimum_image(vectors, cells):
    """The nearest of all periodic images; the boxes are rectangular."""
    return vectors - cells * torch.round(vectors / cells)


@torch.no_grad()
def neighbours(data):
    """Senders and receivers of all pairs of one box that are nearer than the cutoff."""
    positions, owner = data["positions"], data["owner"]
    vectors = minimum_image(positions[None] - positions[:, None], data["cells"][owner][:, None])
    near = vectors.norm(dim=-1) < CUTOFF
    near = near & (owner[None] == owner[:, None])
    near.fill_diagonal_(False)
    receivers, senders = near.nonzero(as_tuple=True)
    return senders, receivers


def strained(positions, cells, strain, owner):
    """Positions and boxes under a small symmetric strain."""
    symmetric = 0.5 * (strain + strain.transpose(-1, -2))
    moved = torch.einsum("ia,iab->ib", positions, symmetric[owner])
    return positions + moved, symmetric


def edge_vectors(data, positions, symmetric, senders, receivers):
    """From the receiver to the sender; the shift of the image is strained, too."""
    owner = data["owner"][receivers]
    vectors = positions[senders] - positions[receivers]
    still = data["positions"][senders] - data["positions"][receivers]
    shift = minimum_image(still, data["cells"][owner]) - still
    return vectors + shift + torch.einsum("ea,eab->eb", shift, symmetric[owner])


def envelope(distances):
    return 0.5 * (torch.cos(math.pi * distances / CUTOFF) + 1)


def radial_basis(distances):
    """sin(n pi d / c) / d for n = 1, 2, ..."""
    n = torch.arange(1, RADIAL + 1, dtype=distances.dtype)
    d = distances[:, None]
    return torch.sin(n * math.pi * d / CUTOFF) / d


def distance(vectors):
    return vectors.pow(2).sum(dim=-1).sqrt()


def gather_messages(messages, index, count):
    out = messages.new_zeros((count, *messages.shape[1:]))
    return out.index_add(0, index, messages)


class Message(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 3 * WIDTH))
        self.filter = nn.Linear(RADIAL, 3 * WIDTH)

    def filters(self, basis, cut):
        return self.filter(basis) * cut[:, None]

    def forward(self, s, v, basis, cut, directions, senders, receivers):
        weights = self.net(s)[senders] * self.filters(basis, cut)
        scalar, along, turned = weights.split(WIDTH, dim=-1)
        vector = v[senders] * along[:, None] + directions[:, :, None] * turned[:, None]
        ds = gather_messages(scalar, receivers, len(s))
        dv = gather_messages(vector, receivers, len(s))
        return s + ds, v + dv


class Update(nn.Module):
    def __init__(self):
        super().__init__()
        self.u = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.net = nn.Sequential(
            nn.Linear(2 * WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 3 * WIDTH)
        )

    def forward(self, s, v):
        left, right = self.u(v), self.v(v)
        length = (right.pow(2).sum(dim=1) + 1e-6).sqrt()
        a, b, c = self.net(torch.cat([s, length], dim=-1)).split(WIDTH, dim=-1)
        inner = (left * right).sum(dim=1)
        return s + a + b * inner, v + left * c[:, None]


class Potential(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(SPECIES, WIDTH)
        self.messages = nn.ModuleList(Message() for _ in range(LAYERS))
        self.updates = nn.ModuleList(Update() for _ in range(LAYERS))
        self.readout = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, 1))
        self.register_buffer("reference", torch.tensor([-1.5, 0.4, 2.0]))
        self.register_buffer("scale", torch.tensor(0.7))

    def layers(self, s, v, edges):
        for message, update in zip(self.messages, self.updates, strict=True):
            s, v = message(s, v, *edges)
            s, v = update(s, v)
        return s, v

    def atom_energies(self, species, vectors, senders, receivers):
        distances = distance(vectors)
        directions = vectors / distances[:, None]
        basis, cut = radial_basis(distances), envelope(distances)
        s = self.embedding(species)
        v = s.new_zeros(len(s), 3, WIDTH)
        edges = (basis, cut, directions, senders, receivers)
        s, v = self.layers(s, v, edges)
        return self.readout(s).squeeze(-1)

    def with_references(self, energies, species):
        return energies * self.scale + self.reference[species]

    def forward(self, data):
        """Energies of boxes, forces of atoms, stress of boxes."""
        species, owner, cells = data["species"], data["owner"], data["cells"]
        positions = data["positions"].clone().requires_grad_()
        strain = positions.new_zeros(len(cells), 3, 3).requires_grad_()
        moved, symmetric = strained(positions, cells, strain, owner)
        senders, receivers = neighbours(data)
        vectors = edge_vectors(data, moved, symmetric, senders, receivers)
        atoms = self.atom_energies(species, vectors, senders, receivers)
        atoms = self.with_references(atoms, species)
        energies = gather_messages(atoms, owner, len(cells))
        forces, virials = derivatives(energies, positions, strain)
        return energies, forces, stress_of(virials, cells)


def derivatives(energies, positions, strain):
    """Forces are minus the gradient of the energy; a loss of them has to be differentiable."""
    slope, virials = torch.autograd.grad(energies.sum(), [positions, strain], create_graph=True)
    return -slope, virials


def stress_of(virials, cells):
    volumes = cells.prod(dim=-1)
    return virials / volumes[:, None, None]


def energy_loss(energies, data):
    """Sum over boxes, for each atom of a box."""
    error = (energies - data["energies"]) / data["sizes"]
    return F.huber_loss(error, torch.zeros_like(error), reduction="sum", delta=0.5)


def force_loss(forces, data):
    return F.mse_loss(forces, data["forces"], reduction="sum")


def stress_loss(stress, data):
    return (stress - data["stress"]).pow(2).sum()


def counts(data):
    return len(data["sizes"]), len(data["owner"])


def total_loss(outputs, data, boxes, atoms):
    energies, forces, stress = outputs
    energy_term = ENERGY_WEIGHT * energy_loss(energies, data) / boxes
    force_term = FORCE_WEIGHT * force_loss(forces, data) / (3 * atoms)
    stress_term = STRESS_WEIGHT * stress_loss(stress, data) / (9 * boxes)
    return energy_term + force_term + stress_term


def backward(model, data):
    total_loss(model(data), data, *counts(data)).backward()


def build():
    return Potential()


def make_schedule(optimizer):
    return torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=DECAY)


def optimizer(model, **more):
    made = torch.optim.Adam(model.parameters(), lr=LR, amsgrad=True, **more)
    model.schedule = make_schedule(made)
    return made


def batch(generator):
    sizes = torch.tensor(SIZES)
    owner = torch.arange(len(SIZES)).repeat_interleave(sizes)
    atoms, boxes = len(owner), len(SIZES)
    cells = BOX + torch.rand(boxes, 3, generator=generator)
    stress = torch.randn(boxes, 3, 3, generator=generator) * 0.1
    return {
        "species": torch.randint(0, SPECIES, (atoms,), generator=generator),
        "positions": torch.rand(atoms, 3, generator=generator) * cells[owner],
        "cells": cells,
        "owner": owner,
        "sizes": sizes,
        "energies": torch.randn(boxes, generator=generator) * 2,
        "forces": torch.randn(atoms, 3, generator=generator),
        "stress": stress + stress.transpose(-1, -2),
    }


def finish(model, optimizer):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    model.schedule.step()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    finish(model, optimizer)
