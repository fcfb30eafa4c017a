"""Trainings whose loss has a gradient in it, and gradients that are divided after the passes."""

import pytest
import torch
from test_first_named import Program, first  # noqa: F401
from torch import nn
from torch.nn import functional as F


class Forces(Program):
    """Energies of boxes of two atoms, and forces: minus their slope."""

    def __init__(self):
        super().__init__()
        self.net[2], self.net[3] = nn.Linear(16, 16), nn.Sequential(nn.SiLU(), nn.Linear(16, 1))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.energies, self.forces = torch.randn(4), torch.randn(8, 6)
        self.sizes = torch.full((4,), 2)
        self.reference = torch.tensor([-1.5, 0.4, 2.0])

    def atoms(self, x):
        return self.net(x)[:, 0] * 0.7 + self.reference[self.labels]

    def energy_loss(self, energies):
        error = (energies - self.energies) / self.sizes
        return F.huber_loss(error, torch.zeros_like(error), reduction="sum", delta=0.5)

    def force_loss(self, forces):
        return F.mse_loss(forces, self.forces, reduction="sum")

    def backward(self):
        x = self.data.clone().requires_grad_()
        energies = self.atoms(x).reshape(4, 2).sum(1)
        (slope,) = torch.autograd.grad(energies.sum(), x, create_graph=True)
        (0.1 * self.energy_loss(energies) / 4 + self.force_loss(-slope) / 24).backward()


class ForcesByNorms(Forces):
    def energy_loss(self, energies):
        wanted = self.energies / self.sizes
        return 0.5 * F.smooth_l1_loss(energies / self.sizes, wanted, reduction="sum", beta=0.5)

    def force_loss(self, forces):
        return torch.linalg.vector_norm(forces - self.forces).square()


class ReferencesAreScaled(Forces):
    """Only the energies are other ones: no slope depends on a reference."""

    def atoms(self, x):
        return (self.net(x)[:, 0] + self.reference[self.labels]) * 0.7


class ReferencesAreScaledByNorms(ReferencesAreScaled, ForcesByNorms):
    pass


class Attending(Program):
    """The gradient of the bias of keys is nothing but rounding. Two passes are added up."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.parts = nn.ModuleList(nn.Linear(6, 6) for _ in range(3))
        self.net[0] = nn.Linear(6, 16)
        self.all["parts"] = self.parts
        self.weights = [*self.net.parameters(), *self.parts.parameters()]
        self.optimizer = torch.optim.AdamW(self.weights, lr=0.01)
        self.data, self.labels = torch.randn(10, 5, 6), torch.randint(0, 3, (10,))

    def attend(self, x):
        q, k, v = (part(x) for part in self.parts)
        return (torch.softmax(q @ k.transpose(1, 2) / 6**0.5, -1) @ v).mean(1)

    def passes(self, divided_by):
        for x, labels in zip(self.data.chunk(2), self.labels.chunk(2), strict=True):
            loss = F.cross_entropy(self.net(self.attend(x)), labels, reduction="sum")
            (loss / divided_by if divided_by else loss).backward()

    def backward(self):
        self.passes(torch.tensor(10.0))


class DividedAfterThePasses(Attending):
    def backward(self):
        self.passes(None)
        share = 1 / torch.tensor(10.0)
        for weight in self.weights:
            weight.grad = weight.grad * share


class DividedByAnotherNumber(Attending):
    def backward(self):
        self.passes(None)
        share = 1 / torch.tensor(5.0)
        for weight in self.weights:
            weight.grad = weight.grad * share


class Bigrams(Program):
    """Two parts of the batch, whose pairs of words get numbers by calls on whole numbers."""

    first_part = slice(0, 4)

    def __init__(self):
        super().__init__()
        self.net[0] = nn.EmbeddingBag(1000, 16)
        self.data = torch.randint(0, 1000, (8, 5))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        taken = torch.isin(torch.arange(8), torch.arange(8)[self.first_part])
        self.parts = [(self.data[part], self.labels[part]) for part in (taken, ~taken)]

    def backward(self):
        for words, labels in self.parts:
            self.loss((words[:, 1:] * 7 + words[:, :-1]) % 1000, labels).backward()


class BigramsDealtAnew(Bigrams):
    first_part = slice(0, 8, 2)


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (ForcesByNorms, Forces),
        (Forces, ForcesByNorms),
        (DividedAfterThePasses, Attending),
        (Attending, DividedAfterThePasses),
        (BigramsDealtAnew, Bigrams),
    ],
)
def test_the_same_is_not_blamed(first, target, golden, level):  # noqa: F811
    assert first(target, golden, level) is None


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden", "name"),
    [
        (ReferencesAreScaled, Forces, "Tensor.__add__."),
        (ReferencesAreScaledByNorms, Forces, "Tensor.__add__."),
        (DividedByAnotherNumber, Attending, "Tensor.__"),
    ],
)
def test_the_call_that_errs_is_named(first, target, golden, name, level):  # noqa: F811
    assert first(target, golden, level)[0].startswith(name)
