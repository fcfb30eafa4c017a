"""Forty operators that are planted wrong under a recorded step, and whether `run_ut` finds them.

    python bench/accuracy/planted.py [--task TASK] [--held-out | --all] [--named | --more]

A kernel is replaced with `torch.library` for every dtype but float64, so that the golden is right.
An operator is found where the standards say warning or error, or where the verdict in roundings
says error, for a call that runs the kernel. A third of the operators, chosen by the hash of their
names, is held out: the limits were set without them. The right calls are those of the step.
`--named`: the operators of planted_named.py instead. `--more`: those of planted_more.py, under the
step of planted_more_step.py.
"""

import argparse
import hashlib
import json
import multiprocessing
import sys
import tempfile
from collections import Counter
from pathlib import Path

import planted_more_step
import planted_step
import torch
import torch.nn.functional as F
from planted_more import MORE
from planted_named import NAMED, cut_bits, low_sum
from torch.utils._python_dispatch import TorchDispatchMode

ROUNDING, CAUSE = 23, 28  # columns of the details
aten = torch.ops.aten


def in_double(right, *args, **kwargs):
    """What the kernel gives in float64, rounded once."""
    wide = [each.double() if is_float(each) else each for each in args]
    return right(*wide, **kwargs)


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def rounded(result, like):
    return result.to(like.dtype)


# Name -> (kernel, dtypes, function of the right kernel and the arguments).
SINGLE, HALVES = (torch.float32,), (torch.bfloat16, torch.float16)
ALL = SINGLE + HALVES
WRONG = {}


def wrong(name, kernel, dtypes):
    def add(function):
        WRONG[name] = kernel, dtypes, function
        return function

    return add


# --- functions by another formula ---
@wrong("tanh by a rational function", "tanh", ALL)
def _(right, x):
    y = x.double().clamp(-4.97, 4.97)
    s = y * y
    ratio = (
        y * (135135 + s * (17325 + s * (378 + s))) / (135135 + s * (62370 + s * (3150 + s * 28)))
    )
    return rounded(ratio, x)


@wrong("exp by a short series", "exp", SINGLE)
def _(right, x):
    y = x.double() / 64
    return rounded((1 + y + y**2 / 2 + y**3 / 6) ** 64, x)


@wrong("sigmoid, hard", "sigmoid", HALVES)
def _(right, x):
    return rounded((x.double() / 6 + 0.5).clamp(0, 1), x)


@wrong("log with a wrong constant", "log", SINGLE)
def _(right, x):
    return rounded(torch.log2(x.double()) * 0.6931470, x)


@wrong("erf of Abramowitz and Stegun 7.1.26", "erf", SINGLE)
def _(right, x):
    y = x.double().abs()
    t = 1 / (1 + 0.3275911 * y)
    poly = t * (
        0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429)))
    )
    return rounded((1 - poly * torch.exp(-y * y)).copysign(x.double()), x)


@wrong("sqrt, one Newton step", "sqrt", SINGLE)
def _(right, x):
    y = x.double()
    guess = torch.sqrt(y) * 1.003
    return rounded((guess + y / guess) / 2, x)


@wrong("reciprocal, one Newton step", "reciprocal", SINGLE)
def _(right, x):
    y = x.double()
    guess = 1.002 / y
    return rounded(guess * (2 - y * guess), x)


@wrong("silu by its tanh approximation", "silu", HALVES)
def _(right, x):
    y = x.double()
    return rounded(0.5 * y * (1 + torch.tanh(0.5 * y * 0.99)), x)


@wrong("sin of an argument in half precision", "sin", SINGLE)
def _(right, x):
    return rounded(torch.sin(x.half().double()), x)


@wrong("pow with an exponent of a float16", "pow.Tensor_Scalar", SINGLE)
def _(right, x, exponent):
    return rounded(x.double() ** (exponent * (1 + 2**-13)), x)


@wrong("mish with a threshold", "mish", ALL)
def _(right, x):
    y = x.double()
    return rounded(torch.where(y > 2, y, y * torch.tanh(torch.log1p(torch.exp(y)))), x)


@wrong("softplus with threshold 3", "softplus", ALL)
def _(right, x, beta=1, threshold=20):
    y = x.double()
    return rounded(torch.where(y > 3, y, torch.log1p(torch.exp(y))), x)


# --- backward only ---
@wrong("tanh backward without the square", "tanh_backward", HALVES)
def _(right, gradient, y):
    return rounded(gradient.double() * (1 - y.double().abs() ** 1.98), gradient)


@wrong("sigmoid backward, 1 % too small", "sigmoid_backward", HALVES)
def _(right, gradient, y):
    return rounded(gradient.double() * y.double() * (1 - y.double()) * 0.99, gradient)


@wrong("softmax backward without its sum's tail", "_softmax_backward_data", ALL)
def _(right, gradient, y, dim, dtype):
    g, p = gradient.double(), y.double()
    kept = (g * p).narrow(dim, 0, max(1, p.shape[dim] - 1)).sum(dim, True)
    return rounded((g - kept) * p, gradient)


@wrong("silu backward of float16", "silu_backward", SINGLE)
def _(right, gradient, x):
    s = torch.sigmoid(x.half()).double()
    return rounded(gradient.double() * s * (1 + x.double() * (1 - s)), gradient)


@wrong("embedding backward, one row less", "embedding_dense_backward", ALL)
def _(right, gradient, ids, rows, padding, scale):
    ids = ids.clone()
    ids.view(-1)[0] = (ids.view(-1)[0] + 1) % rows
    return rounded(in_double(right, gradient, ids, rows, padding, scale), gradient)


@wrong("leaky relu backward with slope 0.101", "leaky_relu_backward", ALL)
def _(right, gradient, x, slope, is_result):
    return rounded(
        torch.where(x > 0, gradient.double(), gradient.double() * slope * 1.01), gradient
    )


# --- lost upcasts and lower precision ---
@wrong("mean summed in half precision", "mean.dim", HALVES)
def _(right, x, dim=None, keepdim=False, *, dtype=None):
    if not dim or len(dim) != 1:
        return rounded(x.double().mean(dim, keepdim), x)
    return low_sum(x, dim[0], keepdim) / x.shape[dim[0]]


@wrong("vector norm in half precision", "linalg_vector_norm", HALVES)
def _(right, x, ord=2, dim=None, keepdim=False, *, dtype=None):
    if not dim or len(dim) != 1 or x.dtype not in HALVES:
        return rounded(torch.linalg.vector_norm(x.double(), ord, dim, keepdim), x)
    return torch.sqrt(low_sum(x * x, dim[0], keepdim))


@wrong("bmm summed in half precision", "bmm", HALVES)
def _(right, a, b):
    return low_sum(a.unsqueeze(-1) * b.unsqueeze(1), 2)


@wrong("mm with inputs of bfloat16", "mm", SINGLE)
def _(right, a, b):
    return rounded(a.bfloat16().double() @ b.bfloat16().double(), a)


@wrong("addmm with inputs of 13 bits", "addmm", SINGLE)
def _(right, bias, a, b, *, beta=1, alpha=1):
    return rounded(bias.double() + cut_bits(a, 11).double() @ cut_bits(b, 11).double(), a)


@wrong("log softmax's sum in half precision", "_log_softmax", HALVES)
def _(right, x, dim, half_to_float):
    shifted = x - x.amax(dim, True)
    return shifted - torch.log(low_sum(torch.exp(shifted), dim, True) * 1.02)


@wrong("group norm's mean in half precision", "native_group_norm", HALVES)
def _(right, x, weight, bias, n, c, hw, group, eps):
    rows = x.reshape(n, group, -1)
    mean = low_sum(rows, 2) / rows.shape[2]
    centred = rows.double() - mean.double().unsqueeze(-1)
    scale = 1 / torch.sqrt((centred**2).mean(-1) + eps)
    y = (centred * scale.unsqueeze(-1)).reshape(n, c, -1)
    y = y * weight.double().view(1, c, 1) + bias.double().view(1, c, 1)
    return rounded(y.reshape(x.shape), x), mean, rounded(scale, x)


@wrong("var in half precision", "var.correction", HALVES)
def _(right, x, dim=None, *, correction=None, keepdim=False):
    if not dim or len(dim) != 1:
        return rounded(torch.var(x.double(), dim, correction=correction, keepdim=keepdim), x)
    centred = x - low_sum(x, dim[0], True) / x.shape[dim[0]]
    found = low_sum(centred * centred, dim[0], keepdim) / (x.shape[dim[0]] - 1)
    return found


@wrong("average pool summed in half precision", "avg_pool2d", HALVES)
def _(right, x, kernel, *rest):
    y = F.unfold(x.double(), kernel, stride=kernel).view(
        x.shape[0], x.shape[1], -1, (x.shape[2] // kernel[0]) * (x.shape[3] // kernel[1])
    )
    return (low_sum(y.to(x.dtype), 2) * 0.2490).reshape(x.shape[0], x.shape[1], x.shape[2] // 2, -1)


# --- parts that are missing, or one element ---
@wrong("sum without its last term", "sum.dim_IntList", ALL)
def _(right, x, dim=None, keepdim=False, *, dtype=None):
    if not dim or len(dim) != 1:
        return rounded(x.double().sum(dim, keepdim), x)
    return rounded(x.double().narrow(dim[0], 0, max(1, x.shape[dim[0]] - 1)).sum(dim, keepdim), x)


@wrong("dot without its last 1 %", "dot", ALL)
def _(right, a, b):
    n = a.numel() - a.numel() // 100
    return rounded((a.double()[:n] * b.double()[:n]).sum(), a)


@wrong("neg, one element off by a little", "neg", ALL)
def _(right, x):
    y = -x.double()
    y.view(-1)[y.numel() // 3] *= 1.02
    return rounded(y, x)


@wrong("cumsum that starts anew at half", "cumsum", ALL)
def _(right, x, dim, *, dtype=None):
    y = x.double().cumsum(dim)
    half = x.shape[dim] - 1
    y.narrow(dim, half, 1).sub_(x.double().narrow(dim, 0, 1) * 0.05)
    return rounded(y, x)


@wrong("conv2d, the corner is not padded", "convolution", SINGLE)
def _(right, x, w, b, stride, padding, dilation, transposed, out, groups):
    wide = [each if each is None else each.double() for each in (x, w, b)]
    y = right(*wide, stride, padding, dilation, transposed, out, groups)
    y[..., -1] *= 1 + 3e-5
    return rounded(y, x)


@wrong("interpolation half a pixel off", "upsample_bilinear2d", ALL)
def _(right, x, size, align, h=None, w=None):
    return rounded(right(x.double(), size, True, None, None), x)


@wrong("layer norm with the unbiased variance", "native_layer_norm", ALL)
def _(right, x, shape, weight, bias, eps):
    y = x.double()
    mean, var = y.mean(-1, True), y.var(-1, keepdim=True)
    scale = 1 / torch.sqrt(var + eps)
    out = (y - mean) * scale * weight.double() + bias.double()
    return rounded(out, x), rounded(mean, x), rounded(scale, x)


@wrong("batch norm with eps 1e-3", "native_batch_norm", SINGLE)
def _(right, x, w, b, mean, var, training, momentum, eps):
    wide = [each if each is None else each.double() for each in (x, w, b, mean, var)]
    return tuple(rounded(each, x) for each in right(*wide, training, momentum, 1e-3))


@wrong("mse loss over one element more", "mse_loss", ALL)
def _(right, x, target, reduction=1):
    y = (x.double() - target.double()) ** 2
    return rounded(y.sum() / (y.numel() - 64) if reduction == 1 else y, x)


# --- roundings ---
@wrong("addcmul truncated to bfloat16", "addcmul", (torch.bfloat16,))
def _(right, x, a, b, *, value=1):
    y = (x.double() + value * a.double() * b.double()).float()
    return cut_bits(y, 16).bfloat16()


@wrong("softmax truncated", "_softmax", (torch.bfloat16,))
def _(right, x, dim, half_to_float):
    return cut_bits(torch.softmax(x.double(), dim).float(), 16).bfloat16()


@wrong("div with rounding toward zero", "div.Tensor", (torch.bfloat16,))
def _(right, a, b):
    return cut_bits((a.double() / b.double()).float(), 16).bfloat16()


@wrong("lerp in float16", "lerp.Scalar", SINGLE)
def _(right, a, b, weight):
    return (a.half() + (b.half() - a.half()) * weight).float()


def is_held_out(name):
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 3 == 0


def plant(library, kernel, dtypes, function):
    """Replaces the kernel on the CPU; the right one stays for other dtypes."""
    schema = f"aten::{kernel}"
    right = torch.library.get_kernel(schema, "CPU")
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

    def call(*args, **kwargs):
        return right.call_boxed(keys, *args, **kwargs)

    ran = Counter()

    def planted(*args, **kwargs):
        first = next((each for each in args if is_float(each)), None)
        if first is None or first.dtype not in dtypes:
            return call(*args, **kwargs)
        ran[kernel] += 1
        return function(call, *args, **kwargs)

    library.impl(kernel, planted, "CPU")
    return ran


def worker_of(path):
    from msprobe.pytorch.replay_worker import Worker

    options = {"device": 0, "dump": str(path), "seed": 7, "white_list": [], "black_list": []}
    options |= {
        "distinct": False,
        "rules": "",
        "precision": 14,
        "error_data": "",
        "roundings": True,
    }
    options |= {"jit_compile": False, "references": "", "within_one": []}
    return Worker(options)


class Kernels(TorchDispatchMode):
    """Notes the kernels that run while it is entered."""

    def __init__(self):
        super().__init__()
        self.names = set()

    @classmethod
    def _should_skip_dynamo(cls):
        return False

    def __torch_dispatch__(self, kernel, types, args=(), kwargs=None):
        packet, overload = str(kernel).split(".")[1:]  # aten.mean.dim
        self.names.add(packet if overload == "default" else f"{packet}.{overload}")
        return kernel(*args, **(kwargs or {}))


def kernels_of_calls(path):
    """[kernels] of each call of the dump."""
    torch.set_num_threads(1)
    worker, found = worker_of(path), []
    for index in range(len(worker.calls)):
        kernels = Kernels()
        worker.dump.call(index).run(torch.device("cpu"), None, around=lambda: kernels)  # noqa: B023
        found.append(kernels.names)
    return found


def blamed(worker, chosen=None, ran=None):
    """Of the chosen calls (else of all): by the standards, in roundings, causes."""
    standards, roundings, causes = [], [], Counter()
    for index, (name, skip) in enumerate(worker.calls):
        if skip or (chosen is not None and index not in chosen):
            continue
        before = sum(ran.values()) if ran is not None else -1
        answer = json.loads(worker.answer(index))
        if ran is not None and sum(ran.values()) == before:
            continue
        if {"error", "warning"} & set(answer[1:3]):
            standards.append(name)
        rows = [row for row in [*answer[4], *answer[5]] if row[ROUNDING] == "error"]
        if rows:
            roundings.append(name)
            causes.update(row[CAUSE] for row in rows)
    return standards, roundings, causes


SETS = {"named": NAMED, "more": MORE, "wrong": WRONG}


def judge(path, operators, name, kernels):
    """In a process of its own: a planted kernel stays."""
    torch.set_num_threads(1)
    library = torch.library.Library("aten", "IMPL")
    # The functions have no names by which they could be sent to this process.
    operator = SETS[operators][name]
    ran = plant(library, *operator)
    chosen = {index for index, names in enumerate(kernels) if operator[0] in names}
    standards, roundings, causes = blamed(worker_of(path), chosen, ran)
    return sum(ran.values()), len(standards), len(roundings), causes.most_common(1)


def forked(function, *args):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        return pool.apply(function, args)


def right_calls(path):
    torch.set_num_threads(1)
    worker = worker_of(path)
    return len(worker.calls), *blamed(worker)[:2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--task", choices=("tensor", "statistics"), default="tensor")
    parser.add_argument("--held-out", action="store_true", help="the third that is held out alone")
    parser.add_argument("--all", action="store_true", help="that third, too")
    parser.add_argument("--named", action="store_true", help="the kinds that have names")
    parser.add_argument("--more", action="store_true", help="other kinds, under another step")
    parser.add_argument("names", nargs="*", help="a part of an operator's name")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        step = planted_more_step if options.more else planted_step
        forked(step.record, folder, options.task)
        path = Path(folder) / "step0" / "rank"
        if not options.names:
            count, standards, roundings = forked(right_calls, path)
            print(f"right calls: {count}; blamed by the standards: {standards}")
            print(f"blamed in roundings: {roundings}")
        kernels = forked(kernels_of_calls, path)
        found = Counter()
        operators = "named" if options.named else "more" if options.more else "wrong"
        for name in SETS[operators]:
            chosen = options.all or options.named or is_held_out(name) == options.held_out
            if not chosen or (options.names and not any(part in name for part in options.names)):
                continue
            ran, standards, roundings, cause = forked(judge, path, operators, name, kernels)
            found["all"] += 1
            found["standards"] += standards > 0
            found["roundings"] += roundings > 0
            found["either"] += standards > 0 or roundings > 0
            print(
                f"{name:45} ran {ran:4}  standards {standards:3}  roundings {roundings:3}  {cause}"
            )
            sys.stdout.flush()
        print(f"{options.task}: {found}")


if __name__ == "__main__":
    main()
