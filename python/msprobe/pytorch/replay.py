"""Executes recorded calls again: on the device at hand, and in float64 as the golden.

The engine reads the dump and makes the elements of the inputs; this file only calls operations.
"""

import contextlib

import torch

from msprobe import _engine
from msprobe.pytorch.execution import Execution, Unsupported, function_of

# Where no statistic of an input was recorded: the values that an operation takes.
_DOMAINS = {"log": (0.1, 4), "log2": (0.1, 4), "log10": (0.1, 4), "sqrt": (0, 4), "rsqrt": (0.1, 4)}


class Recorded:
    """A dump whose calls are executed again.

    Args:
        path: a ``dump.json``, or a folder with one.
        device: the device under test, ``torch.device("cpu")``.
        seed: of the elements that are made where none were stored.
        references: ``{"NPU.npu_swiglu": function}``: computes the golden result in place of an
            operation that has no float64, or that only some devices have.
        functions: what finds the classes of ``torch.autograd.Function``
            (:class:`.imported_functions.ImportedFunctions`); None: their calls are skipped.
    """

    def __init__(self, path, device, seed=1234, references=None, functions=None):
        self._replay = _engine.Replay(str(path), seed)
        self._references = references or {}
        self._functions = functions
        self.device = device

    def calls(self, white_list=(), black_list=(), distinct=False):
        """``[(name, why it is skipped or "")]``, in the order of the dump."""
        functions = self._functions is not None
        return self._replay.calls(list(white_list), list(black_list), distinct, functions)

    def call(self, index):
        """The call with that index in :meth:`calls`, its elements in memory."""
        return Call(self._replay, index, self._references, self._functions)


class Call(Execution):
    """One recorded call; :meth:`run` executes it."""

    def __init__(self, replay, index, references, functions=None):
        super().__init__(*replay.call(index))
        self._replay, self._index = replay, index
        self._domain = _DOMAINS.get(self._base, (-1.0, 1.0))
        self._reference = references.get(self.api)
        self._functions = functions

    def function(self, golden):
        """The operation, or the function that computes its golden result."""
        if self._reference is None:
            return self._operation()
        if golden is not None:
            return self._reference
        try:
            return self._operation()
        except Unsupported:  # a device without the operation computes what it stands for
            return self._reference

    def _operation(self):
        prefix, _, name = self.api.partition(".")
        if prefix == "Function" and self._functions is not None:
            return self._functions.apply_of(name)
        return function_of(self.api)

    def older_golden(self):
        """The dtype of the golden result in msprobe 1.0 to 26; None: as recorded."""
        if self.inputs == {torch.float32}:
            return None if self._base in ("conv1d", "conv2d") else torch.float64
        return torch.float64 if torch.float64 in self.inputs else torch.float32

    def elements(self):
        """The elements of all inputs that :meth:`run` has used, in the order of the arguments."""
        return [self.stored[number] for number in sorted(self.stored)]

    def recorded(self):
        """``{"forward.output.0": tensor}``: results and gradients whose elements were stored."""
        found = self._replay.recorded(self._index).items()
        return {place: self.read(*value[1:4]) for place, value in found}

    def makes_elements(self):
        """Whether elements of an argument were not stored, and are made from statistics."""
        return self._replay.makes(self._index)

    def read(self, key, dtype, shape):
        """The recorded elements, or elements with the recorded statistics."""
        kind = getattr(torch, dtype, None)
        if not isinstance(kind, torch.dtype):
            raise Unsupported(f"elements of {dtype or 'an unknown dtype'}")
        elements = torch.empty(shape, dtype=kind)
        self._replay.fill(key, elements, *self._domain)
        return elements


def golden_of(call, older=False, nudged=False, shared=False, moved=False):
    """Results and gradients in float64; in float32 where the operation has no float64.

    Args:
        call: the call.
        nudged, shared, moved: as in :meth:`Call.run`.
        older: in the dtypes that msprobe 1.0 to 26 take: float64 for float32, float32 for halves
            and mixed dtypes, and float32 as it is for conv1d and conv2d.
    """
    cpu = torch.device("cpu")
    try:
        dtype = call.older_golden() if older else torch.float64
        return call.run(cpu, dtype, nudged, shared, moved)
    except (RuntimeError, NotImplementedError, TypeError):
        return call.run(cpu, torch.float32, nudged, shared, moved)


def reference_of(call, device):
    """Results and gradients with which overflows on ``device`` are compared: of the CPU.

    In the recorded dtypes; in float64 when the device is the CPU itself, or the CPU has not the
    operation in that dtype.
    """
    if device.type != "cpu":
        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
            return call.run(torch.device("cpu"), None)
    return golden_of(call)
