"""What fused operators of torch_npu compute, from operations that every device has.

Each function has the arguments of the operator. `references.yaml` names the operator of each.
Source: the API reference of Ascend Extension for PyTorch.
"""

import importlib.util
import pathlib

import torch
from torch.nn import functional

from msprobe import _engine

_FAST_GELU = 1.702


def load(path=""):
    """``{"NPU.npu_swiglu": function}``: the functions below, and those of the table ``path``.

    Example::

        table = references.load("my_operators.yaml")
        table["NPU.npu_swiglu"](torch.rand(2, 4))

    Raises:
        RuntimeError: the table, or a function in it, is not there or is wrong.
    """
    tables = [pathlib.Path(__file__).with_name("references.yaml")]
    tables += [path] if path else []
    found, modules = {}, {}
    for table in tables:
        for api, (file, name) in _engine.read_references(str(table)).items():
            if file not in modules:
                modules[file] = _imported(file)
            if not callable(getattr(modules[file], name, None)):
                raise RuntimeError(f"{table}: expected a function {name} in {file}")
            found[api] = getattr(modules[file], name)
    return found


def _imported(file):
    specification = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def fast_gelu(input):
    """x * sigmoid(1.702 x)."""
    return input * torch.sigmoid(_FAST_GELU * input)


def mish(input):
    """x * tanh(softplus(x))."""
    return functional.mish(input)


def swiglu(input, dim=-1):
    """silu(a) * b, where a and b are the halves of the input."""
    gate, value = input.chunk(2, dim)
    return functional.silu(gate) * value


def linear(input, weight, bias=None):
    """input @ weight.T + bias."""
    return functional.linear(input, weight, bias)


def rms_norm(input, gamma, epsilon=1e-6):
    """Returns the normed input, and 1 / RMS."""
    dims = tuple(range(-gamma.dim(), 0))
    inverse = torch.rsqrt(input.square().mean(dims, keepdim=True) + epsilon)
    return input * inverse * gamma, inverse


def layer_norm_eval(input, normalized_shape, weight=None, bias=None, eps=1e-05):
    """layer_norm."""
    return functional.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm_silu(input, weight, bias, group, eps=1e-5):
    """Returns silu(group_norm(input)), and mean and 1 / deviation of the groups."""
    groups = input.reshape(input.shape[0], group, -1)
    mean = groups.mean(-1)
    inverse = torch.rsqrt(groups.var(-1, unbiased=False) + eps)
    normed = functional.group_norm(input, group, weight, bias, eps)
    return functional.silu(normed), mean, inverse


def rotary_mul(input, r1, r2, rotary_mode="half"):
    """x * r1 + rotated(x) * r2."""
    if rotary_mode == "interleave":
        even, odd = input[..., ::2], input[..., 1::2]
        rotated = torch.stack((-odd, even), dim=-1).flatten(-2)
    else:
        first, second = input.chunk(2, -1)
        rotated = torch.cat((-second, first), dim=-1)
    return input * r1 + rotated * r2


def scaled_masked_softmax(x, mask, scale=1.0, fixed_triu_mask=False):
    """softmax(x * scale), where the mask is True as if x were -10000."""
    if fixed_triu_mask:
        mask = torch.ones(x.shape[-2:], dtype=torch.bool, device=x.device).triu(1)
    return functional.softmax((x * scale).masked_fill(mask.bool(), -10000.0), dim=-1)


def confusion_transpose(input, perm, shape, transpose_first):
    """permute and reshape, or reshape and permute."""
    if transpose_first:
        return input.permute(*perm).contiguous().view(shape)
    return input.view(shape).permute(*perm)


def moe_gating_top_k_softmax(x, finished=None, k=1):
    """The k largest probabilities, their experts, and numbers that count down the columns."""
    values, experts = functional.softmax(x, dim=-1).topk(k, dim=-1)
    if finished is not None:
        experts = torch.where(finished.bool().unsqueeze(-1), x.shape[-1], experts)
    rows = x.shape[:-1].numel()
    places = torch.arange(rows * k, device=x.device).view(k, rows).t().reshape(experts.shape)
    return values, experts.int(), places.int()


def sort_v2(input, dim=-1, descending=False, out=None):
    """The sorted values, without their places."""
    return torch.sort(input, dim=dim, descending=descending).values


def fusion_attention(
    query,
    key,
    value,
    head_num,
    input_layout,
    pse=None,
    padding_mask=None,
    atten_mask=None,
    scale=1.0,
    keep_prob=1.0,
    pre_tockens=2147483647,
    next_tockens=2147483647,
    inner_precise=0,
    prefix=None,
    actual_seq_qlen=None,
    actual_seq_kvlen=None,
    sparse_mode=0,
    gen_mask_parallel=True,
    sync=False,
):
    """softmax(scale * q @ k.T + pse, masked) @ v: the first of the operator's results.

    ``input_layout``: BSH, SBH, BSND, BNSD, or TND with the ends of the sequences.
    """
    if keep_prob != 1.0:
        raise NotImplementedError("fusion_attention with dropout draws random numbers")
    masks = {
        "mask": atten_mask,
        "sparse_mode": sparse_mode,
        "window": (pre_tockens, next_tockens),
    }
    if input_layout == "TND":
        if pse is not None:
            raise NotImplementedError("fusion_attention with pse and layout TND")
        ends = zip(actual_seq_qlen, actual_seq_kvlen, strict=True)
        parts, begin, key_begin = [], 0, 0
        for end, key_end in ends:
            heads = [
                each[first:last].transpose(0, 1).unsqueeze(0)
                for each, first, last in (
                    (query, begin, end),
                    (key, key_begin, key_end),
                    (value, key_begin, key_end),
                )
            ]
            parts.append(_attention(*heads, None, scale, **masks).squeeze(0).transpose(0, 1))
            begin, key_begin = end, key_end
        return torch.cat(parts)
    heads = [_heads(each, query, head_num, input_layout) for each in (query, key, value)]
    return _as_layout(_attention(*heads, pse, scale, **masks), input_layout)


def _heads(tensor, query, head_num, layout):
    """Of any layout, as (batch, heads, sequence, size)."""
    if layout == "BNSD":
        return tensor
    if layout == "BSND":
        return tensor.transpose(1, 2)
    if layout not in ("BSH", "SBH"):
        raise NotImplementedError(f"fusion_attention with layout {layout}")
    size = query.shape[-1] // head_num
    batch_first = tensor if layout == "BSH" else tensor.transpose(0, 1)
    return batch_first.unflatten(-1, (-1, size)).transpose(1, 2)


def _as_layout(result, layout):
    if layout == "BNSD":
        return result
    result = result.transpose(1, 2)
    if layout == "BSND":
        return result
    result = result.flatten(2)
    return result if layout == "BSH" else result.transpose(0, 1)


def _attention(query, key, value, pse, scale, mask, sparse_mode, window):
    groups = query.shape[1] // key.shape[1]  # of grouped queries
    key, value = (each.repeat_interleave(groups, dim=1) for each in (key, value))
    scores = query @ key.transpose(-1, -2) * scale
    if pse is not None:
        scores = scores + pse
    hidden = _hidden(scores, mask, sparse_mode, window)
    if hidden is not None:
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    return functional.softmax(scores, dim=-1) @ value


def _hidden(scores, mask, sparse_mode, window):
    """Where a query does not see a key; None: it sees all."""
    rows, columns = scores.shape[-2:]
    before, after = window
    distance = _distance(rows, columns, scores.device, lower_right=sparse_mode in (3, 4))
    if sparse_mode in (2, 3):  # causal
        return distance > 0
    outside = (distance > after) | (distance < -before)
    if sparse_mode == 4:  # a band
        return outside
    if sparse_mode not in (0, 1):
        raise NotImplementedError(f"fusion_attention with sparse_mode {sparse_mode}")
    if mask is None:
        return None
    if mask.shape[-2:] != (rows, columns):
        raise NotImplementedError(f"fusion_attention with a mask of {tuple(mask.shape)}")
    return mask.bool() if sparse_mode == 1 else mask.bool() | outside


def _distance(rows, columns, device, lower_right):
    """How far each key is behind the query's own, from the upper left or lower right corner."""
    offset = columns - rows if lower_right else 0
    row = torch.arange(rows, device=device).unsqueeze(1)
    return torch.arange(columns, device=device).unsqueeze(0) - row - offset
