"""Times `msprobe compare` as a whole process, beside the older tool when its Python is given.

    python bench/compare/run.py [--peer .cache/peer/bin/python] [--rounds 5] [--only NAME] [--small]

Inputs are generated; one leaf in a hundred differs. Each round runs every program once, so that a
change of the machine's speed affects all programs alike. Prints medians and the peak of resident
memory, beside the time to read the same bytes once. The older tool runs once where it takes
minutes. Its time is linear: for a million entries, ten times that for a hundred thousand is
printed. --small: all inputs at a twentieth of their size.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
from tables import table, verdict

OF_PEER = 100  # how many times faster than the older tool, for statistics
OF_PEER_TENSORS = 50
OF_INPUT = 3.0  # limit: peak memory / size of one side's files
# A child's ru_maxrss starts at the memory of its parent, so a small program starts the child.
MEASURE = (
    "import os, sys, time; started = time.perf_counter(); "
    "pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ); "
    "_, status, usage = os.wait4(pid, 0); "
    "print('measured', status, time.perf_counter() - started, usage.ru_maxrss)"
)


def run_once(command, folder):
    """Wall time in seconds and peak resident memory in bytes of one process."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    whole = [sys.executable, "-I", "-c", MEASURE, *map(str, command), "-o", str(out)]
    done = subprocess.run(whole, capture_output=True, text=True)
    words = done.stdout.splitlines()[-1].split() if done.stdout else ["", "1"]
    if words[0] != "measured" or words[1] != "0" or not list(out.rglob("compare_result*.csv")):
        sys.exit(f"error: {' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return float(words[2]), int(words[3]) * 1024


def read_once(folder):
    """Seconds to read the input files into one buffer, with one thread."""
    buffer = memoryview(bytearray(1 << 20))
    started = time.perf_counter()
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
    return time.perf_counter() - started


def median_of(rounds, *measured):
    """Calls the functions in turns; returns each one's median seconds and largest memory."""
    times, memory = [[] for _ in measured], [0] * len(measured)
    for _ in range(rounds):
        for i, measure in enumerate(measured):
            answer = measure()
            seconds, peak = answer if isinstance(answer, tuple) else (answer, 0)
            times[i].append(seconds)
            memory[i] = max(memory[i], peak)
    return [statistics.median(values) for values in times], memory


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        beside = Path(sys.executable).parent / "msprobe"
        self.ours = os.environ.get("MSPROBE_BIN", str(beside))
        if not Path(self.ours).exists():
            sys.exit(f"error: no msprobe program at {self.ours}; type: make build")
        self.peer = options.peer and str(options.peer.parent / "msprobe")
        self.lines = [
            ["what", "MB in", "read ms", "ms", "MB peak", "peer ms", "x peer", "target", "verdict"]
        ]

    def row(self, name, place, make, target, limit_ms, peer=None, of_peer=None, memory=False,
            more=()):  # fmt: skip
        """Makes the input, times it, adds a line. `peer`: measures the older tool's seconds."""
        print(f"  {name} ...", file=sys.stderr, flush=True)
        folder = self.folder / place
        make(folder)
        size = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
        step = folder / "target" / "step0"
        sides = [
            folder / side / ("step0" if step.exists() else "") for side in ("target", "golden")
        ]
        flags = ["compare", "-tp", sides[0], "-gp", sides[1], *more]
        (reading, ours), (_, peak) = median_of(
            self.options.rounds,
            lambda: read_once(folder),
            lambda: run_once([self.ours, *flags], self.folder),
        )
        theirs = peer(flags) if self.peer and peer else None
        met = ours * 1e3 <= limit_ms if limit_ms else True
        if memory:
            met = met and peak <= OF_INPUT * size / 2
        if theirs and of_peer:
            met = met and theirs / ours >= of_peer
        self.lines.append(
            [
                name,
                f"{size / 1e6:.0f}",
                f"{reading * 1e3:.0f}",
                f"{ours * 1e3:.0f}",
                f"{peak / 1e6:.0f} ({2 * peak / size:.1f} x one side)",
                f"{theirs * 1e3:.0f}" if theirs else "",
                f"{theirs / ours:.0f}" if theirs else "",
                target,
                verdict(met),
            ]
        )
        shutil.rmtree(folder)
        return ours, theirs

    def run_peer(self, flags):
        files = [
            flag / "dump.json" if isinstance(flag, Path) and flag.is_dir() else flag
            for flag in flags
        ]
        return run_once([self.peer, *files], self.folder)[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", type=Path, help="Python of the older tool's venv")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", help="rows whose name holds this")
    parser.add_argument("--small", action="store_true", help="a twentieth of each size")
    options = parser.parse_args()
    part = 20 if options.small else 1

    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, Path(scratch))
        seen = {}

        def peer_now(flags):
            seen["100,000"] = bench.run_peer(flags)
            return seen["100,000"]

        def peer_times_ten(_):
            return 10 * seen["100,000"] if "100,000" in seen else None

        def made(leaves, ours):
            return lambda folder: inputs.statistics(folder, leaves // part, ours)

        def tensors(files, elements):
            return lambda folder: inputs.tensors(folder, files, elements // part)

        def row(name, make, target, limit, peer=None, of_peer=None, memory=False, more=()):
            if not options.only or options.only in name:
                bench.row(name, "input", make, target, limit, peer, of_peer, memory, more)

        fast, large = "<= 300 ms", "<= 2000 ms, <= 3 x one side"
        times = ", >= 100 x peer"
        row(
            "100,000 entries, layout of 26",
            made(100_000, False),
            fast + times,
            300,
            peer_now,
            OF_PEER,
        )
        row("100,000 entries, ours", made(100_000, True), fast, 300)
        name, make = "1,000,000 entries, layout of 26", made(1_000_000, False)
        row(name, make, large + times, 2000, peer_times_ten, OF_PEER, memory=True)
        row("1,000,000 entries, ours", made(1_000_000, True), large, 2000, memory=True)

        def rewrites(calls):
            return lambda folder: inputs.rewritten(folder, calls // part)

        row("1,000,000 values, rewrites", rewrites(358_000), "<= 5000 ms", 5000)
        row("1,000,000 calls, rewrites", rewrites(1_000_000), "<= 5000 ms", 5000)
        name, more = "100,000 lines of ptdbg_ascend", ("--table-format", "ptdbg")
        row(name, lambda f: inputs.lines(f, 100_000 // part), "<= 500 ms", 500, more=more)
        ranks = "64 ranks of 20,000 entries"
        row(ranks, lambda f: inputs.ranks(f, 64, 20_000 // part), "<= 2000 ms", 2000)
        name, make = "2 x 490 MB in 480 files each", tensors(480, 255_000)
        row(name, make, ">= 50 x peer", None, bench.run_peer, OF_PEER_TENSORS)
        row("2 x 5 GB in 40 files each, warm", tensors(40, 31_250_000), ">= 10 GB/s", 1000 / part)
        print(f"  whole processes, csv, medians of {options.rounds}")
        table(bench.lines)


if __name__ == "__main__":
    main()
