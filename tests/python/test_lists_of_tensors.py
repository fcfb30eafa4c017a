"""Calls of torch._foreach_*: an entry that lists tensors, each of which is judged by itself."""

import json

import pytest
import torch
from recording import run_forked
from test_first_named import Program, first, train  # noqa: F401
from torch.nn import functional as F


class Averaged(Program):
    """A copy of the weights follows them, and is used at the end of a step."""

    steps = 2
    keeps = 0.9

    def fast_and_slow(self):
        return list(self.net.parameters()), list(self.slow.parameters())

    def follow(self):
        for fast, slow in zip(*self.fast_and_slow(), strict=True):
            slow.mul_(self.keeps).add_(fast, alpha=1 - self.keeps)

    @torch.no_grad()
    def after(self):
        self.follow()
        F.cross_entropy(self.slow(self.data), self.labels)


class AveragedByLists(Averaged):
    def follow(self):
        fast, slow = self.fast_and_slow()
        torch._foreach_mul_(slow, self.keeps)
        torch._foreach_add_(slow, fast, alpha=1 - self.keeps)


class AveragedByOneCall(Averaged):
    def follow(self):
        fast, slow = self.fast_and_slow()
        torch._foreach_lerp_(slow, fast, 1 - self.keeps)


class KeepsTooLittle(AveragedByLists):
    keeps = 0.1


class TakesTheWeightsInTurn(AveragedByOneCall):
    """Only the two biases of 16 elements are exchanged."""

    def fast_and_slow(self):
        fast, slow = super().fast_and_slow()
        fast[1], fast[3] = fast[3], fast[1]
        return fast, slow


class Unscaled(Program):
    """Gradients of a loss that is scaled, divided before they are clipped."""

    order = ("divide", "clip")

    def divide(self):
        torch._foreach_div_([weight.grad for weight in self.net.parameters()], 64)

    def clip(self):
        torch.nn.utils.clip_grad_norm_(self.net.parameters(), 0.05)

    def step(self):
        self.optimizer.zero_grad()
        (self.loss(self.data, self.labels) * 64).backward()
        for name in self.order:
            getattr(self, name)()
        self.optimizer.step()


class UnscaledOneByOne(Unscaled):
    def divide(self):
        for weight in self.net.parameters():
            weight.grad.div_(64)


class ClippedBeforeUnscaled(Unscaled):
    order = ("clip", "divide")


def test_an_entry_lists_what_each_element_was_and_became(tmp_path):
    run_forked(train, tmp_path, AveragedByOneCall, "L1")
    (dump,) = tmp_path.glob("step0/rank*/dump.json")
    entry = json.loads(dump.read_text())["data"]["Torch._foreach_lerp_.0.forward"]
    slow, fast, share = entry["input_args"]
    assert len(slow) == len(fast) == len(entry["output"]) == 6
    assert share["value"] == pytest.approx(0.1)
    assert all(a["shape"] == b["shape"] for a, b in zip(slow, entry["output"], strict=True))
    assert slow[0]["fp"] != entry["output"][0]["fp"]


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [
        (AveragedByLists, Averaged),
        (Averaged, AveragedByLists),
        (AveragedByOneCall, Averaged),
        (AveragedByOneCall, AveragedByLists),
        (UnscaledOneByOne, Unscaled),
        (Unscaled, UnscaledOneByOne),
    ],
)
def test_the_same_is_not_blamed(first, target, golden, level):  # noqa: F811
    assert first(target, golden, level) is None


@pytest.mark.parametrize("level", ["L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden", "name"),
    [
        (KeepsTooLittle, AveragedByLists, "Torch._foreach_mul_.0.forward"),
        (KeepsTooLittle, Averaged, "Torch._foreach_mul_.0.forward"),
        (TakesTheWeightsInTurn, AveragedByOneCall, "Torch._foreach_lerp_.0.forward"),
        (ClippedBeforeUnscaled, Unscaled, "Optimizer.clip_grad_norm_.0.forward"),
        (
            ClippedBeforeUnscaled,
            UnscaledOneByOne,
            ("Optimizer.clip_grad_norm_.0.forward", "Tensor.div_.0.forward"),
        ),
    ],
)
def test_the_call_that_errs_is_named(first, target, golden, name, level):  # noqa: F811
    assert first(target, golden, level)[0].startswith(name)
