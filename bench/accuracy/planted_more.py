"""Wrong operators of other kinds; `planted.py --more` plants them under planted_more_step.py.

Selections, pooling, resampling, losses, attention, rare functions, linear algebra, gradients.
"""

import math

import torch
import torch.nn.functional as F
from planted_named import cut_bits, low_sum

SINGLE, HALVES = (torch.float32,), (torch.bfloat16, torch.float16)
ALL = SINGLE + HALVES
aten = torch.ops.aten
MORE = {}  # name -> (kernel, dtypes, function of the right kernel and the arguments)


def more(name, kernel, dtypes):
    def add(function):
        MORE[name] = kernel, dtypes, function
        return function

    return add


def wide(value):
    is_float = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if is_float else value


def in_double(right, *args):
    """The right results, in float64."""
    return right(*[wide(each) for each in args])


def like(value, tensor):
    return value.to(tensor.dtype)


# --- resampling and pooling ---
@more("bicubic, clamped to the image", "upsample_bicubic2d", ALL)
def _(right, x, size, align, h=None, w=None):
    y = in_double(right, x, size, align, h, w)
    return like(y.clamp(float(x.min()) * 0.7, float(x.max()) * 0.7), x)


@more("nearest, of the next pixel", "upsample_nearest2d", ALL)
def _(right, x, size, h=None, w=None):
    return right(x, size, h, w).roll(1, -1)


@more("adaptive pool, windows end too early", "_adaptive_avg_pool2d", ALL)
def _(right, x, size):
    rows, columns = x.shape[-2:]
    y = wide(x)
    parts = [
        y[..., i * rows // size[0] : (i + 1) * rows // size[0], :].mean(-2) for i in range(size[0])
    ]
    y = torch.stack(parts, -2)
    parts = [
        y[..., j * columns // size[1] : (j + 1) * columns // size[1]].mean(-1)
        for j in range(size[1])
    ]
    return like(torch.stack(parts, -1), x)


@more("average pool, padding not counted", "avg_pool2d", ALL)
def _(right, x, kernel, stride, padding, ceil=False, counts=True, divisor=None):
    return like(right(wide(x), kernel, stride, padding, ceil, not counts, divisor), x)


@more("max pool backward, places seen once", "max_pool2d_with_indices_backward", ALL)
def _(right, gradient, x, *args):
    y = in_double(right, gradient, x, *args)
    places = args[-1].flatten(2)
    once = torch.zeros_like(y).flatten(2).scatter(2, places, wide(gradient).flatten(2))
    return like(once.view_as(y), x)


@more("grid sample, corners aligned", "grid_sampler_2d", ALL)
def _(right, x, grid, mode, padding, align):
    return like(right(wide(x), wide(grid), mode, padding, not align), x)


@more("reflection that repeats the edge", "reflection_pad1d", ALL)
def _(right, x, padding):
    return F.pad(wide(x), padding, mode="replicate").to(x.dtype)


# --- selections and scatters ---
@more("scatter_add without duplicates", "scatter_add", ALL)
def _(right, x, dim, index, source):
    return torch.scatter(x, dim, index, source)


@more("index_select, last row of another", "index_select", ALL)
def _(right, x, dim, index):
    y = right(x, dim, index).clone()
    y[-1] = y[0]
    return y


@more("embedding bag divides by n + 1", "_embedding_bag", ALL)
def _(right, weight, ids, offsets, *rest):
    found = right(weight, ids, offsets, *rest)
    n = ids.numel() / offsets.numel()
    return like(wide(found[0]) * n / (n + 1), weight), *found[1:]


@more("kthvalue, the next one", "kthvalue", ALL)
def _(right, x, k, dim=-1, keepdim=False):
    return right(x, k + 1, dim, keepdim)


# --- reductions ---
@more("cumprod, last factor left out", "cumprod", ALL)
def _(right, x, dim, *, dtype=None):
    y = wide(x).cumprod(dim)
    last = x.shape[dim] - 1
    y.select(dim, last).copy_(y.select(dim, last - 1))
    return like(y, x)


@more("product in half precision, of bfloat16", "prod.dim_int", HALVES)
def _(right, x, dim, keepdim=False, *, dtype=None):
    total = torch.ones_like(x.select(dim, 0))
    for part in x.movedim(dim, 0):
        total = (total.bfloat16() * part.bfloat16()).to(x.dtype)
    return cut_bits(total, 17).to(x.dtype)


@more("std of the population", "std.correction", ALL)
def _(right, x, dim=None, *, correction=None, keepdim=False):
    return like(wide(x).std(dim, correction=0, keepdim=keepdim), x)


@more("amax without the last row", "amax", ALL)
def _(right, x, dim=(), keepdim=False):
    axis = dim[0] if len(dim) else 0
    return right(x.narrow(axis, 0, max(1, x.shape[axis] // 2)), dim, keepdim)


@more("norm of order 3 as of order 2.99", "linalg_vector_norm", ALL)
def _(right, x, order=2, dim=None, keepdim=False, *, dtype=None):
    order = 2.99 if order == 3 else order
    return like(torch.linalg.vector_norm(wide(x), order, dim, keepdim), x)


@more("logcumsumexp of a shift in half precision", "logcumsumexp", ALL)
def _(right, x, dim):
    return like(torch.log(torch.exp(wide(x)).cumsum(dim) * (1 + 2**-6)), x)


# --- losses ---
@more("binary cross entropy with eps 1e-3", "binary_cross_entropy", ALL)
def _(right, x, target, weight=None, reduction=1):
    p, t = wide(x), wide(target)
    y = -(t * torch.log(p + 1e-3) + (1 - t) * torch.log(1 - p + 1e-3))
    return like(y.mean() * 1.01 if reduction == 1 else y, x)


@more("smooth l1 without the half", "smooth_l1_loss", ALL)
def _(right, x, target, reduction=1, beta=1.0):
    y = (wide(x) - wide(target)).abs()
    y = torch.where(y < beta, y * y / beta, y - 0.5 * beta)
    return like(y.mean() if reduction == 1 else y, x)


@more("huber backward with another delta", "huber_loss_backward", ALL)
def _(right, gradient, x, target, reduction, delta):
    return like(right(wide(gradient), wide(x), wide(target), reduction, delta * 1.05), x)


@more("nll loss without its weights", "nll_loss_forward", ALL)
def _(right, x, target, weight, reduction, ignore):
    found = right(wide(x), target, None, reduction, ignore)
    return tuple(like(each, x) for each in found)


# --- attention ---
def attend(q, k, v, causal, mask, scale, keys=None, probabilities=lambda each: each):
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None:
        scores = scores + mask
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(causal).bool(), -math.inf)
    if keys is not None:
        scores[..., keys:] = -math.inf
    weights = torch.softmax(scores, -1)
    return probabilities(weights) @ v


def attention(change):
    def run(right, q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
        args = [wide(each) for each in (q, k, v)]
        y = attend(*args, int(causal), attn_mask, scale, **change(q, k))
        found = right(q, k, v, dropout, causal, attn_mask=attn_mask, scale=scale)
        return like(y, q), found[1]

    return run


FLASH = "_scaled_dot_product_flash_attention_for_cpu"
more("attention without its last key", FLASH, ALL)(
    attention(lambda q, k: {"keys": k.shape[-2] - 1})
)
more("attention, weights in bfloat16", FLASH, SINGLE)(
    attention(lambda q, k: {"probabilities": lambda each: each.bfloat16().double()})
)


@more("attention, the mask added twice", FLASH, ALL)
def _(right, q, k, v, dropout=0.0, causal=False, *, attn_mask=None, scale=None):
    mask = None if attn_mask is None else wide(attn_mask) * 2
    args = [wide(each) for each in (q, k, v)]
    y = attend(*args, 2 if causal else 0, mask, scale)
    return like(y, q), right(q, k, v, dropout, causal, attn_mask=attn_mask, scale=scale)[1]


@more("attention backward without the row sums", FLASH + "_backward", ALL)
def _(right, gradient, q, k, v, out, logs, dropout, causal, *, attn_mask=None, scale=None):
    found = right(
        *[wide(each) for each in (gradient, q, k, v)],
        wide(out) * 0,
        wide(logs),
        dropout,
        causal,
        attn_mask=None if attn_mask is None else wide(attn_mask),
        scale=scale,
    )
    return tuple(like(each, q) for each in found)


# --- functions by another formula ---
@more("selu of rounded constants", "elu", ALL)
def _(right, x, alpha=1, scale=1, input_scale=1):
    return like(right(wide(x), round(alpha, 2), round(scale, 2), input_scale), x)


@more("hard sigmoid of Keras", "hardsigmoid", ALL)
def _(right, x):
    return like((wide(x) * 0.2 + 0.5).clamp(0, 1), x)


@more("prelu of the channel before", "_prelu_kernel", ALL)
def _(right, x, weight):
    return right(x, weight.roll(1, 1))


@more("log sigmoid as the log of a sigmoid", "log_sigmoid_forward", ALL)
def _(right, x):
    return torch.log(like(torch.sigmoid(wide(x)), x)), right(x)[1]


@more("atan2 of float16", "atan2", SINGLE)
def _(right, x, y):
    return like(torch.atan2(x.half().double(), y.half().double()), x)


@more("exp2 with a short constant", "exp2", ALL)
def _(right, x):
    return like(torch.exp(wide(x) * 0.68), x)


@more("log10 with four digits", "log10", SINGLE)
def _(right, x):
    return like(torch.log(wide(x)) * 0.4343, x)


@more("erfc as 1 - erf", "erfc", ALL)
def _(right, x):
    return 1 - like(torch.erf(wide(x)), x)


@more("asinh that cancels", "asinh", ALL)
def _(right, x):
    return torch.log(x + torch.sqrt(x * x + 1))


@more("lgamma of Stirling", "lgamma", ALL)
def _(right, x):
    y = wide(x) + 2
    s = (y - 0.5) * torch.log(y) - y + 0.5 * math.log(2 * math.pi) + 1 / (12 * y)
    return like(s - torch.log(wide(x)) - torch.log(wide(x) + 1), x)


@more("expm1 as exp - 1", "expm1", ALL)
def _(right, x):
    return torch.exp(x) - 1


@more("log1p as log(1 + x)", "log1p", ALL)
def _(right, x):
    return torch.log(1 + x)


@more("atan by a rational function", "atan", ALL)
def _(right, x):
    y = wide(x)
    return like(y * (1 + y * y * 0.28) / (1 + y * y * 0.61), x)


@more("logaddexp as the larger one", "logaddexp", ALL)
def _(right, x, y):
    return torch.where((x - y).abs() > 2, torch.maximum(x, y), like(right(wide(x), wide(y)), x))


@more("cosh of a short series", "cosh", SINGLE)
def _(right, x):
    y = wide(x)
    return like(1 + y**2 / 2 + y**4 / 24 + y**6 / 720, x)


@more("fold that does not add the overlap", "col2im", ALL)
def _(right, x, *args):
    y = in_double(right, x, *args)
    y[..., 1:-1, 1:-1] *= 1 - 2**-5
    return like(y, x)


@more("digamma of a short series", "digamma", SINGLE)
def _(right, x):
    y = wide(x) + 3
    s = torch.log(y) - 0.5 / y - 1 / (12 * y * y)
    return like(s - 1 / wide(x) - 1 / (wide(x) + 1) - 1 / (wide(x) + 2), x)


# --- products, linear algebra ---
@more("baddbmm without beta", "baddbmm", ALL)
def _(right, x, a, b, *, beta=1, alpha=1):
    return like(wide(x) + alpha * (wide(a) @ wide(b)), x)


@more("conv3d without its last channel", "convolution", ALL)
def _(right, x, w, b, *rest):
    if x.dim() == 5:
        x, w = x.clone(), w.clone()
        w[:, -1, -1] = 0
    y = in_double(right, x, w, b, *rest)
    return like(y, x)


@more("inverse of bfloat16", "linalg_inv_ex", SINGLE)
def _(right, x, *, check_errors=False):
    found = right(x.bfloat16().double(), check_errors=check_errors)
    return like(found[0], x), found[1]


@more("cross product with a wrong sign", "linalg_cross", ALL)
def _(right, x, y, *, dim=-1):
    z = wide(right(x, y, dim=dim))
    z.select(dim, 1).neg_()
    return like(z, x)


# --- gradients of norms ---
@more("layer norm backward, mean not removed", "native_layer_norm_backward", ALL)
def _(right, gradient, x, shape, mean, scale, weight, bias, mask):
    found = in_double(right, gradient, x, shape, mean, scale, weight, bias, mask)
    y = wide(gradient) * wide(weight)
    moved = found[0] + y.mean(-1, True) * wide(scale)
    return like(moved, x), *(None if each is None else like(each, x) for each in found[1:])


@more("group norm backward, weight of one group less", "native_group_norm_backward", ALL)
def _(right, gradient, x, mean, scale, weight, n, c, hw, group, mask):
    found = in_double(right, gradient, x, mean, scale, weight, n, c, hw, group, mask)
    found[1][-1] = 0
    return tuple(like(each, x) for each in found)


@more("log softmax backward, sum in half precision", "_log_softmax_backward_data", HALVES)
def _(right, gradient, y, dim, dtype):
    total = low_sum(gradient, dim, True) * (1 + 2**-5)
    return gradient - torch.exp(y) * total
