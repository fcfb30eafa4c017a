"""Small trainings written in two ways: which call is named first, or that none is."""

import json
import subprocess

import pytest
import torch
from recording import run_forked
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import clip_grad_norm_


class Program:
    """A training step of two layers; what a test changes are methods."""

    steps = 1

    def __init__(self):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 3))
        self.slow = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.LayerNorm(16), nn.Linear(16, 3))
        self.slow.requires_grad_(False)
        self.all = nn.ModuleDict({"net": self.net, "slow": self.slow})
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.data, self.labels = torch.randn(8, 6), torch.randint(0, 3, (8,))

    def loss(self, x, labels):
        return F.cross_entropy(self.net(x), labels)

    def backward(self):
        self.loss(self.data, self.labels).backward()

    def after(self):
        pass

    def step(self):
        self.optimizer.zero_grad()
        self.backward()
        clip_grad_norm_(self.net.parameters(), 0.5)
        self.optimizer.step()
        self.after()


class Doubled(Program):
    def backward(self):
        (self.loss(self.data, self.labels) * 4).backward()


class ByHand(Program):
    """Gradients are divided by calls of their own, then clipped."""

    order = ("divide", "clip")

    def divide(self):
        for weight in self.net.parameters():
            weight.grad.mul_(1 / 64)

    def clip(self):
        clip_grad_norm_(self.net.parameters(), 0.05)

    def step(self):
        self.optimizer.zero_grad()
        (self.loss(self.data, self.labels) * 64).backward()
        for name in self.order:
            getattr(self, name)()
        self.optimizer.step()


class ClippedFirst(ByHand):
    order = ("clip", "divide")


class Weighted(Program):
    """A loss of each row, in parts of unlike sizes; the target forgets a weight."""

    weight = True

    def __init__(self):
        super().__init__()
        self.labels = torch.rand(8, 3)

    def loss(self, x, wanted):
        weight = torch.tensor([1.0, 2.0, 3.0]) if self.weight else None
        each = F.binary_cross_entropy_with_logits(
            self.net(x), wanted, pos_weight=weight, reduction="none"
        )
        return each.sum() / (8 * 3)


class InParts(Weighted):
    def backward(self):
        sizes = (3, 4, 1)
        for x, wanted in zip(self.data.split(sizes), self.labels.split(sizes), strict=True):
            self.loss(x, wanted).backward()


class WithoutWeight(InParts):
    weight = False


class TwoParts(Program):
    """The gradients of two passes are added up; the target's begin with a wrong activation."""

    slope = 1.0

    def loss(self, x, labels):
        return F.cross_entropy(self.net[1:](self.slope * self.net[0](x)), labels)

    def backward(self):
        for part in (slice(0, 4), slice(4, 8)):
            self.loss(self.data[part], self.labels[part]).backward()


class Steeper(TwoParts):
    slope = 1.5


class ClippedBetween(TwoParts):
    def backward(self):
        for part in (slice(0, 4), slice(4, 8)):
            self.loss(self.data[part], self.labels[part]).backward()
            clip_grad_norm_(self.net.parameters(), 0.1)


class Turned(Program):
    """The rows stand in another order, which is harmless; the target's labels are smoothed, too."""

    smoothing = 0.0

    def loss(self, x, labels):
        return F.cross_entropy(self.net(x), labels, label_smoothing=self.smoothing)

    def backward(self):
        self.loss(self.data.flip(0), self.labels.flip(0)).backward()


class TurnedAndSmoothed(Turned):
    smoothing = 0.1


class TurnedWithAnotherEpsilon(Turned):
    """Hardly more than the rounding of float32."""

    def __init__(self):
        super().__init__()
        self.net[2].eps = 1.02e-5


class TurnedData(Program):
    """The data are turned, the labels are not."""

    def backward(self):
        self.loss(self.data.flip(0), self.labels).backward()


class Follows(Program):
    """A copy follows the weights; `copy_` is not recorded."""

    steps = 2
    share = 0.25

    @torch.no_grad()
    def after(self):
        for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
            slow.copy_(self.share * fast + (1 - self.share) * slow)


class FollowsFaster(Follows):
    share = 0.75


class FollowsInPlace(Follows):
    @torch.no_grad()
    def after(self):
        for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
            slow.mul_(1 - self.share).add_(self.share * fast)


class FollowsByForeach(Follows):
    """Operations on lists are not recorded."""

    @torch.no_grad()
    def after(self):
        slow, fast = list(self.slow.parameters()), list(self.net.parameters())
        torch._foreach_lerp_(slow, fast, self.share)


class FollowsByLerp(Follows):
    @torch.no_grad()
    def after(self):
        for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
            slow.lerp_(fast, self.share)


class Copied(Program):
    """A student and a copy of it begin with the same weights and the same running statistics."""

    steps = 2
    order = (0, 1)

    def __init__(self):
        super().__init__()
        self.net[2], self.slow[2] = nn.BatchNorm1d(16), nn.BatchNorm1d(16)
        self.slow.load_state_dict(self.net.state_dict())
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def backward(self):
        views = (self.data, self.data.flip(1))
        mine = [self.net(view) for view in views]
        with torch.no_grad():
            wanted = [self.slow(view) for view in views]
        first, second = (F.mse_loss(mine[i], wanted[1 - i]) for i in self.order)
        (first + second).backward()


class CopiedTurned(Copied):
    """The two losses are computed in the other order."""

    order = (1, 0)


class Teaches(Program):
    """A student learns what a teacher says, which is no part of the step."""

    detach = True

    def __init__(self):
        super().__init__()
        self.slow.requires_grad_(True)
        both = [*self.net.parameters(), *self.slow.parameters()]
        self.optimizer = torch.optim.SGD(both, lr=0.1)

    def backward(self):
        with torch.set_grad_enabled(not self.detach):
            wanted = self.slow(self.data)
        F.mse_loss(self.net(self.data), wanted).backward()


class TeacherLearns(Teaches):
    detach = False


def train(folder, program, level):
    from msprobe.pytorch import PrecisionDebugger

    made = program()
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    for _ in range(made.steps):
        debugger.start(made.all)
        made.step()
        debugger.stop()
        debugger.step()


@pytest.fixture
def first(tmp_path, msprobe_bin):
    """The name of the first divergence and what is said of it; None: there is none."""

    def run(target, golden, level):
        run_forked(train, tmp_path / "target", target, level)
        run_forked(train, tmp_path / "golden", golden, level)
        command = [msprobe_bin, "compare", "target", "golden", "-o", "o", "--format", "json"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        proven = [*command[:-2], "--why", "Optimizer"]  # which checks the proofs of all values
        proofs = subprocess.run(proven, cwd=tmp_path, capture_output=True, text=True)
        assert "does not hold" not in proofs.stdout + proofs.stderr
        document = json.loads(done.stdout)
        steps = document["steps"].values() if "steps" in document else []
        for report in [step["ranks"][""] for step in steps] or [document]:
            if named := report["first_divergence"]:
                return named["target_name"] or named["golden_name"], named["why"]
        return None

    return run


class Sentences(Program):
    """Sequences of unlike lengths, with their mean over what they hold; the target pads more."""

    longer = 0

    def __init__(self):
        super().__init__()
        self.data, self.lengths = torch.randn(8, 5, 6), torch.tensor([5, 3, 4, 1, 2, 5, 3, 4])
        known = torch.arange(5) < self.lengths[:, None]
        self.data = F.pad(self.data * known[..., None], (0, 0, 0, self.longer))

    def hidden(self, x):
        return torch.tanh(self.net[0](x))

    def loss(self, x, labels):
        known = (torch.arange(x.shape[1]) < self.lengths[:, None]).to(x.dtype)
        mean = (self.hidden(x) * known[..., None]).sum(1) / self.lengths[:, None]
        return F.cross_entropy(self.net[3](self.net[2](mean)), labels)


class Longer(Sentences):
    longer = 2


class LongerAndSteeper(Longer):
    def hidden(self, x):
        return torch.sigmoid(self.net[0](x))


class LongerAndSmoothed(Longer):
    def loss(self, x, labels):
        known = (torch.arange(x.shape[1]) < self.lengths[:, None]).to(x.dtype)
        mean = (self.hidden(x) * known[..., None]).sum(1) / self.lengths[:, None]
        return F.cross_entropy(self.net[3](self.net[2](mean)), labels, label_smoothing=0.1)


class Pairs(Program):
    """Products of parts, of which indexing takes some; and weights that the target computes in
    another way, and of which indexing takes some, too."""

    turned = False

    def __init__(self):
        super().__init__()
        self.all["table"] = nn.Embedding(11, 4)
        self.optimizer = torch.optim.SGD(self.all.parameters(), lr=0.1)
        self.ids, self.counts = torch.arange(8), torch.tensor([4, 2, 3, 1, 2, 4, 3, 1])
        self.shares = torch.rand(8, 4)

    def bucket(self):
        return (self.ids * 7 + 3) % 11

    def loss(self, x, labels):
        places = torch.arange(4)
        shares = self.shares
        if self.turned:
            count = self.counts[:, None]
            places = places.expand(8, 4)
            places = torch.where(places < count, count - 1 - places, places)
            shares = shares.gather(1, places)
        known = torch.arange(4) < self.counts[:, None]
        shares = shares / (shares * known).sum(1, keepdim=True)
        row = torch.arange(8)[:, None].expand(8, 4)[known]
        total = torch.zeros(8).index_add(0, row, shares[known])
        users = self.all["table"](self.bucket())
        parts = torch.stack([users, self.net[0](x)[:, :4], self.net[0](x)[:, 4:8]], dim=1)
        rows, columns = torch.tril_indices(3, 3, offset=-1)
        products = torch.bmm(parts, parts.transpose(1, 2))[:, rows, columns]
        return F.cross_entropy(products * total[:, None], labels)


class PairsTurned(Pairs):
    turned = True


class PairsTurnedAndHashed(PairsTurned):
    def bucket(self):
        return (self.ids + 3) % 11


class Rotary(Program):
    """Attention whose queries and keys are turned by their places: pairs of real numbers."""

    complex = False

    def __init__(self):
        super().__init__()
        self.all["rotary"] = self.rotary = nn.Linear(16, 48)
        self.data = torch.randn(8, 5, 6)
        self.optimizer = torch.optim.SGD(
            [*self.net.parameters(), *self.rotary.parameters()], lr=0.1
        )

    def angles(self):
        return torch.outer(torch.arange(5.0), 100.0 ** -(torch.arange(0, 8, 2) / 8))

    def turned(self, x):
        angles = self.angles()[:, None]
        if self.complex:
            numbers = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
            return self.by(numbers, torch.polar(torch.ones_like(angles), angles))
        cosine, sine = torch.cos(angles), torch.sin(angles)
        a, b = x[..., 0::2], x[..., 1::2]
        return torch.stack((a * cosine - b * sine, a * sine + b * cosine), dim=-1).flatten(3)

    def by(self, numbers, turns):
        return torch.view_as_real(numbers * turns).flatten(3)

    def loss(self, x, labels):
        hidden = torch.tanh(self.net[0](x))
        q, k, v = self.rotary(hidden).reshape(8, 5, 3, 2, 8).unbind(2)
        scores = torch.einsum("bqhd,bkhd->bhqk", self.turned(q), self.turned(k))
        mixed = torch.einsum("bhqk,bkhd->bqhd", torch.softmax(scores, -1), v)
        return F.cross_entropy(self.net[3](self.net[2](mixed.flatten(2).mean(1))), labels)


class RotaryComplex(Rotary):
    complex = True


class RotaryLonger(RotaryComplex):  # the planted faults are calls of their own
    def by(self, numbers, turns):
        return super().by(numbers, turns * 1.25)


class RotaryUnit(RotaryComplex):
    def by(self, numbers, turns):
        return super().by(torch.sgn(numbers), turns)


NAMED = [
    (LongerAndSteeper, Sentences, ("Torch.sigmoid.0", "Torch.tanh.0")),
    (LongerAndSmoothed, Sentences, "Functional.cross_entropy.0"),
    (PairsTurnedAndHashed, Pairs, "Tensor.__mul__"),
    (RotaryLonger, Rotary, "Tensor.__mul__.0.forward"),
    (RotaryUnit, Rotary, "Torch.sgn.0.forward"),
    (Rotary, RotaryUnit, "Torch.sgn.0.forward"),
    (Doubled, Program, "Tensor.__mul__.0.forward"),
    (Program, Doubled, "Tensor.__mul__.0.forward"),
    (ClippedFirst, ByHand, "Optimizer.clip_grad_norm_.0.forward"),
    (WithoutWeight, Weighted, "Functional.binary_cross_entropy_with_logits."),
    (Steeper, TwoParts, "Tensor.__rmul__.0.forward"),
    (ClippedBetween, TwoParts, "Optimizer.clip_grad_norm_."),
    (TurnedAndSmoothed, Program, "Functional.cross_entropy.0.forward"),
    (TurnedData, Program, "Tensor.flip.0.forward"),
    (TurnedWithAnotherEpsilon, Program, "Functional.layer_norm.0.forward"),
    (FollowsFaster, Follows, "Tensor.__rmul__.0.forward"),
]


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(("target", "golden", "name"), NAMED)
def test_the_call_that_errs_is_named(first, target, golden, name, level):
    assert first(target, golden, level)[0].startswith(name)


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (InParts, Weighted),
        (Turned, Program),
        (Longer, Sentences),
        (Sentences, Longer),
        (PairsTurned, Pairs),
        (RotaryComplex, Rotary),
        (Rotary, RotaryComplex),
        (FollowsByForeach, FollowsInPlace),
        (FollowsInPlace, FollowsByForeach),
        (Follows, FollowsByLerp),
        (FollowsByLerp, Follows),
        (CopiedTurned, Copied),
    ],
)
def test_the_same_in_other_calls_is_not_blamed(first, target, golden, level):
    assert first(target, golden, level) is None


def test_a_gradient_that_only_the_target_computes(first):
    name, why = first(TeacherLearns, Teaches, "L1")
    assert name == "Torch.tanh.0.forward"  # of the teacher
    assert "it takes a value that carries a gradient, where the golden's carries none" in why


def test_a_gradient_that_only_the_golden_computes(first):
    name, why = first(Teaches, TeacherLearns, "L1")
    assert name == "Torch.tanh.0.forward"  # of the teacher
    assert "it takes a value that carries no gradient, where the golden's carries one" in why
