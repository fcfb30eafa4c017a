"""Executes one recorded call again, and compares it with float64. Needs Python and PyTorch only.

    python SCRIPT.py                     on an NPU, else a GPU, else the CPU
    python SCRIPT.py --device cuda:1 --iterations 10

The inputs are in the folder beside this file. Exit code: 0 pass or warning, 1 error, 2 it was not
executed.
"""

import argparse
import contextlib
import math
import sys
from pathlib import Path

import torch

from msprobe.pytorch.execution import HALVES, Execution, Unsupported  # replaced by that file

# What was recorded.
CALL = {}  # replaced
LIMITS = {}  # replaced


class Call(Execution):
    def __init__(self):
        names = ("api", "positional", "keywords", "gradients", "results")
        super().__init__(*(CALL[name] for name in names))
        self.folder = Path(__file__).resolve().with_suffix("")

    def read(self, key, dtype, shape):
        loaded = torch.load(self.folder / key, map_location="cpu", weights_only=True)
        if list(loaded.shape) != shape or str(loaded.dtype) != f"torch.{dtype}":
            raise Unsupported(f"{key} is not the {dtype} {shape} that was written")
        return loaded.detach()


def smallest_of(dtype):
    return torch.finfo(dtype).tiny * torch.finfo(dtype).eps


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


def device_named(name):
    """torch.device of "npu:0"; torch_npu, which makes the name known, is imported for it."""
    if name.partition(":")[0] == "npu" and not hasattr(torch, "npu"):
        try:
            import torch_npu  # noqa: F401
        except ImportError:
            sys.exit(f"error: --device {name}: torch_npu is not installed here")
    return torch.device(name)


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
    device = device_named(given.device) if given.device else default_device()
    print(f"call:    {CALL['name']}, {CALL['direction']}")
    if CALL["source"]:
        print(f"source:  {CALL['source']}")
    print(f"inputs:  {CALL['data']}")
    print(f"device:  {device}, PyTorch {torch.__version__}; golden: float64 on the CPU")
    call = Call()
    golden, nudged = golden_of(call)
    scale = call.size_of_inputs()
    worst, first = "pass", None
    for iteration in range(max(1, given.iterations)):
        found = call.run(device, None)
        if first is not None and same_bits(first, found):
            continue
        if first is not None:
            print(f"iteration {iteration} gives other bits than iteration 0")
        first = first or found
        if [len(each) for each in found] != [len(each) for each in golden]:
            raise Unsupported("the golden has another number of results")
        triples = [*triples_of("forward", found[0], golden[0], nudged[0])]
        triples += triples_of("backward", found[1], golden[1], nudged[1])
        for name, *each in triples:
            metrics, verdict, why = judged(*each, scale, name.partition(".")[0])
            print(f"\n{name}: {verdict}{', ' + why if why else ''}")
            for metric, value in metrics.items():
                print(f"  {metric:<46} {value}")
            worst = max(worst, verdict, key=("pass", "warning", "error").index)
        if not triples:
            raise Unsupported("the call has no result that can be compared")
    if given.iterations > 1:
        print(f"\n{given.iterations} iterations")
    print(f"\nverdict: {worst}")
    return 1 if worst == "error" else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (Unsupported, RuntimeError, TypeError, ValueError, OSError) as problem:
        print(f"not executed: {problem}", file=sys.stderr)
        sys.exit(2)
