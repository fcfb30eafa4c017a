"""A run dies at a random moment, in any way: every acknowledged record is in its dump.

A record is acknowledged when its call has returned to Python. The child then writes the name to a
pipe, whose content survives the child. The normal test kills at a dozen moments, the campaign at
hundreds.
"""

import faulthandler
import os
import random
import resource
import shutil
import signal

import pytest
import torch
from recording import whole_tensors
from torch.nn import functional as F

from killed_training import Acknowledged, check, train_and_kill, was_cut

LATEST_S = 0.15  # after the first acknowledged record
# How a run dies: the signal that it receives, and the exit code.
DEATHS = {
    "kill -9": (signal.SIGKILL, -signal.SIGKILL),
    "SIGTERM": (signal.SIGTERM, -signal.SIGTERM),
    "abort": (signal.SIGABRT, -signal.SIGABRT),
    "os._exit": (signal.SIGUSR1, 3),  # called by a signal handler of the program
}
KINDS = [(level, task) for level in ("L1", "mix", "L0") for task in ("statistics", "tensor")]


class Layer(torch.nn.Module):
    """Reports its own function calls; the caller reports the call of the module."""

    def __init__(self, told):
        super().__init__()
        self.linear = torch.nn.Linear(24, 24)
        self.told = told

    def forward(self, x):
        x = F.linear(x, self.linear.weight, self.linear.bias)
        self.told("Functional.linear")
        x = F.gelu(x)
        self.told("Functional.gelu")
        x = torch.tanh(x)
        self.told("Torch.tanh")
        return x


def child_main(folder, level, task, pipe):
    """Trains until it is killed."""
    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # pytest enables it to print the stack of an abort
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)
    told = Acknowledged(pipe, level)
    model = torch.nn.ModuleList(Layer(told.api) for _ in range(24))
    x = torch.randn(16, 24)
    while True:
        debugger.start(model)
        y = x
        for index, layer in enumerate(model):
            y = layer(y)
            told.modules([f"Module.{index}.Layer.forward.0"])
        y.sum().backward()
        told.backward()
        told.modules(f"Module.{index}.Layer.backward.0" for index in range(1, len(model)))
        debugger.stop()
        debugger.step()
        told.next_step()


def die(folder, level, task, dice, death="kill -9"):
    """Step -> names acknowledged before the death."""
    return train_and_kill(child_main, folder, level, task, dice, LATEST_S, *DEATHS[death])


def rounds(count, seed, folder, binary):
    dice = random.Random(seed)
    records = cut = 0
    for number in range(count):
        level, task = KINDS[number % len(KINDS)]
        place = folder / f"{number}"
        death = list(DEATHS)[number // len(KINDS) % len(DEATHS)]
        acknowledged = die(place, level, task, dice, death)
        assert acknowledged
        cut += was_cut(place, acknowledged)
        records += sum(map(len, acknowledged.values()))
        check(binary, place, acknowledged, whole_tensors)
        shutil.rmtree(place)
    return records, cut


def test_a_dozen_deaths_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, _ = rounds(len(KINDS) * 2, 1, tmp_path, msprobe_bin)
    assert records > 4  # on a loaded machine a kill may come after few records


@pytest.mark.parametrize("death", ["abort", "os._exit"])
def test_other_deaths(tmp_path, msprobe_bin, death):
    acknowledged = die(tmp_path / "run", "mix", "tensor", random.Random(5), death)
    check(msprobe_bin, tmp_path / "run", acknowledged, whole_tensors)


@pytest.mark.campaign
def test_two_hundred_deaths_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, cut = rounds(240, 2, tmp_path, msprobe_bin)
    print(f"240 deaths of {len(DEATHS)} kinds, {cut} in a step: {records} records, none lost")
    assert cut > 50, "the kills did not fall into steps"


def test_a_missing_record_is_seen(tmp_path, msprobe_bin):
    """Tests the check: it fails if an acknowledged name is not in the dump."""
    acknowledged = die(tmp_path / "run", "L1", "statistics", random.Random(3))
    acknowledged[max(acknowledged)].add("Functional.gelu.99.forward")
    with pytest.raises(AssertionError, match=r"show does not list \['Functional.gelu.99.forward'"):
        check(msprobe_bin, tmp_path / "run", acknowledged, whole_tensors)
