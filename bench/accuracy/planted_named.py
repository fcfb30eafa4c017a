"""Wrong operators of the kinds that the standards of the older tools cannot see.

`planted.py --named` plants them under the same step; tests/python/test_planted_operators.py plants
them under a small one. The limits of the verdict in roundings were not set with them.
"""

import torch
import torch.nn.functional as F

SINGLE, HALVES, BFLOAT = (torch.float32,), (torch.bfloat16, torch.float16), (torch.bfloat16,)
aten = torch.ops.aten
NAMED = {}  # name -> (kernel, dtypes, function of the right kernel and the arguments)


def named(name, kernel, dtypes):
    def add(function):
        NAMED[name] = kernel, dtypes, function
        return function

    return add


def low_sum(x, dim, keepdim=False):
    """Adds term by term in the dtype of x."""
    moved = x.movedim(dim, 0)
    total = torch.zeros_like(moved[0])
    for part in moved:
        total = total + part
    return total.unsqueeze(dim) if keepdim else total


def cut_bits(x, bits):
    """x with its last `bits` bits of a float32 gone."""
    return (x.float().view(torch.int32) >> bits << bits).view(torch.float32)


@named("gelu by tanh, forward", "gelu", SINGLE)
def _(right, x, *, approximate="none"):
    return aten.gelu(x.double(), approximate="tanh").to(x.dtype)


@named("gelu by tanh, backward", "gelu_backward", SINGLE)
def _(right, gradient, x, *, approximate="none"):
    return aten.gelu_backward(gradient.double(), x.double(), approximate="tanh").to(x.dtype)


@named("one wrong element of many", "neg", SINGLE + HALVES)
def _(right, x):
    y = -x.double()
    y.view(-1)[y.numel() // 3] *= 1.03
    return y.to(x.dtype)


@named("rsqrt of an estimate, one Newton step", "rsqrt", SINGLE)
def _(right, x):
    y = x.double()
    guess = 1.01 / torch.sqrt(y)
    return (guess * (1.5 - 0.5 * y * guess * guess)).to(x.dtype)


@named("products of inputs cut to ten bits", "mm", SINGLE)
def _(right, a, b):
    return (cut_bits(a, 13).double() @ cut_bits(b, 13).double()).to(a.dtype)


@named("layer norm with eps 1e-3", "native_layer_norm", SINGLE)
def _(right, x, shape, weight, bias, eps):
    wide = [each if each is None else each.double() for each in (x, weight, bias)]
    return tuple(y.to(x.dtype) for y in right(wide[0], shape, *wide[1:], 1e-3))


@named("products truncated to bfloat16", "mul.Tensor", BFLOAT)
def _(right, a, b):
    return cut_bits((a.double() * b.double()).float(), 16).bfloat16()


@named("sum in half precision", "sum.dim_IntList", HALVES)
def _(right, x, dim=None, keepdim=False, *, dtype=None):
    if not dim or len(dim) != 1:
        return x.double().sum(dim, keepdim).to(x.dtype)
    return low_sum(x, dim[0], keepdim)


@named("softmax in half precision", "_softmax", HALVES)
def _(right, x, dim, half_to_float):
    powers = torch.exp(x - x.amax(dim, True))
    return powers / low_sum(powers, dim, True)


@named("layer norm in half precision", "native_layer_norm", HALVES)
def _(right, x, shape, weight, bias, eps):
    mean = low_sum(x, -1, True) / x.shape[-1]
    centred = x - mean
    scale = torch.rsqrt(low_sum(centred * centred, -1, True) / x.shape[-1] + eps)
    y = centred * scale
    y = y if weight is None else y * weight
    return y if bias is None else y + bias, mean, scale


@named("silu in half precision", "silu", HALVES)
def _(right, x):
    return x / (1 + torch.exp(-x))


@named("convolution in half precision", "convolution", HALVES)
def _(right, x, w, b, stride, padding, dilation, transposed, out, groups):
    if x.dim() != 4 or transposed or groups != 1:
        wide = [each if each is None else each.double() for each in (x, w, b)]
        return right(*wide, stride, padding, dilation, transposed, out, groups).to(x.dtype)
    columns = F.unfold(x.double(), w.shape[2:], dilation, padding, stride).to(x.dtype)
    terms = columns.unsqueeze(1) * w.flatten(1)[None, :, :, None]
    high = (x.shape[2] + 2 * padding[0] - dilation[0] * (w.shape[2] - 1) - 1) // stride[0] + 1
    y = low_sum(terms, 2).unflatten(-1, (high, -1))
    return y if b is None else y + b.view(1, -1, 1, 1)


@named("sum without its last term", "sum.dim_IntList", SINGLE)
def _(right, x, dim=None, keepdim=False, *, dtype=None):
    if not dim or len(dim) != 1:
        return x.double().sum(dim, keepdim).to(x.dtype)
    kept = x.double().narrow(dim[0], 0, max(1, x.shape[dim[0]] - 1))
    return kept.sum(dim, keepdim).to(x.dtype)
