"""Executes one recorded call again, and compares it with float64. Needs Python and PyTorch only.

    python SCRIPT.py                     on an NPU, else a GPU, else the CPU
    python SCRIPT.py --device cuda:1 --iterations 10

The inputs are in the folder beside this file. Exit code: 0 pass or warning, 1 error, 2 it was not
executed.
"""

import argparse
import contextlib
import math
import re
import sys
from pathlib import Path

import torch

# What was recorded. A tensor is ("tensor", file, dtype, shape, requires_grad); another value is
# (type, text).
CALL = {}  # replaced

FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
HALVES = {torch.float16, torch.bfloat16}
COMPLEX = {torch.complex32: torch.complex128, torch.complex64: torch.complex128}
# Operations whose float32 inputs autocast casts to the half dtype, besides convolutions.
CAST_DOWN = {"linear", "matmul", "mm", "bmm", "addmm", "addbmm", "baddbmm", "rmatmul", "bilinear"}
CAST_DOWN |= {"scaled_dot_product_attention", "lstm", "gru", "rnn_tanh", "rnn_relu", "einsum"}
LIMITS = {}  # replaced


class NotExecuted(Exception):
    """This PyTorch or device cannot execute the call."""


def function_of(api):
    prefix, _, name = api.partition(".")
    roots = {"Functional": torch.nn.functional, "Tensor": torch.Tensor, "Torch": torch}
    roots |= {"VF": getattr(torch, "_VF", None), "Aten": torch.ops.aten}
    if prefix == "NPU":
        import torch_npu

        roots["NPU"] = torch_npu
    found = roots.get(prefix)
    for part in name.split("."):
        found = getattr(found, part, None)
    if prefix == "Torch" and found is None:  # torch.linalg.vector_norm
        spaces = (torch.linalg, torch.fft, torch.special)
        found = next((getattr(each, name) for each in spaces if hasattr(each, name)), None)
    if not callable(found) or isinstance(found, type):
        raise NotExecuted(f"this PyTorch ({torch.__version__}) has no {api}")
    return found


def of_torch(text, kind):
    value = getattr(torch, text.rpartition(".")[2], None)
    if not isinstance(value, kind):
        raise NotExecuted(f"expected a {kind.__name__}, found {text}")
    return value


def slice_of(text):
    return slice(*(None if p == "None" else int(p) for p in re.findall(r"None|-?\d+", text)))


PLAIN = {
    "NoneType": lambda text: None,
    "bool": lambda text: text == "True",
    "int": int,
    "float": float,
    "complex": complex,
    "str": str,
    "slice": slice_of,
    "ellipsis": lambda text: Ellipsis,
    "torch.Size": lambda text: torch.Size(int(part) for part in re.findall(r"-?\d+", text)),
    "torch.dtype": lambda text: of_torch(text, torch.dtype),
    "torch.memory_format": lambda text: of_torch(text, torch.memory_format),
    "torch.layout": lambda text: of_torch(text, torch.layout),
}


def raised(dtype, golden):
    if golden is None or not isinstance(dtype, torch.dtype):
        return dtype
    if dtype in COMPLEX:
        return COMPLEX[dtype] if golden is torch.float64 else torch.complex64
    narrower = dtype.is_floating_point and torch.finfo(dtype).bits < torch.finfo(golden).bits
    return golden if narrower else dtype


def built(value, tensor, plain):
    if isinstance(value, list):
        return [built(each, tensor, plain) for each in value]
    if isinstance(value, dict):
        return {name: built(each, tensor, plain) for name, each in value.items()}
    if value is None or not value:
        return value
    return tensor(*value[1:]) if value[0] == "tensor" else plain(*value)


def tensors_in(value):
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    if isinstance(value, (dict, list, tuple)):
        return [each for item in values for each in tensors_in(item)]
    return []


def dtypes_in(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return {dtype for item in value for dtype in dtypes_in(item)}
    return {getattr(torch, value[2], None)} if value and value[0] == "tensor" else set()


class Call:
    def __init__(self):
        self.folder = Path(__file__).resolve().with_suffix("")
        self.name = CALL["api"].rpartition(".")[2]
        self.inputs = dtypes_in([CALL["positional"], CALL["keywords"]]) & FLOATS
        self.results = {getattr(torch, dtype, None) for dtype in CALL["results"]} & FLOATS
        casts = self.name.strip("_").startswith("conv") or self.name.strip("_") in CAST_DOWN
        half = self.results & HALVES
        # What autocast casts float32 inputs to before it computes.
        self.half = next(iter(half)) if half and torch.float32 in self.inputs and casts else None
        self.stored = {}

    def elements(self, file, dtype, shape):
        if file not in self.stored:
            loaded = torch.load(self.folder / file, map_location="cpu", weights_only=True)
            if list(loaded.shape) != shape or str(loaded.dtype) != f"torch.{dtype}":
                raise NotExecuted(f"{file} is not the {dtype} {shape} that was written")
            self.stored[file] = loaded.detach()
        return self.stored[file]

    def autocast(self, device, golden):
        """The state of autocast in which the call was recorded, as its dtypes show it."""
        half = (self.inputs | self.results) & HALVES
        casts = self.name in ("to", "type", "type_as", "half", "bfloat16", "float", "double")
        if golden is not None or len(self.inputs | self.results) < 2 or not half or casts:
            return contextlib.nullcontext()
        return torch.autocast(device.type, dtype=half.pop())

    def run(self, device, golden, nudged=False):
        """(results, gradients) on the CPU.

        golden: the dtype to which floats are raised. nudged: each input changes in its last place.
        """
        leaves = []

        def tensor(file, dtype, shape, requires_grad):
            elements = self.elements(file, dtype, shape)
            if golden is not None and elements.is_floating_point() and self.half is not None:
                elements = elements.to(self.half)
            copy = elements.to(device=device, dtype=raised(elements.dtype, golden), copy=True)
            if nudged and elements.dtype in FLOATS:
                copy = nudged_by_a_unit(copy, elements.dtype)
            if requires_grad and (copy.is_floating_point() or copy.is_complex()):
                leaves.append(copy.requires_grad_())
                return copy.clone()  # an operation in place cannot change a leaf
            leaves.append(None)
            return copy

        def plain(kind, text):
            if kind == "torch.device":
                return device
            if kind not in PLAIN:
                raise NotExecuted(f"an argument of type {kind}")
            return raised(PLAIN[kind](text), golden)

        args = built(CALL["positional"], tensor, plain)
        positional = len(leaves)
        kwargs = built(CALL["keywords"], tensor, plain)
        # Gradients are numbered by the positional tensors; those of keyword arguments follow.
        inputs = leaves[:positional] + [each for each in leaves[positional:] if each is not None]
        if not CALL["api"].startswith("NPU."):  # theirs write into `out` only
            kwargs.pop("out", None)
        if self.name == "scaled_dot_product_attention":  # without dropout
            args = [*args[:4], 0.0, *args[5:]] if len(args) > 4 else args
            kwargs.pop("dropout_p", None)
        with self.autocast(device, golden):
            results = tensors_in(function_of(CALL["api"])(*args, **kwargs))
        gradients = []
        if CALL["gradients"] is not None:
            arrived = built(CALL["gradients"], tensor, plain)
            gradients = gradients_of(results, arrived, inputs)
        if golden is None and self.half is not None:
            gradients = [each if each is None else each.to(self.half) for each in gradients]
        return [on_host(each) for each in results], [on_host(each) for each in gradients]


def nudged_by_a_unit(tensor, dtype):
    """Up and down by one unit in the last place of `dtype`, without random numbers."""
    signs = torch.arange(tensor.numel(), device=tensor.device) * 7 % 5 % 2 * 2 - 1
    unit = (tensor.abs() * torch.finfo(dtype).eps).clamp(min=smallest_of(dtype))
    return torch.where(tensor == 0, tensor, tensor + unit * signs.reshape(tensor.shape))


def smallest_of(dtype):
    return torch.finfo(dtype).tiny * torch.finfo(dtype).eps


def gradients_of(results, arrived, leaves):
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
    made = iter(torch.autograd.grad(outputs, wanted, grads, allow_unused=True))
    return [None if leaf is None else next(made) for leaf in leaves]


def on_host(tensor):
    if tensor is None:
        return None
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return (tensor.to_dense() if tensor.is_sparse else tensor).cpu()


def judged(device, golden, nudged, scale, direction):
    """The metrics of one result, its verdict, and why.

    nudged: the golden of inputs that differ in their last place; scale: the largest input, and the
    number of elements of the longest.
    """
    metrics = {
        "dtype": str(device.dtype),
        "golden": str(golden.dtype),
        "shape": tuple(device.shape),
    }
    if device.shape != golden.shape:
        return metrics, "error", f"the shapes differ: golden {tuple(golden.shape)}"
    count = device.numel()
    if count == 0:
        return metrics, "pass", "no elements"
    if device.is_complex():
        device, golden, nudged = map(torch.view_as_real, (device, golden, nudged))
    if not device.is_floating_point() or not golden.is_floating_point():
        unequal = int((device.cpu() != golden.cpu()).sum())
        metrics["unequal elements"] = unequal
        return metrics, "error" if unequal else "pass", "integers must be equal"
    metrics, verdict, why = judged_floats(device, golden, metrics)
    if verdict == "pass" or not torch.isfinite(device).all():
        return metrics, verdict, why
    # A sum of large terms that cancel: its error is that of its terms.
    error = float((device.double() - golden.double()).abs().max())
    change = float((nudged.double() - golden.double()).abs().max())
    metrics["change when inputs change in their last place"] = f"{change:.6g}"
    name = str(device.dtype).rpartition(".")[2]
    roundings = LIMITS["input_rounding"].get(name, LIMITS["input_rounding_of_others"])
    largest, elements = scale
    smallest, terms = smallest_of(device.dtype), math.sqrt(max(1.0, elements / count))
    if device.dtype in HALVES and direction == "backward":
        roundings *= terms  # gradients in half the precision are summed in it
    bound = LIMITS["input_rounding_bound"] * (torch.finfo(device.dtype).eps * largest + smallest)
    if error <= roundings * change + 2 * smallest and change <= bound * terms:
        return metrics, "pass", "within the rounding of the inputs"
    return metrics, verdict, why


def judged_floats(device, golden, metrics):
    dtype, d, g = device.dtype, device.double().flatten(), golden.double().flatten()
    rounded = golden.to(dtype).double().flatten()
    finite = d.isfinite() & rounded.isfinite()
    same = (d.isnan() & rounded.isnan()) | (~d.isnan() & (d == rounded))
    wrong = int((~finite & ~same).sum())
    matched = int((~finite & same).sum())
    d, g = d[finite], g[finite]
    error = (d - g).abs()
    epsilon = LIMITS["bfloat16_epsilon"] if dtype == torch.bfloat16 else torch.finfo(dtype).eps
    relative = error / (g.abs() + epsilon)
    largest = float(g.abs().max()) if d.numel() else 0.0
    most = float(error.max()) if d.numel() else 0.0
    norms = float(d.norm()) * float(g.norm())
    cosine = min(1.0, float(d @ g) / norms) if norms > 0 else math.nan
    share = {
        limit: (int((relative < limit).sum()) + matched) / device.numel()
        for limit in (1e-2, 1e-3, 1e-4)
    }
    metrics["cosine"] = f"{cosine:.9g}"
    metrics["max absolute error"] = f"{most:.6g}"
    metrics["max relative error"] = f"{float(relative.max()) if d.numel() else 0.0:.6g}"
    metrics["RMSE"] = f"{float((error * error).mean().sqrt()) if d.numel() else 0.0:.6g}"
    for limit, each in share.items():
        metrics[f"share with relative error below {limit:g}"] = f"{each:.6g}"
    half = dtype in HALVES
    part = LIMITS["half_max_error"].get(str(dtype).rpartition(".")[2], 0.0)
    enough = max(LIMITS["max_abs_error"] * min(1.0, largest), part * largest)
    if wrong:
        return metrics, "error", f"{wrong} elements are NaN or infinite on one side only"
    if device.numel() > 1 and cosine <= LIMITS["cosine"]:
        return metrics, "error", f"the cosine is not above {LIMITS['cosine']}"
    if most == 0 or most < enough:
        return metrics, "pass", f"the largest error is below {enough:.3g}" if most else "exact"
    if half and share[1e-2] <= LIMITS["hundredth_share"]:
        return metrics, "error", "too many relative errors of 0.01 and more"
    if share[1e-3] <= LIMITS["thousandth_share"]:
        return metrics, "warning" if half else "error", "too many relative errors above 0.001"
    if not half and share[1e-4] <= LIMITS["ten_thousandth_share"]:
        return metrics, "warning", "too many relative errors above 0.0001"
    return metrics, "pass", ""


def default_device():
    with contextlib.suppress(ImportError):
        import torch_npu  # noqa: F401

        return torch.device("npu:0")
    return torch.device("cuda:0" if torch.cuda.is_available() else "cpu")


def golden_of(call):
    """The golden, and that of nudged inputs."""
    cpu, dtype = torch.device("cpu"), torch.float64
    try:
        return call.run(cpu, dtype), call.run(cpu, dtype, nudged=True)
    except (RuntimeError, NotImplementedError, TypeError):  # the operation has no float64
        return call.run(cpu, torch.float32), call.run(cpu, torch.float32, nudged=True)


def triples_of(direction, device, golden, nudged):
    for index, each in enumerate(zip(device, golden, nudged)):  # noqa: B905
        if all(tensor is not None for tensor in each):
            yield f"{direction}.output.{index}", *each


def same_bits(one, other):
    def equal(a, b):
        if a is None or b is None:
            return a is b
        return (
            a.shape == b.shape
            and torch.equal(a.isnan(), b.isnan())
            and bool(((a == b) | a.isnan()).all())
        )

    lists = [*zip(one[0], other[0]), *zip(one[1], other[1])]  # noqa: B905
    return all(equal(a, b) for a, b in lists)


def main():
    parser = argparse.ArgumentParser(description=f"Executes {CALL['name']} again.")
    parser.add_argument("--device", default=None, help="cpu, cuda:0, npu:0")
    parser.add_argument("--iterations", type=int, default=CALL["iterations"])
    given = parser.parse_args()
    device = torch.device(given.device) if given.device else default_device()
    print(f"call:    {CALL['name']}, {CALL['direction']}")
    if CALL["source"]:
        print(f"source:  {CALL['source']}")
    print(f"inputs:  {CALL['data']}")
    print(f"device:  {device}, PyTorch {torch.__version__}; golden: float64 on the CPU")
    call = Call()
    golden, nudged = golden_of(call)
    floats = [each for each in call.stored.values() if each.is_floating_point() and each.numel()]
    largest = max((float(each.double().abs().max()) for each in floats), default=0.0)
    scale = largest, max((each.numel() for each in floats), default=0)
    worst, first = "pass", None
    for iteration in range(max(1, given.iterations)):
        found = call.run(device, None)
        if first is not None and same_bits(first, found):
            continue
        if first is not None:
            print(f"iteration {iteration} gives other bits than iteration 0")
        first = first or found
        if [len(each) for each in found] != [len(each) for each in golden]:
            raise NotExecuted("the golden has another number of results")
        triples = [*triples_of("forward", found[0], golden[0], nudged[0])]
        triples += triples_of("backward", found[1], golden[1], nudged[1])
        for name, *each in triples:
            metrics, verdict, why = judged(*each, scale, name.partition(".")[0])
            print(f"\n{name}: {verdict}{', ' + why if why else ''}")
            for metric, value in metrics.items():
                print(f"  {metric:<46} {value}")
            worst = max(worst, verdict, key=("pass", "warning", "error").index)
        if not triples:
            raise NotExecuted("the call has no result that can be compared")
    if given.iterations > 1:
        print(f"\n{given.iterations} iterations")
    print(f"\nverdict: {worst}")
    return 1 if worst == "error" else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (NotExecuted, RuntimeError, TypeError, ValueError, OSError) as problem:
        print(f"not executed: {problem}", file=sys.stderr)
        sys.exit(2)
