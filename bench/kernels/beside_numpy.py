"""Times our statistics, difference and metrics of accuracy of 64M float32 beside memcpy and NumPy.

    python bench/kernels/beside_numpy.py [--count 67108864]

One thread each, in turns, medians of 5. NumPy is used the straightforward way: convert to float64,
then one function after the other; the metrics are those of the tensor columns of a comparison, and
those of the details of the accuracy pre-check against a float64 golden.
"""

import argparse
import ctypes
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
from tables import verdict

from msprobe import _engine

COUNT = 64 << 20
REPETITIONS = 5
ACCURACY_OF_NUMPY = 20  # how many times faster the metrics of accuracy are


def numpy_stats(x):
    y = x.astype(np.float64)
    return y.max(), y.min(), y.mean(), np.linalg.norm(y)


def numpy_diff(target, golden):
    t, g = target.astype(np.float64), golden.astype(np.float64)
    error = np.abs(t - g)
    with np.errstate(divide="ignore", invalid="ignore"):
        relative = error / np.abs(g)
    return (
        (t * g).sum() / (np.linalg.norm(t) * np.linalg.norm(g)),
        np.linalg.norm(t - g),
        error.max(),
        relative.max(),
        (relative < 1e-3).mean(),
        (relative < 5e-3).mean(),
        np.sqrt((error**2).mean()),
        relative.mean(),
    )


def numpy_accuracy(device, golden):
    """The metrics of a row of the details, in their order."""
    d = device.astype(np.float64)
    rounded = golden.astype(np.float32)
    error, size = np.abs(d - golden), np.abs(golden)
    relative = error / (size + 2.0**-23)
    finite = np.isfinite(d) & np.isfinite(golden)
    small = finite & (size <= 2.0**-20)
    normal = finite & ~small
    ulp = error / np.exp2(np.maximum(np.frexp(golden)[1] - 1, -126) - 23.0)
    return (
        (d * golden).sum() / (np.linalg.norm(d) * np.linalg.norm(golden)),
        error.max(),
        *((relative < limit).mean() for limit in (1e-2, 1e-3, 1e-4)),
        (device != rounded).mean(),
        np.abs((device > rounded).sum() - (device < rounded).sum()) / golden.size,
        np.sqrt((error[normal] ** 2).mean()),
        (error[small] > 2.0**-30).sum() / max(1, small.sum()),
        relative[normal].max(),
        relative[normal].mean(),
        1 - finite.mean(),
        (relative[normal] > 2.0**-20).mean(),
        ulp.max(),
        ulp.mean(),
        (ulp > 1).mean(),
    )


def our_accuracy(device, golden):
    check = _engine.PreCheck("", 14, [])
    check.begin("Torch.exp.0", "")
    check.output("forward", "Torch.exp", device, golden)
    return check.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=COUNT, help="elements")
    options = parser.parse_args()
    random = np.random.default_rng(0)
    golden = random.standard_normal(options.count, dtype=np.float32)
    target = golden * np.float32(1.0001)
    # A device that rounds each element once and is wrong in the last place of some.
    exact = golden * (1 + 2.0**-23 * random.random(options.count))
    copy = np.empty_like(golden)
    work = {
        "memcpy": lambda: ctypes.memmove(copy.ctypes.data, golden.ctypes.data, golden.nbytes),
        "statistics": lambda: _engine.compute_stats(golden),
        "statistics, NumPy": lambda: numpy_stats(golden),
        "difference": lambda: _engine.compute_diff(target, golden),
        "difference, NumPy": lambda: numpy_diff(target, golden),
        "accuracy": lambda: our_accuracy(golden, exact),
        "accuracy, NumPy": lambda: numpy_accuracy(golden, exact),
    }
    times = {name: [] for name in work}
    for _ in range(REPETITIONS):
        for name, run in work.items():
            started = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - started) * 1e3)
    ms = {name: statistics.median(values) for name, values in times.items()}
    for name, value in ms.items():
        print(f"  {name:<20}{value:10.1f} ms")
    accuracy = ms["accuracy, NumPy"] / ms["accuracy"]
    print(
        f"  statistics: {ms['memcpy'] / ms['statistics']:.2f} x the rate of memcpy, "
        f"{ms['statistics, NumPy'] / ms['statistics']:.1f} x NumPy\n"
        f"  difference: {ms['difference, NumPy'] / ms['difference']:.1f} x NumPy\n"
        f"  accuracy: {accuracy:.1f} x NumPy, target >= {ACCURACY_OF_NUMPY}: "
        f"{verdict(accuracy >= ACCURACY_OF_NUMPY)}"
    )


if __name__ == "__main__":
    main()
