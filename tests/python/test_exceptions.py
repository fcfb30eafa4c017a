"""Exceptions of the program pass through the tool unchanged: type, text, frames, cause, context."""

import operator
import os
import traceback

import pytest
import torch
from recording import run_forked
from torch.nn import functional as F


class Own(ValueError):
    pass


class Thrower(torch.nn.Module):
    def forward(self, x):
        if x.numel() == 2:
            raise Own("mine")
        return F.linear(x, torch.ones(2, 2))


def raised(function, *args):
    """Type, text, cause, context and frames (file, function) of the exception of a call."""
    try:
        function(*args)
    except BaseException as error:
        frames = [(f.filename, f.name) for f in traceback.extract_tb(error.__traceback__)]
        chain = repr(error.__cause__), repr(error.__context__)
        return type(error).__name__, str(error), chain, frames
    raise AssertionError("nothing was raised")


def stop_iteration():
    return F.relu(next(iter([])))


def all_raised(model):
    x = torch.ones(2, 3)
    bad = torch.ones(2, requires_grad=True).exp()
    (bad * bad).sum()
    return {
        "builtin": raised(torch.cat, [x, x[0]]),
        "method": raised(x.view, 5),
        "python function": raised(F.softmax, None),
        "nested": raised(F.cross_entropy, x, x[0].long()),
        "type error": raised(torch.add),
        "unknown keyword": raised(lambda: F.relu(x, wrong=1)),
        "module": raised(model, torch.ones(2)),
        "inside a module": raised(model, torch.ones(3)),
        "operator": raised(lambda: x + torch.ones(7)),
        "set item": raised(lambda: operator.setitem(x, 9, 1)),
        "delete item": raised(lambda: operator.delitem(x, 0)),
        "backward": raised(lambda: x.sum().backward()),
        "stop iteration": raised(stop_iteration),
    }


def exceptions_by_phase(folder):
    from msprobe.pytorch import PrecisionDebugger

    model = torch.nn.Sequential(Thrower())
    without = all_raised(model)
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix")
    debugger.start(model)
    during = all_raised(model)
    debugger.stop()
    return without, during, all_raised(model)


@pytest.fixture(scope="module")
def exceptions(tmp_path_factory):
    return run_forked(exceptions_by_phase, tmp_path_factory.mktemp("exceptions"))


CASES = [
    "builtin",
    "method",
    "python function",
    "nested",
    "type error",
    "unknown keyword",
    "module",
    "inside a module",
    "operator",
    "set item",
    "delete item",
    "backward",
    "stop iteration",
]


@pytest.mark.parametrize("case", CASES)
def test_an_exception_passes_through(exceptions, case):
    """The type, text, cause and context are the same; only frames of PyTorch may be added."""
    without, during, after = (phase[case] for phase in exceptions)
    assert after == without
    *told, frames = during
    assert told == list(without[:-1])
    rest = iter(frames)
    assert all(frame in rest for frame in without[-1]), "a frame is missing or out of order"
    torch_folder = os.path.dirname(torch.__file__)
    assert all(f.startswith(torch_folder) for f, _ in set(frames) - set(without[-1]))
