"""What MindSpore itself dumps of a compiled training (MINDSPORE_DUMP_CONFIG), read by the program.

MindSpore reads the variable when it is imported, so each training runs in a process of its own.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

STEPS = 2
SHAPE = (4, 6)

PROGRAM = """
import sys
import numpy as np
import mindspore
from mindspore import nn, ops

mindspore.set_context(mode=mindspore.GRAPH_MODE)
mindspore.set_device("CPU")


class Net(nn.Cell):
    def __init__(self, factor):
        super().__init__()
        self.fc1, self.fc2, self.factor = nn.Dense(6, 8), nn.Dense(8, 3), factor

    def construct(self, x):
        hidden = ops.tanh(self.fc1(x))
        return self.fc2(hidden * self.factor)


random = np.random.default_rng(0)
net = Net(float(sys.argv[1]))
for parameter in net.trainable_params():
    values = random.standard_normal(parameter.shape).astype("float32")
    parameter.set_data(mindspore.Tensor(values))
optimizer = nn.SGD(net.trainable_params(), 0.1)
step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer)
x, y = (random.standard_normal(shape).astype("float32") for shape in ((4, 6), (4, 3)))
for _ in range(2):
    print(float(step(mindspore.Tensor(x), mindspore.Tensor(y)).asnumpy()))
"""


def train(folder, name, factor):
    """The folder of the dump, and the losses that the program printed."""
    program, config, dump = folder / "program.py", folder / f"{name}.json", folder / name
    program.write_text(PROGRAM)
    common = {"op_debug_mode": 0, "dump_mode": 0, "path": str(dump), "net_name": "net"}
    common |= {"iteration": "all", "saved_data": "tensor", "input_output": 0}
    common |= {"kernels": [], "support_device": [0]}
    switch = {"enable": True, "trans_flag": True}
    config.write_text(json.dumps({"common_dump_settings": common, "e2e_dump_settings": switch}))
    done = subprocess.run(
        [sys.executable, program, str(factor)],
        env=dict(os.environ, MINDSPORE_DUMP_CONFIG=str(config)),
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return dump, [float(line) for line in done.stdout.split("\n") if line][-STEPS:]


@pytest.fixture(scope="module")
def dumps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graph_dumps")
    return {
        name: train(folder, name, factor)
        for name, factor in (("right", 1.0), ("again", 1.0), ("wrong", 1.01))
    }


def run(*words):
    return subprocess.run([*map(str, words)], capture_output=True, text=True)


def records(msprobe_bin, folder):
    """Name of an operator -> its line in the source and its values: slot -> file."""
    shown = run(msprobe_bin, "show", folder)
    assert shown.returncode == 0, shown.stderr
    found = {}
    for block in shown.stdout.split("\n\n")[1:]:
        name, *lines = block.splitlines()
        at = next((line for line in lines if line.startswith("  at ")), "")
        files = {line.split()[0]: line.split()[-1] for line in lines if line.endswith(".npy")}
        found[name] = (at, files)
    return found


def test_show_lists_steps_operators_and_source_lines(dumps, msprobe_bin):
    folder, _ = dumps["right"]
    listed = run(msprobe_bin, "show", folder).stdout
    for step in range(STEPS):
        assert f"step {step}     rank 0     {folder}/rank_0/net/0/{step}" in listed
    found = records(msprobe_bin, folder / "rank_0/net/0/0")
    order = [name for name in found if "fc1-Dense" in name or "/Tanh" in name]
    stem = "Default/network-WithLossCell/_backbone-Net"
    assert order[:3] == [
        f"{stem}/fc1-Dense/MatMul.0.forward",
        f"{stem}/fc1-Dense/BiasAdd.0.forward",
        f"{stem}/Tanh.0.forward",
    ]
    at, _ = found[f"{stem}/Tanh.0.forward"]
    assert "program.py:17 in construct: hidden = ops.tanh(self.fc1(x))" in at
    ends = {name.rpartition(".")[2] for name in found}
    assert {"forward", "backward", "optimizer"} <= ends


def test_the_values_are_those_of_the_training(dumps, msprobe_bin):
    folder, losses = dumps["right"]
    for step in range(STEPS):
        place = folder / f"rank_0/net/0/{step}"
        found = records(msprobe_bin, place)
        (name,) = (n for n in found if n.endswith("MSELoss/ReduceMean.0.forward"))
        assert float(np.load(place / found[name][1]["output.0"])) == losses[step]
        (name,) = (n for n in found if n.endswith("fc1-Dense/MatMul.0.forward"))
        x, weight, out = (
            np.load(place / found[name][1][slot]) for slot in ("input.0", "input.1", "output.0")
        )
        assert x.shape == SHAPE
        np.testing.assert_allclose(out, x @ weight.T, rtol=1e-5, atol=1e-5)


def test_two_equal_trainings_are_equal_in_every_bit(dumps, msprobe_bin, tmp_path):
    done = run(msprobe_bin, "compare", dumps["again"][0], dumps["right"][0], "-o", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FIRST DIVERGENCE" not in done.stdout
    assert "EQUAL" in done.stdout.splitlines()[0]
    assert dumps["again"][1] == dumps["right"][1]


def test_the_wrong_operator_is_named(dumps, msprobe_bin, tmp_path):
    done = run(msprobe_bin, "compare", dumps["wrong"][0], dumps["right"][0], "-o", tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    first = done.stdout[done.stdout.index("FIRST DIVERGENCE") :].replace("\n  | ", " ")
    assert first.startswith("FIRST DIVERGENCE  step 0, Expand/_Muls/Mul.0.forward")
    assert "program.py:18 in construct: return self.fc2(hidden * self.factor)" in first
    assert "step 1: differs, inherited from step 0" in done.stdout
