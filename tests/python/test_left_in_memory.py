"""Small trainings that keep something from step to step: which call is named, or that none is."""

import pytest
import torch
from test_first_named import Program, first  # noqa: F401
from torch import nn
from torch.nn import functional as F


class Remembered(Program):
    """The loss compares with the last rows, which stand in a ring."""

    steps = 2

    def __init__(self):
        super().__init__()
        self.all.register_buffer("rows", torch.randn(16, 3))
        self.all.register_buffer("classes", torch.randint(0, 3, (16,)))
        self.at = 0

    def loss(self, x, labels):
        self.made = F.normalize(self.net(x), dim=1)
        same = labels[:, None] == self.all.classes[None]
        return (self.made @ self.all.rows.clone().t() * same).exp().sum(1).log().mean()

    def remember(self, where):
        self.all.rows[where] = self.made.detach()
        self.all.classes[where] = self.labels

    def after(self):
        self.remember((self.at + torch.arange(len(self.labels))) % 16)
        self.at += len(self.labels)


class RememberedInAnotherOrder(Remembered):
    def __init__(self):
        super().__init__()
        order = torch.tensor([3, 0, 7, 1, 6, 2, 5, 4])
        self.data, self.labels = self.data[order], self.labels[order]


class RememberedWithoutClasses(Remembered):
    def remember(self, where):
        self.all.rows[where] = self.made.detach()
        self.all.classes.clone()[where] = self.labels


class Averaged(Program):
    """A copy with norms of the batch follows, first as a copy; it is used at the end of a step."""

    steps = 2
    shares = (1.0, 0.5)

    def __init__(self):
        super().__init__()
        self.net[2], self.slow[2] = nn.BatchNorm1d(16), nn.BatchNorm1d(16)
        self.slow.load_state_dict(self.net.state_dict())
        self.slow.requires_grad_(False).eval()
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.count = 0

    def pairs(self):
        both = zip(self.slow.state_dict().values(), self.net.state_dict().values(), strict=True)
        return [(slow, fast) for slow, fast in both if slow.is_floating_point()]

    def follow(self, share):
        for slow, fast in self.pairs():
            slow.lerp_(fast, share)

    @torch.no_grad()
    def after(self):
        self.follow(self.shares[self.count])
        self.count += 1
        F.cross_entropy(self.slow(self.data), self.labels)


class AveragedByLists(Averaged):
    def follow(self, share):
        slow, fast = zip(*self.pairs(), strict=True)
        torch._foreach_lerp_(list(slow), list(fast), share)


class AveragedTooFast(Averaged):
    shares = (1.0, 0.8)


class TwoParts(Averaged):
    """Each half of the batch goes through the net by itself."""

    def backward(self):
        for x, labels in zip(self.data.chunk(2), self.labels.chunk(2), strict=True):
            (self.loss(x, labels) / 2).backward()


class NormOfParts(nn.BatchNorm1d):
    """Of each half of a batch, in one call."""

    def forward(self, x):
        if not self.training:
            return super().forward(x)
        self.num_batches_tracked += 1
        running = self.running_mean, self.running_var, self.weight, self.bias, True, 0.1, 1e-5
        return torch.cat([F.batch_norm(part, *running) for part in x.chunk(2)])


class TwoPartsInTheNorm(Averaged):
    def __init__(self):
        super().__init__()
        norm = NormOfParts(16)
        norm.load_state_dict(self.net[2].state_dict())
        self.net[2] = norm
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)


class Signs(torch.optim.Optimizer):
    """The sign of an average is the update."""

    kept = 0.9

    def __init__(self, weights):
        super().__init__(weights, {"lr": 1e-3})

    def update(self, weights, averages, rate):
        for weight, average in zip(weights, averages, strict=True):
            weight.add_(torch.sign(average * 0.5 + weight.grad * 0.5), alpha=-rate)
            average.mul_(self.kept).add_(weight.grad, alpha=1 - self.kept)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            weights = group["params"]
            for weight in weights:
                self.state[weight].setdefault("average", torch.zeros_like(weight))
            averages = [self.state[weight]["average"] for weight in weights]
            self.update(weights, averages, group["lr"])


class SignsByLists(Signs):
    def update(self, weights, averages, rate):
        gradients = [weight.grad for weight in weights]
        means = torch._foreach_lerp(averages, gradients, 0.5)
        torch._foreach_add_(weights, [mean.sign_() for mean in means], alpha=-rate)
        torch._foreach_lerp_(averages, gradients, 1 - self.kept)


SignsByLists.__name__ = "Signs"  # the same class in another version of the program


class SignsThatForget(Signs):
    kept = 0.1


class OfSigns(Program):
    steps = 3
    kind = Signs

    def __init__(self):
        super().__init__()
        self.optimizer = self.kind(list(self.net.parameters()))


class OfSignsByLists(OfSigns):
    kind = SignsByLists


class OfSignsThatForget(OfSigns):
    kind = SignsThatForget


class Ahead(Program):
    """Each second step goes halfway back to what the weights were."""

    steps = 3

    def __init__(self):
        super().__init__()
        self.count, self.kept = 0, [self.copied(weight) for weight in self.net.parameters()]

    def copied(self, weight):
        return weight.detach().clone()

    @torch.no_grad()
    def after(self):
        self.count += 1
        if self.count % 2 == 0:
            for kept, weight in zip(self.kept, self.net.parameters(), strict=True):
                kept.add_(weight - kept, alpha=0.5)
                weight.copy_(kept)


class AheadOfItself(Ahead):
    def copied(self, weight):
        return weight.detach()  # shares the memory


class Penalised(Program):
    """The gradient of what goes in is punished: biases have hardly any gradient."""

    def __init__(self):
        super().__init__()
        self.net[1], self.net[2] = nn.LeakyReLU(0.2), nn.Identity()
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=0.01)

    def score(self, x):
        made = self.net(x)
        return made.sum() + 1e-6 * made.square().sum()

    def backward(self):
        x = self.data.clone().requires_grad_()
        (slope,) = torch.autograd.grad(self.score(x), x, create_graph=True)
        slope.square().sum(1).mean().backward()


class PenalisedByOneProduct(Penalised):
    def score(self, x):
        made = self.net(x)
        return (made * (1 + 1e-6 * made)).sum()


class Accumulated(Program):
    """Squares of gradients are added up to what the optimizer began with."""

    begin = 0.1

    def __init__(self):
        super().__init__()
        self.optimizer = torch.optim.Adagrad(
            self.net.parameters(), lr=0.1, initial_accumulator_value=self.begin
        )

    def scores(self, x):
        return F.linear(torch.tanh(self.net[0](x)), self.net[3].weight[:1])[:, 0]

    def loss(self, x, labels):
        return F.mse_loss(self.scores(x), labels.float()) + F.cross_entropy(self.net(x), labels)


class AccumulatedFromNothing(Accumulated):
    begin = 0.0

    def scores(self, x):
        return (self.net[0](x).tanh_() * self.net[3].weight[0]).sum(-1)


class Waves(Program):
    """A layer in the frequencies of what goes in."""

    back = "backward"

    def loss(self, x, labels):
        waves = torch.fft.rfft(x)
        x = torch.fft.irfft(waves * torch.arange(1.0, 5.0), n=6, norm=self.back)
        return F.cross_entropy(self.net(x), labels)


class WavesOfAnotherNorm(Waves):
    back = "ortho"


class Numbered(Program):
    """Rows of a table, which are numbered anew for each step."""

    steps = 2
    rows = (3, 17, 8, 11, 5, 9, 14, 2)

    def __init__(self):
        super().__init__()
        self.all.register_buffer("place", torch.zeros(32, dtype=torch.long))
        self.all.register_buffer("table", torch.randn(32, 6))

    def numbers(self):
        return torch.tensor(self.rows)

    def taken(self, rows):
        return self.all.table[rows]

    def loss(self, x, labels):
        rows = self.numbers()
        self.all.place[rows] = torch.arange(len(rows))
        found = torch.index_select(self.taken(rows), 0, self.all.place[torch.tensor(self.rows)])
        return F.cross_entropy(self.net(x + found), labels)


class NumberedBackwards(Numbered):
    def numbers(self):
        return torch.tensor(self.rows[::-1])


class NumberedWithMore(Numbered):
    def numbers(self):
        return torch.tensor((*self.rows, 30, 31))


class NumberedBeforeTheyAreTurned(Numbered):
    def taken(self, rows):
        return self.all.table[rows.flip(0)]


class Masked(Program):
    """What is kept differs from time to time, and rows of one time may be those of another."""

    order = (0, 1, 2, 3)
    times = torch.tensor([[1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 1, 1.0]])

    def __init__(self):
        super().__init__()
        self.order = list(self.order)
        self.data = torch.randn(4, 4, 6)[self.order]
        self.labels = torch.randint(0, 3, (4,))[self.order]
        # In the other order, the rows of a time are those of the next time.
        chosen = torch.tensor([[0, 1, 2, 0], [2, 0, 0, 1], [0, 2, 1, 0], [1, 0, 0, 2]]).t()
        self.chosen = torch.eye(6)[chosen][self.order]

    def kept(self, t):
        return self.times[t][self.order]

    def loss(self, x, labels):
        state = torch.zeros(4, 6)
        for t in range(4):
            action = self.chosen[:, t] * self.kept(t)[:, None]
            state = torch.tanh(x[:, t] + action + state * self.kept(t)[:, None])
        return F.cross_entropy(self.net(state), labels)


class MaskedInAnotherOrder(Masked):
    order = (2, 0, 3, 1)


class MaskedByTheNextTime(Masked):
    def kept(self, t):
        return self.times[(t + 1) % 4][self.order]


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (RememberedInAnotherOrder, Remembered),
        (NumberedBackwards, Numbered),
        (NumberedWithMore, Numbered),
        (MaskedInAnotherOrder, Masked),
        (AveragedByLists, Averaged),
        (Averaged, AveragedByLists),
        (TwoPartsInTheNorm, TwoParts),
        (TwoParts, TwoPartsInTheNorm),
        (OfSignsByLists, OfSigns),
        (OfSigns, OfSignsByLists),
        (PenalisedByOneProduct, Penalised),
    ],
)
def test_the_same_is_not_blamed(first, target, golden, level):  # noqa: F811
    assert first(target, golden, level) is None


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden", "name"),
    [
        (RememberedWithoutClasses, Remembered, "Tensor.__eq__.0.forward"),  # read in step 1
        (AveragedTooFast, Averaged, "Tensor.lerp_."),
        (OfSignsThatForget, OfSigns, "Optimizer.SignsThatForget.step.0.forward"),
        (AheadOfItself, Ahead, "Tensor.__sub__."),
        (AccumulatedFromNothing, Accumulated, "Optimizer.Adagrad.step.0.forward"),
        (WavesOfAnotherNorm, Waves, "Torch.irfft.0.forward"),
        (NumberedBeforeTheyAreTurned, Numbered, "Torch.index_select.0.forward"),
        (MaskedByTheNextTime, Masked, "Tensor.__mul__.0.forward"),
    ],
)
def test_the_call_that_errs_is_named(first, target, golden, name, level):  # noqa: F811
    assert first(target, golden, level)[0].startswith(name)
