"""How far roundings move the results of a call: its error analysis, kernel by kernel.

The call is executed in float64 while each kernel of PyTorch that it calls is watched. A kernel gets
inputs that are off by roundings, up or down by chance: of the dtype to which the kernel before it
rounds, and of the dtype in which it sums itself. The engine has the rules and makes the signs.
"""
# ruff: noqa: SLF001  PyTorch has no public names for the schema of a kernel and for memory

import collections
import contextlib
import functools

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from msprobe import _engine
from msprobe.pytorch.kernel_formulas import formula_of

_POINTWISE = getattr(getattr(torch, "Tag", None), "pointwise", None)
_Rule = collections.namedtuple("_Rule", "name pointwise input output sum terms inside")
_EXACT = _Rule("", True, 0.0, 0.0, 0.0, 1, False)
# Kernels whose results in another dtype are other ones by right, not by roundings.
_NO_BOUND = {
    "aten::nextafter": "the next number is another one in each dtype",
    "aten::linspace": "its step is rounded to the dtype",
    "aten::logspace": "its step is rounded to the dtype",
    "aten::fractional_max_pool2d": "its windows are rounded to the dtype",
    "aten::fractional_max_pool3d": "its windows are rounded to the dtype",
}
_SINGLE = "float32"  # the dtype in which kernels of halves sum
_CPU = torch.device("cpu")


class Analysis:
    """The error analysis of one call: a :class:`replay.Call`; shared: as in :meth:`Call.run`."""

    def __init__(self, call, shared=False):
        self._call, self._shared = call, shared
        floats = call.inputs | call.results
        self._dtype = _engine.coarsest_float([_name(dtype) for dtype in floats])
        self._dtypes = _dtypes_of_kernels(call) if self._dtype != _SINGLE else {}
        self._kernels = None
        trace, _ = self._run(0)
        self.no_bound = trace.no_bound  # why; ""
        self._kernels = trace.kernels
        rules = trace.kernels[: trace.forward], trace.kernels[trace.forward :]
        rules = [[rule for rule in group if rule is not None] for group in rules]
        self.forward, self.backward = (
            _engine.kernels_text([(rule.name, rule.terms) for rule in group]) for group in rules
        )
        self.rounds_once = len(rules[0]) <= 1 and not any(rule.inside for rule in rules[0])

    def moved(self, seed):
        """``(results, gradients)`` in float64, off by what roundings explain; seed: from 1."""
        return self._run(seed)[1]

    def _run(self, seed):
        fused = self._call.api == "Functional.scaled_dot_product_attention"
        watch = _Watch(self._dtype, self._dtypes, seed, self._kernels, fused)
        return watch, self._call.run(_CPU, torch.float64, shared=self._shared, around=watch.entered)


def _why_no_bound(kernel, arguments):
    name = kernel._schema.name
    if name.startswith("aten::_fft") or any(each.is_complex() for each in _flat(arguments)):
        return "it computes with complex numbers"
    return _NO_BOUND.get(name, "")


def _dtypes_of_kernels(call):
    """``{kernel: [dtype of its result, at its first call, ...]}``, in the recorded dtypes."""
    seen = _Dtypes()
    with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
        call.run(_CPU, None, around=seen.entered)
    return seen.dtypes


class _Mode(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls):
        return False  # else PyTorch 2.13 imports torch._dynamo, which takes two seconds


class _Dtypes(_Mode):
    def __init__(self):
        super().__init__()
        self.dtypes = {}

    def entered(self):
        return self

    def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):
        made = kernel(*args, **(kwargs or {}))
        first = next((each for each in _flat(made) if each.is_floating_point()), None)
        if first is not None:
            self.dtypes.setdefault(kernel, []).append(_name(first.dtype))
        return made


class _Watch(_Mode):
    """Lets kernels round.

    Args:
        dtype: of a kernel's result where `dtypes` does not know it.
        dtypes: of :func:`_dtypes_of_kernels`.
        seed: of the signs.
        kernels: what an earlier execution found of each kernel; None: this one finds it, and rounds
            the results of each.
        fused: the kernels stand for a fused one, which may round inside of a formula.
    """

    def __init__(self, dtype, dtypes, seed, kernels, fused):
        super().__init__()
        self._fused = fused
        self._dtype, self._dtypes, self._seed = dtype, dtypes, seed
        self._known = kernels
        self.kernels = []  # the rule of each; None: it rounds nothing
        self.forward = None  # how many of them belong to the forward pass
        self.no_bound = ""
        self._calls = {}  # of each kernel
        self._steps = 0
        # Memory of a result -> the dtype to which it was not rounded, and what keeps the address
        # from being used again.
        self._unrounded = {}
        self._inside = None  # the dtype of a formula's steps

    @contextlib.contextmanager
    def entered(self):
        with _decomposed(), self:
            yield
        if self.forward is None:
            self.forward = len(self.kernels)

    def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        self.no_bound = self.no_bound or _why_no_bound(kernel, (args, kwargs))
        inputs = [each for each in _flat((args, kwargs)) if each.dtype == torch.float64]
        if not inputs or _computes_nothing(kernel):
            return kernel(*args, **kwargs)
        formula = formula_of(kernel, args, kwargs) if self._inside is None else None
        if formula is not None:
            return self._formula(kernel, *formula, args, kwargs)
        dtype = self._inside or self._dtype_of(kernel)
        if self._known is None:
            return self._traced(kernel, args, kwargs, inputs, dtype)
        at = len(self.kernels)
        self.kernels.append(None)
        rule = self._known[at] if at < len(self._known) else None
        if rule is not None:
            return self._rounding(kernel, args, kwargs, rule, dtype)
        if _is_pointwise(kernel):  # exact of what has been rounded: 1 - x, for x near 1
            return self._rounding(kernel, args, kwargs, _EXACT, dtype)
        return self._exact(kernel, args, kwargs, inputs)

    def _formula(self, kernel, function, in_dtype, args, kwargs):
        dtype = self._dtype_of(kernel)
        self._inside = dtype if in_dtype in (True, dtype) or self._fused else _SINGLE
        try:
            with self:
                made = function(*args, **kwargs)
        finally:
            self._inside = None
        for result in _flat(made):
            self._mark(result, dtype)
        return made

    def _mark(self, tensor, dtype):
        memory = _memory(tensor)
        self._unrounded[memory._cdata] = dtype, StorageWeakRef(memory)

    def _dtype_before(self, tensor):
        return self._unrounded.get(_memory(tensor)._cdata, ("",))[0]

    def _dtype_of(self, kernel):
        index = self._calls.get(kernel, 0)
        self._calls[kernel] = index + 1
        dtypes = self._dtypes.get(kernel)
        return dtypes[min(index, len(dtypes) - 1)] if dtypes else self._dtype

    def _traced(self, kernel, args, kwargs, inputs, dtype):
        """Notes what the kernel does, and rounds its results."""
        made = kernel(*args, **kwargs)
        results = [each for each in _flat(made) if each.dtype == torch.float64]
        # Where nothing changes, elements are chosen or moved, or a sum has few digits.
        changed = [_in_place(each, _engine.round_elements, dtype) for each in results]
        rule = None
        if not results:  # of a Fourier transform
            results = [each for each in _flat(made) if each.dtype == torch.complex128]
            changed = [True] * len(results)
        if any(changed) or not _are_chosen(kernel, results, inputs):
            shapes = ([list(each.shape) for each in group] for group in (inputs, results))
            inside = self._fused and self._inside is not None
            facts = _name_of(kernel, args), _is_pointwise(kernel), inside
            rule = _Rule(*_engine.kernel_rounding(*facts, *shapes, dtype))
        self.kernels.append(rule)
        return made

    def _exact(self, kernel, args, kwargs, inputs):
        """Elements are chosen or moved: rounded or not, they stay what they are."""
        made = kernel(*args, **kwargs)
        dtype = next(filter(None, map(self._dtype_before, inputs)), "")
        for result in _flat(made):
            self._mark(result, dtype)
        return made

    def _rounding(self, kernel, args, kwargs, rule, dtype):
        def move(value):
            if isinstance(value, (list, tuple)):
                return type(value)(map(move, value))
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
                return self._moved(value, rule.input)
            if isinstance(value, float) and rule.pointwise and dtype not in ("", _SINGLE):
                return self._moved_number(value, dtype)
            return value

        written = _written(kernel)
        args = [_into(each, move(each), at in written) for at, each in enumerate(args)]
        kwargs = {name: _into(each, move(each), name in written) for name, each in kwargs.items()}
        made = kernel(*args, **kwargs)
        largest = max((each.numel() for each in _flat((args, kwargs))), default=0)
        for result in _flat(made):
            relative = rule.sum if rule.sum and result.numel() < largest else rule.output
            if result.dtype == torch.float64 and relative > 0:
                self._steps += 1
                seed = (self._seed << 32) + self._steps
                _in_place(result, _engine.move_by_roundings, seed, relative, "")
            self._mark(result, dtype)
        return made

    def _moved(self, tensor, relative):
        """A copy; of an expanded tensor, whose elements share memory, an expanded one."""
        once = tensor
        for dim, stride in enumerate(tensor.stride()):
            once = once.narrow(dim, 0, 1) if stride == 0 and tensor.shape[dim] > 1 else once
        once = once.clone(memory_format=torch.contiguous_format)
        self._steps += 1
        seed = (self._seed << 32) + self._steps
        unrounded = self._dtype_before(tensor)
        _engine.move_by_roundings(once, seed, relative, unrounded)
        return once.expand(tensor.shape)

    def _moved_number(self, value, dtype):
        """A kernel of halves may round the numbers that it is given, or not."""
        number = torch.full((1,), value, dtype=torch.float64)
        if not _engine.round_elements(number, dtype):
            return value
        self._steps += 1
        chance = torch.ones(1, dtype=torch.float64)
        _engine.move_by_roundings(chance, (self._seed << 32) + self._steps, 0, dtype)
        return float(number) if float(chance) > 1 else value


def _flat(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        yield from _flat(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _flat(each)


def _is_pointwise(kernel):
    return _POINTWISE is not None and _POINTWISE in kernel.tags


def _name_of(kernel, args):
    """Of its rule: a transposed convolution adds its parts, in the dtype of the result."""
    name = kernel._schema.name
    return "convolution_transposed" if name == "aten::convolution" and args[6] else name


def _are_chosen(kernel, results, inputs):
    """Whether each element of the results is zero, or one of the inputs' elements."""
    size = sum(each.numel() for each in results)
    if _is_pointwise(kernel) or size >= sum(each.numel() for each in inputs):
        return True
    known = torch.cat([each.reshape(-1) for each in inputs])
    return all(bool(((each == 0) | torch.isin(each, known)).all()) for each in results)


def _name(dtype):
    return str(dtype).rpartition(".")[2]


def _memory(tensor):
    if hasattr(tensor, "untyped_storage"):
        return tensor.untyped_storage()
    return tensor.storage().untyped()  # PyTorch 1.13


@functools.cache
def _computes_nothing(kernel):
    """Whether it gives another name to memory, or memory that nobody has written."""
    if "empty" in kernel._schema.name:
        return True
    aliases = (each.alias_info for each in kernel._schema.returns)
    return any(alias is not None and not alias.is_write for alias in aliases)


@functools.cache
def _written(kernel):
    """Places and names of the arguments that it writes into."""
    arguments = enumerate(kernel._schema.arguments)
    written = [
        (at, each.name) for at, each in arguments if each.alias_info and each.alias_info.is_write
    ]
    return {part for pair in written for part in pair}


def _into(value, moved, written):
    """What a kernel is given: what it writes into has to stay the caller's tensor."""
    if not written or not isinstance(value, torch.Tensor):
        return moved
    return value.copy_(moved)


def _in_place(tensor, change, *args):
    """What `change` returns, which changes a contiguous tensor in place."""
    if tensor.is_contiguous():
        return change(tensor, *args)
    copy = tensor.contiguous()
    answer = change(copy, *args)
    tensor.copy_(copy)
    return answer


def _decomposed():
    """Attention as products and a softmax."""
    attention = getattr(torch.nn, "attention", None)
    if attention is None:
        return contextlib.nullcontext()
    return attention.sdpa_kernel([attention.SDPBackend.MATH])
