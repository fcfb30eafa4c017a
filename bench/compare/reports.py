"""Times a comparison of many ranks, and our writing of workbooks beside openpyxl's.

    python bench/compare/reports.py [--peer .cache/peer/bin/python] [--ranks 64] [--leaves 20000]
                                    [--rows 100000] [--rounds 3]

openpyxl is the one in the older tool's environment: without --peer its line is left out.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from inputs import write_dump

OPENPYXL = """
import csv, sys, time, openpyxl
rows = list(csv.reader(open(sys.argv[1], newline="")))
started = time.perf_counter()
book = openpyxl.Workbook(write_only=True)
sheet = book.create_sheet("compare_result")
for row in rows:
    cells = []
    for cell in row:
        try:
            cells.append(float(cell))
        except ValueError:
            cells.append(cell)
    sheet.append(cells)
book.save(sys.argv[2])
print(time.perf_counter() - started)
"""


def seconds(command, out, rounds):
    """Median wall time of the whole process, in seconds."""
    times = []
    for _ in range(rounds):
        shutil.rmtree(out, ignore_errors=True)
        started = time.perf_counter()
        subprocess.run([*command, "-o", str(out)], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def bench_ranks(binary, folder, options):
    write_dump(folder / "one/target", options.leaves, 1e-3, True)
    write_dump(folder / "one/golden", options.leaves, 0.0, True)
    for side in ("target", "golden"):
        for rank in range(options.ranks):
            shutil.copytree(folder / "one" / side, folder / "many" / side / f"rank{rank}")
    command = [binary, "compare", "-tp", folder / "many/target", "-gp", folder / "many/golden"]
    taken = seconds(command, folder / "out", options.rounds)
    print(f"  {options.ranks} ranks of {options.leaves} entries, csv       {taken:8.2f} s")


def bench_workbook(binary, folder, options):
    for side, noise in (("target", 1e-3), ("golden", 0.0)):
        write_dump(folder / "large" / side, options.rows, noise, True)
    command = [binary, "compare", "-tp", folder / "large/target", "-gp", folder / "large/golden"]
    csv = seconds(command, folder / "csv", options.rounds)
    ours = seconds([*command, "--xlsx"], folder / "xlsx", options.rounds)
    size = next((folder / "xlsx").glob("*.xlsx")).stat().st_size
    print(f"  {options.rows} rows, csv, whole process      {csv:8.2f} s")
    print(f"  {options.rows} rows, xlsx, whole process     {ours:8.2f} s  {size / 1e6:.1f} MB")
    if options.peer:
        table = next((folder / "csv").glob("*.csv"))
        done = subprocess.run(
            [options.peer, "-c", OPENPYXL, table, folder / "theirs.xlsx"],
            check=True,
            capture_output=True,
            text=True,
        )
        theirs = float(done.stdout)
        print(
            f"  {options.rows} rows, openpyxl, writing only  {theirs:8.2f} s  {theirs / ours:.0f} x"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", type=Path, help="Python of the older tool's venv")
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--leaves", type=int, default=20_000)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    binary = os.environ.get("MSPROBE_BIN", str(Path(sys.executable).parent / "msprobe"))
    with tempfile.TemporaryDirectory() as scratch:
        bench_ranks(binary, Path(scratch), options)
        bench_workbook(binary, Path(scratch), options)


if __name__ == "__main__":
    main()
