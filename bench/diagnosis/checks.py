"""Trains a program with edits, without recording: what is left in weights, gradients and buffers.

    right, wrong = checks.sides([Side("gpt"), Side("gpt", ["gpt/missing_mask"])])
    checks.apart(wrong, right)   # the largest difference, as a part of the largest value

The numbers are of float64, where rounding is 1e-16 and a fault is not. Values are compared in
ascending order, so that modules may be renamed, and weights split or joined.
"""

import collections
import contextlib
import dataclasses
import importlib
import inspect
import sys
import tempfile
import types
from pathlib import Path

import case
import numpy as np
import torch
import torch._dynamo
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import forked_jobs

SEED = 1234
GIVE_UP_S = 120
ROUNDING = 1e-9  # of float64, after all steps
ROUNDING_OF_FLOAT32 = 1e-5
FAULT = 1e-5  # the least effect of a fault


@dataclasses.dataclass
class Side:
    program: str
    edits: list = dataclasses.field(default_factory=list)
    both: str = ""  # the case whose edit of both sides is made
    steps: int = 2
    dtype: str = "float64"
    widened: bool = False  # casts to a narrower type are none


class Widened(TorchFunctionMode):
    """Casts to a narrower type widen: so a program that names types is judged in float64, too."""

    NARROW = (torch.float32, torch.bfloat16, torch.float16)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        if function in (torch.Tensor.float, torch.Tensor.bfloat16):
            function = torch.Tensor.double
        args = [self._wide(each) for each in args]
        return function(*args, **{name: self._wide(each) for name, each in (kwargs or {}).items()})

    def _wide(self, value):
        narrow = isinstance(value, torch.dtype) and value in self.NARROW
        return torch.float64 if narrow else value


class Operations(TorchDispatchMode):
    """The names and shapes of all operations."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        shapes = [tuple(each.shape) for each in args if isinstance(each, torch.Tensor)]
        self.seen.append(f"{operation}{shapes}")
        return operation(*args, **(kwargs or {}))


def _codes(code):
    """The code of all functions that a function defines."""
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            yield each
            yield from _codes(each)


def _ascending(tensors) -> list:
    parts = [each.detach().double().flatten() for each in tensors if each.is_floating_point()]
    return torch.cat(parts).sort().values.tolist() if parts else []


def edited(program_name, edits, both=""):
    """The module of a program, imported anew, with the edits of these cases."""
    sys.modules.pop(f"models.{program_name}", None)
    program = importlib.import_module(f"models.{program_name}")
    cases = case.all_cases()
    if both:
        cases[both].both(program)
    for name in edits:
        cases[name].edit(program)
    return program


@contextlib.contextmanager
def running(edits):
    """The functions of these edits that run: "case:line"."""
    wanted = {}
    for name in edits:
        made = case.all_cases()[name].edit
        for edit in (inspect.unwrap(made), getattr(made, "beside", None)):
            if edit is not None:
                label = name if edit is not getattr(made, "beside", None) else edit.__name__
                wanted |= {code: f"{label}:{code.co_firstlineno}" for code in _codes(edit.__code__)}
    codes, ran = set(), []
    sys.settrace(lambda frame, event, _: codes.add(frame.f_code))  # for each call, not its lines
    try:
        yield ran
    finally:
        sys.settrace(None)
        ran += [name for code, name in wanted.items() if code in codes]


def steps(program, count):
    """Trains: gives the model after each step."""
    torch.manual_seed(SEED)
    model = program.build()
    optimizer = program.optimizer(model)
    generator = torch.Generator().manual_seed(SEED)
    torch.manual_seed(SEED + 1000)
    yield model
    for _ in range(count):
        program.step(model, optimizer, program.batch(generator))
        yield model


def _train(side, folder) -> dict:
    torch.set_num_threads(1)
    torch.ones((), requires_grad=True).exp()
    torch.set_default_dtype(getattr(torch, side.dtype))
    program = edited(side.program, side.edits, side.both)
    values = {}
    wide = Widened() if side.widened else contextlib.nullcontext()
    with running(side.edits) as ran, wide, Operations() as operations:
        for step, model in enumerate(steps(program, side.steps)):
            gradients = (p.grad for p in model.parameters() if p.grad is not None)
            values[f"gradients of step {step}"] = _ascending(gradients)
            values[f"weights before step {step + 1}"] = _ascending(model.parameters())
            values[f"buffers before step {step + 1}"] = _ascending(model.buffers())
    np.savez(Path(folder) / "values.npz", **{name: np.array(v) for name, v in values.items()})
    return {"error": "", "ran": ran, "seen": operations.seen}


def side(what: Side) -> dict:
    """{"error": "", "ran": functions of the edits that ran, "seen": operations, "values": ...}"""
    with tempfile.TemporaryDirectory() as folder:
        [answer] = forked_jobs.in_children([lambda: _train(what, folder)], GIVE_UP_S)
        if answer["error"]:
            return answer
        with np.load(Path(folder) / "values.npz") as values:
            return answer | {"values": dict(values)}


def differences(a: dict, b: dict) -> dict[str, float]:
    """Name of values -> the largest difference, as a part of the largest value."""
    found = {}
    for name, left in a["values"].items():
        right = b["values"][name]
        if left.shape != right.shape:
            found[name] = 0.0 if name.startswith("buffers") else float("inf")
        elif left.size:
            largest = max(np.abs(left).max(), np.abs(right).max(), 1e-300)
            found[name] = float(np.nan_to_num(np.abs(left - right), nan=1e300).max() / largest)
    return found


def apart(a: dict, b: dict) -> float:
    return max(differences(a, b).values())


def problem(each) -> str:
    """Why a case cannot train, or an edit of a pair has no part in it; "" if all is right."""
    try:
        program = edited(each.program, each.edits, each.edits_both)
        if not each.parts:
            program.optimizer(program.build())
            return ""
        with running(each.edits) as ran:
            collections.deque(steps(program, 1), maxlen=0)
    except Exception as error:
        return f"{each.name}: {error}"
    for part in each.parts:
        has_functions = any(code.co_name != "<lambda>" for code in _codes(part.edit.__code__))
        if has_functions and not any(name.startswith(f"{part.name}:") for name in ran):
            return f"{each.name}: no function of {part.name} runs; the other edit replaces them"
    return ""
