"""One call of an operation, executed from what was recorded of its arguments.

This file knows PyTorch alone: `msprobe op_generate` copies it into its scripts.
"""

import contextlib
import importlib
import re

import torch

_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
HALVES = {torch.float16, torch.bfloat16}
_COMPLEX = {torch.complex32, torch.complex64, torch.complex128}
# Operations whose inputs autocast casts to the half dtype, besides convolutions. Source: "CPU Ops
# that can autocast to bfloat16" in the documentation of torch.amp.
_CAST_DOWN = {"linear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "rmatmul", "bilinear"}
_CAST_DOWN |= {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "einsum"}


class Unsupported(Exception):
    """The call cannot be executed here; the message says why."""


# Of torch they are gone, and raise, or are something else; a recorded call is that of torch.linalg.
_OF_LINALG = {"cond", "eig", "lstsq", "matrix_rank", "solve", "symeig"}


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
    if prefix == "Torch" and name in _OF_LINALG and hasattr(torch.linalg, name):
        found = getattr(torch.linalg, name)
    if prefix == "Torch" and found is None:  # torch.linalg.vector_norm
        spaces = (torch.linalg, torch.fft, torch.special)
        found = next((getattr(each, name) for each in spaces if hasattr(each, name)), None)
    if not callable(found) or isinstance(found, type):
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


class Execution:
    """A call that can be executed: its arguments are values with their types, or tensors.

    A tensor is ``("tensor", key, dtype, shape, requires_grad)``, another value ``(type, text)``, an
    empty list ``()``; lists and dictionaries hold values. A subclass reads a tensor's elements.

    Args:
        api: as :func:`function_of` takes it.
        args: positional arguments, a list.
        kwargs: keyword arguments, a dictionary.
        gradients: those that arrived at the results, or None: there is no backward pass.
        results: dtypes of the recorded results, ``["float32"]``.
    """

    def __init__(self, api, args, kwargs, gradients, results):
        self.api, self._args, self._kwargs, self._gradients = api, args, kwargs, gradients
        self._base = api.rpartition(".")[2]
        self.inputs = _float_dtypes(_dtype_names([args, kwargs]))
        self.results = _float_dtypes(results)
        self._half = self._cast_down()
        self.stored = {}  # key of a tensor -> its elements, as recorded

    def elements_of(self, key, dtype, shape):
        """The elements of a tensor, on the CPU."""
        if key not in self.stored:
            self.stored[key] = self.read(key, dtype, shape)
        return self.stored[key]

    def read(self, key, dtype, shape):
        raise NotImplementedError

    def function(self, golden):
        """What is called; golden: as in :meth:`run`."""
        return function_of(self.api)

    def size_of_inputs(self):
        """The largest size of an element of the inputs, and the elements of the longest."""
        floats = [each.double() for each in self.stored.values() if each.dtype in _FLOATS]
        largest = max((float(each.abs().max()) for each in floats if each.numel()), default=0.0)
        return largest, max((each.numel() for each in floats), default=0)

    def repeats_a_tensor(self):
        """Whether two arguments have the same elements: they may be one tensor, as in ``x + x``."""
        seen = list(self.stored.values())
        return any(_same(a, b) for i, a in enumerate(seen) for b in seen[:i])

    def run(self, device, golden, nudged=False, shared=False, moved=False, around=None):
        """Execute the call: ``(results, gradients)``, lists of tensors on the CPU.

        The gradients are those of the positional tensors, None where there is none, and of tensors
        among the keyword arguments: the numbers that msprobe gives them, too.

        Args:
            device: where.
            golden: a dtype that all floats are raised to, or None: as recorded.
            nudged: whether each element of the inputs is changed in its last place.
            shared: whether arguments with the same elements are one tensor, whose gradient is
                the sum of those of its places.
            moved: whether each element of the inputs is changed by some units in its last place:
                an error that stays is one of the formula, an error that goes is rounding.
            around: a function that makes what is entered around the operation, and around its
                backward pass.

        Raises:
            Unsupported: the call, or a value of it, has no counterpart here.
        """
        leaves, kept = [], []
        around = around or contextlib.nullcontext

        def tensor(number, dtype, shape, requires_grad):
            elements = self.elements_of(number, dtype, shape)
            if golden is not None and elements.is_floating_point() and self._half is not None:
                elements = elements.to(self._half)  # as autocast does, before it computes
            raised = _raised(elements.dtype, golden)
            if moved and elements.dtype in _FLOATS:
                elements = _moved(elements)
            if shared and requires_grad:
                for other, leaf in kept:
                    if _same(other, elements):
                        leaves.append(leaf)
                        return leaf.clone()
            copy = elements.to(device=device, dtype=raised, copy=True)
            if nudged and elements.dtype in _FLOATS:
                copy = _nudged(copy, elements.dtype)
            if requires_grad and copy.dtype in _FLOATS | _COMPLEX:
                leaves.append(copy.requires_grad_())
                kept.append((elements, copy))
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
        function = self.function(golden)
        with self._autocast(device, golden), around():
            result = function(*args, **kwargs)
        results = _tensors(result)
        gradients = []
        if self._gradients is not None:
            arrived = _built(self._gradients, tensor, plain)
            with around():
                gradients = _gradients(results, arrived, inputs)
        if golden is None and self._half is not None:
            # Computed in this dtype, and cast to that of the inputs: judged as what it is.
            gradients = [each if each is None else each.to(self._half) for each in gradients]
        return [_on_host(each) for each in results], [_on_host(each) for each in gradients]

    def _cast_down(self):
        """The dtype to which autocast casts float32 inputs; None where it does not."""
        half = self.results & HALVES
        name = self._base.strip("_")
        casts_down = name.startswith("conv") or name in _CAST_DOWN
        return next(iter(half)) if half and torch.float32 in self.inputs and casts_down else None

    def _autocast(self, device, golden):
        """The state of autocast in which the call was recorded, as its dtypes show it."""
        dtypes = self.inputs | self.results
        half = dtypes & HALVES
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


def _same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def _nudged(tensor, dtype):
    """Up and down by one unit in the last place of ``dtype``, without random numbers."""
    signs = torch.arange(tensor.numel(), device=tensor.device) * 7 % 5 % 2 * 2 - 1
    info = torch.finfo(dtype)
    unit = (tensor.abs() * info.eps).clamp(min=info.tiny * info.eps)
    return torch.where(tensor == 0, tensor, tensor + unit * signs.reshape(tensor.shape))


def _moved(tensor):
    """Up and down by 1/64 to 1/32 of each element, without random numbers."""
    steps = torch.arange(tensor.numel(), device=tensor.device) * 7 % 5 - 2
    factors = 1 + (steps + torch.where(steps < 0, -1, 1)).double().reshape(tensor.shape) / 96
    return (tensor.double() * factors).to(tensor.dtype)


class _Arrive(torch.autograd.Function):
    """A scalar whose gradients are those that arrived. torch.autograd.grad(outputs, leaves, grads)
    would import sympy to compare the shapes: two seconds and 35 MB for each process."""

    @staticmethod
    def forward(ctx, grads, *outputs):
        ctx.grads = grads
        return torch.zeros((), device=outputs[0].device)

    @staticmethod
    def backward(ctx, _):
        return None, *ctx.grads


def _gradients(results, arrived, leaves):
    """One for each leaf, None where there is none; [] where no gradient arrived."""
    pairs = [
        (result, gradient.detach().to(result.dtype).reshape(result.shape))
        for result, gradient in zip(results, arrived)  # noqa: B905 (Python 3.9)
        if isinstance(gradient, torch.Tensor) and result.requires_grad
    ]
    wanted = [leaf for leaf in leaves if leaf is not None]
    if not pairs or not wanted:
        return []
    outputs, grads = zip(*pairs)  # noqa: B905
    made = iter(torch.autograd.grad(_Arrive.apply(grads, *outputs), wanted, allow_unused=True))
    return [None if leaf is None else next(made) for leaf in leaves]


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
