"""The formulas by which kernels compute where a step of the formula cancels, or is rounded.

The rounding of such a step is larger than that of the result: far to the left, gelu(x) is the
difference of 1 and a number near it. A loss that PyTorch composes of other kernels is rounded to
its dtype after each of them. `roundings.py` executes the formula in place of the kernel, so that
each of its steps rounds.
"""

import math

import torch
import torch.nn.functional as F

_ROOT = math.sqrt(0.5)
_TANH = math.sqrt(2 / math.pi)
_CUBE = 0.044715


def gelu(x, approximate="none"):
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(_TANH * (x + _CUBE * x * x * x)))
    return x * 0.5 * (1 + torch.erf(x * _ROOT))


def gelu_backward(gradient, x, approximate="none"):
    if approximate == "tanh":
        tanh = torch.tanh(_TANH * (x + _CUBE * x * x * x))
        inner = _TANH * (1 + 3 * _CUBE * x * x)
        return gradient * (0.5 * (1 + tanh) + 0.5 * x * (1 - tanh * tanh) * inner)
    density = torch.exp(x * x * -0.5) * (_TANH / 2)
    return gradient * (0.5 * (1 + torch.erf(x * _ROOT)) + x * density)


def glu_backward(gradient, x, dim):
    value, gate = x.chunk(2, dim)
    gate = torch.sigmoid(gate)
    return torch.cat([gradient * gate, gradient * value * gate * (1 - gate)], dim)


def erf(x):
    return 1 - torch.erfc(x)


def log_softmax(x, dim, half_to_float):
    shifted = x - x.amax(dim, True)
    return shifted - torch.log(torch.exp(shifted).sum(dim, True))


def softmax_backward(gradient, probabilities, dim, input_dtype):
    return (gradient - (gradient * probabilities).sum(dim, True)) * probabilities


def mse_loss_backward(gradient, x, target, reduction):
    mean = reduction == 1 and x.numel() > 0
    return gradient * ((2.0 / x.numel() if mean else 2.0) * (x - target))


def binary_cross_entropy_with_logits(x, target, weight=None, pos_weight=None, reduction=1):
    logs = F.logsigmoid(x)
    if pos_weight is not None:
        logs = logs * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * x - logs
    return _reduced(loss if weight is None else loss * weight, reduction)


def binary_cross_entropy(x, target, weight=None, reduction=1):
    """A target of 1 that has moved is above 1, which the kernel would refuse."""
    logs = torch.log(x).clamp(min=-100), torch.log1p(-x).clamp(min=-100)
    loss = (target - 1) * logs[1] - target * logs[0]
    return _reduced(loss if weight is None else loss * weight, reduction)


def soft_margin_loss(x, target, reduction=1):
    return _reduced(torch.log1p(torch.exp(-target * x)), reduction)


def soft_margin_loss_backward(gradient, x, target, reduction):
    z = torch.exp(-target * x)
    return target * z * (-1.0 / x.numel() if reduction == 1 else -1.0) / (z + 1) * gradient


def sigmoid_backward(gradient, y):
    return gradient * (1 - y) * y


def shrink_backward(gradient, x, limit):
    """The limit is rounded, and a number at it is on one side or on the other."""
    return torch.where((x >= -limit) & (x <= limit), torch.zeros_like(x), gradient)


def hardtanh_backward(gradient, x, low, high):
    return torch.where((x <= low) | (x >= high), torch.zeros_like(x), gradient)


def threshold_backward(gradient, x, limit):
    return torch.where(x <= limit, torch.zeros_like(x), gradient)


def softmax(x, dim, half_to_float):
    powers = torch.exp(x - x.amax(dim, True))
    return powers / powers.sum(dim, True)


def _softmax_across(x, dim, half_to_float):
    """Along another dimension than the last, kernels keep the powers in the tensor's dtype."""
    return x.dim() > 1 and dim % x.dim() != x.dim() - 1


def cross(x, y, *, dim=-1):
    a, b, c = x.unbind(dim)
    d, e, f = y.unbind(dim)
    return torch.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim)


def addmv(bias, matrix, vector, *, beta=1, alpha=1):
    return bias * beta + torch.mv(matrix, vector) * alpha


def addmm(bias, a, b, *, beta=1, alpha=1):
    return bias * beta + torch.mm(a, b) * alpha


def _is_scaled(*args, beta=1, alpha=1):
    return beta != 1 or alpha != 1


def addbmm(bias, a, b, *, beta=1, alpha=1):
    total = bias * beta
    for one, other in zip(a, b, strict=True):
        total = total + torch.mm(one, other) * alpha
    return total


def addr(bias, a, b, *, beta=1, alpha=1):
    return bias * beta + torch.outer(a, b) * alpha


def rsqrt(x):
    return 1 / torch.sqrt(x)


def xlogy(x, y):
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(y), x * torch.log(y))


def xlog1py(x, y):
    return torch.where((x == 0) & ~y.isnan(), torch.zeros_like(y), x * torch.log1p(y))


def entr(x):
    made = torch.where(x > 0, -x * torch.log(x), torch.zeros_like(x))
    return torch.where(x < 0, torch.full_like(x, -math.inf), made)


def ldexp(x, power):
    return x * torch.pow(torch.full_like(x, 2.0), power)


def logit(x, eps=None):
    x = x if eps is None else x.clamp(eps, 1 - eps)
    return torch.log(x / (1 - x))


def logit_backward(gradient, x, eps=None):
    slope = gradient / (x * (1 - x))
    low = 0.0 if eps is None else eps
    outside = torch.zeros_like(x) if eps is not None else torch.full_like(x, math.nan)
    return torch.where((x < low) | (x > 1 - low), outside, slope)


def divided(x, y, *, rounding_mode):
    """A quotient that is rounded to the dtype may reach the next whole number."""
    quotient = x / y * 1.0  # two roundings: one is at most half a unit, and moves by 0.29
    if rounding_mode is None:
        return quotient
    return torch.floor(quotient) if rounding_mode == "floor" else torch.trunc(quotient)


def sampled(kernel, before):
    """grid_sample computes a place as grid + 1, times half the size, less a half: each rounds, at
    most by half a unit, while a step moves by 0.29.
    """

    def sample(*args):
        at = before
        grid = (args[at] + 1) * 1.0 * 1.0 * 1.0 * 1.0 - 1
        return kernel(*args[:at], grid, *args[at + 1 :])

    return sample


def _reduced(loss, reduction):
    """By the number of "none", "mean" and "sum" in a kernel's schema."""
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


# A kernel -> its formula, and whether its steps are in the dtype of the result: else in float32. A
# dtype: they are in that one only.
_FORMULAS = {
    "aten::gelu": (gelu, False),
    "aten::gelu_backward": (gelu_backward, False),
    "aten::glu_backward": (glu_backward, True),
    "aten::erf": (erf, False),
    "aten::_log_softmax": (log_softmax, True),
    "aten::binary_cross_entropy_with_logits": (binary_cross_entropy_with_logits, True),
    "aten::binary_cross_entropy": (binary_cross_entropy, True),
    "aten::soft_margin_loss": (soft_margin_loss, True),
    "aten::soft_margin_loss_backward": (soft_margin_loss_backward, True),
    "aten::_softmax_backward_data": (softmax_backward, False),
    "aten::mse_loss_backward": (mse_loss_backward, True),
    "aten::addbmm": (addbmm, True),
    "aten::addmv": (addmv, True),
    "aten::addr": (addr, True),
    "aten::div.Tensor_mode": (divided, True),
    "aten::hardshrink_backward": (shrink_backward, True),
    "aten::hardtanh_backward": (hardtanh_backward, True),
    "aten::sigmoid_backward": (sigmoid_backward, "float16"),
    "aten::softshrink_backward": (shrink_backward, True),
    "aten::threshold_backward": (threshold_backward, True),
    "aten::grid_sampler_2d": (sampled(torch.ops.aten.grid_sampler_2d, 1), True),
    "aten::grid_sampler_2d_backward": (sampled(torch.ops.aten.grid_sampler_2d_backward, 2), True),
    "aten::grid_sampler_3d": (sampled(torch.ops.aten.grid_sampler_3d, 1), True),
    "aten::grid_sampler_3d_backward": (sampled(torch.ops.aten.grid_sampler_3d_backward, 2), True),
    "aten::ldexp.Tensor": (ldexp, True),
    "aten::linalg_cross": (cross, True),
    "aten::logit": (logit, True),
    "aten::logit_backward": (logit_backward, True),
    "aten::rsqrt": (rsqrt, True),
    "aten::special_entr": (entr, True),
    "aten::special_xlog1py": (xlog1py, True),
    "aten::xlogy.Tensor": (xlogy, True),
}
# Formulas that hold for some arguments: with what says for which.
_SOMETIMES = {
    "aten::_softmax": (softmax, True, _softmax_across),
    "aten::addmm": (addmm, True, _is_scaled),
}


def formula_of(kernel, args, kwargs):
    """``(function, in which dtype its steps are, as above)`` of a kernel, or None."""
    schema = kernel._schema  # noqa: SLF001  it has no public name
    name = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
    if name in _SOMETIMES:
        function, in_dtype, holds = _SOMETIMES[name]
        return (function, in_dtype) if holds(*args, **kwargs) else None
    return _FORMULAS.get(name)
