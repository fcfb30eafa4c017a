"""Times our statistics and difference of 64M float32 beside memcpy and NumPy in float64.

    python bench/kernels/beside_numpy.py

One thread each, in turns, medians of 5. NumPy is used the straightforward way: convert to float64,
then one function after the other; the metrics are those of the tensor columns of a comparison.
"""

import ctypes
import statistics
import time

import numpy as np

from msprobe import _engine

COUNT = 64 << 20
REPETITIONS = 5


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


def main():
    random = np.random.default_rng(0)
    golden = random.standard_normal(COUNT, dtype=np.float32)
    target = golden * np.float32(1.0001)
    copy = np.empty_like(golden)
    work = {
        "memcpy": lambda: ctypes.memmove(copy.ctypes.data, golden.ctypes.data, golden.nbytes),
        "statistics": lambda: _engine.compute_stats(golden),
        "statistics, NumPy": lambda: numpy_stats(golden),
        "difference": lambda: _engine.compute_diff(target, golden),
        "difference, NumPy": lambda: numpy_diff(target, golden),
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
    print(
        f"  statistics: {ms['memcpy'] / ms['statistics']:.2f} x the rate of memcpy, "
        f"{ms['statistics, NumPy'] / ms['statistics']:.1f} x NumPy\n"
        f"  difference: {ms['difference, NumPy'] / ms['difference']:.1f} x NumPy"
    )


if __name__ == "__main__":
    main()
