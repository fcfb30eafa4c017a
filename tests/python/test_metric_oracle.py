"""Every number in a tensor's row of the table against NumPy in float64: real files, the real
command, all pairs of dtypes, unusual values and layouts.

The C++ tests compare with our own scalar version; this oracle shares no code with it.
"""

import csv
import math
import subprocess

import numpy as np
import pytest
import torch
from elements import DTYPES, FLOAT4, FLOAT8_E8M0, numbers, short

NAN, INF = math.nan, math.inf
NOT_NUMPY = {d for d in DTYPES if "float8" in str(d) or "float4" in str(d)}
NOT_NUMPY |= {torch.bfloat16, torch.complex32}
RELATIVE = 1e-12
METRICS = ["Cosine", "EucDist", "MaxAbsErr", "MaxRelativeErr"]
METRICS += ["One Thousandth Err Ratio", "Five Thousandths Err Ratio"]
OURS = ["RMSE", "MAPE", "Relative L2", "Max ULP", "Matched Non-finite", "Mismatched Non-finite"]
OURS += ["First Position", "Worst Position", "NPU at Worst", "Bench at Worst"]
OURS += [f"{side} {kind}" for side in ("NPU", "Bench") for kind in ("NaN", "+Inf", "-Inf")]
# Columns of the older tools are rounded, Cosine near 1 even more.
DECIMALS = dict.fromkeys(METRICS, 12) | {"EucDist": 400}
SQUARES = 1e130  # limit of float64 elements: beyond it sums of squares overflow or underflow
OUT_OF_RANGE = {
    "beyond-squares": {"Cosine": "Nan", "EucDist": INF, "RMSE": INF, "Relative L2": "N/A"},
    "below-squares": {
        "Cosine": "Nan",
        "EucDist": 2e-200,
        "RMSE": 2e-200 / math.sqrt(2),
        "Relative L2": "N/A",
    },
}


def made(dtype, count, seed):
    """Normally distributed numbers, some of them zero; equal for equal seeds."""
    dice = np.random.default_rng(seed)
    values = np.round(dice.normal(size=count) * 3, 2)
    values[dice.random(count) < 0.1] = 0
    if dtype == torch.bool:
        return torch.from_numpy(values > 0)
    if dtype == FLOAT4:
        return torch.from_numpy(dice.integers(0, 256, count, dtype=np.uint8)).view(dtype)
    if dtype == FLOAT8_E8M0:
        values = np.abs(values) + 0.1  # this dtype has neither signs nor zero
    if dtype.is_complex:
        return torch.from_numpy(values + 1j * np.roll(values, 1)).to(dtype)
    if not dtype.is_floating_point:
        values = np.abs(values * 9) if short(dtype).startswith("u") else values * 9
        return torch.from_numpy(values.astype(np.int64)).to(dtype)
    return torch.from_numpy(values).to(dtype)


def pairs():
    """Name -> (target, golden): every dtype with every other dtype."""
    for i, t in enumerate(DTYPES):
        for j, g in enumerate(DTYPES):
            if (t == FLOAT4) != (g == FLOAT4):
                continue  # an element has two values
            seed, count = 100 * min(i, j) + max(i, j), 40 + i + j
            target, golden = made(t, count, seed), made(g, count, seed)
            if t == g and t not in (torch.bool, FLOAT8_E8M0):
                golden = torch.cat([made(g, 3, seed + 7), golden[3:]])
            yield f"{short(t)}-{short(g)}", (target, golden)


def odd():
    """Name -> (target, golden): values and layouts for which a formula may fail."""
    f4, f8 = torch.float32, torch.float64
    floats = [
        d for d in DTYPES if d.is_floating_point and "e8m0" not in str(d) and "4_e" not in str(d)
    ]
    several = made(f4, 60, 1).view(3, 4, 5)
    other = several + 1e-3 * made(f4, 60, 2).view(3, 4, 5)
    yield "same", (several, several)
    yield "transposed", (several.transpose(0, 2), other.permute(2, 1, 0).contiguous())
    yield "strided", (other[:, ::2, 1:], several[:, ::2, 1:].contiguous())
    yield "expanded", (several[:1].expand(3, 4, 5), several)
    yield "squeezed", (several.view(3, 1, 20), other.view(1, 3, 20, 1))
    yield "other-shape", (several, other.view(4, 3, 5))
    yield "many-chunks", (made(f4, 200_001, 3), made(torch.bfloat16, 200_001, 3))
    for name, shape in (("0-d", ()), ("one", (1,)), ("one-of-rank-3", (1, 1, 1))):
        yield name, (torch.full(shape, 1.5), torch.full(shape, 1.25))
        yield name + "-nan", (torch.full(shape, NAN), torch.full(shape, 1.0))
    for d in (f4, torch.int64, torch.complex64, torch.bool):
        yield f"empty-{short(d)}", (torch.zeros(0, 3, dtype=d), torch.zeros(0, 3, dtype=d))
        zeros = torch.zeros(5, dtype=d)
        yield f"zeros-{short(d)}", (zeros, zeros)
        yield f"golden-zero-{short(d)}", (made(d, 5, 4), zeros)
        yield f"target-zero-{short(d)}", (zeros, made(d, 5, 4))
    for d in floats:
        limits = torch.finfo(d)
        high = torch.tensor([limits.max, limits.min, 1, limits.tiny], dtype=f8)
        if d == f8:
            high = high.clamp(-SQUARES, SQUARES)
        yield f"huge-{short(d)}", (high.to(d), high.flip(0).to(d))
        small = (torch.arange(1, 9, dtype=f8) * (limits.tiny / 8)).clamp(min=1 / SQUARES)
        yield f"denormal-{short(d)}", (small.to(d), (small * 1.5).to(d))
        if "fn" in short(d):
            special = torch.tensor([NAN, 1, NAN, 2, 0])  # no infinities
        else:
            special = torch.tensor([NAN, 1, INF, -INF, 0])
        yield f"special-same-{short(d)}", (special.to(d), special.to(d))
        yield f"special-one-side-{short(d)}", (special.to(d), torch.ones(5).to(d))
        yield f"special-golden-{short(d)}", (torch.ones(5).to(d), special.to(d))
        yield f"special-mixed-{short(d)}", (special.to(d), special.to(f4))
    yield "opposite-infinities", (torch.tensor([INF, 1.0]), torch.tensor([-INF, 1.0]))
    yield "all-nan", (torch.tensor([NAN, NAN]), torch.tensor([NAN, NAN]))
    yield "minus-zero", (torch.tensor([0.0, 1.0]), torch.tensor([-0.0, 1.0]))
    parts = torch.tensor([complex(NAN, 1), complex(INF, 2), 3 + 4j])
    yield "complex-nan", (parts, parts)
    yield "complex-nan-one-side", (parts, torch.ones(3, dtype=torch.complex64))
    near = torch.tensor([2**63 - 1, -(2**63), 2**53 + 1, 7])
    yield "int64-by-one", (near, near.clamp(-(2**63) + 1) - 1)
    yield "uint64-int64", (torch.tensor([2**64 - 1, 5], dtype=torch.uint64), torch.tensor([-1, 5]))
    yield (
        "noncontiguous-int8",
        (made(torch.int8, 40, 5).view(8, 5).T, made(torch.int8, 40, 6).view(5, 8)),
    )
    yield (
        "beyond-squares",
        (torch.tensor([1e200, 0], dtype=f8), torch.tensor([1e200, 1e200], dtype=f8)),
    )
    yield (
        "below-squares",
        (torch.tensor([1e-200, 0], dtype=f8), torch.tensor([1e-200, 2e-200], dtype=f8)),
    )


def smallest_steps(dtype):
    """Mantissa bits and the exponent of the smallest normal number, from the number after 1."""
    if dtype == FLOAT4:
        return 1, 0
    if dtype == FLOAT8_E8M0:
        return 0, -127
    if dtype.itemsize > 1:
        limits = torch.finfo(dtype)
        return round(-math.log2(limits.eps)), round(math.log2(limits.tiny))
    values = torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float64)
    values = sorted({float(x) for x in values if x > 0 and math.isfinite(x)})
    bits = round(-math.log2(min(x for x in values if x > 1) - 1))
    return bits, round(math.log2(values[0])) + bits


def steps(x, bits, low):
    """How many numbers the format has between 0 and |x|, with the sign of x."""
    exponent = np.where(x == 0, low, np.maximum(np.frexp(x)[1] - 1, low)).astype(np.int64)
    at = np.rint(np.ldexp(np.abs(x), bits - exponent)).astype(np.int64)
    return np.where(np.signbit(x), -1, 1) * (((exponent - low) << bits) + at)


def ulps(t, g, x, y):
    whole = [not (d.is_floating_point or d.is_complex) for d in (t, g)]
    if t.is_complex or g.is_complex or (any(whole) and not all(whole) and torch.bool in (t, g)):
        return None
    if all(whole):
        return max(abs(int(a) - int(b)) for a, b in zip(x, y, strict=True))
    formats = [smallest_steps(d) for d, w in ((t, whole[0]), (g, whole[1])) if not w]
    bits, low = min(formats, key=lambda f: (f[0], -f[1]))
    x, y = (steps(v.astype(np.float64), bits, low) for v in (x, y))
    return max(abs(int(a) - int(b)) for a, b in zip(x, y, strict=True))


def place(index, tensor):
    shape = list(tensor.shape)
    if tensor.dtype == FLOAT4:
        shape[-1] *= 2
    return str([int(i) for i in np.unravel_index(index, shape)])


def modulus(x):
    return np.hypot(x.real, x.imag) if x.dtype.kind == "c" else np.abs(x)


def expected(target, golden):
    """Column -> number, or the word for a missing number."""
    if [n for n in target.shape if n != 1] != [n for n in golden.shape if n != 1]:
        return dict.fromkeys(METRICS, "shape unmatched")
    if target.numel() == 0:
        return dict.fromkeys(METRICS, "unsupported")
    exact_t, exact_g = numbers(target), numbers(golden)
    kind = np.complex128 if "c" in exact_t.dtype.kind + exact_g.dtype.kind else np.float64
    t, g = exact_t.astype(kind), exact_g.astype(kind)
    same = (t == g) | (np.isnan(t) & np.isnan(g))
    whole = exact_t.dtype.kind in "iub" and exact_g.dtype.kind in "iub"
    if whole:
        gaps = [abs(int(a) - int(b)) for a, b in zip(exact_t, exact_g, strict=True)]
        same = np.array([gap == 0 for gap in gaps])
    finite = np.isfinite(t) & np.isfinite(g)
    mismatched = int((~finite & ~same).sum())
    out = {"Mismatched Non-finite": mismatched, "Matched Non-finite": int((~finite & same).sum())}
    for side, values in (("NPU", t), ("Bench", g)):
        size = modulus(values) if kind is np.complex128 else values
        for word, test in (("NaN", np.isnan), ("+Inf", np.isposinf), ("-Inf", np.isneginf)):
            out[f"{side} {word}"] = int(test(size).sum())
    wrong = np.flatnonzero(~same)
    distance = (
        np.array(gaps, dtype=np.float64)
        if whole
        else modulus(np.where(finite, t, 0) - np.where(finite, g, 0))
    )
    if wrong.size:
        out["First Position"] = place(wrong[0], target)
        bad = wrong[~finite[wrong]]
        worst = bad[0] if bad.size else wrong[np.argmax(distance[wrong])]
        out["Worst Position"] = place(worst, target)
        for key, side in (("NPU at Worst", t), ("Bench at Worst", g)):
            out[key] = modulus(side)[worst] if kind is np.complex128 else side[worst]
    good, gold, apart = t[finite], g[finite], distance[finite]
    eps = 2.0**-23
    for d in (target.dtype, golden.dtype):
        if d in (torch.float64, torch.complex128) or not (d.is_floating_point or d.is_complex):
            eps = 2.0**-52
    size = modulus(gold)
    error = np.where(gold == 0, modulus((good + eps) - eps), apart)
    error = error / np.where(gold == 0, eps, size)
    for key, limit in (("One", 0.001), ("Five", 0.005)):
        within = (error < limit).sum() + (same & ~finite).sum()
        out[f"{key} Thousandth{'s' if key == 'Five' else ''} Err Ratio"] = within / t.size
    if good.size:

        def total(products):
            return math.fsum(products)

        norm_t, norm_g = (math.sqrt(total((v * v.conj()).real)) for v in (good, gold))
        dot = total((good * gold.conj()).real)
        out["EucDist"] = euclidean = math.sqrt(total(apart * apart))
        out["MaxAbsErr"], out["MaxRelativeErr"] = apart.max(), error.max()
        if norm_t == norm_g == 0:
            out["Cosine"], out["Relative L2"] = 1.0, 0.0
        else:
            out["Cosine"] = dot / (norm_t * norm_g) if norm_t and norm_g else NAN
            out["Relative L2"] = euclidean / norm_g if norm_g else INF
        out["RMSE"] = math.sqrt(total(apart * apart) / good.size)
        out["MAPE"] = total(error[gold != 0]) / (gold != 0).sum() if (gold != 0).any() else "N/A"
        steps_apart = ulps(target.dtype, golden.dtype, exact_t[finite], exact_g[finite])
        out["Max ULP"] = "N/A" if steps_apart is None else min(steps_apart, 2**63 - 1)
    single = target.numel() == 1
    for key in METRICS:
        if single and key not in ("MaxAbsErr", "MaxRelativeErr"):
            out[key] = "unsupported"
        elif mismatched:
            out[key] = "Nan" if single else "N/A"
        elif isinstance(out.get(key, NAN), float) and math.isnan(out.get(key, NAN)):
            out[key] = "Nan"
    return {**dict.fromkeys(OURS, "N/A"), **out}


def agrees(cell, want, column):
    if isinstance(want, str):
        return cell == want
    try:
        found = float(cell)
    except ValueError:
        return False
    if not math.isfinite(want):
        return found == want or (math.isnan(found) and math.isnan(want))
    decimals = 6 if column == "Cosine" and want > 0.9999 else DECIMALS.get(column, 400)
    if isinstance(want, int):
        return int(cell) == want
    return abs(found - want) <= RELATIVE * abs(want) + 0.51 * 10.0**-decimals


def table(cases, folder, binary, save):
    for side, index in (("target", 0), ("golden", 1)):
        (folder / side).mkdir()
        for name, case in cases.items():
            save(case[index], folder / side / name)
    command = [binary, "compare", "-tp", folder / "target", "-gp", folder / "golden"]
    done = subprocess.run([*command, "--format", "csv"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {row["NPU Name"]: row for row in csv.DictReader(done.stdout.splitlines())}


def check(cases, rows):
    assert rows.keys() == cases.keys()
    wrong = []
    for name, case in cases.items():
        with np.errstate(all="ignore"):
            wanted = expected(*case) | OUT_OF_RANGE.get(name, {})
        for column, want in wanted.items():
            if not agrees(rows[name][column], want, column):
                wrong.append(f"{name}: {column} is {rows[name][column]}, expected {want}")
    assert not wrong, "\n".join(wrong[:40])


@pytest.mark.parametrize("which", [pairs, odd], ids=["pairs", "odd"])
def test_pt(which, tmp_path, msprobe_bin):
    cases = dict(which())
    check(cases, table(cases, tmp_path, msprobe_bin, lambda t, p: torch.save(t, f"{p}.pt")))


def test_npy(tmp_path, msprobe_bin):
    """The dtypes of NumPy; one side is in Fortran order."""
    cases = {}
    for name, case in {**dict(pairs()), **dict(odd())}.items():
        if all(t.dtype not in NOT_NUMPY for t in case):
            cases[name] = case

    def save(tensor, path):
        array = tensor.numpy()
        np.save(path, np.asfortranarray(array) if path.parent.name == "golden" else array)

    check(cases, table(cases, tmp_path, msprobe_bin, save))
