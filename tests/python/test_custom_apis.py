"""Calls of functions that the program names itself: registered, listed, of torch.ops, of Triton."""

import functools
import inspect
import operator
import shutil
import sys
import types

import pytest
import torch
from recording import read_dump, run_forked

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
    mine.mul = operator.mul  # a builtin that no pointer swap reaches


def registered(folder):
    setup()
    debugger = PrecisionDebugger(dump_path=str(folder))
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
    dump = read_dump(folder)
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
    assert read_dump(folder, 1).names == [
        "Torch.relu.0.forward",
        "Tensor.__mul__.0.forward",
        "Again.rotary.0.forward",
    ]


def refused(folder):
    setup()
    debugger = PrecisionDebugger(dump_path=str(folder))
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


def namespaces(folder):
    config = folder / "config.json"
    config.write_text('{"custom_op_namespaces": ["early", "late"]}')

    @torch.library.custom_op("early::twice", mutates_args=())
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    packet = torch.ops.early.twice
    debugger = PrecisionDebugger(str(config), dump_path=str(folder / "out"))
    debugger.start()
    packet(X.detach())
    packet.default(X.detach())
    twice(X.detach())
    debugger.stop()
    assert read_dump(folder / "out").names == [f"early.twice.{n}.forward" for n in range(3)]
    assert torch.ops.early.twice is packet
    library = torch.library.Library("late", "DEF")
    library.define("thrice(Tensor x) -> Tensor")
    library.impl("thrice", lambda x: x * 3, "CompositeImplicitAutograd")
    debugger.step()
    debugger.start()
    torch.ops.late.thrice(X)
    torch.ops.aten.relu(X)  # of no namespace that is wanted
    debugger.stop()
    assert read_dump(folder / "out", 1).names[:1] == ["late.thrice.0.forward"]
    assert not any("relu" in name for name in read_dump(folder / "out", 1).names)


def listed(folder):
    custom_apis._LISTS = str(folder / "custom_wrap_ops.yaml")
    (folder / "custom_wrap_ops.yaml").write_text(
        "mine:\n  - rotary\n  - later\nnot.there:\n  - x\n"
    )
    setup()
    sys.modules["mine"] = mine
    debugger = PrecisionDebugger(dump_path=str(folder / "out"))
    for step in range(2):
        debugger.start()
        mine.rotary(X)
        if step:
            mine.later(X)
        debugger.stop()
        debugger.step()
        mine.later = lambda x: x - 1
    assert read_dump(folder / "out").names == ["mine.rotary.0.forward"]
    assert read_dump(folder / "out", 1).names == ["mine.rotary.0.forward", "mine.later.0.forward"]


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


def triton(folder):
    def add_one(x, n):
        x += n

    for name, values in (
        ("triton.runtime.jit", {"JITFunction": JITFunction}),
        ("triton.runtime.autotuner", {"Autotuner": Autotuner}),
    ):
        sys.modules[name] = types.ModuleType(name)
        vars(sys.modules[name]).update(values)
    debugger = PrecisionDebugger(dump_path=str(folder))
    debugger.start()
    x = torch.zeros(2)
    JITFunction(add_one).run(x, 1, grid=(1,))
    Autotuner(JITFunction(add_one)).run(x, 2, grid=(1,))
    debugger.stop()
    data = read_dump(folder).data
    kernels = [data[name] for name in data if name.startswith("Triton")]
    assert [n for n in data if n.startswith("Triton")] == [
        "Triton.add_one.0.forward",
        "Triton.add_one.1.forward",
    ]
    assert [(k["input_args"][0]["Max"], k["output"][0]["Max"]) for k in kernels] == [(0, 1), (1, 3)]


def one_argument(folder):
    """A builtin that the interpreter calls past its pointer, from places that call it often."""
    mine.neg, value = operator.neg, hash(operator.neg)
    debugger = PrecisionDebugger(dump_path=str(folder))
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
    assert len(read_dump(folder).names) == 101


def compiled(folder):
    """Compiled code in which a registered function is inlined, which is called outside as well."""
    setup()
    debugger = PrecisionDebugger(dump_path=str(folder))
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
        assert read_dump(folder, step).names[-1] == "mine.rotary.0.forward"


@pytest.mark.parametrize(
    "check", [registered, refused, namespaces, listed, triton, one_argument, compiled]
)
def test_custom(check, tmp_path):
    run_forked(check, tmp_path)


def test_listed_warns_once(tmp_path, capfd):
    run_forked(listed, tmp_path)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "custom_wrap_ops" in line]
    assert "mine.later (it has no such attribute), not.there.x (the module is not imported" in line


def edited(folder):
    shutil.copytree(hooks._LISTS, folder / "lists")
    names = folder / "lists" / "support_wrap_ops.yaml"
    text = names.read_text().replace(
        "functional:\n", "functional:\n  - no_such_op\n  - pad_circular\n"
    )
    names.write_text(text + "\nmy_category:\n  - x\n")
    hooks._LISTS = str(folder / "lists")
    debugger = PrecisionDebugger(dump_path=str(folder / "out"))
    for _ in range(2):
        debugger.start()
        torch.relu(X)
        debugger.stop()
    assert read_dump(folder / "out").names == ["Torch.relu.0.forward", "Torch.relu.1.forward"]
    names.write_text("functional:\n - [\n")
    hooks._apis_added = False
    with pytest.raises(ConfigError, match=r"support_wrap_ops.yaml:\d+: expected"):
        debugger.start()


def test_edited_list(tmp_path, capfd):
    run_forked(edited, tmp_path)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "support_wrap_ops" in line]
    assert "Functional.no_such_op (this PyTorch does not have it), Functional.pad_circular" in line
    assert line.endswith("category my_category (not known)")


def of_other_packages(folder):
    """Categories of lists of the earlier tools."""
    shutil.copytree(hooks._LISTS, folder / "lists")
    with open(folder / "lists" / "support_wrap_ops.yaml", "a") as names:
        names.write("\naten:\n  - add\n  - softmax.no\nmindspeed:\n  - swiglu\n")
        names.write("npu_distributed:\n  - isend\n")
    hooks._LISTS = str(folder / "lists")
    mindspeed = types.ModuleType("mindspeed.ops")
    mindspeed.swiglu = lambda x: x * 2
    sys.modules["mindspeed.ops"] = mindspeed
    debugger = PrecisionDebugger(dump_path=str(folder / "out"))
    debugger.start()
    torch.ops.aten.add(torch.ops.aten.add.Tensor(X, X), X)
    mindspeed.swiglu(X)
    debugger.stop()
    assert read_dump(folder / "out").names == [
        "Aten.add.0.forward",
        "Aten.add.1.forward",
        "MindSpeed.swiglu.0.forward",
    ]


def test_lists_with_categories_of_other_packages(tmp_path, capfd):
    run_forked(of_other_packages, tmp_path)
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "support_wrap_ops" in line]
    assert line.endswith(
        "not observed: Aten.softmax.no (this PyTorch does not have it), "
        "category npu_distributed (torch_npu.distributed is not imported)"
    )


def shipped(folder):
    debugger = PrecisionDebugger(dump_path=str(folder))
    debugger.start()
    debugger.stop()


def test_the_shipped_list_warns_of_nothing(tmp_path, capfd):
    run_forked(shipped, tmp_path)
    assert "support_wrap_ops" not in capfd.readouterr().err
