"""Trainings in bfloat16 whose gradients and averages code without records makes."""

import pytest
import torch
from test_first_named import Program, first  # noqa: F401
from torch import nn
from torch.nn import functional as F


class Casting(Program):
    """Layers in bfloat16; halves of what is embedded are taken by indexing."""

    steps = 2

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
        self.table = nn.Embedding(5, 6)
        self.net[0] = nn.Linear(8, 16)
        self.all["parts"], self.all["table"] = self.parts, self.table
        self.weights = [*self.net.parameters(), *self.parts.parameters(), *self.table.parameters()]
        self.slow_parts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)).requires_grad_(False)
        self.slow_parts.load_state_dict(self.parts.state_dict())
        self.all["slow_parts"] = self.slow_parts
        self.optimizer = torch.optim.AdamW(self.weights, lr=0.01)
        self.data = torch.randn(8, 10, 2)
        self.kinds, self.labels = torch.randint(0, 5, (8,)), torch.randint(0, 3, (8,))

    def attention(self, q, k, v):
        return torch.softmax(q @ k.transpose(1, 2) / 8**0.5, -1) @ v

    def embedded(self, x):
        kinds = self.table(self.kinds)[:, None].expand(-1, 10, -1)
        return torch.cat([x, kinds], dim=-1)

    def loss(self, x, labels):
        both = self.embedded(x)
        with torch.autocast("cpu", torch.bfloat16):
            q, k, v = (part(both[:, :6]) for part in self.parts)
            made = self.attention(q, k, v).mean(1) + self.parts[0](both[:, 6:]).mean(1)
        return F.cross_entropy(self.net(made.float()), labels)

    def step(self):
        self.optimizer.zero_grad()
        self.backward()
        self.divide()
        torch.nn.utils.clip_grad_norm_(self.weights, 0.5)
        self.optimizer.step()
        self.after()

    def divide(self):
        pass

    def follow(self, slow, fast):
        torch.ops.aten.lerp_(slow, fast, 0.1)  # which is not recorded

    @torch.no_grad()
    def after(self):
        pairs = zip(self.slow_parts.parameters(), self.parts.parameters(), strict=True)
        for slow, fast in pairs:
            self.follow(slow, fast)
        with torch.autocast("cpu", torch.bfloat16):
            self.slow_parts[0](self.embedded(self.data))


class CastingInOneCall(Casting):
    def attention(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v)


class FollowedByRecordedCalls(Casting):
    def follow(self, slow, fast):
        slow.mul_(0.9).add_(fast * 0.1)


class FollowedTooFast(Casting):
    def follow(self, slow, fast):
        slow.mul_(0.1).add_(fast * 0.9)


class Scaled(Casting):
    """The loss is 8192 times as large; code that is not recorded divides the gradients."""

    def loss(self, x, labels):
        return super().loss(x, labels) * 8192

    def divide(self):
        for weight in self.weights:
            torch.ops.aten.div_(weight.grad, 8192)


class ScaledWithTransposedScores(Scaled):
    def attention(self, q, k, v):
        return torch.softmax(k @ q.transpose(1, 2) / 8**0.5, -1) @ v


class Foretelling(Casting):
    """The loss is made in float32: it tells more than gradients in bfloat16."""

    def __init__(self):
        super().__init__()
        self.noise, self.offset = torch.randn(8, 8), torch.randn(8, 1)

    def distance(self, made, wanted):
        return F.mse_loss(made, wanted)

    def wanted(self):
        return self.noise + 0.02 * self.offset

    def loss(self, x, labels):
        both = self.embedded(x)
        with torch.autocast("cpu", torch.bfloat16):
            q, k, v = (part(both[:, :6]) for part in self.parts)
            for part in self.parts:
                v = torch.tanh(part(self.attention(q, k, v)))
            made = v.mean(1)
        return self.distance(made.float(), self.wanted())


class ForetellingBySquares(Foretelling):
    def distance(self, made, wanted):
        return (wanted - made).square().mean()


class ForetellingWithoutOffset(ForetellingBySquares):
    def wanted(self):
        super().wanted()
        return self.noise


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (ForetellingBySquares, Foretelling),
        (CastingInOneCall, Casting),
        (FollowedByRecordedCalls, Casting),
        (Casting, FollowedByRecordedCalls),
        (Scaled, Casting),
    ],
)
def test_the_same_is_not_blamed(first, target, golden, level):  # noqa: F811
    assert first(target, golden, level) is None


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden", "names"),
    [
        (FollowedTooFast, FollowedByRecordedCalls, "Tensor.mul_."),
        (ForetellingWithoutOffset, Foretelling, "Tensor.__sub__.0.forward"),
        (ScaledWithTransposedScores, Casting, ("Tensor.__matmul__.0", "Tensor.transpose.0")),
    ],
)
def test_the_call_that_errs_is_named(first, target, golden, names, level):  # noqa: F811
    assert first(target, golden, level)[0].startswith(names)
