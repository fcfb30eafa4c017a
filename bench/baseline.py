"""Measures what a comparison while a program trains costs, and the weights of each step.

    python bench/baseline.py [--program toy40|gpt] [--rounds 20] [--processes 2]

One process for each state; they take turns of four steps, so that a change of the machine's speed
affects all alike. Times are processor times (all threads), so other programs do not count; figures
are means of the fastest quarter of the turns, and medians over several sets of processes.
States: plain (no tool), statistics (level mix), no_weights (the same with "weights": "none"), equal
(statistics with a baseline that has the same bits), rounding (with one that differs by rounding in
nearly every value).
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

from idle import Worker, undisturbed

STATES = ("plain", "statistics", "no_weights", "equal", "rounding")
PROGRAMS = {"toy40": {}, "gpt": {}}
TURN = 4  # steps
WARM_UP = 2  # turns that do not count


def build(program: str, other_rounding: bool):
    """(model, step) of a training that does all the work of an update and changes no weight."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    import torch

    from models import gpt, toy

    torch.set_num_threads(1)
    module = {"toy40": toy, "gpt": gpt}[program]
    model, batch = module.build(0, **PROGRAMS[program])
    if other_rounding:  # other kernels, and other bits in the data
        torch.backends.mkldnn.set_flags(False)
        batch = tuple(x * (1 + 2.0**-23) if x.is_floating_point() else x for x in batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)

    def step():
        optimizer.zero_grad()
        module.loss(model, batch).backward()
        optimizer.step()

    return model, step


def observed(state: str, program: str, folder: str, baseline: str):
    """A function that runs one step in this state."""
    model, step = build(program, other_rounding=state == "record_rounding")
    if state == "plain":
        return step
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    from msprobe.pytorch import PrecisionDebugger

    config = {"task": "statistics", "level": "mix", "dump_path": folder, "baseline": baseline}
    config["weights"] = "none" if state == "no_weights" else "each_step"
    Path(f"{folder}.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(f"{folder}.json")

    def around():
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()

    return around


def work(state: str, program: str, folder: str, baseline: str):
    """For each line of stdin, runs a turn of steps and prints its time."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    step = observed(state, program, folder, baseline)
    print("ready", file=answer, flush=True)
    for _ in sys.stdin:
        started = time.process_time()
        for _ in range(TURN):
            step()
        print(time.process_time() - started, file=answer, flush=True)


def ratios(program: str, rounds: int, folder: Path) -> dict:
    def worker(state: str, baseline: str = "") -> Worker:
        where = str(folder / state)
        return Worker(
            __file__, "--worker", state, "--program", program, "--folder", where, baseline
        )

    for state in ("record_equal", "record_rounding"):
        recording = worker(state)
        for _ in range(rounds + WARM_UP):
            recording.turn()
        recording.end()
    baselines = {name: str(folder / f"record_{name}") for name in ("equal", "rounding")}
    workers = {state: worker(state, baselines.get(state, "")) for state in STATES}
    times = {state: [] for state in STATES}
    shuffle = random.Random(0).sample
    for _ in range(rounds + WARM_UP):
        for state in shuffle(STATES, len(STATES)):
            times[state].append(workers[state].turn())
    for each in workers.values():
        each.end()
    for state in ("equal", "rounding"):
        for told in (folder / state).glob("first_divergence*"):
            sys.exit(f"error: the program differs from its baseline: {told.read_text()}")
    return {state: undisturbed(each[WARM_UP:]) / TURN * 1e3 for state, each in times.items()}


def measure(program: str, processes: int, rounds: int, scratch: str | None) -> dict:
    """Milliseconds of a step in each state, and what is added over the statistics' own cost."""
    sets = []
    for _ in range(processes):
        with tempfile.TemporaryDirectory(dir=scratch, ignore_cleanup_errors=True) as folder:
            sets.append(ratios(program, rounds, Path(folder)))

    def median(of) -> float:
        return statistics.median(of(each) for each in sets)

    def over_statistics(state: str) -> float:
        return median(lambda t: (t[state] - t["plain"]) / (t["statistics"] - t["plain"]))

    ms = {state: median(lambda t, state=state: t[state]) for state in STATES}
    shares = {state: over_statistics(state) for state in ("equal", "rounding", "no_weights")}
    return {"ms": ms, "of_statistics": shares}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=PROGRAMS, action="append")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--scratch", help="where the dumps go (default: the temporary folder)")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("baseline", nargs="?", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.program[0], options.folder, options.baseline)
        return
    results = {
        program: measure(program, options.processes, options.rounds, options.scratch)
        for program in options.program or PROGRAMS
    }
    print(json.dumps(results))


if __name__ == "__main__":
    main()
