"""A training is killed at a random moment: every acknowledged record is in its dump.

A record is acknowledged when its call has returned to Python. The child then writes the name to a
pipe, whose content survives the child. The normal test kills at four moments, the campaign at 50.
"""

import random
import shutil

import numpy as np
import pytest

import mindspore
from killed_training import Acknowledged, check, train_and_kill, was_cut
from mindspore import Tensor, nn, ops

LATEST_S = 0.3  # after the first acknowledged record
KINDS = [(level, task) for level in ("mix", "L1", "L0") for task in ("tensor", "statistics")]
LAYERS = 12


class Layer(nn.Cell):
    """Reports its own function calls; the caller reports the call of the Cell."""

    def __init__(self, told):
        super().__init__()
        self.dense = nn.Dense(24, 24)
        self.told = told

    def construct(self, x):
        x = ops.tanh(self.dense(x))
        self.told("Functional.tanh")
        x = ops.sin(x)
        self.told("Functional.sin")
        return x


def child_main(folder, level, task, pipe):
    """Trains until it is killed."""
    from msprobe.mindspore import PrecisionDebugger

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)
    told = Acknowledged(pipe, level)
    net = nn.CellList([Layer(told.api) for _ in range(LAYERS)])
    x = Tensor(np.random.default_rng(0).standard_normal((16, 24)).astype("float32"))

    def forward():
        y = x
        for index, layer in enumerate(net):
            y = layer(y)
            told.modules([f"Cell.{index}.Layer.forward.0"])
        return y.mean()

    train = mindspore.value_and_grad(forward, None, net.trainable_params())
    while True:
        debugger.start(net)
        train()
        told.backward()
        told.modules(f"Cell.{index}.Layer.backward.0" for index in range(1, LAYERS))
        debugger.stop()
        debugger.step()
        told.next_step()


def die(folder, level, task, dice):
    """Step -> names acknowledged before the kill."""
    return train_and_kill(child_main, folder, level, task, dice, LATEST_S)


def read_tensors(folder):
    for file in folder.glob("*.npy"):
        np.load(file)


def rounds(count, seed, folder, binary):
    dice = random.Random(seed)
    records = cut = 0
    for number in range(count):
        place = folder / f"{number}"
        acknowledged = die(place, *KINDS[number % len(KINDS)], dice)
        assert acknowledged
        cut += was_cut(place, acknowledged)
        records += sum(map(len, acknowledged.values()))
        check(binary, place, acknowledged, read_tensors)
        shutil.rmtree(place)
    return records, cut


def test_four_kills_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, _ = rounds(4, 1, tmp_path, msprobe_bin)
    assert records > 4  # on a loaded machine a kill may come after few records


@pytest.mark.campaign
def test_fifty_kills_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, cut = rounds(50, 2, tmp_path, msprobe_bin)
    print(f"50 kills, {cut} in a step: {records} records, none lost")
    assert cut > 10, "the kills did not fall into steps"


def test_a_missing_record_is_seen(tmp_path, msprobe_bin):
    """Tests the check: it fails if an acknowledged name is not in the dump."""
    acknowledged = die(tmp_path / "run", "L1", "statistics", random.Random(3))
    acknowledged[max(acknowledged)].add("Functional.tanh.99.forward")
    with pytest.raises(AssertionError, match=r"show does not list \['Functional.tanh.99.forward'"):
        check(msprobe_bin, tmp_path / "run", acknowledged, read_tensors)
