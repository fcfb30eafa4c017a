"""A program cannot detect the tool, neither while it collects nor after it has stopped."""

import inspect
import operator
import pickle

import pytest
import torch
from recording import forked, read_dump, run_forked
from torch.nn import functional as F
from torch.nn.functional import gelu as early_gelu
from torch.nn.functional import relu as early_relu

early_add, early_method, early_bound = torch.add, torch.Tensor.add, torch.ones(2).mul

# Builtins, Python functions, methods, slot wrappers, an autograd function.
CALLABLES = {
    "F.gelu": lambda: F.gelu,
    "F.relu": lambda: F.relu,
    "F.linear": lambda: F.linear,
    "F.softmax": lambda: F.softmax,
    "F.cross_entropy": lambda: F.cross_entropy,
    "torch.add": lambda: torch.add,
    "torch.einsum": lambda: torch.einsum,
    "torch.linalg.norm": lambda: torch.linalg.norm,
    "torch.split": lambda: torch.split,
    "Tensor.add_": lambda: torch.Tensor.add_,
    "Tensor.__add__": lambda: torch.Tensor.__add__,
    "Tensor.__setitem__": lambda: torch.Tensor.__setitem__,
    "Tensor.split": lambda: torch.Tensor.split,
    "Tensor.backward": lambda: torch.Tensor.backward,
    "nn.Linear.forward": lambda: torch.nn.Linear.forward,
    "nn.Module.__call__": lambda: torch.nn.Module.__call__,
    "nn.LSTM": lambda: torch.nn.LSTM,
}


def attempt(function, *args):
    """The result of the call, or its exception."""
    try:
        return function(*args)
    except Exception as error:
        return repr(error)


def looks(function):
    """All results of introspection; comparable only within one process."""
    return {
        "id": id(function),
        "hash": hash(function),
        "type": type(function).__name__,
        "name": function.__name__,
        "qualname": function.__qualname__,
        "module": getattr(function, "__module__", None),
        "doc": function.__doc__,
        "repr": repr(function),
        "signature": str(attempt(inspect.signature, function)),
        "source": attempt(inspect.getsource, function),
        "pickle": attempt(pickle.dumps, function),
        "defaults": repr(getattr(function, "__defaults__", None)),
        "attributes": sorted(getattr(function, "__dict__", {})),
        "dir": dir(function),
        "builtin": inspect.isbuiltin(function),
        "function": inspect.isfunction(function),
    }


def everything():
    found = {name: looks(get()) for name, get in CALLABLES.items()}
    for owner in (F, torch, torch.Tensor, torch.nn.Module, torch._VF):
        found[str(owner)] = {name: id(vars(owner)[name]) for name in vars(owner)}
    return found


def begin(folder, level="mix"):
    from msprobe.pytorch import PrecisionDebugger

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    debugger.start(model)
    return debugger, model


def looks_by_phase(folder):
    phases = {"before": everything()}
    debugger, model = begin(folder)
    phases["collecting"] = everything()
    model(torch.ones(2, 3)).sum().backward()
    phases["after a call"] = everything()
    debugger.stop()
    phases["stopped"] = everything()
    debugger.start(model)
    phases["collecting again"] = everything()
    debugger.step()
    phases["next step"] = everything()
    return phases


@pytest.fixture(scope="module")
def phases(tmp_path_factory):
    return run_forked(looks_by_phase, tmp_path_factory.mktemp("looks"))


PHASES = ["collecting", "after a call", "stopped", "collecting again", "next step"]


@pytest.mark.parametrize("name", CALLABLES)
@pytest.mark.parametrize("phase", PHASES)
def test_a_callable_looks_as_before(phases, phase, name):
    now, before = (dict(phases[when][name]) for when in (phase, "before"))
    del now["signature"], before["signature"]
    for look in (now, before):  # __signature__ may appear and disappear
        for key in ("attributes", "dir"):
            look[key] = [name for name in look[key] if name != "__signature__"]
    assert now == before


@pytest.mark.parametrize("name", CALLABLES)
@pytest.mark.parametrize("phase", ["stopped", "next step"])
def test_a_signature_is_as_before_when_stopped(phases, phase, name):
    assert phases[phase][name]["signature"] == phases["before"][name]["signature"]


BUILTINS = ["F.gelu", "F.linear", "torch.add", "Tensor.add_", "Tensor.__setitem__"]
STUBBED = ["F.relu", "F.softmax", "F.cross_entropy", "torch.einsum", "torch.split", "Tensor.split"]


@pytest.mark.parametrize("name", BUILTINS)
def test_a_signature_of_a_builtin_stays_while_collecting(phases, name):
    assert phases["collecting"][name]["signature"] == phases["before"][name]["signature"]


@pytest.mark.parametrize("name", STUBBED)
def test_a_signature_of_a_python_function_stays_while_collecting(phases, name):
    assert phases["collecting"][name]["signature"] == phases["before"][name]["signature"]


@pytest.mark.parametrize("phase", PHASES)
def test_no_attribute_of_torch_is_replaced(phases, phase):
    for owner in phases["before"].keys() - CALLABLES.keys():
        assert phases[phase][owner] == phases["before"][owner], owner


@forked
def test_comparisons_hold_while_collecting(tmp_path):
    """`is`, ==, pickle and isinstance give the same results while collecting."""
    begin(tmp_path)
    x = torch.ones(2, requires_grad=True)
    found = {
        "F.gelu is F.gelu": F.gelu is F.gelu,
        "alias is": early_gelu is F.gelu,
        "method ==": torch.ones(2).mul == torch.ones(2).mul or x.mul == x.mul,
        "dictionary": {early_add: 1}.get(torch.add) == 1,
        "pickled": pickle.loads(pickle.dumps(F.relu)) is early_relu,
        "pickled builtin": pickle.loads(pickle.dumps(early_gelu)) is F.gelu,
        "tensor": isinstance(x + 1, torch.Tensor) and type(x + 1) is torch.Tensor,
        "parameter": type(torch.nn.Parameter(x)) is torch.nn.Parameter,
        "module": type(torch.nn.Linear(2, 2)) is torch.nn.Linear,
        "node": type((x + 1).grad_fn).__name__ == "AddBackward0",
        "next node": type((x + 1).grad_fn.next_functions[0][0]).__name__ == "AccumulateGrad",
        "leaf": x.is_leaf and x.grad_fn is None,
        "version": torch.add(x, 1).add_(1)._version == 1,
        "view base": (base := torch.ones(4)).view(2, 2)._base is base,
        "in place": (y := torch.ones(2)).add_(1) is y,
        "out": torch.add(y, 1, out=y) is y,
        "override": F.relu in torch.overrides.get_testing_overrides(),
    }
    assert [what for what, holds in found.items() if not holds] == []


def call_early_names(folder):
    debugger, _ = begin(folder, "L1")
    x = torch.ones(2, requires_grad=True)
    early_gelu(x)
    early_relu(x)
    early_add(x, x)
    early_method(x, x)
    early_bound(x)
    operator.mul(x, x)
    map_result = list(map(early_relu, [x]))
    debugger.stop()
    return len(map_result)


def test_names_imported_before_start_are_recorded(tmp_path):
    run_forked(call_early_names, tmp_path)
    assert read_dump(tmp_path).names == [
        "Functional.gelu.0.forward",
        "Functional.relu.0.forward",
        "Torch.add.0.forward",
        "Tensor.add.0.forward",
        "Tensor.mul.0.forward",
        "Tensor.__mul__.0.forward",
        "Functional.relu.1.forward",
    ]


def graph(folder):
    """Graphs, breaks and results of torch.compile: before the tool, after stop(), after step()."""

    def program(x):
        return F.gelu(torch.add(F.relu(x), 1)).sum() + F.softmax(x * 2, 0)[0]

    def look():
        torch._dynamo.reset()
        found = torch._dynamo.explain(program)(torch.ones(3))
        compiled = torch.compile(program, backend="eager", fullgraph=True)
        operations = [str(node.target) for g in found.graphs for node in g.graph.nodes]
        return (
            found.graph_count,
            found.graph_break_count,
            operations,
            compiled(torch.ones(3)).item(),
        )

    looks_of = {"before": look()}
    debugger, _ = begin(folder)
    program(torch.ones(3))
    debugger.stop()
    looks_of["stopped"] = look()
    debugger.step()
    looks_of["next step"] = look()
    return looks_of


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    try:
        torch.compile(torch.sin, backend="eager")(torch.ones(1))
    except Exception as error:
        pytest.skip(f"torch.compile does not run here: {error}")
    return run_forked(graph, tmp_path_factory.mktemp("graphs"))


@pytest.mark.parametrize("phase", ["stopped", "next step"])
def test_an_idle_tool_breaks_no_graph(graphs, phase):
    assert graphs["before"][1] == 0
    assert graphs[phase] == graphs["before"]
