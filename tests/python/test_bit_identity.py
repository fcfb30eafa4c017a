"""Recording changes no bit of losses, gradients, weights, buffers and random numbers."""

import hashlib
import json
import os
import random
from functools import cache

import numpy as np
import pytest
import torch
from odd_programs import PROGRAMS
from recording import read_dump, run_forked

from models import gpt, lstm, resnet

STEPS = 10
LEVELS = ["L0", "L1", "mix"]
TASKS = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
}
# Tasks that observe in another way, each at the level that sees most: name -> (level, config).
OTHER_TASKS = {
    "structure": ("mix", {"task": "structure"}),
    "nan_check": ("L1", {"task": "nan_check", "nan_check": {"tensor_list": ["a"]}}),
    "overflow_check": ("mix", {"task": "overflow_check", "overflow_check": {"overflow_nums": -1}}),
    "free_benchmark": ("L1", {"task": "free_benchmark", "free_benchmark": {"budget": 0}}),
    "slices": ("mix", {"tensor": {"slice": [{"dim": 0, "end": 1}]}, "task": "tensor"}),
}
CONFIGS = TASKS | {task: config for task, (_, config) in OTHER_TASKS.items()}


def example(module, **sizes):
    """A program of examples/models, with the interface of odd_programs."""

    def build(seed):
        model, batch = module.build(seed, **sizes)
        return model, lambda: module.loss(model, batch)

    return build


def small_resnet(seed):
    """A basic block of each kind, on pictures of 8 x 8."""
    torch.manual_seed(seed)
    model = resnet.ResNet(resnet.BasicBlock, (1, 1), 4, 5, large_input=False)
    batch = torch.randn(4, 3, 8, 8), torch.randint(5, (4,))
    return model, lambda: resnet.loss(model, batch)


EXAMPLES = {
    "gpt": example(gpt, layers=1, width=16, heads=2, batch=2, length=8, vocabulary=32),
    "resnet": small_resnet,
    "lstm": example(lstm, batch=3, length=6),
}
ALL = EXAMPLES | PROGRAMS


def digest(named_tensors):
    """name -> hash of the bytes: -0.0 is not 0.0, and a NaN is itself."""
    return {
        name: hashlib.sha256(tensor.detach().contiguous().numpy().tobytes()).hexdigest()
        for name, tensor in named_tensors
    }


def make_debugger(folder, level, task):
    from msprobe.pytorch import PrecisionDebugger

    # Under L0 the calls write the tensors, under L1 and mix a thread does.
    os.environ["MSPROBE_TENSOR_BUDGET_MB"] = "0" if level == "L0" else "64"
    config = folder / "config.json"
    config.write_text(
        json.dumps({"dump_path": str(folder / "dump"), "level": level, **CONFIGS[task]})
    )
    return PrecisionDebugger(str(config))


def train(name, folder=None, level=None, task=None, disturb=None):
    """Trains; returns everything that must be equal with and without the tool."""
    random.seed(1)
    np.random.seed(1)
    model, loss_of = ALL[name](3)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    debugger = make_debugger(folder, level, task) if folder else None
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        if debugger:
            debugger.start(model)
        loss = loss_of()
        if isinstance(loss, tuple):
            (loss,) = loss
        else:
            loss.backward()
        if debugger:
            debugger.stop()
            debugger.step()
        if disturb:
            disturb(model)
        optimizer.step()
        losses.append(loss)
    gradients = ((key, p.grad) for key, p in model.named_parameters() if p.grad is not None)
    return {
        "losses": digest(enumerate(losses)),
        "gradients": digest(gradients),
        "state": digest(model.state_dict().items()),
        "graph": type(loss.grad_fn).__name__,
        "torch random": digest([("", torch.get_rng_state())]),
        "other random": (random.getstate(), np.random.get_state()[1].tobytes()),
        "modes": (torch.is_grad_enabled(), torch.are_deterministic_algorithms_enabled()),
    }


@cache
def without_the_tool(name):
    return run_forked(train, name)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ALL)
def test_training_is_the_same_bits(name, level, task, tmp_path, capfd):
    recorded = run_forked(train, name, tmp_path, level, task)
    plain = without_the_tool(name)
    for what in plain:
        assert recorded[what] == plain[what], what
    assert "collection is off" not in capfd.readouterr().err
    for step in (0, STEPS - 1):  # without records the test proves nothing
        dump = read_dump(tmp_path / "dump", step)
        calls = [entry for entry in dump.names if not entry.startswith("Optimizer.")]
        kinds = {entry.startswith("Module.") for entry in calls}
        assert kinds == {"L0": {True}, "L1": {False}, "mix": {True, False}}[level]
        assert bool(dump.tensors()) == (task == "tensor")


@pytest.mark.parametrize("task", OTHER_TASKS)
@pytest.mark.parametrize("name", ALL)
def test_training_is_the_same_bits_under_other_tasks(name, task, tmp_path, capfd):
    recorded = run_forked(train, name, tmp_path, OTHER_TASKS[task][0], task)
    plain = without_the_tool(name)
    for what in plain:
        assert recorded[what] == plain[what], what
    assert "collection is off" not in capfd.readouterr().err
    assert read_dump(tmp_path / "dump").header["task"] == CONFIGS[task]["task"]


@pytest.mark.parametrize("name", ALL)
def test_every_step_records_the_same_names(name, tmp_path):
    """Call numbers start at 0 in each step, and no hook of an earlier step is left."""
    run_forked(train, name, tmp_path, "mix", "statistics")
    first, last = (read_dump(tmp_path / "dump", step) for step in (1, STEPS - 1))
    assert first.names == last.names


def draw(model):
    torch.rand(1)


def nudge(model):
    parameter = next(model.parameters())
    with torch.no_grad():
        parameter.view(-1)[0] = torch.nextafter(parameter.view(-1)[0], torch.tensor(9.0))


@pytest.mark.parametrize(("disturb", "what"), [(draw, "torch random"), (nudge, "state")])
def test_the_comparison_sees_the_smallest_disturbance(disturb, what):
    """One random number drawn, one weight moved by one rounding."""
    disturbed = run_forked(train, "gpt", disturb=disturb)
    assert disturbed[what] != without_the_tool("gpt")[what]


@pytest.mark.parametrize("name", ALL)
def test_a_training_is_the_same_bits_without_the_tool(name):
    """The tests above need this: without the tool the training must be reproducible."""
    assert run_forked(train, name) == without_the_tool(name)
