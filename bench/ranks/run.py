"""Times `msprobe compare` of many ranks.

    python bench/ranks/run.py [--ranks 256] [--layers 185] [--parts 4] [--scratch FOLDER]

Four processes of data parallelism are recorded twice, once with weights that are off by rounding;
their dumps become those of all ranks: each four have groups of their own. Prints processor time and
wall time for a rank and the largest memory, of one process and of several that compare a part each
(`--part`), and what 10,000 ranks take on 16 cores by these figures: the ranks of a part are
independent, and joining the parts is not divided. The files need 25 MB a rank (1,024 ranks: 25 GB).
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tables import table, verdict  # noqa: E402

RECORDED = 4  # processes
OF_RANK_MS, OF_ALL = 30, 2 << 30  # targets: processor time of a rank, memory of a process
LARGE, CORES, OF_LARGE_S = 10_000, 16, 60


def record(folder, noise, layers):
    command = ["torchrun", f"--nproc_per_node={RECORDED}", HERE / "train.py", folder, noise, layers]
    beside = Path(sys.executable).parent
    words = [str(beside / command[0]), *map(str, command[1:])]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(words, check=True, capture_output=True, env=environment)


def multiply(folder, ranks):
    """The dumps of four ranks become those of `ranks`."""
    place = folder / "step0"
    group = re.compile(rf'"ranks":\s*\[{", ?".join(map(str, range(RECORDED)))}\]')
    for first in range(RECORDED, ranks, RECORDED):
        members = ", ".join(str(first + i) for i in range(RECORDED))
        for i in range(RECORDED):
            there = place / f"rank{first + i}"
            there.mkdir()
            for file in (place / f"rank{i}").iterdir():
                text = group.sub(f'"ranks": [{members}]', file.read_text())
                own = re.compile(rf'("ranks": \[{members}\],[^{{}}]*"rank":\s*){i}\b')
                (there / file.name).write_text(own.sub(rf"\g<1>{first + i}", text))


def measured(command):
    """Wall and processor seconds, and the largest memory in bytes, of one process."""
    started = time.perf_counter()
    child = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"error: {' '.join(map(str, command))} ended with {status}")
    wall = time.perf_counter() - started
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def rows_of(program, folder, ranks, parts):
    compare = [program, "compare", "--tolerant", folder / "target", folder / "golden", "-o"]
    whole = measured([*compare, folder / "whole"])
    several = [
        measured([*compare, folder / "parts", "--part", f"{i + 1}/{parts}"]) for i in range(parts)
    ]
    merged = measured([program, "merge_result", "-i", folder / "parts", "-o", folder / "merged"])
    shutil.rmtree(folder / "whole"), shutil.rmtree(folder / "parts")
    wall, processor = (sum(each[i] for each in several) for i in (0, 1))
    yield "one process", *whole
    yield f"{parts} parts, one after the other", wall, processor, max(each[2] for each in several)
    yield "merge_result", *merged
    yield (
        f"{LARGE:,} ranks on {CORES} cores, by these",
        (LARGE / ranks * (processor / CORES + merged[1])),
        LARGE / ranks * (processor + merged[1]),
        0,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--layers", type=int, default=185)
    parser.add_argument("--parts", type=int, default=4)
    parser.add_argument("--scratch", type=Path, help="folder for the dumps")
    options = parser.parse_args()
    program = os.environ.get("MSPROBE_BIN", str(Path(sys.executable).parent / "msprobe"))
    with tempfile.TemporaryDirectory(dir=options.scratch) as name:
        folder = Path(name)
        for side, noise in (("golden", 0), ("target", 1e-7)):
            record(folder / side, noise, options.layers)
            multiply(folder / side, options.ranks)
        text = (folder / "golden/step0/rank0/dump.json").read_text()
        entries = text.count("\n") - 2  # a line each, and those of the heading and the end
        rows = [["of all ranks", "wall", "processor", "of a rank", "memory", "target", ""]]
        for name, wall, processor, memory in rows_of(program, folder, options.ranks, options.parts):
            of_rank = 1000 * processor / options.ranks
            met = of_rank <= OF_RANK_MS and memory <= OF_ALL
            target = f"<= {OF_RANK_MS} ms, 2 GB"
            if memory == 0:
                of_rank, met, target = 1000 * processor / LARGE, wall <= OF_LARGE_S, "<= 60 s"
            times = f"{wall:.1f} s", f"{processor:.1f} s", f"{of_rank:.1f} ms"
            peak = f"{memory / 1e9:.2f} GB" if memory else ""
            rows.append([name, *times, peak, target, verdict(met)])
    print(f"{options.ranks} ranks, {entries:,} entries each, equal layouts")
    table(rows)


if __name__ == "__main__":
    main()
