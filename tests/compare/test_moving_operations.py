"""The results of operations that only move data contain only elements of their inputs.

Calls each operation of the classes "keeps" and "takes" of engine/compare/judge/operations.yaml in
PyTorch on random bits: every element of the result must be an element of an input, or the constant
that the call fills in.
"""

import re
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

SOURCE = Path(__file__).resolve().parents[2] / "engine/compare/judge/operations.yaml"
# Not called here: attributes, views of complex numbers, and classes of modules.
NOT_CALLED = {"alias", "data", "mT", "requires_grad"}
NOT_CALLED |= {"complex", "imag", "view_as_complex", "view_as_real"}


def listed(kind):
    row = re.search(rf"^  {kind}:\s*\[(.*?)\]", SOURCE.read_text(), re.DOTALL | re.MULTILINE)
    return [name.strip() for name in row[1].split(",")]


NAMES = [
    name
    for name in listed("keeps") + listed("takes")
    if name not in NOT_CALLED and not name[0].isupper()
]


def assigned(x, y):
    x = x.clone()
    x[INDEX] = y[:3]
    x[:, 1:3] = y[:, :2]
    return x


INDEX = torch.tensor([2, 0, 3])
# How to call each operation with x and y of shape [4, 4]. Operations not listed: x.name().
CALLS = {
    "as_strided": lambda x, y: x.as_strided((3, 2), (1, 4)),
    "as_strided_scatter": lambda x, y: x.as_strided_scatter(y[:3, :2], (3, 2), (1, 4)),
    "atleast_1d": lambda x, y: torch.atleast_1d(x),
    "atleast_2d": lambda x, y: torch.atleast_2d(x),
    "atleast_3d": lambda x, y: torch.atleast_3d(x),
    "block_diag": lambda x, y: torch.block_diag(x, y),
    "broadcast_tensors": lambda x, y: torch.broadcast_tensors(x[:1], y),
    "broadcast_to": lambda x, y: x[:1].broadcast_to(3, 4),
    "cat": lambda x, y: torch.cat([x, y], 1),
    "channel_shuffle": lambda x, y: F.channel_shuffle(x.reshape(1, 4, 2, 2), 2),
    "chunk": lambda x, y: x.chunk(3),
    "column_stack": lambda x, y: torch.column_stack([x, y]),
    "concat": lambda x, y: torch.concat([x, y]),
    "concatenate": lambda x, y: torch.concatenate([x, y]),
    "copy": lambda x, y: torch.zeros(4, 4, dtype=x.dtype).copy_(x),
    "diagonal_scatter": lambda x, y: x.diagonal_scatter(y[0]),
    "dsplit": lambda x, y: x.reshape(1, 4, 4).dsplit(2),
    "dstack": lambda x, y: torch.dstack([x, y]),
    "embedding": lambda x, y: F.embedding(INDEX, x),
    "expand": lambda x, y: x[:1].expand(5, 4),
    "expand_as": lambda x, y: x[:1].expand_as(y),
    "fftshift": lambda x, y: torch.fft.fftshift(x),
    "flip": lambda x, y: x.flip(0, 1),
    "gather": lambda x, y: x.gather(0, INDEX.expand(4, 3)),
    "getitem": lambda x, y: [x[INDEX], x[1:, ::2]],
    "hsplit": lambda x, y: x.hsplit(2),
    "hstack": lambda x, y: torch.hstack([x, y]),
    "ifftshift": lambda x, y: torch.fft.ifftshift(x, 1),
    "index_copy": lambda x, y: x.index_copy(0, INDEX, y[:3]),
    "index_fill": lambda x, y: x.index_fill(0, INDEX, 0),
    "index_put": lambda x, y: x.index_put((INDEX,), y[:3]),
    "index_select": lambda x, y: x.index_select(1, INDEX),
    "masked_fill": lambda x, y: x.masked_fill(x.isfinite(), 0),
    "masked_scatter": lambda x, y: x.masked_scatter(x.isfinite(), y),
    "masked_select": lambda x, y: x.masked_select(x.isfinite()),
    "meshgrid": lambda x, y: torch.meshgrid(x[0], y[0], indexing="ij"),
    "moveaxis": lambda x, y: x.moveaxis(0, 1),
    "movedim": lambda x, y: x.movedim(0, 1),
    "narrow": lambda x, y: x.narrow(0, 1, 2),
    "pad": lambda x, y: [F.pad(x, (1, 2)), F.pad(x[None], (1, 2), mode="reflect")],
    "permute": lambda x, y: x.permute(1, 0),
    "pixel_shuffle": lambda x, y: F.pixel_shuffle(x.reshape(1, 4, 2, 2), 2),
    "pixel_unshuffle": lambda x, y: F.pixel_unshuffle(x.reshape(1, 1, 4, 4), 2),
    "put": lambda x, y: x.put(INDEX, y[0, :3]),
    "repeat": lambda x, y: x.repeat(2, 3),
    "repeat_interleave": lambda x, y: x.repeat_interleave(3, 1),
    "reshape": lambda x, y: x.t().reshape(2, 8),
    "reshape_as": lambda x, y: x.reshape_as(y),
    "roll": lambda x, y: x.roll(3),
    "select": lambda x, y: x.select(0, 2),
    "select_scatter": lambda x, y: x.select_scatter(y[0], 0, 2),
    "setitem": lambda x, y: assigned(x, y),
    "slice_scatter": lambda x, y: x.slice_scatter(y[:2], 0, 1, 3),
    "split": lambda x, y: x.split(3),
    "split_with_sizes": lambda x, y: x.split_with_sizes([1, 3]),
    "stack": lambda x, y: torch.stack([x, y]),
    "swapaxes": lambda x, y: x.swapaxes(0, 1),
    "swapdims": lambda x, y: x.swapdims(0, 1),
    "take": lambda x, y: x.take(INDEX),
    "take_along_dim": lambda x, y: x.take_along_dim(INDEX.expand(4, 3), 1),
    "tensor_split": lambda x, y: x.tensor_split(3),
    "tile": lambda x, y: x.tile(2, 2),
    "topk": lambda x, y: x.topk(2).values,
    "transpose": lambda x, y: x.transpose(0, 1),
    "unflatten": lambda x, y: x.unflatten(1, (2, 2)),
    "unfold": lambda x, y: [x.unfold(0, 2, 1), F.unfold(x.reshape(1, 1, 4, 4), 2)],
    "unsqueeze": lambda x, y: x.unsqueeze(0),
    "view": lambda x, y: x.view(16),
    "view_as": lambda x, y: x.view_as(y),
    "vsplit": lambda x, y: x.vsplit(2),
    "vstack": lambda x, y: torch.vstack([x, y]),
    "where": lambda x, y: torch.where(x > y, x, y),
}
WIDTHS = {torch.float32: torch.int32, torch.bfloat16: torch.int16, torch.float64: torch.int64}


def bits(value):
    if isinstance(value, torch.Tensor):
        return set(value.contiguous().view(WIDTHS[value.dtype]).flatten().tolist())
    return set().union(*map(bits, value))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", WIDTHS, ids=str)
def test_every_element_is_one_of_an_input(name, dtype):
    call = CALLS.get(name) or (lambda x, y: getattr(torch, name, getattr(x, name))(x))
    if name in ("clone", "contiguous", "detach", "ravel"):
        call = lambda x, y: getattr(x, name)()  # noqa: E731
    torch.manual_seed(len(name))
    x, y = torch.randn(2, 4, 4, dtype=torch.float64).mul(1e3).to(dtype)
    constant = {0}  # fills padding, masks and tril
    assert bits(call(x, y)) <= bits(x) | bits(y) | constant


def test_every_call_of_this_file_is_in_the_table():
    assert set(CALLS) - set(NAMES) == set()
