"""Task grad_probe: the gradients that an optimizer is called with, in every step."""

import csv
import json
import os
import signal
import subprocess
import time
import zlib
from pathlib import Path

import numpy as np
import pytest
from programs import PROGRAMS, trainer
from runs import bits, forked, run_forked

import mindspore
from mindspore import Tensor, nn
from msprobe import UsageError
from msprobe.mindspore import PrecisionDebugger

VENV = Path(__file__).resolve().parents[2] / ".venv/bin"
STEPS = 3


def write_config(folder, level="L1", **section):
    top = {key: section.pop(key) for key in ("rank", "step") if key in section}
    section = {"grad_level": level, **section}
    file = folder / "config.json"
    text = {"task": "grad_probe", "dump_path": str(folder / "dump"), "grad_probe": section, **top}
    file.write_text(json.dumps(text))
    return str(file)


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc1, self.norm, self.fc2 = nn.Dense(5, 300), nn.LayerNorm((300,)), nn.Dense(300, 3)

    def construct(self, x):
        return self.fc2(self.norm(self.fc1(x)))


class WithLoss(nn.Cell):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def construct(self, x):
        return self.net(x).square().mean()


OPTIMIZERS = {
    "SGD": lambda parameters: nn.SGD(parameters, 0.1),
    "Adam": lambda parameters: nn.Adam(parameters, 0.1),  # its construct is compiled
    "experimental": lambda parameters: mindspore.experimental.optim.SGD(parameters, 0.1),
    "groups": lambda parameters: nn.Momentum(
        [{"params": parameters[2:], "lr": 0.01}, {"params": parameters[:2]}], 0.1, 0.9
    ),
}


def train(config, mode="pynative", make="SGD", shape=(4, 5)):
    """Trains, with a configuration recorded; returns (names, gradients of each step, checksums)."""
    graph = mode.startswith("graph")
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)
    mindspore.set_seed(3)
    net = Net()
    net.set_train()
    optimizer = OPTIMIZERS[make](list(net.trainable_params()))
    names = [parameter.name for parameter in optimizer.parameters]
    debugger = None
    if config is not None:
        debugger = PrecisionDebugger(config)
        debugger.monitor(optimizer)
    with_loss = WithLoss(net)  # MindSpore renames the parameters: net.fc1.weight
    step_of = mindspore.value_and_grad(with_loss, None, optimizer.parameters)
    cell = nn.TrainOneStepCell(with_loss, optimizer)

    def whole(x):
        loss, gradients = step_of(x)
        optimizer(gradients)
        return loss, gradients

    if mode == "jit":
        whole = mindspore.jit(whole)
    seen, computed = [], []
    random = np.random.RandomState(0)
    for _ in range(STEPS):
        x = Tensor(random.randn(*shape).astype(np.float32))
        if debugger is not None:
            debugger.start(net)
        if mode.endswith("cell"):
            result = cell(x)
        else:
            result, gradients = whole(x)
            seen.append([gradient.asnumpy() for gradient in gradients])
        if debugger is not None:
            debugger.stop()
            debugger.step()
        computed.append(bits(result, list(net.trainable_params())))
    return names, seen, computed


def table(folder, step, rank=0):
    with (folder / "dump" / f"rank{rank}" / f"grad_summary_{step}.csv").open(newline="") as file:
        return list(csv.reader(file))


def files(folder):
    root = folder / "dump"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def numbers(gradient):
    wide = gradient.astype(np.float64)
    return [wide.max(), wide.min(), np.linalg.norm(wide.ravel())]


MODES = ["pynative", "jit", "graph"]
BOUNDS = [-0.01, 0, 0.001]


def between(level, gradient):
    """The cells between the name and the maximum."""
    if level == "L0":
        return [f"{zlib.crc32(np.ascontiguousarray(gradient).tobytes()):08x}"]
    if level == "L1":
        return []
    place = np.digitize(gradient.ravel(), BOUNDS, right=True)
    counts = [*np.bincount(place, minlength=4), (gradient == 0).sum()]
    return [str(float(count / gradient.size)) for count in counts]


@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
@pytest.mark.parametrize("mode", MODES)
def test_R_D_M4_values(tmp_path, mode, level):
    config = write_config(tmp_path, level, bounds=BOUNDS)
    names, seen, _ = run_forked(train, config, mode)
    assert names == ["fc1.weight", "fc1.bias", "norm.gamma", "norm.beta", "fc2.weight", "fc2.bias"]
    for step in range(STEPS):
        rows = table(tmp_path, step)
        assert [row[0] for row in rows[1:]] == names
        assert {row[-1] for row in rows[1:]} == {"float32"}
        for row, gradient in zip((row[:-1] for row in rows[1:]), seen[step], strict=True):
            assert row[1:-4] == between(level, gradient)
            got = [float(cell) for cell in row[-4:-1]]
            np.testing.assert_allclose(got, numbers(gradient), 1e-12)
            assert row[-1] == str(list(gradient.shape))
        if level == "L0":
            continue
        directions = np.load(tmp_path / "dump/rank0" / f"grad_directions_{step}.npz")
        assert list(directions) == [row[0] for row in rows[1:]]
        for name, gradient in zip(directions, seen[step], strict=True):
            positive = np.unpackbits(directions[name], count=gradient.size)
            np.testing.assert_array_equal(positive, gradient.ravel() > 0)
    assert len(files(tmp_path)) == STEPS * (1 if level == "L0" else 2)


CASES = [
    *((mode, "SGD") for mode in (*MODES, "pynative cell", "graph cell")),
    *(("pynative", make) for make in OPTIMIZERS if make != "SGD"),
    ("graph", "Adam"),
    ("jit", "Adam"),
    ("graph", "groups"),
]


@pytest.mark.parametrize(("mode", "make"), CASES)
def test_training_is_the_same_bits(tmp_path, mode, make):
    config = write_config(tmp_path, "L2")
    names, _, recorded = run_forked(train, config, mode, make)
    assert recorded == run_forked(train, None, mode, make)[2]
    assert files(tmp_path) == sorted(
        f"rank0/grad_{name}_{step}.{kind}"
        for step in range(STEPS)
        for name, kind in (("summary", "csv"), ("directions", "npz"))
    )
    assert [row[0] for row in table(tmp_path, 0)[1:]] == names


def _program(name, config):
    net, loss = PROGRAMS[name](4)
    step, optimizer = trainer(net, loss)
    if config is not None:
        PrecisionDebugger(config).monitor(optimizer)
    computed = []
    for _ in range(10):
        value, gradients = step()
        optimizer(gradients)
        computed.append(bits(value, list(gradients), list(net.trainable_params())))
    return computed


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "dropout"])
def test_ten_steps_of_a_program_are_the_same_bits(tmp_path, name):
    recorded = run_forked(_program, name, write_config(tmp_path))
    assert recorded == run_forked(_program, name, None)
    assert len(files(tmp_path)) == 20


def test_filters(tmp_path, capfd):
    config = write_config(tmp_path, step=[1], param_list=["fc2.weight", "fc1.weigth"])
    run_forked(train, config)
    assert [row[0] for row in table(tmp_path, 1)] == ["param_name", "fc2.weight"]
    assert files(tmp_path) == ["rank0/grad_directions_1.npz", "rank0/grad_summary_1.csv"]
    said = capfd.readouterr().err
    assert 'the model has no parameter "fc1.weigth"; did you mean "fc1.weight"?' in said
    assert "all wanted steps are recorded" in said


@forked
def test_the_optimizer_is_put_back(tmp_path):
    from mindspore import _c_expression

    executors = (_c_expression.GraphExecutor_, _c_expression.JitExecutor_)
    before = [vars(executor)["compile"] for executor in executors]
    optimizer = nn.SGD([mindspore.Parameter(Tensor([1.0, 2.0]), name="w")], 0.1)
    other = nn.SGD([mindspore.Parameter(Tensor([1.0, 2.0]), name="v")], 0.1)
    debugger = PrecisionDebugger(write_config(tmp_path, step=[0]))
    debugger.monitor(other)
    debugger.monitor(optimizer)
    assert not other._forward_pre_hook
    optimizer((Tensor([1.0, -1.0]),))
    assert optimizer._forward_pre_hook
    optimizer((Tensor([1.0, -1.0]),))  # step 1 is not wanted, and no later one
    assert not optimizer._forward_pre_hook
    assert [vars(executor)["compile"] for executor in executors] == before
    assert [row[0] for row in table(tmp_path, 0)] == ["param_name", "w"]


def _special(config):
    names = {"plain": mindspore.float32, "rounded": mindspore.bfloat16, "none": mindspore.float32}
    parameters = [
        mindspore.Parameter(Tensor(np.ones(4), dtype), name=name) for name, dtype in names.items()
    ]

    class Keeps(nn.Optimizer):
        def __init__(self):
            super().__init__(0.1, parameters)

        def construct(self, gradients):
            return True

    optimizer = Keeps()
    debugger = PrecisionDebugger(config)
    debugger.set_init_step(7)
    debugger.monitor(optimizer)
    plain = Tensor(np.array([0, np.nan, np.inf, 1], np.float32))
    optimizer((plain, Tensor([2.0] * 4, mindspore.bfloat16), None))
    optimizer(gradients=[plain[2:], plain, plain])  # by name, a list, a view
    optimizer((plain,))


def test_special_gradients(tmp_path, capfd):
    run_forked(_special, write_config(tmp_path, "L2", bounds=[]))
    assert table(tmp_path, 7) == [
        ["param_name", "=0", "max", "min", "norm", "shape", "dtype"],
        ["plain", "0.25", "nan", "nan", "nan", "[4]", "float32"],
        ["rounded", "0.0", "2.0", "2.0", "4.0", "[4]", "bfloat16"],
    ]
    assert table(tmp_path, 8)[1] == ["plain", "0.0", "inf", "1.0", "inf", "[2]", "float32"]
    assert len(table(tmp_path, 8)) == 4
    assert "expected 3 gradients, one for each parameter of the optimizer, found 1" in (
        capfd.readouterr().err
    )


@forked
def test_misuse(tmp_path):
    with pytest.raises(UsageError, match="to be constructed first"):
        PrecisionDebugger.monitor(None)
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"))
    net = nn.Dense(2, 2)
    with pytest.raises(UsageError, match='expected task "grad_probe", found "statistics"'):
        debugger.monitor(nn.SGD(net.trainable_params(), 0.1))
    for wrong, name in ((net, "Dense"), (3, "int")):
        with pytest.raises(UsageError, match=f"such as nn.Adam, found {name}; type debugger.mon"):
            debugger.monitor(wrong)


def _too_late(config):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    optimizer = nn.SGD([mindspore.Parameter(Tensor([1.0, 2.0]), name="w")], 0.1)
    optimizer((Tensor([1.0, -1.0]),))
    PrecisionDebugger(config).monitor(optimizer)
    optimizer((Tensor([1.0, -1.0]),))
    from msprobe.mindspore import gradients

    gradients._end()


def test_a_graph_that_was_compiled_before(tmp_path, capfd):
    run_forked(_too_late, write_config(tmp_path))
    assert "grad_probe has recorded nothing" in capfd.readouterr().err


def _in_a_bad_place(folder):
    (folder / "dump").mkdir()
    (folder / "dump/rank0").write_text("a file")
    return train(write_config(folder))[2]


def test_a_fault_does_not_affect_the_training(tmp_path, capfd):
    bad = run_forked(_in_a_bad_place, tmp_path)
    assert bad == run_forked(train, None)[2]
    assert capfd.readouterr().err.count("collection is off, the run goes on") == 1


def _train_until_killed(config):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    optimizer = nn.SGD([mindspore.Parameter(Tensor(np.ones(50000, "f4")), name="w")], 0.1)
    PrecisionDebugger(config).monitor(optimizer)
    gradient = (Tensor(np.arange(50000, dtype="f4") - 9),)
    while True:
        optimizer(gradient)


@pytest.mark.parametrize("delay", [0.0, 0.05, 0.2])
def test_a_killed_run_has_whole_steps(tmp_path, msprobe_bin, delay):
    config = write_config(tmp_path)
    child = os.fork()
    if child == 0:
        try:
            _train_until_killed(config)
        finally:
            os._exit(9)
    end = time.monotonic() + 60
    while not (tmp_path / "dump/rank0/grad_summary_0.csv").exists() and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(delay)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    steps = len(list((tmp_path / "dump/rank0").glob("grad_summary_*.csv")))
    assert steps > 0
    for step in range(steps):
        assert table(tmp_path, step)[1][:1] == ["w"]
        packed = np.load(tmp_path / "dump/rank0" / f"grad_directions_{step}.npz")["w"]
        assert np.unpackbits(packed)[:50000].sum() == 49990
    found = grad_compare(msprobe_bin, tmp_path, tmp_path, tmp_path / "out")
    assert found["first_fall"] is None


def grad_compare(binary, target, golden, out):
    command = [binary, "grad_compare", target / "dump", golden / "dump", "-o", out]
    command += ["--format", "json"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


PYTORCH = """
import sys
import numpy as np
import torch
from msprobe.pytorch import PrecisionDebugger

config, weights, planted = sys.argv[1], np.load(sys.argv[2]), sys.argv[3] == "1"
net = torch.nn.ModuleDict({
    "fc1": torch.nn.Linear(5, 300), "norm": torch.nn.LayerNorm(300), "fc2": torch.nn.Linear(300, 3),
})
with torch.no_grad():
    for name, parameter in net.named_parameters():
        parameter.copy_(torch.tensor(weights[name]))
PrecisionDebugger(config).monitor(net)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
random = np.random.RandomState(0)
for step in range(3):
    x = torch.tensor(random.randn(4, 5).astype(np.float32))
    optimizer.zero_grad()
    net["fc2"](net["norm"](net["fc1"](x))).square().mean().backward()
    if planted and step == 1:
        net["norm"].weight.grad.neg_()
    optimizer.step()
"""


def _weights(path):
    mindspore.set_seed(3)
    names = {"gamma": "weight", "beta": "bias"}
    arrays = {}
    for parameter in Net().trainable_params():
        *path_of, last = parameter.name.split(".")
        arrays[".".join([*path_of, names.get(last, last)])] = parameter.asnumpy()
    np.savez(path, **arrays)


@pytest.mark.skipif(not (VENV / "msprobe").exists(), reason="no PyTorch: .venv/ was not built")
@pytest.mark.parametrize("planted", [False, True])
def test_R_D_M5_against_pytorch(tmp_path, msprobe_bin, planted):
    for side in ("mindspore", "pytorch"):
        (tmp_path / side).mkdir()
    run_forked(_weights, tmp_path / "weights.npz")
    run_forked(train, write_config(tmp_path / "mindspore", "L2"))
    script = tmp_path / "train.py"
    script.write_text(PYTORCH)
    command = [VENV / "python", script, write_config(tmp_path / "pytorch", "L2")]
    command += [tmp_path / "weights.npz", str(int(planted))]
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    run = subprocess.run(command, capture_output=True, text=True, env=clean)
    assert run.returncode == 0, run.stderr
    found = grad_compare(
        msprobe_bin, tmp_path / "mindspore", tmp_path / "pytorch", tmp_path / "out"
    )
    with (tmp_path / "out/rank0/similarities.csv").open(newline="") as file:
        rows = {row[0]: [float(cell) for cell in row[1:]] for row in list(csv.reader(file))[1:]}
    assert set(rows) == {"fc1.weight", "fc1.bias", "norm.gamma", "norm.beta", "fc2.weight",
                         "fc2.bias", "summary"}  # fmt: skip
    if planted:
        fall = found["first_fall"]
        assert (fall["step"], fall["parameter"]) == (1, "norm.gamma")
        assert rows["norm.gamma"][1] < 0.01
    else:
        assert found["first_fall"] is None
        assert min(min(cells) for cells in rows.values()) > 0.97
    for step in range(1 if planted else STEPS):
        ours, theirs = table(tmp_path / "mindspore", step), table(tmp_path / "pytorch", step)
        assert ours[0] == theirs[0]
        for a, b in zip(ours[1:], theirs[1:], strict=True):
            np.testing.assert_allclose(
                [float(cell) for cell in a[-5:-2]], [float(cell) for cell in b[-5:-2]], 1e-3, 1e-6
            )
