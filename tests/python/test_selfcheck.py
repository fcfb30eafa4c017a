"""`msprobe selfcheck`: programs with the results identical, changed by the tool, not judged."""

import json
import os
import subprocess

import pytest

GOOD = """
import os, sys
import torch

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2),
                            torch.nn.Linear(8, 2))
optimizer = torch.optim.Adam(model.parameters())
{before}
for step in range(3):
    loss = model(torch.randn(4, 6)).square().mean()
    loss.backward()
    {middle}
    optimizer.step()
    optimizer.zero_grad()
"""
TOOL_IS_ON = 'os.environ.get("MSPROBE_DISABLE") != "1"'


def selfcheck(forking_msprobe, tmp_path, text, *flags, arguments=(), environment=None):
    """(exit code, the report, standard error)."""
    (tmp_path / "train.py").write_text(text)
    command = [forking_msprobe, "selfcheck", *flags, "--format", "json"]
    done = subprocess.run(
        [*command, "train.py", *arguments],
        cwd=tmp_path,
        env=dict(os.environ, **(environment or {})),
        capture_output=True,
        text=True,
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_a_training_is_identical(forking_msprobe, tmp_path):
    # The script gets its own flags unchanged, also flags that look like ours.
    text = GOOD.format(before='assert sys.argv == ["train.py", "--steps", "3", "-o"]', middle="")
    arguments = ("--steps", "3", "-o")
    keep = ("--keep", "kept", "--level", "mix")
    code, report, error = selfcheck(forking_msprobe, tmp_path, text, *keep, arguments=arguments)
    assert (code, report["verdict"]) == (0, "identical"), (report, error)
    assert (report["steps"], report["parameters"], report["unit"]) == (3, 4, "optimizer")
    # In a step: 4 weights, 4 gradients, 1 loss, generators of torch and Python (NumPy if loaded).
    assert report["values"] >= 3 * 11 + 6
    assert report["records"] > 30 and report["bytes"] > 10_000
    assert min(report["nanoseconds_a_step"].values()) > 0
    data = json.loads((tmp_path / "kept" / "dump" / "step2" / "rank" / "dump.json").read_text())
    assert "Module.0.Linear.forward.0" in data["data"], "modules are recorded from step 0 on"


def test_a_disturbance_is_named(forking_msprobe, tmp_path):
    hook = f"""
def careless(module, args, output):
    if {TOOL_IS_ON} and step == 1:
        torch.rand(1)  # as a tool that samples would
model[1].register_forward_hook(careless)
"""
    text = GOOD.format(before=hook, middle="")
    code, report, _ = selfcheck(forking_msprobe, tmp_path, text, "--level", "L0")
    assert (code, report["verdict"]) == (1, "differs")
    assert (
        "first at step 1: loss of backward 0 (in this step differ: 1 of 1 losses"
        in (report["reason"])
    )
    assert "1 of 2 random generators" in report["reason"] or "of 3 random" in report["reason"]


@pytest.mark.campaign
def test_a_changed_weight_is_named(forking_msprobe, tmp_path):
    bend = f"""
    with torch.no_grad():
        if step == 2 and {TOOL_IS_ON}: model[0].bias[3] += 1e-6
"""
    text = GOOD.format(before="", middle=bend.strip())
    code, report, _ = selfcheck(forking_msprobe, tmp_path, text)
    assert (code, report["verdict"]) == (1, "differs")
    assert (
        "first at step 2: weight of 0.bias (in this step differ: 1 of 4 weights)"
        in (report["reason"])
    )


def test_a_program_that_is_not_reproducible_is_not_judged(forking_msprobe, tmp_path):
    text = GOOD.format(before="torch.seed()", middle="")
    code, report, _ = selfcheck(forking_msprobe, tmp_path, text, "--steps", "1")
    assert (code, report["verdict"]) == (2, "unknown")
    assert "two runs without the tool differ first at step 0: loss" in report["reason"]
    assert "seed_all(mode=True)" in report["hint"]
    assert report["steps"] == 1


@pytest.mark.parametrize("when", ["always", pytest.param("on", marks=pytest.mark.campaign)])
def test_a_program_that_fails_shows_its_last_words(forking_msprobe, tmp_path, when):
    condition = "True" if when == "always" else TOOL_IS_ON
    middle = f'if {condition}: raise ValueError("the data ran out")'
    code, report, _ = selfcheck(forking_msprobe, tmp_path, GOOD.format(before="", middle=middle))
    assert code == (2 if when == "always" else 1)
    assert "ValueError: the data ran out" in report["output"]
    assert "ended with exit code 1" in report["reason"]


def test_a_debugger_of_the_script_itself(forking_msprobe, tmp_path):
    before = """
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path="own", level="L1")
debugger.start(model)
"""
    middle = "debugger.stop(); debugger.step(); debugger.start(model)"
    text = GOOD.format(before=before, middle=middle)
    code, report, _ = selfcheck(forking_msprobe, tmp_path, text, "--task", "tensor")
    assert (code, report["verdict"], report["own_debugger"]) == (0, "identical", True)
    assert any("--task" in note for note in report["notes"]), "an option without effect is said"
    assert report["records"] > 10
    assert not list((tmp_path / "own").rglob("*.pt"))
    _, report, _ = selfcheck(forking_msprobe, tmp_path, text, "--steps", "1")
    assert report["notes"] == [], "no option was given"


def test_without_an_optimizer_a_step_is_a_backward_pass(forking_msprobe, tmp_path):
    text = """
import torch
torch.manual_seed(1)
weight = torch.randn(3, 3, requires_grad=True)
for _ in range(4):
    loss = torch.relu(torch.randn(2, 3) @ weight).sum()
    loss.backward()
    with torch.no_grad():
        weight -= 0.1 * weight.grad
        weight.grad = None
"""
    code, report, _ = selfcheck(forking_msprobe, tmp_path, text)
    assert (code, report["verdict"]) == (0, "identical")
    assert (report["unit"], report["steps"]) == ("backward", 4)


def test_what_cannot_be_judged_at_all(forking_msprobe, tmp_path):
    code, report, _ = selfcheck(forking_msprobe, tmp_path, "print('no training')")
    assert (code, report["verdict"]) == (2, "unknown")
    assert "neither an optimizer's step nor backward() was seen" in report["reason"]
    several = {"WORLD_SIZE": "2"}
    code, report, error = selfcheck(forking_msprobe, tmp_path, "", environment=several)
    assert code == 2 and "one process only" in error and report is None
    code, report, error = selfcheck(forking_msprobe, tmp_path, "", "--level", "L9")
    assert code == 2 and "L9" in error and report is None
