"""Functions that the user adds: registered, in a list, of torch.ops, Triton kernels."""

import functools
import inspect
import operator
import shutil
import sys
import types

import pytest
import torch
from recording import forked, read_dump

from msprobe import ConfigError, UsageError
from msprobe.pytorch import PrecisionDebugger, custom_apis, hooks

X = torch.tensor([1.0, -2.0], requires_grad=True)
mine = types.ModuleType("mine")


def rotary(x, *, scale=2.0):
    return x * scale


class Fused:
    name = "fused"

    def __call__(self, x):
        return torch.relu(x)


class Layer:
    def run(self, x):
        return x + 1


def setup():
    mine.rotary, mine.Fused, mine.Layer = rotary, Fused, Layer
    mine.fused, mine.half = Fused(), functools.partial(rotary, scale=0.5)
    mine.mul = operator.mul  # a builtin whose function pointer cannot be replaced


@forked
def test_registered(tmp_path):
    setup()
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    originals = {name: getattr(mine, name) for name in ("rotary", "fused", "half", "mul")}
    signature = inspect.signature(rotary)
    for name in originals:
        debugger.register_custom_api(mine, name)
        debugger.register_custom_api(mine, name)  # again: no effect
    debugger.register_custom_api(Layer, "run", "Own")
    assert mine.rotary is rotary and mine.fused.name == "fused" and mine.fused == originals["fused"]
    debugger.start()
    rotary(X, scale=3.0).sum().backward()
    mine.fused(X)
    mine.half(X)  # calls rotary inside: one record
    mine.mul(X, 2.0)
    Layer().run(X)
    assert inspect.signature(rotary) == signature
    debugger.stop()
    dump = read_dump(tmp_path)
    assert [n for n in dump.names if n.endswith("forward")] == [
        "mine.rotary.0.forward",
        "Tensor.sum.0.forward",
        "mine.fused.0.forward",
        "mine.half.0.forward",
        "mine.mul.0.forward",
        "Own.run.0.forward",
    ]
    assert dump.data["mine.rotary.0.forward"]["input_kwargs"]["scale"]["value"] == 3.0
    assert dump.data["mine.rotary.0.backward"]["output"][0]["Max"] == 3.0
    for name in originals:
        debugger.restore_custom_api(mine, name)
        assert getattr(mine, name) is originals[name]
    debugger.step()
    debugger.start()
    mine.fused(X), rotary(X)
    debugger.register_custom_api(mine, "rotary", "Again")  # while recording
    rotary(X)
    debugger.stop()
    assert read_dump(tmp_path, 1).names == [
        "Torch.relu.0.forward",
        "Tensor.__mul__.0.forward",
        "Again.rotary.0.forward",
    ]


@forked
def test_refused(tmp_path):
    setup()
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    for arguments, message in (
        ((mine, "nothing"), "mine.nothing is not observed: it has no such attribute"),
        ((mine, 3), "api; expected a name, found 3"),
        ((mine, "rotary", 3), "api_prefix; expected a name, found 3"),
        ((mine, "__name__"), "it cannot be called"),
        ((int, "__add__"), "the attribute cannot be set"),
    ):
        with pytest.raises(UsageError) as error:
            debugger.register_custom_api(*arguments)
        assert message in str(error.value), error.value
    with pytest.raises(UsageError, match="mine has no attribute 'nothing'"):
        debugger.restore_custom_api(mine, "nothing")
    debugger.start()
    debugger.stop()
    with pytest.raises(UsageError, match=r"recorded already, as Torch\.relu"):
        debugger.register_custom_api(torch, "relu")


@forked
def test_namespaces(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"custom_op_namespaces": ["early", "late"]}')

    @torch.library.custom_op("early::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    packet = torch.ops.early.twice
    debugger = PrecisionDebugger(str(config), dump_path=str(tmp_path / "out"))
    debugger.start()
    packet(X.detach())
    packet.default(X.detach())
    twice(X.detach())
    debugger.stop()
    assert read_dump(tmp_path / "out").names == [f"early.twice.{n}.forward" for n in range(3)]
    assert torch.ops.early.twice is packet
    library = torch.library.Library("late", "DEF")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x * 3, "CompositeImplicitAutograd")
    debugger.step()
    debugger.start()
    torch.ops.late.thrice(X)
    torch.ops.aten.relu(X)  # its namespace is not in the list
    debugger.stop()
    assert read_dump(tmp_path / "out", 1).names[:1] == ["late.thrice.0.forward"]
    assert not any("relu" in name for name in read_dump(tmp_path / "out", 1).names)


@forked
def test_listed(tmp_path, capfd):
    custom_apis.LISTS = str(tmp_path / "custom_wrap_ops.yaml")
    (tmp_path / "custom_wrap_ops.yaml").write_text(
        "mine:\n  - rotary\n  - later\nnot.there:\n  - x\n"
    )
    setup()
    sys.modules["mine"] = mine
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "out"))
    for step in range(2):
        debugger.start()
        mine.rotary(X)
        if step:
            mine.later(X)
        debugger.stop()
        debugger.step()
        mine.later = lambda x: x - 1
    assert read_dump(tmp_path / "out").names == ["mine.rotary.0.forward"]
    assert read_dump(tmp_path / "out", 1).names == ["mine.rotary.0.forward", "mine.later.0.forward"]
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "custom_wrap_ops" in line]
    assert "mine.later (it has no such attribute), not.there.x (the module is not imported" in line


class JITFunction:
    def __init__(self, fn):
        self.fn, self.__name__ = fn, fn.__name__

    def run(self, *args, grid, warmup=False):
        self.fn(*args)


class Autotuner:
    def __init__(self, fn):
        self.fn = fn

    def run(self, *args, **kwargs):
        return self.fn.run(*args, **kwargs)


@forked
def test_triton(tmp_path):
    def add_one(x, n):
        x += n

    for name, values in (
        ("triton.runtime.jit", {"JITFunction": JITFunction}),
        ("triton.runtime.autotuner", {"Autotuner": Autotuner}),
    ):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    debugger.start()
    x = torch.zeros(2)
    JITFunction(add_one).run(x, 1, grid=(1,))
    Autotuner(JITFunction(add_one)).run(x, 2, grid=(1,))
    debugger.stop()
    data = read_dump(tmp_path).data
    kernels = [data[name] for name in data if name.startswith("Triton")]
    assert [n for n in data if n.startswith("Triton")] == [
        "Triton.add_one.0.forward",
        "Triton.add_one.1.forward",
    ]
    assert [(k["input_args"][0]["Max"], k["output"][0]["Max"]) for k in kernels] == [(0, 1), (1, 3)]


@forked
def test_one_argument(tmp_path):
    """A builtin that the interpreter calls without its pointer, from frequently executed places."""
    mine.neg, value = operator.neg, hash(operator.neg)
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    debugger.register_custom_api(mine, "neg")

    def often():
        for _ in range(100):
            assert operator.neg(2) == -2

    often()
    debugger.start()
    often()
    assert mine.neg is operator.neg and hash(operator.neg) == value
    assert operator.neg.__doc__ == "Same as -a."
    with pytest.raises(TypeError, match="exactly one argument"):
        operator.neg(1, 2)
    debugger.stop()
    often()
    assert len(read_dump(tmp_path).names) == 101


@forked
def test_compiled(tmp_path):
    """A registered function is inlined in compiled code, and also called outside of it."""
    setup()
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    debugger.register_custom_api(mine, "rotary")
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    function = torch.compile(lambda x: rotary(x) + 1, backend=backend, fullgraph=True)
    for _ in range(2):
        function(X)
        debugger.start()
        rotary(function(X))
        debugger.stop()
        debugger.step()
    assert len(graphs) == 1
    for step in range(2):
        assert read_dump(tmp_path, step).names[-1] == "mine.rotary.0.forward"


@forked
def test_edited_list(tmp_path, capfd):
    shutil.copytree(hooks.LISTS, tmp_path / "lists")
    names = tmp_path / "lists" / "support_wrap_ops.yaml"
    text = names.read_text().replace(
        "functional:\n", "functional:\n  - no_such_op\n  - pad_circular\n"
    )
    names.write_text(text + "\nmy_category:\n  - x\n")
    hooks.LISTS = str(tmp_path / "lists")
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "out"))
    for _ in range(2):
        debugger.start()
        torch.relu(X)
        debugger.stop()
    assert read_dump(tmp_path / "out").names == ["Torch.relu.0.forward", "Torch.relu.1.forward"]
    names.write_text("functional:\n - [\n")
    hooks.apis_added = False
    with pytest.raises(ConfigError, match=r"support_wrap_ops.yaml:\d+: expected"):
        debugger.start()
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "support_wrap_ops" in line]
    assert "Functional.no_such_op (this PyTorch does not have it), Functional.pad_circular" in line
    assert line.endswith("category my_category (not known)")


@forked
def test_lists_are_read_at_the_first_start(tmp_path):
    """Also where functional collectives are imported, which PyTorch does by itself."""
    import torch.distributed._functional_collectives

    shutil.copytree(hooks.LISTS, tmp_path / "lists")
    hooks.LISTS = str(tmp_path / "lists")
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "out"))
    for step in range(2):
        debugger.start()
        torch.relu(X)
        debugger.stop()
        debugger.step()
        (tmp_path / "lists" / "support_wrap_ops.yaml").write_text("functional:\n - [\n")
        assert read_dump(tmp_path / "out", step).names == ["Torch.relu.0.forward"]


@forked
def test_lists_with_categories_of_other_packages(tmp_path, capfd):
    """Lists with the categories of the older tools."""
    shutil.copytree(hooks.LISTS, tmp_path / "lists")
    with open(tmp_path / "lists" / "support_wrap_ops.yaml", "a") as names:
        names.write("\naten:\n  - add\n  - softmax.no\nmindspeed:\n  - swiglu\n")
        names.write("npu_distributed:\n  - isend\n")
    hooks.LISTS = str(tmp_path / "lists")
    mindspeed = types.ModuleType("mindspeed.ops")
    mindspeed.swiglu = lambda x: x * 2
    sys.modules["mindspeed.ops"] = mindspeed
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "out"))
    debugger.start()
    torch.ops.aten.add(torch.ops.aten.add.Tensor(X, X), X)
    mindspeed.swiglu(X)
    debugger.stop()
    assert read_dump(tmp_path / "out").names == [
        "Aten.add.0.forward",
        "Aten.add.1.forward",
        "MindSpeed.swiglu.0.forward",
    ]
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "support_wrap_ops" in line]
    assert line.endswith(
        "not observed: Aten.softmax.no (this PyTorch does not have it), "
        "category npu_distributed (torch_npu.distributed is not imported)"
    )


@forked
def test_the_shipped_list_warns_of_nothing(tmp_path, capfd):
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    debugger.start()
    debugger.stop()
    assert "support_wrap_ops" not in capfd.readouterr().err
