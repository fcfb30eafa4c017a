"""Prints every speed claim beside memcpy, and with --peer beside the earlier tool, in one run.

    python bench/run.py --build build [--peer .cache/peer/bin/python] [--only kernels|compare|train]

Medians and ratios: absolute times belong to the machine. Raw figures: build/bench/results.json.
"""

import argparse
import json
import math
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PER_RECORD_US = 8.0  # what noting a name, a stack and a line may cost beside reading the numbers
PROGRAMS = ("toy40", "gpt", "resnet")
SETTINGS = (
    ("L0", "statistics", "statistics"),
    ("L1", "statistics", "statistics"),
    ("mix", "statistics", "statistics"),
    ("L1", "statistics", "md5"),
    ("L1", "tensor", "statistics"),
)


def table(rows: list) -> None:
    """Prints rows of cells, the heading first; all columns but the first are set to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join(cells))
    sys.stdout.flush()


def bytes_of(row: dict) -> int:
    """Bytes one iteration of a benchmark goes through, from its rate and its time."""
    seconds = row["real_time"] * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}[row["time_unit"]]
    return round_to_power_of_two(row.get("bytes_per_second", 0) * seconds)


def round_to_power_of_two(value: float) -> int:
    return 1 << round(math.log2(value)) if value >= 1 else 0


def bench_kernels(build: Path) -> list:
    """Runs every Google Benchmark program of ours; returns its aggregates."""
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
        # A copy of as many bytes is the yardstick; without one, the copy of the most bytes.
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
    """The script prints its table."""
    print("\nstatistics and difference of 64M float32, one thread", flush=True)
    if (
        subprocess.run([sys.executable, str(ROOT / "bench/kernels/beside_numpy.py")]).returncode
        != 0
    ):
        sys.exit("error: bench/kernels/beside_numpy.py failed")


def bench_compare(peer) -> None:
    """The comparison's own script prints its table."""
    command = [sys.executable, str(ROOT / "bench" / "compare" / "run.py")]
    if peer:
        command += ["--peer", str(peer)]
    print("\ncompare", flush=True)
    if subprocess.run(command, cwd=ROOT).returncode != 0:
        sys.exit("error: bench/compare/run.py failed")


def run_training(python: Path, tool: str, program: str, setting, options) -> dict:
    level, task, summary = setting
    command = [str(python), str(ROOT / "bench" / "train.py"), "--tool", tool]
    command += ["--program", program, "--level", level, "--task", task, "--summary", summary]
    pairs = min(4, options.pairs) if task == "tensor" else options.pairs  # gigabytes a step
    command += ["--pairs", str(pairs), "--scratch", str(options.scratch)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(command)}\n{done.stderr}")
    return json.loads(done.stdout)


def price(result: dict) -> float:
    """Milliseconds of a collected step over a bare one, with what stays when it is off."""
    return result["added_ms"] + max(0.0, result["off_ms"] - result["bare_ms"])


def bench_training(options) -> list:
    print(
        f"\ntraining: milliseconds added to one step, medians of {options.pairs} off/on pairs in "
        "one process\n  physics: reading tensors as those recorded once with our kernel alone, and "
        f"{PER_RECORD_US:.0f} us a record\n  raw: the tensor files' bytes written in one go to the "
        "same disk, and in as many files"
    )
    heading = ["program, level, task", "bare ms", "idle x", "added ms", "records", "us/record"]
    heading += ["physics ms", "x physics", "x raw write", "x raw files"]
    heading += ["peer ms", "peer records", "peer / ours", "per record"] if options.peer else []
    lines, results = [heading], []
    for program in PROGRAMS:
        for setting in SETTINGS:
            ours = run_training(Path(sys.executable), "ours", program, setting, options)
            results.append(ours)
            physics = ours["read_ms"] + PER_RECORD_US * 1e-3 * ours["records"]
            ours["physics_ms"] = physics
            raw = ours["raw_write_ms"]
            per_record = ours["added_ms"] * 1e3 / ours["records"]
            line = [
                f"{program} {setting[0]} {'md5' if setting[2] == 'md5' else setting[1]}",
                f"{ours['bare_ms']:.2f}",
                f"{ours['idle_ms'] / ours['bare_ms']:.2f}",
                f"{ours['added_ms']:.2f}",
                str(ours["records"]),
                f"{per_record:.1f}",
                f"{physics:.2f}",
                f"{ours['added_ms'] / physics:.2f}",
                f"{ours['added_ms'] / raw:.2f}" if raw else "",
                f"{ours['added_ms'] / ours['raw_files_ms']:.2f}" if raw else "",
            ]
            if options.peer:
                theirs = run_training(options.peer, "peer", program, setting, options)
                results.append(theirs)
                added = price(theirs)
                line += [
                    f"{added:.2f}",
                    str(theirs["records"]),
                    f"{added / price(ours):.1f}",
                    f"{added / theirs['records'] / (price(ours) / ours['records']):.1f}",
                ]
            lines.append(line)
            print(f"  {line[0]} ...", file=sys.stderr, flush=True)
    table(lines)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, default=Path("build"))
    parser.add_argument("--peer", type=Path, help="python of a venv with the earlier tool")
    parser.add_argument("--only", choices=("kernels", "compare", "train"))
    parser.add_argument("--pairs", type=int, default=12, help="off/on pairs of steps a program")
    options = parser.parse_args()
    options.scratch = options.build.resolve() / "bench" / "scratch"
    options.scratch.mkdir(parents=True, exist_ok=True)

    results = {}
    if options.only in (None, "kernels"):
        results["kernels"] = bench_kernels(options.build)
        bench_numpy()
    if options.only in (None, "train"):
        results["train"] = bench_training(options)
    if options.only in (None, "compare"):
        bench_compare(options.peer)
    (options.build / "bench" / "results.json").write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
