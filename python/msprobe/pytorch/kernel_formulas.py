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


def soft_margin_loss(x, target, reduction=1):
    return _reduced(torch.log1p(torch.exp(-target * x)), reduction)


def soft_margin_loss_backward(gradient, x, target, reduction):
    z = torch.exp(-target * x)
    return target * z * (-1.0 / x.numel() if reduction == 1 else -1.0) / (z + 1) * gradient


def _reduced(loss, reduction):
    """By the number of "none", "mean" and "sum" in a kernel's schema."""
    return loss if reduction == 0 else loss.mean() if reduction == 1 else loss.sum()


# A kernel -> its formula, and whether its steps are in the dtype of the result: else in float32.
_FORMULAS = {
    "aten::gelu": (gelu, False),
    "aten::gelu_backward": (gelu_backward, False),
    "aten::glu_backward": (glu_backward, True),
    "aten::erf": (erf, False),
    "aten::_log_softmax": (log_softmax, True),
    "aten::binary_cross_entropy_with_logits": (binary_cross_entropy_with_logits, True),
    "aten::soft_margin_loss": (soft_margin_loss, True),
    "aten::soft_margin_loss_backward": (soft_margin_loss_backward, True),
    "aten::_softmax_backward_data": (softmax_backward, False),
    "aten::mse_loss_backward": (mse_loss_backward, True),
}


def formula_of(kernel):
    """``(function, whether its steps are in the dtype of the result)`` of a kernel, or None."""
    schema = kernel._schema  # noqa: SLF001  it has no public name
    return _FORMULAS.get(schema.name) if schema.overload_name == "" else None
