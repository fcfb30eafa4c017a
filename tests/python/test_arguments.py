"""Unusual arguments and results of recorded calls.

They are recorded as docs/reference/dump-format.md says, or as null. Never an exception, and never
a record that is missing.
"""

import contextlib
import warnings

import pytest
import torch
from odd_values import VALUES
from recording import forked, read_dump, run_forked


class Taker(torch.nn.Module):
    """Takes a value in every way and returns it."""

    def forward(self, value, *, keyword):
        return value


def call_with(folder, case, task):
    """Passes one value to an API and to a module; whether both returned the right values."""
    from msprobe.pytorch import PrecisionDebugger

    value = VALUES[case][0]()
    x = torch.ones(2)
    plain = torch.nn.functional.softmax(x, 0)
    model = torch.nn.Sequential(Taker())
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix", task=task)
    debugger.start(model)
    # softmax ignores its third argument when the second is given.
    results = [
        torch.nn.functional.softmax(x, 0, value),
        torch.nn.functional.softmax(x, dim=0, _stacklevel=value),
    ]
    returned = model[0](value, keyword=value)
    debugger.stop()
    assert all(torch.equal(result, plain) for result in results)
    return returned is value


def check(found, expected):
    if callable(expected):
        expected(found)
    else:
        assert found == expected


@pytest.mark.parametrize("case", VALUES)
def test_a_value_is_recorded_or_null(case, tmp_path, capfd):
    _, expected = VALUES[case]
    assert run_forked(call_with, tmp_path, case, "statistics")
    assert "collection is off" not in capfd.readouterr().err
    dump = read_dump(tmp_path)
    names = [f"Functional.softmax.{n}.forward" for n in (0, 1)] + ["Module.0.Taker.forward.0"]
    assert [name for name in dump.names if "softmax" in name or "Module" in name] == names
    positional, keyword, module = (dump.data[name] for name in names)
    check(positional["input_args"][2], expected)
    check(keyword["input_kwargs"]["_stacklevel"], expected)
    check(module["input_args"][0], expected)
    check(module["input_kwargs"]["keyword"], expected)
    if type(VALUES[case][0]()) in (list, tuple):
        check(module["output"], expected)
    elif "torch.Size" not in case and case != "list subclass":  # in these each element is an output
        check(module["output"][0], expected)


@pytest.mark.parametrize("case", ["dict of tensors", "dataclass", "numpy array", "sparse tensor"])
def test_tensors_inside_a_value_are_stored(case, tmp_path):
    run_forked(call_with, tmp_path, case, "tensor")
    files = read_dump(tmp_path).tensors()
    inner = {"dict of tensors": ".t", "dataclass": ".inputs", "numpy array": ""}.get(case)
    name = f"Functional.softmax.0.forward.input.2{inner}.pt"
    assert (name in files) == (inner is not None)


@forked
def test_arguments_are_recorded_as_they_were(tmp_path):
    """An in-place call on the result of another."""
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    debugger.start()
    values = [torch.ones(2), torch.ones(3)]
    held = torch.stack([values[0], values[0]])
    torch.cat(values).add_(held.sum())
    del values[0]
    debugger.stop()
    data = read_dump(tmp_path).data
    assert [t["shape"] for t in data["Torch.cat.0.forward"]["input_args"][0]] == [[2], [3]]
    assert data["Tensor.add_.0.forward"]["input_args"][0]["Max"] == 1.0  # before the call
    assert data["Tensor.add_.0.forward"]["output"][0]["Max"] == 5.0


class Refuses(torch.nn.Module):
    def forward(self, x):
        torch.relu(x)
        raise KeyError("mine")


class Catches(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.refuses, self.linear = Refuses(), torch.nn.Linear(2, 2)

    def forward(self, x):
        try:
            self.refuses(x)
        except KeyError:
            return self.linear(x)


def catch(folder):
    """A module raises inside a module that catches; returns the warnings."""
    from msprobe.pytorch import PrecisionDebugger

    model = torch.nn.ModuleDict({"catches": Catches()})
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix")
    debugger.start(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model["catches"](torch.ones(1, 2))
        torch.sin(torch.ones(1))
    debugger.stop()
    return [str(warning.message) for warning in caught]


def test_a_module_that_raises_is_recorded_and_left(tmp_path):
    said = run_forked(catch, tmp_path)
    dump = read_dump(tmp_path)
    parents = dump.side("construct.json")
    assert said == []
    assert dump.data["Module.catches.refuses.Refuses.forward.0"]["exception"] == "KeyError"
    assert parents["Torch.relu.0.forward"] == "Module.catches.refuses.Refuses.forward.0"
    assert parents["Module.catches.linear.Linear.forward.0"] == "Module.catches.Catches.forward.0"
    assert parents["Torch.sin.0.forward"] is None


@forked
def test_a_call_that_raises_is_recorded(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    debugger.start()
    for attempt in (lambda: torch.cat([torch.ones(2), "x"]), lambda: torch.ones(2).reshape(3)):
        with contextlib.suppress(TypeError, RuntimeError):
            attempt()
    debugger.stop()
    data = read_dump(tmp_path).data
    assert data["Torch.cat.0.forward"]["exception"] == "TypeError"
    assert data["Tensor.reshape.0.forward"]["exception"] == "RuntimeError"
    assert "output" not in data["Tensor.reshape.0.forward"]
    assert data["Tensor.reshape.0.forward"]["input_args"][1] == {"type": "int", "value": 3}
