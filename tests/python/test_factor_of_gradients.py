"""Modules alone: one factor on all gradients, which a loss, a scaler or clipping may make."""

import json
import subprocess

import pytest
import torch
from recording import run_forked
from torch import nn
from torch.nn.utils import clip_grad_norm_


def train(folder, factor=1.0, reduction="mean", clip=0.45, sgd=False):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 5))
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.3)
    rate = {"lr": 0.1, "momentum": 0.9} if sgd else {"lr": 1e-3}
    optimizer = (torch.optim.SGD if sgd else torch.optim.AdamW)(net.parameters(), **rate)
    debugger = PrecisionDebugger(dump_path=str(folder), level="L0")
    x, y = torch.randn(5, 16, 12), torch.randint(0, 5, (5, 16))
    for data, labels in zip(x, y, strict=True):
        optimizer.zero_grad()
        debugger.start(net)
        loss = nn.functional.cross_entropy(net(data), labels, reduction=reduction)
        (loss * factor).backward()
        clip_grad_norm_(net.parameters(), clip)
        optimizer.step()
        debugger.stop()
        debugger.step()


@pytest.fixture
def compared(tmp_path, msprobe_bin):
    """What `compare` says of a training and the same with `wrong` in place of some arguments."""

    def run(wrong, *words, **both):
        run_forked(train, tmp_path / "target", **both | wrong)
        run_forked(train, tmp_path / "golden", **both)
        command = [msprobe_bin, "compare", "target", "golden", "-o", "o", *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout

    return run


@pytest.mark.parametrize(
    ("wrong", "times"), [({"factor": 1 / 3}, "0.3333"), ({"reduction": "sum"}, "16")]
)
def test_a_factor_on_the_loss_is_said(compared, wrong, times):
    report = json.loads(compared(wrong, "--format", "json"))
    first = report["steps"]["0"]["ranks"][""]["first_divergence"]
    assert first["why"].endswith(f"all 6 gradients of parameters are the golden's times {times}")
    assert "a sum for a mean" in first["advice"]
    assert first["confidence"] >= 0.9


def test_another_clip_norm_under_adam_is_no_other_structure(compared):
    """Adam divides a factor of all gradients out: what is left of it is rounding."""
    report = json.loads(compared({"clip": 0.2}, "--format", "json"))
    assert report["first"] is None
    verdicts = {step["ranks"][""]["verdict"] for step in report["steps"].values()}
    assert verdicts <= {"equal", "noise"}


def test_another_clip_norm_under_sgd(compared):
    said = " ".join(compared({"clip": 0.2}, sgd=True).replace("|", "").split())
    assert "as another learning rate does; under SGD another clip norm" in said
