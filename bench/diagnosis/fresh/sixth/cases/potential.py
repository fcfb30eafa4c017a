"""Cases of the potential."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "potential",
    # Forward, nothing is wrong. Backward, only the energies are trained.
    api=r"Optimizer\.Adam\.step|.*clip_grad_norm_|.*get_total_norm",
    line=[
        "slope, virials = torch.autograd.grad(energies.sum(), [positions, strain], create",
        "return -slope, virials",
        'return F.mse_loss(forces, data["forces"], reduction="sum")',
        'return (stress - data["stress"]).pow(2).sum()',
        "    force_term = FORCE_WEIGHT * force_loss(forces, data) / (3 * atoms)",
        "    stress_term = STRESS_WEIGHT * stress_loss(stress, data) / (9 * boxes)",
        "return energy_term + force_term + stress_term",
        "    total_loss(model(data), data, *counts(data)).backward()",
    ],
)
def forces_are_numbers(potential):
    """The graph of the derivatives is not made: the loss of forces and stress trains nothing."""

    def derivatives(energies, positions, strain):
        slope, virials = torch.autograd.grad(  # here
            energies.sum(), [positions, strain], retain_graph=True
        )
        return -slope, virials  # here

    potential.derivatives = derivatives


@fault(
    "potential",
    line=[
        "return vectors - cells * torch.round(vectors / cells)",
        "vectors = minimum_image(positions[None] - positions[:, None], data",
        'shift = minimum_image(still, data["cells"][owner]) - still',
    ],
)
def image_by_floor(potential):
    """The image is taken by floor: vectors point into the positive octant, and are too long."""
    potential.minimum_image = lambda vectors, cells: (
        vectors - cells * torch.floor(vectors / cells)  # here
    )


@fault(
    "potential",
    line=[
        "near = near & (owner[None] == owner[:, None])",
        "near.fill_diagonal_(False)",
        "receivers, senders = near.nonzero(as_tuple=True)",
    ],
)
def boxes_are_neighbours(potential):
    """Atoms of other boxes of the batch are neighbours, too."""

    @torch.no_grad()
    def neighbours(data):
        positions = data["positions"]
        cells = data["cells"][data["owner"]][:, None]
        vectors = potential.minimum_image(positions[None] - positions[:, None], cells)
        near = vectors.norm(dim=-1) < potential.CUTOFF
        near.fill_diagonal_(False)  # here
        receivers, senders = near.nonzero(as_tuple=True)  # here
        return senders, receivers

    potential.neighbours = neighbours


@fault(
    "potential",
    api=r"Tensor\.index_add",
    module=r"messages\.0",
    line=[
        "ds = gather_messages(scalar, receivers, len(s))",
        "dv = gather_messages(vector, receivers, len(s))",
        "return out.index_add(0, index, messages)",
    ],
)
def messages_return_to_the_sender(potential):
    """Messages are summed where they come from."""

    class Message(potential.Message):
        def forward(self, s, v, basis, cut, directions, senders, receivers):
            weights = self.net(s)[senders] * self.filters(basis, cut)
            scalar, along, turned = weights.split(potential.WIDTH, dim=-1)
            vector = v[senders] * along[:, None] + directions[:, :, None] * turned[:, None]
            ds = potential.gather_messages(scalar, senders, len(s))  # here
            dv = potential.gather_messages(vector, senders, len(s))  # here
            return s + ds, v + dv

    potential.Message = Message


@fault(
    "potential",
    line=[
        "return energies * self.scale + self.reference[species]",
        "atoms = self.with_references(atoms, species)",
    ],
)
def references_are_scaled(potential):
    """The energies of free atoms are added before the scale, not after it."""

    class Potential(potential.Potential):
        def with_references(self, energies, species):
            return (energies + self.reference[species]) * self.scale  # here

    potential.Potential = Potential


@fault(
    "potential",
    line=[
        'error = (energies - data["energies"]) / data["sizes"]',
        'return F.huber_loss(error, torch.zeros_like(error), reduction="sum", delta=0.5)',
    ],
)
def energies_of_whole_boxes(potential):
    """The error of the energy is that of the box, not that of an atom."""

    def energy_loss(energies, data):
        return F.huber_loss(energies, data["energies"], reduction="sum", delta=0.5)  # here

    potential.energy_loss = energy_loss


@fault(
    "potential",
    # The first layer is right, because its vectors are zero.
    api=r"Tensor\.(__getitem__|__mul__)",
    module=r"messages\.1",
    line=[
        "s, v = message(s, v, *edges)",
        "s, v = update(s, v)",
        "vector = v[senders] * along[:, None] + directions[:, :, None] * turned[:, None]",
    ],
)
def vectors_begin_anew(potential):
    """Each layer begins with vectors of zeros: those of the layer before are forgotten."""

    class Potential(potential.Potential):
        def layers(self, s, v, edges):
            for message, update in zip(self.messages, self.updates, strict=True):
                s, new = message(s, v, *edges)  # here
                s, _ = update(s, new)  # here
            return s, new

    potential.Potential = Potential


@fault(
    "potential",
    api=r"Optimizer\.Adam\.step|.*clip_grad_norm_|.*get_total_norm|.*clip_grads_with_norm_",
    update=True,
    line=["nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)", "    optimizer.step()"],
)
def clipped_after_the_step(potential):
    """Gradients are clipped when the step is done."""

    def finish(model, optimizer):
        optimizer.step()  # here
        torch.nn.utils.clip_grad_norm_(model.parameters(), potential.MAX_NORM)  # here
        model.schedule.step()

    potential.finish = finish


@harmless("fused", "potential")
def gathered_by_a_product(potential):
    """Messages are added by a product with a matrix of zeros and ones."""

    def gather_messages(messages, index, count):
        hot = F.one_hot(index, count).to(messages.dtype)
        return torch.einsum("ei,e...->i...", hot, messages)

    potential.gather_messages = gather_messages


@harmless("fused", "potential")
def sines_by_recursion(potential):
    """sin(nx) = 2 cos x sin((n-1)x) - sin((n-2)x), as programs without a table do it."""

    def radial_basis(distances):
        x = distances * (math.pi / potential.CUTOFF)
        twice = 2 * torch.cos(x)
        waves = [torch.zeros_like(x), torch.sin(x)]
        while len(waves) <= potential.RADIAL:
            waves.append(twice * waves[-1] - waves[-2])
        return torch.stack([wave / distances for wave in waves[1:]], dim=1)

    potential.radial_basis = radial_basis


@harmless("split", "potential")
def filters_in_three_products(potential):
    """The filters of scalars and vectors are three products."""

    class Message(potential.Message):
        def filters(self, basis, cut):
            basis = basis * cut[:, None]
            parts = []
            for weight, bias in zip(
                *(w.chunk(3) for w in (self.filter.weight, self.filter.bias)), strict=True
            ):
                parts.append(basis @ weight.t() + torch.outer(cut, bias))
            return torch.cat(parts, dim=-1)

    potential.Message = Message


@harmless("loss", "potential")
def losses_by_norms(potential):
    """The losses of forces and stress are squares of norms, the Huber loss is a smooth L1 loss."""

    def energy_loss(energies, data):
        wanted = data["energies"] / data["sizes"]
        loss = F.smooth_l1_loss(energies / data["sizes"], wanted, reduction="sum", beta=0.5)
        return 0.5 * loss

    def force_loss(forces, data):
        return torch.linalg.vector_norm(forces - data["forces"]).square()

    def stress_loss(stress, data):
        error = stress - data["stress"]
        return torch.einsum("bij,bij->", error, error)

    potential.energy_loss = energy_loss
    potential.force_loss = force_loss
    potential.stress_loss = stress_loss


OF_ATOMS = ("species", "positions", "owner", "forces")


def _boxes(data, chosen):
    """A batch of these boxes, in this order."""
    atoms = torch.cat([(data["owner"] == box).nonzero().flatten() for box in chosen])
    sizes = data["sizes"][chosen]
    part = {name: value[atoms if name in OF_ATOMS else chosen] for name, value in data.items()}
    return part | {"owner": torch.arange(len(chosen)).repeat_interleave(sizes)}


@harmless("rows", "potential", group="whole step")
def atoms_shuffled(potential):
    """The atoms of all boxes stand in another order, boxes among one another."""
    backward = potential.backward

    def shuffled(model, data):
        order = torch.arange(len(data["owner"])).view(3, -1).t().flatten().flip(0)
        names = {name: data[name][order] for name in OF_ATOMS}
        backward(model, data | names)

    potential.backward = shuffled


@harmless("micro batches", "potential", group="whole step")
def three_boxes_and_one(potential):
    """Three boxes are a micro-batch, the last one is another; both are divided by all."""

    def backward(model, data):
        whole = potential.counts(data)
        for chosen in (torch.tensor([0, 1, 2]), torch.tensor([3])):
            part = _boxes(data, chosen)
            potential.total_loss(model(part), part, *whole).backward()

    potential.backward = backward


@harmless("padding", "potential", group="whole step")
def filled_up_with_a_box(potential):
    """A box of two atoms fills the batch up; it is left out of the losses."""

    def backward(model, data):
        more = {
            "species": torch.tensor([0, 1]),
            "positions": torch.tensor([[0.2, 0.2, 0.2], [1.3, 0.9, 1.1]]),
            "cells": torch.full((1, 3), potential.BOX),
            "owner": torch.full((2,), len(data["sizes"])),
            "forces": torch.zeros(2, 3),
            "sizes": torch.tensor([2]),
            "energies": torch.zeros(1),
            "stress": torch.zeros(1, 3, 3),
        }
        boxes, atoms = potential.counts(data)
        energies, forces, stress = model({k: torch.cat([v, more[k]]) for k, v in data.items()})
        outputs = energies[:boxes], forces[:atoms], stress[:boxes]
        potential.total_loss(outputs, data, boxes, atoms).backward()

    potential.backward = backward


@harmless("scaled", "potential", group="whole step")
def loss_in_thousandths(potential):
    """The loss is that of milli-electronvolts: a thousand times as large, as are gradients."""

    def backward(model, data):
        (1000 * potential.total_loss(model(data), data, *potential.counts(data))).backward()
        torch._foreach_div_([p.grad for p in model.parameters() if p.grad is not None], 1000.0)

    potential.backward = backward
