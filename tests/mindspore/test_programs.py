"""Programs that do unusual things while they are recorded."""

import copy
import inspect
import json
import pickle
import subprocess
import threading

import numpy as np
import pytest
from runs import bits, forked, read_dump, record

import mindspore
from mindspore import Tensor, mint, nn, ops
from msprobe.mindspore import PrecisionDebugger

X = np.arange(6, dtype="float32").reshape(2, 3)


@forked
def test_an_exception_inside_a_call(tmp_path):
    class Fails(nn.Cell):
        def construct(self, x):
            ops.exp(x)
            raise KeyError("planted")

    net = nn.SequentialCell(Fails())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    debugger.start(net)
    with pytest.raises(KeyError, match="planted"):
        net(Tensor(X))
    ops.exp(Tensor(X))
    with pytest.raises((TypeError, ValueError, RuntimeError)):
        ops.matmul(Tensor(X), Tensor(X))
    debugger.stop()
    dump = read_dump(tmp_path)
    assert dump.data["Cell.0.Fails.forward.0"]["exception"] == "KeyError"
    assert "output" in dump.data["Functional.exp.1.forward"]
    assert dump.parents["Functional.exp.1.forward"] is None


@forked
def test_threads(tmp_path):
    def run():
        def work():
            for _ in range(5):
                ops.exp(Tensor(X))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    # One run in many died in malloc() when four threads made the first calls of the process.
    ops.exp(Tensor(X)).asnumpy()
    _, dump = record(tmp_path, run, level="L1")
    assert sorted(dump.names) == sorted(f"Functional.exp.{i}.forward" for i in range(20))


@forked
def test_containers(tmp_path):
    class Parts(nn.Cell):
        def construct(self, pair, named, flag=True):
            return {"sum": pair[0] + pair[1], "more": (named["x"], None)}

    net = nn.SequentialCell(Parts())
    x = Tensor(X)
    _, dump = record(
        tmp_path, lambda: net[0]((x, x), {"x": x}, flag=False), net, level="L0", task="tensor"
    )
    entry = dump.data["Cell.0.Parts.forward.0"]
    assert entry["input_args"][0][1]["shape"] == [2, 3]
    assert entry["input_args"][1]["x"]["data_name"].endswith("forward.0.input.1.x.npy")
    assert entry["input_kwargs"] == {"flag": {"type": "bool", "value": False}}
    assert entry["output"][0]["sum"]["Max"] == 10.0


@forked
def test_cells_that_are_renamed_and_reused(tmp_path):
    dense = nn.Dense(3, 3)
    net = nn.CellDict({"a": dense}) if hasattr(nn, "CellDict") else nn.SequentialCell(dense)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    debugger.start(net)
    dense(Tensor(X))
    dense(Tensor(X))
    debugger.stop()
    debugger.step()

    class Other(nn.Cell):
        def __init__(self):
            super().__init__()
            self.renamed = dense

    debugger.start(Other())
    dense(Tensor(X))
    debugger.stop()
    first = read_dump(tmp_path, 0).names
    assert [name.rsplit(".", 1)[1] for name in first] == ["0", "1"]
    assert read_dump(tmp_path, 1).names == ["Cell.renamed.Dense.forward.0"]


def places():
    """What a program could look at, to see whether something was replaced."""
    functions = [ops.relu, ops.exp, mint.sin, mint.nn.functional.relu, nn.Cell.__call__]
    return (
        [
            (id(f), id(f.__code__), hash(f), inspect.getsource(f), f.__dict__.copy())
            for f in functions
        ],
        [id(vars(kind)[name]) for kind in mindspore.Tensor.__mro__[:2] for name in vars(kind)],
        [id(value) for value in vars(ops).values()],
        [id(value) for value in vars(mint).values()],
        bits(Tensor(X)),
    )


@forked
def test_everything_is_put_back(tmp_path):
    net = nn.SequentialCell(nn.Dense(3, 2), nn.Dropout(p=0.5))
    before = places()
    for _ in range(2):
        record(tmp_path, lambda: net(Tensor(X)), net, level="mix")
        assert places() == before
    assert not net[0].weight.hooks()


@forked
def test_what_a_program_does_while_it_is_recorded(tmp_path):
    net = nn.SequentialCell(nn.Dense(3, 2))

    def run():
        assert pickle.loads(pickle.dumps(ops.exp)) is ops.exp
        assert "def relu(" in inspect.getsource(ops.relu)
        assert "def " in inspect.getsource(mint.sin)
        assert str(inspect.signature(ops.relu)) == "(input, inplace=False)"
        twin = copy.deepcopy(net)
        assert bits(twin(Tensor(X))) == bits(net(Tensor(X)))
        restored = pickle.loads(pickle.dumps(Tensor(X)))
        assert bits(restored) == bits(Tensor(X))

    _, dump = record(tmp_path, run, net, level="mix")
    assert "Cell.0.Dense.forward.0" in dump.names


def compiled(x, y):
    return mint.sin(ops.relu(x)) + mint.nn.functional.softmax(y, dim=-1) * x.abs()


def compiled_before(x, y):
    return mint.sin(ops.relu(x)) + mint.nn.functional.softmax(y, dim=-1) * x.abs()


@pytest.mark.parametrize("level", ["L1", "mix"])
@forked
def test_jit_compiles_the_program_as_it_is(tmp_path, level):
    x = Tensor(X - 2.0)
    wanted = bits(mindspore.jit(compiled_before)(x, x))
    function = mindspore.jit(compiled)
    net = nn.SequentialCell(nn.Dense(3, 2))
    result, _ = record(tmp_path, lambda: function(x, x), net, level=level)
    assert bits(result) == wanted
    assert bits(function(x, x)) == wanted


class Compiled(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(3, 2)

    def construct(self, x):
        return ops.relu(self.fc(x))


def forward_of(net):
    def forward(x):
        return net(x)

    return forward


def step_of(net):
    def loss_of(x):
        return net(x).sum()

    return mindspore.value_and_grad(loss_of, None, net.trainable_params())


@pytest.mark.parametrize(
    ("compiled_of", "name"),
    [
        (lambda net: mindspore.jit(forward_of(net)), "forward_of.<locals>.forward"),
        (lambda net: mindspore.jit(net), "Compiled.construct"),
        (lambda net: mindspore.jit(step_of(net)), "step_of.<locals>.loss_of"),
        (lambda net: mindspore.jit(nn.SequentialCell(net)), "SequentialCell"),
    ],
)
@forked
def test_what_runs_compiled_at_mix_is_said(tmp_path, capfd, msprobe_bin, compiled_of, name):
    """Its calls are not recorded: a warning names it, and a comparison says so first."""
    net = Compiled()
    function = compiled_of(net)
    record(tmp_path, lambda: (function(Tensor(X)), ops.exp(Tensor(X))), net, level="mix")
    place = next(line for line in capfd.readouterr().err.splitlines() if "runs compiled" in line)
    assert f"{name} (" in place
    assert 'type level="L0"' in place
    coverage = json.loads((read_dump(tmp_path).folder / "coverage.json").read_text())
    (program,) = coverage["modules_not_observed"]
    assert f"{name} (" in program["module"]
    printed = subprocess.run(
        [msprobe_bin, "compare", tmp_path, tmp_path, "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
    ).stdout
    first = " ".join(printed.split())
    assert first.index("nothing inside") < first.index(f"{name} (") < first.index("step0")


@forked
def test_steps_and_scope(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1", step=[1])
    for _ in range(3):
        with debugger.step():
            ops.exp(Tensor(X))
    assert [path.name for path in tmp_path.iterdir()] == ["step1"]


@forked
def test_rank_id_and_token_range(tmp_path):
    net = nn.SequentialCell(nn.Dense(3, 2))
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    debugger.start(net, token_range=[1, 2], rank_id=3)
    for _ in range(4):
        net(Tensor(X))
    debugger.stop()
    assert (tmp_path / "step0" / "rank3" / "dump.json").exists()
    assert len(read_dump(tmp_path).names) == 2
