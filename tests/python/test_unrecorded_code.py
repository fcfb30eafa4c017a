"""Small trainings in which code without records computes: which call is named, or that none is."""

import pytest
import torch
from test_first_named import FollowsByForeach, FollowsInPlace, Program, first  # noqa: F401
from torch import nn
from torch.nn import functional as F


class Written(Program):
    """The result of a linear is changed in place: its own backward call is given no gradient."""

    slope = 1.0

    def __init__(self):
        super().__init__()
        self.net[2] = nn.Identity()
        self.data = torch.randn(8, 5, 6)
        self.hidden = torch.rand(8, 5) < 0.3
        self.labels = torch.randint(0, 3, (8,))

    def scores(self, x):
        h = self.net[0](x)
        h[self.hidden] = 0.5
        return self.net[3](torch.tanh(self.slope * h).mean(1))

    def loss(self, x, labels):
        return F.cross_entropy(self.scores(x), labels)


class WrittenWithLogarithms(Written):
    def loss(self, x, labels):
        return F.nll_loss(self.scores(x).log_softmax(-1), labels)


class WrittenByHand(Written):
    def loss(self, x, labels):
        scores = self.scores(x)
        return (scores.exp().sum(-1).log() - scores.gather(1, labels[:, None])[:, 0]).mean()


class WrittenAndSteeper(WrittenByHand):
    slope = 1.5


class Chosen(Program):
    """Rows are given to labels by what costs least, which code without records finds."""

    sign = -1

    def loss(self, x, labels):
        scores = self.net(x)
        with torch.no_grad():
            cost = self.sign * scores.softmax(-1)
        rows = torch.tensor(sorted(range(len(x)), key=cost[:, 0].tolist().__getitem__)[:4])
        return F.cross_entropy(scores.index_select(0, rows), labels[:4])


class ChosenByTheWorst(Chosen):
    sign = 1


class Adaptive(Program):
    """A bias before a norm of the batch has no gradient but rounding."""

    steps = 2

    def __init__(self):
        super().__init__()
        self.net[1], self.net[2] = nn.BatchNorm1d(16), nn.Tanh()
        self.slow[1], self.slow[2] = nn.BatchNorm1d(16), nn.Tanh()
        self.slow.requires_grad_(False)
        self.optimizer = torch.optim.AdamW(self.net.parameters(), lr=0.01, **self.options())

    def options(self):
        return {"foreach": True}


class AdaptiveByOneKernel(Adaptive):
    def options(self):
        return {"fused": True}


class AdaptiveByDefault(Adaptive):
    def options(self):
        return {}


class AdaptiveWithMoreDecay(Adaptive):
    def options(self):
        return {"fused": True, "weight_decay": 0.5}


class AdaptiveFollowed(FollowsInPlace, Adaptive):
    pass


class AdaptiveFollowedByForeach(FollowsByForeach, Adaptive):
    def loss(self, x, labels):
        scores = self.net(x)
        return (scores.exp().sum(-1).log() - scores.gather(1, labels[:, None])[:, 0]).mean()


class FourTasks(Program):
    """Four batches, one after the other: their gradients are added up in this order."""

    order = (0, 1, 2, 3)

    def backward(self):
        parts = [(self.data[i::4], self.labels[i::4]) for i in self.order]
        sum(self.loss(*part) for part in parts).backward()


class FourTasksTurned(FourTasks):
    order = (2, 0, 3, 1)


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (WrittenWithLogarithms, Written),
        (WrittenByHand, Written),
        (AdaptiveByOneKernel, AdaptiveByDefault),
        (AdaptiveByDefault, AdaptiveByOneKernel),
        (AdaptiveFollowedByForeach, AdaptiveFollowed),
        (FourTasksTurned, FourTasks),
    ],
)
def test_the_same_is_not_blamed(first, target, golden, level):  # noqa: F811
    assert first(target, golden, level) is None


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden", "name"),
    [
        (WrittenAndSteeper, Written, "Tensor.__rmul__.0.forward"),
        (ChosenByTheWorst, Chosen, "Tensor.__rmul__.0.forward"),
        (AdaptiveWithMoreDecay, AdaptiveByDefault, "Optimizer.AdamW.step.0.forward"),
    ],
)
def test_the_call_that_errs_is_named(first, target, golden, name, level):  # noqa: F811
    assert first(target, golden, level)[0].startswith(name)
