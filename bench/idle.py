"""Measures the time that the tool adds to a step while it does not record.

    python bench/idle.py [--program toy40|gpt|launches] [--processes 3] [--rounds 60]

A process without the tool and one process in each state take turns of a few steps, so that a
change of the machine's speed affects all alike. Prints ratios of the fastest quarter of the turns.
A second process without the tool, the control, shows the error of the measurement. Times are
processor times of the process (all its threads), so other programs on the machine do not count.
States: constructed (never started), stopped (a step was recorded), unwanted (start, stop and step
are called around each step, which the configuration leaves out).
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STATES = ("bare", "control", "constructed", "stopped", "unwanted")
PROGRAMS = ("toy40", "gpt", "launches")
STEPS_A_TURN = {"toy40": 4, "gpt": 1, "launches": 5}


def build_launches():
    """A step with nearly no arithmetic: a thousand operations on one number."""
    import torch

    x = torch.ones(1)

    def step():
        y = x
        for _ in range(250):
            y = torch.relu(y) * 0.5
            y = torch.nn.functional.relu(y.add(1.0))

    return torch.nn.Linear(1, 1), step


def build(program: str):
    """(model, step) of a training program, optimizer included."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    import torch

    torch.set_num_threads(1)
    if program == "launches":
        return build_launches()
    from models import gpt, toy

    module = {"toy40": toy, "gpt": gpt}[program]
    small = {"layers": 2, "width": 64, "batch": 2} if program == "gpt" else {}
    model, batch = module.build(0, **small)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        module.loss(model, batch).backward()
        optimizer.step()

    return model, step


def in_state(state: str, model, step, folder: str):
    """A function that runs one step as a training loop in this state does."""
    if state in ("bare", "control"):
        return step
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    from msprobe.pytorch import PrecisionDebugger

    wanted = {"step": [1000000]} if state == "unwanted" else {}
    debugger = PrecisionDebugger(dump_path=folder, level="mix", **wanted)
    if state == "constructed":
        return step

    def around():
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()

    if state == "stopped":
        around()
        return step
    return around


def work(state: str, program: str, turns: int):
    """For each line of stdin, runs `turns` steps and prints their time."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        step = in_state(state, *build(program), folder)
        for _ in range(turns):
            step()
        print("ready", file=answer, flush=True)
        for _ in sys.stdin:
            started = time.process_time()
            for _ in range(turns):
                step()
            print(time.process_time() - started, file=answer, flush=True)


class Worker:
    """A process that prints a line when it is ready, and one for each line that it is given."""

    def __init__(self, script: str, *arguments: str):
        command = [sys.executable, script, *arguments]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.answer()

    def answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"error: {self.process.args} ended with exit code {self.process.wait()}")
        return line

    def begin(self):
        print(file=self.process.stdin, flush=True)

    def turn(self) -> float:
        self.begin()
        return float(self.answer())

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def ratios(program: str, rounds: int) -> dict:
    """State -> its time / the time of the process without the tool."""
    workers = {state: Worker(__file__, "--worker", state, "--program", program) for state in STATES}
    times = {state: [] for state in STATES}
    shuffle = random.Random(0).sample
    for _ in range(rounds):
        for state in shuffle(STATES, len(STATES)):
            times[state].append(workers[state].turn())
    for worker in workers.values():
        worker.end()
    return {state: undisturbed(times[state]) / undisturbed(times["bare"]) for state in STATES[1:]}


def undisturbed(times: list) -> float:
    """Mean of the fastest quarter: other programs can only make a turn slower."""
    return statistics.mean(sorted(times)[: max(1, len(times) // 4)])


def measure(program: str, processes: int, rounds: int) -> dict:
    """Median over several sets of processes: memory addresses change each by a percent."""
    sets = [ratios(program, rounds) for _ in range(processes)]
    return {state: statistics.median(each[state] for each in sets) for state in STATES[1:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", choices=PROGRAMS, action="append")
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--worker", choices=STATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.program[0], STEPS_A_TURN[options.program[0]])
        return
    programs = options.program or PROGRAMS
    results = {each: measure(each, options.processes, options.rounds) for each in programs}
    print(json.dumps(results))


if __name__ == "__main__":
    main()
