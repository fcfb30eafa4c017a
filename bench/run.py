"""Measures every speed claim in one run, beside memcpy and with --peer beside the older tool.

    python bench/run.py --build build [--peer .cache/peer/bin/python]
                        [--peer8 .cache/peer-8/bin/python]
                        [--only kernels|train|fronts|idle|tasks|baseline|volume|compare|
                                accuracy|page|build]

Prints medians and ratios, because absolute times depend on the machine. Raw figures:
build/bench/results.json.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

from collecting import (
    bench_baseline,
    bench_idle,
    bench_older_fronts,
    bench_optimizers,
    bench_tasks,
    bench_tensor_files,
    bench_training,
    bench_volume,
)
from tables import table

ROOT = Path(__file__).resolve().parent.parent


def bytes_of(row: dict) -> int:
    """Bytes that one iteration of a benchmark reads, computed from its rate and its time."""
    seconds = row["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[row["time_unit"]]
    return round_to_power_of_two(row.get("bytes_per_second", 0) * seconds)


def round_to_power_of_two(value: float) -> int:
    return 1 << round(math.log2(value)) if value >= 1 else 0


def bench_kernels(build: Path) -> list:
    """Runs all our Google Benchmark programs; returns the medians."""
    results = []
    for program in sorted((build / "bench").glob("**/*_bench")):
        report = build / "bench" / f"{program.name}.json"
        command = [
            str(program),
            "--benchmark_repetitions=5",
            "--benchmark_report_aggregates_only=true",
            f"--benchmark_out={report}",
            "--benchmark_out_format=json",
        ]
        done = subprocess.run(command, stdout=subprocess.DEVNULL)
        if done.returncode != 0:
            sys.exit(f"error: {program} ended with exit code {done.returncode}")
        rows = [
            row
            for row in json.loads(report.read_text())["benchmarks"]
            if row.get("aggregate_name") == "median"
        ]
        # Compared with the memcpy of the same number of bytes, or else with the largest memcpy.
        copies = {
            bytes_of(row): row["bytes_per_second"]
            for row in rows
            if "memcpy" in row["run_name"].lower()
        }
        print(f"\n{program.name} (medians of 5)")
        lines = [["", "time", "GB/s", "x memcpy"]]
        for row in rows:
            rate = row.get("bytes_per_second")
            copy = copies.get(bytes_of(row), copies[max(copies)]) if rate and copies else None
            lines.append(
                [
                    row["run_name"],
                    f"{row['real_time']:.1f} {row['time_unit']}",
                    f"{rate / 1e9:.1f}" if rate else "",
                    f"{rate / copy:.2f}" if copy else "",
                ]
            )
        table(lines)
        results += rows
    return results


def bench_numpy() -> None:
    """Runs the script, which prints its own table."""
    print("\nstatistics, difference and accuracy of 64M float32, one thread", flush=True)
    if (
        subprocess.run([sys.executable, str(ROOT / "bench/kernels/beside_numpy.py")]).returncode
        != 0
    ):
        sys.exit("error: bench/kernels/beside_numpy.py failed")


def bench_compare(peer) -> None:
    """Runs the scripts of bench/compare, which print their own tables."""
    print("\ncompare", flush=True)
    for script in ("run.py", "reports.py"):
        command = [sys.executable, str(ROOT / "bench" / "compare" / script)]
        if peer:
            command += ["--peer", str(peer)]
        if subprocess.run(command, cwd=ROOT).returncode != 0:
            sys.exit(f"error: bench/compare/{script} failed")


def bench_accuracy(peer8) -> None:
    """Runs the script of bench/accuracy, which prints its own tables."""
    print("\naccuracy pre-check of a GPT's calls on the CPU, whole processes", flush=True)
    command = [sys.executable, str(ROOT / "bench/accuracy/run.py")]
    if peer8:
        command += ["--peer8", str(peer8)]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit("error: bench/accuracy/run.py failed")


def bench_page(build: Path) -> None:
    """Runs the script of bench/report_page, which prints its own table."""
    print("\nthe page of a comparison of a million calls", flush=True)
    command = [sys.executable, str(ROOT / "bench/report_page/page.py"), "--build", str(build)]
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit("error: bench/report_page/page.py failed")


def bench_building() -> None:
    """Runs the script, which prints its own table."""
    print("\ncompiling a fresh clone", flush=True)
    if subprocess.run([sys.executable, str(ROOT / "bench/building.py")]).returncode != 0:
        sys.exit("error: bench/building.py failed")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--peer", type=Path, help="python of a venv with the older tool")
    parser.add_argument("--peer8", type=Path, help="the same with msprobe 8, for the pre-check")
    parser.add_argument(
        "--only",
        choices=(
            *("kernels", "train", "fronts", "idle", "tasks"),
            *("baseline", "volume", "compare", "accuracy", "page", "build"),
        ),
    )
    parser.add_argument("--pairs", type=int, default=12, help="recorded steps a program")
    options = parser.parse_args()
    options.scratch = options.build.resolve() / "bench" / "scratch"
    options.scratch.mkdir(parents=True, exist_ok=True)

    results = {}
    if options.only in (None, "kernels"):
        results["kernels"] = bench_kernels(options.build)
        bench_numpy()
    if options.only in (None, "train"):
        results["train"] = bench_training(options)
        results["tensor_files"] = bench_tensor_files(options)
        results["optimizers"] = bench_optimizers(options)
    if options.only in (None, "fronts"):
        results["fronts"] = bench_older_fronts(options)
    if options.only in (None, "idle"):
        results["idle"] = bench_idle()
    if options.only in (None, "tasks"):
        results["tasks"] = bench_tasks()
    if options.only in (None, "baseline"):
        results["baseline"] = bench_baseline(options)
    if options.only in (None, "volume"):
        results["volume"] = bench_volume(options)
    if options.only in (None, "compare"):
        bench_compare(options.peer)
    if options.only in (None, "accuracy"):
        bench_accuracy(options.peer8)
    if options.only in (None, "page"):
        bench_page(options.build)
    if options.only in (None, "build"):
        bench_building()
    (options.build / "bench" / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
