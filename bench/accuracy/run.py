"""Times the accuracy pre-check as whole processes, beside msprobe 8 when its Python is given.

    python bench/accuracy/run.py [--peer8 .cache/peer-8/bin/python] [--rounds 3]
                                 [--only run_ut|join] [--dump FILE] [--small]

The calls are those of a GPT on the CPU, with their backward. The older tool gets a part of the
calls and rows. Its time for one of them is the difference of two runs, so its start does not count;
in our time per call and row the start is included. Its memory is that of the part: of all calls it
would be more. Programs take turns, so that a change of the machine's speed affects all alike.
--small: a tenth of the calls and rows.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import inputs
from processes import measure
from tables import table, verdict

HERE = Path(__file__).resolve().parent
LAYERS = 90  # 1,989 calls
ROWS = 100_000
PEER_CALLS = (2, 40)  # of the two runs of the older tool
PEER_ROWS = (100, 1_100)
STRIDES = (47, 5, 1)  # between the older tool's calls; 22 calls are a layer, so that all kinds come
OF_PEER = 5  # how many times faster than the older tool
OF_PEER_MEMORY = 0.5
OF_TWO = 1.8  # how many times faster two processes are than one
JOIN_SECONDS = 0.3


class Bench:
    def __init__(self, options, folder: Path):
        self.options, self.folder, self.runs = options, folder, 0
        beside = Path(sys.executable).parent / "msprobe"
        self.ours = os.environ.get("MSPROBE_BIN", str(beside))
        if not Path(self.ours).exists():
            sys.exit(f"error: no msprobe program at {self.ours}; type: make build")
        self.dump = options.dump or self.recorded()
        self.calls = inputs.calls_of(self.dump)

    def recorded(self) -> Path:
        layers = LAYERS // 10 if self.options.small else LAYERS
        recording = [sys.executable, HERE / "inputs.py", self.folder / "gpt", str(layers)]
        done = subprocess.run(recording, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"error: recording the GPT failed:\n{done.stderr}")
        return next((self.folder / "gpt").glob("step0/*/dump.json"))

    def measured(self, command: list, made: str) -> tuple:
        """(seconds, bytes, folder of the results) of one run."""
        self.runs += 1
        print(f"  {' '.join(map(str, command[:2]))} ...", file=sys.stderr, flush=True)
        out = self.folder / f"out{self.runs}"
        out.mkdir()
        return *measure([*command, "-o", out], out, made), out

    def ours_run_ut(self, *command) -> tuple:
        whole = [self.ours, *command, "-api_info", self.dump]
        return self.measured(whole, "accuracy_checking_details_*.csv")

    def peer_run_ut(self, count: int) -> tuple:
        stride = next(s for s in STRIDES if s == 1 or len(self.calls) >= s * max(PEER_CALLS))
        part = self.calls[::stride][:count]
        dump = inputs.part_of(self.dump, part, self.folder / f"part{self.runs}")
        command = [self.options.peer8, HERE / "older_run_ut.py", "-api_info", dump]
        return self.measured(command, "accuracy_checking_details_*.csv")

    def run_ut(self) -> Path:
        """Prints the rows of run_ut and of two processes; returns a folder with results."""
        one, two, few, many = [], [], [], []
        for _ in range(self.options.rounds):
            one.append(self.ours_run_ut("run_ut"))
            two.append(self.ours_run_ut("multi_run_ut", "-n", "2"))
            if self.options.peer8:
                few.append(self.peer_run_ut(PEER_CALLS[0]))
                many.append(self.peer_run_ut(PEER_CALLS[1]))
        heading = ["what", "calls", "s", "ms/call", "MB", "x peer", "target", "verdict"]
        seconds, memory = median_of(one)
        each = seconds / len(self.calls)
        line = ["run_ut", str(len(self.calls)), f"{seconds:.2f}", f"{each * 1e3:.1f}"]
        line.append(f"{memory / 1e6:.0f}")
        lines = [heading]
        if self.options.peer8:
            more = PEER_CALLS[1] - PEER_CALLS[0]
            added = [(b[0] - a[0]) / more for a, b in zip(few, many, strict=True)]
            of_peer, (peer_seconds, peer_memory) = statistics.median(added), median_of(many)
            met = of_peer / each >= OF_PEER and memory <= OF_PEER_MEMORY * peer_memory
            target = f">= {OF_PEER} x, <= {OF_PEER_MEMORY} of its memory"
            lines.append([*line, f"{of_peer / each:.1f}", target, verdict(met)])
            peers = ["run_ut, msprobe 8", str(PEER_CALLS[1]), f"{peer_seconds:.2f}"]
            lines.append([*peers, f"{of_peer * 1e3:.1f}", f"{peer_memory / 1e6:.0f}", "", "", ""])
        else:
            lines.append([*line, "", "", ""])
        seconds, memory = median_of(two)
        times = statistics.median(a[0] / b[0] for a, b in zip(one, two, strict=True))
        line = ["multi_run_ut -n 2", str(len(self.calls)), f"{seconds:.2f}"]
        line += [f"{seconds * 1e3 / len(self.calls):.1f}", f"{memory / 1e6:.0f}", ""]
        cores = len(os.sched_getaffinity(0))
        said = verdict(times >= OF_TWO) if cores > 1 else "needs two cores"
        lines.append([*line, f"{times:.2f} x one process, >= {OF_TWO}", said])
        table(lines)
        return one[0][2]

    def join(self, results: Path) -> None:
        """Prints the row of api_precision_compare."""
        (details,) = results.glob("accuracy_checking_details_*.csv")
        count = ROWS // 10 if self.options.small else ROWS
        made = "api_precision_compare_details_*.csv"

        def joined(program, rows):
            path = inputs.many_rows(details, rows, self.folder / f"details{rows}.csv")
            files = ["-npu", path, "-gpu", path]
            return self.measured([program, "-f", "pytorch", "api_precision_compare", *files], made)

        seconds, memory = median_of([joined(self.ours, count) for _ in range(self.options.rounds)])
        each = seconds / count
        lines = [["what", "rows", "s", "us/row", "MB", "x peer", "target", "verdict"]]
        line = ["api_precision_compare", str(count), f"{seconds:.3f}", f"{each * 1e6:.2f}"]
        line.append(f"{memory / 1e6:.0f}")
        met = verdict(seconds <= JOIN_SECONDS)
        if self.options.peer8:
            program = self.options.peer8.parent / "msprobe"
            few, many = (joined(program, rows) for rows in PEER_ROWS)
            of_peer = (many[0] - few[0]) / (PEER_ROWS[1] - PEER_ROWS[0])
            lines.append([*line, f"{of_peer / each:.0f}", f"<= {JOIN_SECONDS} s", met])
            peers = ["the same, msprobe 8", str(PEER_ROWS[1]), f"{many[0]:.3f}"]
            lines.append([*peers, f"{of_peer * 1e6:.2f}", f"{many[1] / 1e6:.0f}", "", "", ""])
        else:
            lines.append([*line, "", f"<= {JOIN_SECONDS} s", met])
        table(lines)


def median_of(runs: list) -> tuple:
    """(median seconds, largest memory) of runs."""
    return statistics.median(run[0] for run in runs), max(run[1] for run in runs)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer8", type=Path, help="Python of a venv with msprobe 8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("run_ut", "join"))
    parser.add_argument("--dump", type=Path, help="dump.json of a GPT that was recorded before")
    parser.add_argument("--small", action="store_true", help="a tenth of the calls and rows")
    options = parser.parse_args()
    options.peer8 = options.peer8 and options.peer8.absolute()
    options.dump = options.dump and options.dump.absolute()
    with tempfile.TemporaryDirectory() as scratch:
        bench = Bench(options, Path(scratch))
        joins_only = options.only == "join"
        results = bench.ours_run_ut("run_ut")[2] if joins_only else bench.run_ut()
        if options.only != "run_ut":
            bench.join(results)


if __name__ == "__main__":
    main()
