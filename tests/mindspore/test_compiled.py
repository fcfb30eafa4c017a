"""Level L0 in compiled code: the debugger records Cells as in PyNative mode."""

import math
import subprocess

import numpy as np
import pytest
from runs import bits, forked, read_dump, run_forked, tensors

import mindspore
import msprobe.mindspore
from mindspore import nn, ops
from msprobe import UnsupportedError, UsageError

STEPS = 3


class Inner(nn.Cell):
    def __init__(self, width):
        super().__init__()
        self.fc, self.act = nn.Dense(width, width), nn.ReLU()

    def construct(self, x):
        return x + self.act(self.fc(x)), x * 2


class Net(nn.Cell):
    """The Cell `shared` is called twice; `inner` has a tuple as output."""

    def __init__(self):
        super().__init__()
        self.shared, self.inner = nn.Dense(4, 4), Inner(4)
        self.norm, self.head = nn.LayerNorm((4,)), nn.Dense(4, 3)

    def construct(self, x):
        a, b = self.inner(self.shared(x))
        return self.head(self.norm(self.shared(ops.tanh(a)) + b))


class JitNet(Net):
    """The model itself is compiled."""

    @mindspore.jit
    def construct(self, x):
        a, b = self.inner(self.shared(x))
        return self.head(self.norm(self.shared(ops.tanh(a)) + b))


class PartlyJit(nn.Cell):
    """One Cell is compiled."""

    def __init__(self):
        super().__init__()
        self.first, self.part = nn.Dense(4, 4), JitNet()

    def construct(self, x):
        return self.part(self.first(x))


def train(path, mode, network=Net, steps=STEPS, before=lambda net: None, **arguments):
    """Checksums of all that a training computes; with a path, it is recorded."""
    graph = mode == "graph"
    mindspore.set_context(mode=mindspore.GRAPH_MODE if graph else mindspore.PYNATIVE_MODE)
    mindspore.set_seed(1)
    net = network()
    net.set_train()
    before(net)
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)

    def forward(x):
        return ops.square(net(x)).mean()

    step = ops.value_and_grad(forward, None, optimizer.parameters)
    if mode == "jit":
        step = mindspore.jit(step)
    debugger = None
    if path is not None:
        arguments = {"level": "L0", **arguments}
        debugger = msprobe.mindspore.PrecisionDebugger(dump_path=str(path), **arguments)
    random, computed = np.random.RandomState(0), []
    for _ in range(steps):
        x = mindspore.Tensor(random.randn(2, 4).astype(np.float32))
        if debugger is not None:
            debugger.start(net)
        loss, gradients = step(x)
        if debugger is not None:
            debugger.stop()
            debugger.step()
        optimizer(gradients)
        computed.append(bits(loss, list(gradients), list(net.trainable_params())))
    return computed


CASES = [("graph", Net), ("jit", Net), ("pynative", JitNet), ("pynative", PartlyJit)]


@pytest.mark.parametrize(("mode", "network"), CASES)
@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_training_is_the_same_in_every_bit(tmp_path, mode, network, task):
    plain = run_forked(train, None, mode, network)
    assert run_forked(train, tmp_path, mode, network, task=task) == plain


def statistics(dump, name):
    return [
        (value["dtype"], value["shape"], value["Max"], value["Min"], value["Mean"], value["Norm"])
        for value in tensors(dump.data[name]["input" if ".backward." in name else "output"])
    ]


def parent_of(value):
    parent = value[0] if isinstance(value, list) else value
    return (parent or "").replace("JitNet", "Net")


@pytest.mark.parametrize(("mode", "network"), CASES)
def test_entries_are_those_of_pynative_mode(tmp_path, mode, network):
    plain = {JitNet: Net}.get(network, network)
    if network is PartlyJit:
        run_forked(train, tmp_path / "pynative", "pynative", _PartlyPlain)
    else:
        run_forked(train, tmp_path / "pynative", "pynative", plain)
    run_forked(train, tmp_path / "graph", mode, network)
    for step in range(STEPS):
        expected = read_dump(tmp_path / "pynative", step)
        found = read_dump(tmp_path / "graph", step)
        names = {name.replace("JitNet", "Net") for name in found.names}
        assert len(names) == len(found.names)
        wanted = {name for name in expected.names if "parameters_grad" not in name}
        assert {name for name in names if "parameters_grad" not in name} == wanted
        for name in found.names:
            if "parameters_grad" in name:
                continue
            ours = statistics(found, name)
            theirs = statistics(expected, name.replace("JitNet", "Net"))
            assert len(ours) == len(theirs) > 0, name
            for a, b in zip(ours, theirs, strict=True):
                assert a[:2] == b[:2], name
                assert all(
                    math.isclose(x, y, rel_tol=1e-4, abs_tol=1e-6)
                    for x, y in zip(a[2:], b[2:], strict=True)
                ), (name, a, b)
        ours = {name.replace("JitNet", "Net"): parent for name, parent in found.parents.items()}
        for name in names & wanted:
            assert parent_of(ours[name]) == parent_of(expected.parents[name]), name


@pytest.mark.parametrize("first", [0, 1])
def test_gradients_of_parameters_under_jit_are_those_of_pynative_mode(tmp_path, first):
    """Also where the graph is compiled in a step that is not recorded."""
    wanted = {"step": list(range(first, STEPS))}
    run_forked(train, tmp_path / "pynative", "pynative", **wanted)
    run_forked(train, tmp_path / "jit", "jit", **wanted)
    for step in range(first, STEPS):
        expected, found = (read_dump(tmp_path / mode, step).data for mode in ("pynative", "jit"))
        names = [name for name in expected if "parameters_grad" in name]
        assert len(names) == len([name for name in found if "parameters_grad" in name]) > 0
        for name in names:
            assert list(found[name]) == list(expected[name])
            for parameter, (theirs,) in expected[name].items():
                (ours,) = found[name][parameter]
                assert (ours["dtype"], ours["shape"]) == (theirs["dtype"], theirs["shape"])
                for number in ("Max", "Min", "Mean", "Norm"):
                    assert math.isclose(ours[number], theirs[number], rel_tol=1e-4, abs_tol=1e-6)


def test_a_jit_graph_calls_no_python(tmp_path, monkeypatch):
    """A call of Python cuts the graph of MindSpore in two: steps took ten times as long."""
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS", "1")
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS_PATH", str(tmp_path / "graphs"))
    run_forked(train, tmp_path / "dump", "jit", steps=1)
    texts = [path.read_text() for path in (tmp_path / "graphs").glob("**/*_validate_*.ir")]
    assert any("Custom" in text for text in texts)
    assert not any("PyExecute" in text for text in texts)


class _PartlyPlain(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.part = nn.Dense(4, 4), Net()

    def construct(self, x):
        return self.part(self.first(x))


def test_arrays_are_saved(tmp_path):
    run_forked(train, tmp_path, "graph", steps=1, task="tensor")
    dump = read_dump(tmp_path)
    (value,) = tensors(dump.data["Cell.head.Dense.forward.0"])
    array = dump.array(value)
    assert list(array.shape) == value["shape"] == [2, 3]
    assert value["type"] == "mindspore.Tensor"
    assert value["dtype"] == "Float32"
    assert math.isclose(array.max(), value["Max"], rel_tol=1e-6)


@forked
def test_a_graph_that_was_compiled_before_start(tmp_path, capfd):
    def compile_now(net):
        net(mindspore.Tensor(np.ones((2, 4), np.float32)))

    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    net = Net()
    x = mindspore.Tensor(np.ones((2, 4), np.float32))
    net(x)
    debugger = msprobe.mindspore.PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    for _ in range(2):
        debugger.start(net)
        net(x)
        debugger.stop()
        debugger.step()
    said = capfd.readouterr().err
    assert said.count("the graph was compiled before start(model)") == 1


@forked
def test_cells_without_a_tap_are_said(tmp_path, capfd):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    net = nn.Cell()

    class Sequence(nn.Cell):
        def __init__(self):
            super().__init__()
            self.layers, self.last = nn.SequentialCell(nn.Dense(4, 4), nn.ReLU()), nn.Dense(4, 2)

        def construct(self, x):
            return self.last(self.layers(x))

    net = Sequence()
    debugger = msprobe.mindspore.PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    for _ in range(2):
        debugger.start(net)
        net(mindspore.Tensor(np.ones((2, 4), np.float32)))
        debugger.stop()
    said = capfd.readouterr().err
    assert said.count("not recorded in graph mode: Cell.layers.0.Dense, Cell.layers.1.ReLU") == 1
    dump = read_dump(tmp_path)
    assert [cell["module"] for cell in dump.coverage["modules_not_observed"]] == [
        "Cell.layers.0.Dense",
        "Cell.layers.1.ReLU",
    ]
    assert dump.coverage["modules"]["recorded"] == 4
    assert dump.names == [
        "Cell.layers.SequentialCell.forward.0",
        "Cell.last.Dense.forward.0",
        "Cell.layers.SequentialCell.forward.1",
        "Cell.last.Dense.forward.1",
    ]


class Wrong(Net):
    """The model's own code makes an error, before it calls `norm`."""

    def construct(self, x):
        a, b = self.inner(self.shared(x))
        return self.head(self.norm(self.shared(ops.tanh(a)) + b * 1.01))


@pytest.mark.parametrize("mode", ["graph", "jit"])
def test_advice_works_for_compiled_code(tmp_path, msprobe_bin, mode):
    run_forked(train, tmp_path / "right", mode, steps=1)
    run_forked(train, tmp_path / "wrong", mode, Wrong, steps=1)
    runs = [str(tmp_path / name) for name in ("wrong", "right")]
    done = subprocess.run(
        [msprobe_bin, "compare", *runs, "-o", str(tmp_path / "out")],
        capture_output=True,
        text=True,
    )
    text = " ".join(line.removeprefix("  | ") for line in done.stdout.split("\n"))
    assert "Cell.norm.LayerNorm.forward.0" in text
    assert "the error is in it, or in the model's code that leads to it" in text
    assert "next: run both programs in PyNative mode, without mindspore.jit, at level mix" in text
    words = [msprobe_bin, "bisect", *runs, "-o", str(tmp_path / "bisect")]
    assert "in PyNative mode" in subprocess.run(words, capture_output=True, text=True).stdout


def test_taps_call_python_where_mindspore_refuses_the_kernel(tmp_path, capfd, monkeypatch):
    """MS_CUSTOM_AOT_WHITE_LIST names the one folder of kernels; the entries are the same."""
    run_forked(train, tmp_path / "kernel", "graph", steps=1)
    assert "goes through Python" not in capfd.readouterr().err
    monkeypatch.setenv("MS_CUSTOM_AOT_WHITE_LIST", str(tmp_path))
    run_forked(train, tmp_path / "python", "graph", steps=1)
    assert capfd.readouterr().err.count("goes through Python: MS_CUSTOM_AOT_WHITE_LIST is") == 1
    ours, theirs = (read_dump(tmp_path / name) for name in ("kernel", "python"))
    assert ours.data == theirs.data
    assert ours.parents == theirs.parents


@pytest.mark.parametrize(
    ("arguments", "token_range", "error", "text"),
    [
        ({"level": "L1"}, None, UsageError, 'level "L0" alone is recorded'),
        ({"level": "mix"}, None, UsageError, 'level "L0" alone is recorded'),
        ({"level": "L0"}, [0, 1], UsageError, "token_range counts calls of the model"),
        ({"level": "L0", "task": "overflow_check"}, None, UnsupportedError, "needs PyNative mode"),
    ],
)
@forked
def test_what_graph_mode_refuses(tmp_path, arguments, token_range, error, text):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    debugger = msprobe.mindspore.PrecisionDebugger(dump_path=str(tmp_path), **arguments)
    with pytest.raises(error, match=text):
        debugger.start(Net(), token_range=token_range)


@forked
def test_the_places_are_as_they_were(tmp_path):
    from mindspore import _c_expression

    before = [
        vars(getattr(_c_expression, name))["compile"] for name in ("GraphExecutor_", "JitExecutor_")
    ]
    train(tmp_path, "jit")
    after = [
        vars(getattr(_c_expression, name))["compile"] for name in ("GraphExecutor_", "JitExecutor_")
    ]
    assert all(a is b for a, b in zip(before, after, strict=True))


@forked
def test_list_step_and_data_mode_are_followed(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(
        '{"task": "statistics", "level": "L0", "step": [1], "rank": [],'
        ' "statistics": {"list": ["head"], "data_mode": ["forward"]}}'
    )
    train(tmp_path / "out", "graph", config_path=str(config))
    assert not (tmp_path / "out" / "step0").exists()
    assert read_dump(tmp_path / "out", 1).names == ["Cell.head.Dense.forward.0"]
