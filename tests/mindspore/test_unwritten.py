"""Results that MindSpore leaves unwritten on a CPU are no values of a run."""

import subprocess

import numpy as np
import pytest
import unwritten_sweep
from runs import read_dump, run_forked

from mindspore import Tensor, nn, ops
from msprobe.mindspore import PrecisionDebugger


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = ops.BatchNorm(is_training=True, epsilon=1e-5, momentum=0.1)
        self.same = ops.ReLU()

    def construct(self, x, scale, bias, mean, variance):
        return self.same(self.norm(x, scale, bias, mean, variance)[0])


def record(path, junk):
    net = Net()
    x = Tensor(np.random.default_rng(0).standard_normal((8, 16, 6, 6)).astype(np.float32))
    given = [Tensor(np.full(16, value, np.float32)) for value in (1, 0, 0, 1)]
    unwritten_sweep.poison([64], junk)
    debugger = PrecisionDebugger(dump_path=str(path), level="mix")
    debugger.start(net)
    net(x, *given)
    debugger.stop()
    return str(read_dump(path).folder)


def test_two_runs_are_equal_whatever_the_memory_held(tmp_path, msprobe_bin):
    runs = [run_forked(record, tmp_path / name, junk) for name, junk in (("a", 0x41), ("b", 0x42))]
    value = read_dump(tmp_path / "a").data["Primitive.norm.BatchNorm.0.forward"]
    assert value["input_kwargs"]["is_training"] == {"type": "bool", "value": True}
    first, second, third = value["output"][:3]
    assert "unwritten" not in first
    for left in (second, third):
        assert left["unwritten"] == "Primitive.norm.BatchNorm"
        assert left["shape"] == [16]
        assert not {"Max", "fp"} & {key for key, number in left.items() if number is not None}
    words = [msprobe_bin, "compare", *runs, "-o", tmp_path / "out"]
    report = subprocess.run([*map(str, words)], capture_output=True, text=True).stdout
    assert "equal" in report.splitlines()[0].lower(), report


@pytest.mark.campaign
def test_the_table_is_what_the_calls_leave():
    """Each Primitive is called; takes four minutes."""

    def table(text):  # how many calls a machine could make is in the comment alone
        return [line for line in text.splitlines() if not line.startswith("#")]

    found, failed = unwritten_sweep.sweep()
    made = unwritten_sweep.text_of(found, failed)
    assert table(made) == table(unwritten_sweep.shipped())
    assert len({name for name, _ in found}) > 1200
