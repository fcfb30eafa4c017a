"""Measures what recording adds to a step of a MindSpore training, and what the idle tool adds.

    python bench/mindspore/run.py [--peer .cache/peer-mindspore/bin/python] [--pairs 30]
                                  [--only training|idle|compiled]

Run it with the Python of an environment that has MindSpore and msprobe (make bench-mindspore).
"""

import argparse
import json
import random
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from idle import Worker, undisturbed
from tables import table, verdict

TRAIN = Path(__file__).resolve().parent / "train.py"
# (level, task): limit of the added time / the time of a step; of tensor files, / numpy.save
LIMITS = {
    ("L0", "statistics"): 0.15,
    ("L1", "statistics"): 0.4,
    ("mix", "statistics"): 0.5,
    ("mix", "tensor"): 1.5,
}
PEER_PAIRS = 4  # a step of the peer takes up to 60 times as long
IDLE = 1.01
STATES = ("bare", "control", "imported", "constructed")
COMPILED = ("bare", "kernel", "callback")
COMPILED_LIMIT = 2  # recorded step / step, of wall time


def measure(python: str, tool: str, level: str, task: str, pairs: int) -> dict:
    command = [python, TRAIN, "--tool", tool, "--level", level, "--task", task, "--pairs", pairs]
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    if not lines:  # the peer may end with an error after the result
        sys.exit(f"error: {' '.join(command)}\n{done.stderr[-3000:]}")
    return json.loads(lines[-1])


def bench_training(options):
    print(
        "\nMindSpore, PyNative on the CPU: processor time added to one step, "
        f"{options.pairs} off/on pairs\n  the fastest quarter of the steps without and with; "
        "beside it the median of the pairs"
    )
    heading = ["level, task", "operators", "step ms", "added ms", "x step", "median", "entries"]
    heading += ["numpy.save ms", "x numpy.save"]
    heading += ["peer ms", "peer x step", "peer / ours"] if options.peer else []
    lines = [[*heading, "target", "verdict"]]
    for (level, task), limit in LIMITS.items():
        ours = measure(sys.executable, "ours", level, task, options.pairs)
        added = ours["on_ms"] - ours["off_ms"]
        of_step, of_save = added / ours["off_ms"], None
        if ours["save_ms"]:
            of_save = added / ours["save_ms"]
        line = [f"{level} {task}", str(ours["operators"]), f"{ours['off_ms']:.1f}"]
        line += [f"{added:.2f}", f"{of_step:.2f}"]
        line.append(f"{ours['median_added_ms'] / ours['median_off_ms']:.2f}")
        line.append(str(ours["entries"]))
        line.append(f"{ours['save_ms']:.1f}" if of_save else "")
        line.append(f"{of_save:.2f}" if of_save else "")
        if options.peer:
            theirs = measure(options.peer, "peer", level, task, PEER_PAIRS)
            more = theirs["on_ms"] - theirs["bare_ms"]
            line += [f"{more:.1f}", f"{more / theirs['bare_ms']:.1f}", f"{more / added:.0f}"]
        line.append(f"<= {limit} x {'numpy.save' if of_save else 'step'}")
        lines.append([*line, verdict((of_save or of_step) <= limit)])
        print(f"  {line[0]} ...", file=sys.stderr, flush=True)
    table(lines)


def bench_idle(options):
    print(
        "\nMindSpore: processor time of a step's thread without recording / that of a process "
        "without the tool\n"
        "  control: a second process without the tool, the error of the measurement"
    )
    workers = {
        state: Worker(str(TRAIN), "--state", "bare" if state == "control" else state)
        for state in STATES
    }
    times = {state: [] for state in STATES}
    shuffle = random.Random(0).sample
    for _ in range(4 * options.pairs):
        for state in shuffle(STATES, len(STATES)):
            times[state].append(workers[state].turn())
    for worker in workers.values():
        worker.end()
    quick = {state: undisturbed(all_) for state, all_ in times.items()}
    ratios = {state: quick[state] / quick["bare"] for state in STATES[1:]}
    error = abs(ratios["control"] - 1)
    lines = [["state", "x step", "target", "verdict"]]
    lines.append(["control", f"{ratios['control']:.3f}", "", ""])
    for state in STATES[2:]:
        limit = f"<= {IDLE} + |control - 1|"
        lines.append([state, f"{ratios[state]:.3f}", limit, verdict(ratios[state] <= IDLE + error)])
    table(lines)


def bench_compiled(options):
    print(
        "\nMindSpore, compiled code on the CPU, level L0 statistics: a step without and with "
        "recording\n  the fastest quarter of the steps; processes take turns. kernel: MindSpore "
        "calls the engine; callback: it calls Python"
    )
    lines = [["mode, taps", "first step s", "processor ms", "x step", "wall ms", "x step"]]
    lines[0] += ["target", "verdict"]
    for mode in ("graph", "jit"):
        workers, first = {}, {}
        for state in COMPILED:
            command = [sys.executable, TRAIN, "--mode", mode, "--state", state]
            workers[state] = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            first[state] = float(workers[state].stdout.readline()) / 1e3
        spent = {state: [] for state in COMPILED}
        for turn in range(4 * options.pairs):
            for state in random.Random(turn).sample(COMPILED, len(COMPILED)):
                print(file=workers[state].stdin, flush=True)
                times = workers[state].stdout.readline().split()
                spent[state].append(tuple(map(float, times)))
        for state, worker in workers.items():
            worker.stdin.close()
            worker.wait()
            quick = [undisturbed([each[i] for each in spent[state]]) for i in (0, 1)]
            bare = [undisturbed([each[i] for each in spent["bare"]]) for i in (0, 1)]
            line = [f"{mode} {state}", f"{first[state]:.1f}", f"{quick[0]:.1f}"]
            line += [f"{quick[0] / bare[0]:.2f}", f"{quick[1]:.1f}", f"{quick[1] / bare[1]:.2f}"]
            if state == "kernel":
                line += [
                    f"<= {COMPILED_LIMIT} x step",
                    verdict(quick[1] / bare[1] <= COMPILED_LIMIT),
                ]
            lines.append(line + [""] * (len(lines[0]) - len(line)))
    table(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", help="python of a venv with MindSpore and the older tool")
    parser.add_argument("--pairs", type=int, default=30, help="off/on pairs of steps")
    parser.add_argument("--only", choices=("training", "idle", "compiled"))
    options = parser.parse_args()
    if options.only in (None, "training"):
        bench_training(options)
    if options.only in (None, "idle"):
        bench_idle(options)
    if options.only in (None, "compiled"):
        bench_compiled(options)


if __name__ == "__main__":
    main()
