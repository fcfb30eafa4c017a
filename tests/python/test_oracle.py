"""compute_stats against NumPy in float64: every CPU dtype of torch, 200 random layouts each.

The C++ tests compare with our own scalar version; this oracle is independent. A tensor reaches the
engine in two ways: through DLPack, and, if a debugger exists, through torch's exchange table.
"""

import math
import random

import numpy as np
import pytest
import torch
from elements import DTYPES, FLOAT4, numbers, short
from recording import forked

from msprobe import _engine

LAYOUTS = 200
RELATIVE = 1e-12  # error of mean and norm; relative to the mean modulus if terms cancel

# Dtypes that are not numbers or do not exist on a CPU: quantized, raw bits, less than a byte.
OTHER = {"qint8", "qint32", "quint8", "quint4x2", "quint2x4"}
OTHER |= {"bcomplex32"}  # of PyTorch 2.15; a value of it has no numbers
OTHER |= {"bits8", "bits16", "bits1x8", "bits2x4", "bits4x2"}
OTHER |= {f"{sign}int{bits}" for sign in ("", "u") for bits in range(1, 8)}


def test_every_dtype_of_torch_is_here():
    known = {short(value) for value in vars(torch).values() if isinstance(value, torch.dtype)}
    assert known - OTHER == {short(dtype) for dtype in DTYPES}


def random_elements(dtype, count, dice, bits):
    """`count` contiguous elements: normally distributed numbers, or random bit patterns."""
    seed = dice.getrandbits(32)
    if dtype == torch.bool:
        return torch.from_numpy(np.random.default_rng(seed).integers(0, 2, count) == 1)
    if not bits and dtype.is_floating_point and dtype != FLOAT4:
        numbers = np.random.default_rng(seed).normal(size=count) * 10.0 ** dice.randint(-2, 2)
        return torch.from_numpy(numbers).to(dtype)
    width = torch.empty(0, dtype=dtype).element_size()
    raw = np.random.default_rng(seed).integers(0, 256, count * width, dtype=np.uint8)
    elements = torch.from_numpy(raw).view(dtype)
    if dtype in (torch.float64, torch.complex128):  # squares and sums have to stay finite
        reals = elements if dtype == torch.float64 else torch.view_as_real(elements)
        huge = (reals.abs() > 1e140) & torch.isfinite(reals)
        reals[huge] = 0.0
    return elements


def random_layout(dtype, dice):
    """A view of at most a few thousand elements in a larger storage."""
    shape = [dice.choice([0, 1, 1, 2, 3, 5, 8, 17]) for _ in range(dice.randint(0, 5))]
    if dice.random() < 0.85:
        shape = [max(1, extent) for extent in shape]
    while math.prod(shape) > 4000:
        shape.pop()
    offset = dice.randint(1, 3)
    storage = random_elements(dtype, math.prod(shape) + offset, dice, bits=dice.random() < 0.4)
    tensor = storage[offset:].view(shape)
    for _ in range(dice.randint(0, 4)):
        if tensor.dim() == 0:
            tensor = tensor.unsqueeze(0) if dice.random() < 0.5 else tensor
            continue
        axis = dice.randrange(tensor.dim())
        extent = tensor.shape[axis]
        change = dice.choice(["permute", "slice", "expand", "select", "flip", "overlap"])
        if change == "permute":
            tensor = tensor.permute(dice.sample(range(tensor.dim()), tensor.dim()))
        elif change == "slice" and extent > 1:
            start = dice.randrange(extent)
            tensor = tensor[(slice(None),) * axis + (slice(start, None, dice.randint(1, 3)),)]
        elif change == "expand":
            tensor = tensor.unsqueeze(axis).expand(
                *tensor.shape[:axis], dice.randint(1, 3), *tensor.shape[axis:]
            )
        elif change == "select" and extent > 0:
            tensor = tensor.select(axis, dice.randrange(extent))
        elif change == "overlap" and extent > 3:
            tensor = tensor.unfold(axis, 3, 1)
    return tensor


def close(found, expected, scale):
    """Whether both are the same infinity or NaN, or differ by at most RELATIVE * scale."""
    if not math.isfinite(expected):
        return found == expected or (math.isnan(found) and math.isnan(expected))
    return abs(found - expected) <= RELATIVE * scale


def check(tensor, what):
    """Compares the statistics of one tensor with the oracle."""
    found = _engine.compute_stats(tensor)
    exact = numbers(tensor)
    with np.errstate(invalid="ignore", over="ignore"):
        values = np.hypot(exact.real, exact.imag) if exact.dtype.kind == "c" else exact
        values = values.astype(np.float64)
        expected = {
            "count": values.size,
            "nan": int(np.isnan(values).sum()),
            "pos_inf": int(np.isposinf(values).sum()),
            "neg_inf": int(np.isneginf(values).sum()),
            "zero": int((values == 0).sum()),
        }
        assert {key: getattr(found, key) for key in expected} == expected, what
        if values.size == 0 or expected["nan"]:
            for key in ("max", "min", "mean", "norm"):
                assert math.isnan(getattr(found, key)), f"{what}: {key}"
            return
        if exact.dtype.kind in "iub":
            exact = [int(x) for x in exact]
            mask = (1 << 64) - 1 if short(tensor.dtype) == "uint64" else -1
            assert (found.int_max & mask, found.int_min & mask) == (max(exact), min(exact)), what
            mean, size = sum(exact) / len(exact), sum(map(abs, exact)) / len(exact)
            norm = math.sqrt(sum(x * x for x in exact))
        elif np.isfinite(values).all():
            mean, size = math.fsum(values) / values.size, math.fsum(abs(values)) / values.size
            norm = math.sqrt(math.fsum(values * values))
        else:
            mean, size, norm = values.sum(), 0.0, math.inf
    ulps = 1 if tensor.dtype.is_complex else 0  # libraries round hypot differently
    for key, bound in (("max", values.max()), ("min", values.min())):
        got = getattr(found, key)
        assert got == bound or abs(got - bound) <= ulps * np.spacing(bound), f"{what}: {key}"
    assert close(found.mean, mean, size), f"{what}: mean {found.mean}, expected {mean}"
    assert close(found.norm, norm, norm), f"{what}: norm {found.norm}, expected {norm}"


def check_layouts(dtype, folder=None):
    if folder is not None:
        from msprobe.pytorch import PrecisionDebugger

        PrecisionDebugger(dump_path=str(folder))
    dice = random.Random(short(dtype))
    seen = set()
    for number in range(LAYOUTS):
        tensor = random_layout(dtype, dice)
        check(tensor, f"{dtype} number {number}: {tuple(tensor.shape)} {tensor.stride()}")
        if tensor.numel() == 0:
            seen.add("empty")
        elif tensor.dim() == 0:
            seen.add("0-d")
        else:
            seen.add("contiguous" if tensor.is_contiguous() else "strided")
            seen.update(["expanded"] * (0 in tensor.stride()))
    return seen


@pytest.mark.parametrize("dtype", DTYPES, ids=short)
def test_through_dlpack(dtype):
    kinds = {"empty", "0-d", "contiguous", "strided", "expanded"}
    assert check_layouts(dtype) == kinds


@pytest.mark.parametrize("dtype", DTYPES, ids=short)
@forked
def test_through_the_exchange_table(dtype, tmp_path):
    assert check_layouts(dtype, tmp_path)


@pytest.mark.parametrize("kind", ["f8", "f4", "f2", "i1", "i8", "u2", "u8", "?", "c8", "c16"])
def test_numpy_arrays(kind):
    """Same results as for the tensor, also with strides that tensors cannot have."""
    array = (np.random.default_rng(5).normal(size=(7, 6, 5)) * 50).astype(kind)
    for view in (array, array[::-1], array.T, array[1:, ::-2, -1], array[:0], array[0, 0]):
        found, same = (_engine.compute_stats(a) for a in (view, torch.from_numpy(view.copy())))
        for key in ("count", "zero", "max", "min", "mean", "norm", "fingerprint"):
            pair = getattr(found, key), getattr(same, key)
            assert pair[0] == pair[1] or view.size == 0, key


LAZY = {
    "requires grad": lambda: torch.tensor([1.0, -2.0], requires_grad=True),
    "parameter": lambda: torch.nn.Parameter(torch.tensor([1.0, -2.0])),
    "conjugate": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negative": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "negative, real part of a view": lambda: torch.view_as_real(
        torch.tensor([1j]).conj().resolve_conj()
    ),
}


@pytest.mark.parametrize("way", ["dlpack", "exchange table"])
@pytest.mark.parametrize("case", LAZY)
@forked
def test_lazy_tensors(case, way, tmp_path):
    """Tensors with a conj or neg bit are read as if they were resolved."""
    if way == "exchange table":
        from msprobe.pytorch import PrecisionDebugger

        PrecisionDebugger(dump_path=str(tmp_path))
    tensor = LAZY[case]()
    check(tensor.detach().resolve_conj().resolve_neg(), case)
    found, plain = (
        _engine.compute_stats(t) for t in (tensor, tensor.detach().resolve_conj().resolve_neg())
    )
    for key in ("count", "zero", "max", "min", "mean", "norm", "fingerprint"):
        assert getattr(found, key) == getattr(plain, key), key


UNREADABLE = {
    "sparse": lambda: torch.eye(2).to_sparse(),
    "meta": lambda: torch.ones(2, device="meta"),
    "text": lambda: "x",
    "array of text": lambda: np.array(["x"]),
}


@pytest.mark.parametrize("case", UNREADABLE)
def test_what_is_no_array_is_a_type_error(case):
    with pytest.raises(TypeError, match="expected"):
        _engine.compute_stats(UNREADABLE[case]())
