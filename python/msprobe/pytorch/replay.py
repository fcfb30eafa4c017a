"""Executes recorded calls again: on the device at hand, and in float64 as the golden.

The engine reads the dump and makes the elements of the inputs; this file only calls operations.
"""

import contextlib
import importlib
import re

import torch

from msprobe import _engine

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_HALVES = {torch.float16, torch.bfloat16}
_COMPLEX = {torch.complex32, torch.complex64, torch.complex128}
# Operations whose inputs autocast casts to the half dtype, besides convolutions. Source: "CPU Ops
# that can autocast to bfloat16" in the documentation of torch.amp.
_CAST_DOWN = {"linear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "rmatmul", "bilinear"}
_CAST_DOWN |= {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "einsum"}
# Where no statistic of an input was recorded: the values that an operation takes.
_DOMAINS = {"log": (0.1, 4), "log2": (0.1, 4), "log10": (0.1, 4), "sqrt": (0, 4), "rsqrt": (0.1, 4)}


class Unsupported(Exception):
    """The call cannot be executed here; the message says why."""


def function_of(api):
    """The function that was recorded as ``api``: ``torch.nn.functional.linear`` for
    ``Functional.linear``."""
    prefix, _, name = api.partition(".")
    roots = {
        "Functional": torch.nn.functional,
        "Tensor": torch.Tensor,
        "Torch": torch,
        "VF": getattr(torch, "_VF", None),
        "Aten": torch.ops.aten,
    }
    if prefix == "NPU":
        roots["NPU"] = _module("torch_npu")
    found = roots.get(prefix)
    for part in name.split("."):
        found = getattr(found, part, None)
    if prefix == "Torch" and found is None:  # torch.linalg.vector_norm
        spaces = (torch.linalg, torch.fft, torch.special)
        found = next((getattr(each, name) for each in spaces if hasattr(each, name)), None)
    if not callable(found):
        raise Unsupported(f"this PyTorch ({torch.__version__}) has no {api}")
    return found


def _module(name):
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Unsupported(f"{name} is not installed: {error}") from None


def _slice(text):
    parts = re.findall(r"None|-?\d+", text)
    return slice(*(None if part == "None" else int(part) for part in parts))


def _of_torch(text, kind):
    value = getattr(torch, text.rpartition(".")[2], None)
    if not isinstance(value, kind):
        raise Unsupported(f"expected a {kind.__name__}, found {text}")
    return value


_PLAIN = {
    "NoneType": lambda text: None,
    "bool": lambda text: text == "True",
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "slice": _slice,
    "ellipsis": lambda text: Ellipsis,
    "torch.Size": lambda text: torch.Size(int(part) for part in re.findall(r"-?\d+", text)),
    "torch.dtype": lambda text: _of_torch(text, torch.dtype),
    "torch.memory_format": lambda text: _of_torch(text, torch.memory_format),
    "torch.layout": lambda text: _of_torch(text, torch.layout),
}


class Recorded:
    """A dump whose calls are executed again.

    Args:
        path: a ``dump.json``, or a folder with one.
        device: the device under test, ``torch.device("cpu")``.
        seed: of the elements that are made where none were stored.
        references: ``{"NPU.npu_swiglu": function}``: computes the golden result in place of an
            operation that has no float64, or that only some devices have.
    """

    def __init__(self, path, device, seed=1234, references=None):
        self._replay = _engine.Replay(str(path), seed)
        self._references = references or {}
        self.device = device

    def calls(self, white_list=(), black_list=(), distinct=False):
        """``[(name, why it is skipped or "")]``, in the order of the dump."""
        return self._replay.calls(list(white_list), list(black_list), distinct)

    def call(self, index):
        """The call with that index in :meth:`calls`, its elements in memory."""
        return Call(self._replay, index, self._references)


class Call:
    """One recorded call; :meth:`run` executes it."""

    def __init__(self, replay, index, references):
        self._replay = replay
        self.api, self._args, self._kwargs, self._gradients, results = replay.call(index)
        self._base = self.api.rpartition(".")[2]
        self._domain = _DOMAINS.get(self._base, (-1.0, 1.0))
        self._reference = references.get(self.api)
        self._inputs = _float_dtypes(_dtype_names([self._args, self._kwargs]))
        self._results = _float_dtypes(results)
        self._half = self._cast_down()
        self._stored = {}  # number of a value -> its elements, as recorded

    def run(self, device, golden, nudged=False):
        """Execute the call: ``(results, gradients)``, lists of tensors on the CPU.

        The gradients are those of the positional tensors, None where there is none, and of tensors
        among the keyword arguments: the numbers that msprobe gives them, too.

        Args:
            device: where.
            golden: a dtype that all floats are raised to, or None: as recorded.
            nudged: whether each element of the inputs is changed in its last place.

        Raises:
            Unsupported: the call, or a value of it, has no counterpart here.
        """
        leaves = []

        def tensor(number, dtype, shape, requires_grad):
            elements = self._elements(number, dtype, shape)
            if golden is not None and elements.is_floating_point() and self._half is not None:
                elements = elements.to(self._half)  # as autocast does, before it computes
            raised = _raised(elements.dtype, golden)
            copy = elements.to(device=device, dtype=raised, copy=True)
            if nudged and elements.dtype in _FLOATS:
                copy = _nudged(copy, elements.dtype)
            if requires_grad and copy.dtype in _FLOATS | _COMPLEX:
                leaves.append(copy.requires_grad_())
                return copy.clone()  # an operation in place cannot change a leaf
            leaves.append(None)
            return copy

        def plain(kind, text):
            if kind == "torch.device":
                return device
            if kind not in _PLAIN:
                raise Unsupported(f"an argument of type {kind}")
            value = _PLAIN[kind](text)
            return _raised(value, golden) if isinstance(value, torch.dtype) else value

        args = _built(self._args, tensor, plain)
        positional = len(leaves)
        kwargs = _built(self._kwargs, tensor, plain)
        inputs = leaves[:positional] + [each for each in leaves[positional:] if each is not None]
        args, kwargs = self._without_dropout(args, kwargs)
        if not self.api.startswith("NPU."):  # theirs write into `out` only
            kwargs = {name: value for name, value in kwargs.items() if name != "out"}
        function = self._function(golden)
        with self._autocast(device, golden):
            result = function(*args, **kwargs)
        results = _tensors(result)
        gradients = []
        if self._gradients is not None:
            arrived = _built(self._gradients, tensor, plain)
            gradients = _gradients(results, arrived, inputs)
        if golden is None and self._half is not None:
            # Computed in this dtype, and cast to that of the inputs: judged as what it is.
            gradients = [each if each is None else each.to(self._half) for each in gradients]
        return [_on_host(each) for each in results], [_on_host(each) for each in gradients]

    def _function(self, golden):
        if self._reference is None:
            return function_of(self.api)
        if golden is not None:
            return self._reference
        try:
            return function_of(self.api)
        except Unsupported:  # a device without the operation computes what it stands for
            return self._reference

    def _cast_down(self):
        """The dtype to which autocast casts float32 inputs; None where it does not."""
        half = self._results & _HALVES
        name = self._base.strip("_")
        casts_down = name.startswith("conv") or name in _CAST_DOWN
        return next(iter(half)) if half and torch.float32 in self._inputs and casts_down else None

    def _autocast(self, device, golden):
        """The state of autocast in which the call was recorded, as its dtypes show it."""
        dtypes = self._inputs | self._results
        half = dtypes & _HALVES
        # x.to(torch.bfloat16) casts itself.
        casts = self._base in ("to", "type", "type_as", "half", "bfloat16", "float", "double")
        if golden is not None or len(dtypes) < 2 or not half or casts:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=half.pop())

    def _without_dropout(self, args, kwargs):
        if self.api == "Functional.scaled_dot_product_attention":
            args = [*args[:4], 0.0, *args[5:]] if len(args) > 4 else args
            kwargs = {name: value for name, value in kwargs.items() if name != "dropout_p"}
        return args, kwargs

    def older_golden(self):
        """The dtype of the golden result in msprobe 1.0 to 26; None: as recorded."""
        if self._inputs == {torch.float32}:
            return None if self._base in ("conv1d", "conv2d") else torch.float64
        return torch.float64 if torch.float64 in self._inputs else torch.float32

    def size_of_inputs(self):
        """The largest size of an element of the inputs, and the number of elements."""
        floats = [each.double() for each in self._stored.values() if each.dtype in _FLOATS]
        largest = max((float(each.abs().max()) for each in floats if each.numel()), default=0.0)
        return largest, max((each.numel() for each in floats), default=0)

    def elements(self):
        """The elements of all inputs that :meth:`run` has used, in the order of the arguments."""
        return [self._stored[number] for number in sorted(self._stored)]

    def _elements(self, number, dtype, shape):
        if number not in self._stored:
            kind = getattr(torch, dtype, None)
            if not isinstance(kind, torch.dtype):
                raise Unsupported(f"elements of {dtype or 'an unknown dtype'}")
            elements = torch.empty(shape, dtype=kind)
            self._replay.fill(number, elements, *self._domain)
            self._stored[number] = elements
        return self._stored[number]


def _nudged(tensor, dtype):
    """Up and down by one unit in the last place of ``dtype``, without random numbers."""
    signs = torch.arange(tensor.numel(), device=tensor.device) * 7 % 5 % 2 * 2 - 1
    info = torch.finfo(dtype)
    unit = (tensor.abs() * info.eps).clamp(min=info.tiny * info.eps)
    return torch.where(tensor == 0, tensor, tensor + unit * signs.reshape(tensor.shape))


def _gradients(results, arrived, leaves):
    """One for each leaf, None where there is none; [] where no gradient arrived."""
    pairs = [
        (result, gradient.detach().to(result.dtype).reshape(result.shape))
        for result, gradient in zip(results, arrived, strict=False)
        if isinstance(gradient, torch.Tensor) and result.requires_grad
    ]
    wanted = [leaf for leaf in leaves if leaf is not None]
    if not pairs or not wanted:
        return []
    outputs, grads = zip(*pairs, strict=True)
    made = iter(torch.autograd.grad(outputs, wanted, grads, allow_unused=True))
    return [None if leaf is None else next(made) for leaf in leaves]


def golden_of(call, older=False, nudged=False):
    """Results and gradients in float64; in float32 where the operation has no float64.

    Args:
        call: the call.
        nudged: as in :meth:`Call.run`.
        older: in the dtypes that msprobe 1.0 to 26 take: float64 for float32, float32 for halves
            and mixed dtypes, and float32 as it is for conv1d and conv2d.
    """
    cpu = torch.device("cpu")
    try:
        return call.run(cpu, call.older_golden() if older else torch.float64, nudged)
    except (RuntimeError, NotImplementedError, TypeError):
        return call.run(cpu, torch.float32, nudged)


def reference_of(call, device):
    """Results and gradients with which overflows on ``device`` are compared: of the CPU.

    In the recorded dtypes; in float64 when the device is the CPU itself, or the CPU has not the
    operation in that dtype.
    """
    if device.type != "cpu":
        with contextlib.suppress(RuntimeError, NotImplementedError, TypeError):
            return call.run(torch.device("cpu"), None)
    return golden_of(call)


def _raised(dtype, golden):
    if golden is None or not isinstance(dtype, torch.dtype):
        return dtype
    if dtype in _COMPLEX:
        return torch.complex128 if golden is torch.float64 else torch.complex64
    is_float = dtype.is_floating_point and torch.finfo(dtype).bits < torch.finfo(golden).bits
    return golden if is_float else dtype


def _built(value, tensor, plain):
    if isinstance(value, list):
        return [_built(each, tensor, plain) for each in value]
    if isinstance(value, dict):
        return {name: _built(each, tensor, plain) for name, each in value.items()}
    if value is None or not value:
        return value
    return tensor(*value[1:]) if value[0] == "tensor" else plain(*value)


def _float_dtypes(names):
    return {getattr(torch, name, None) for name in names} & _FLOATS


def _dtype_names(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [name for item in value for name in _dtype_names(item)]
    return [value[2]] if value and value[0] == "tensor" else []


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [each for item in value for each in _tensors(item)]
    return []


def _on_host(tensor):
    if tensor is None:
        return None
    tensor = tensor.resolve_conj().resolve_neg()
    return tensor.detach().to_dense().cpu() if tensor.is_sparse else tensor.detach().cpu()
