"""Measures a training under the tasks grad_probe and free_benchmark beside the same one without.

    python bench/tasks.py [--only grad_probe|free_benchmark] [--processes 3] [--rounds 20]

Prints ratios of processor times of a step; the control is a second process without the tool.
grad_probe: the processes take turns, as in idle.py. free_benchmark: its budget is a share of the
time that passes, and waiting for its turn would count as such time. So both processes train at the
same time, and the first steps, in which it may take more than its share, are left out.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from idle import Worker, undisturbed

TASKS = {
    "grad_probe": {"grad_probe": {"grad_level": "L1"}},
    "free_benchmark": {"free_benchmark": {"fuzz_stage": "forward"}},
    "free_benchmark backward": {"free_benchmark": {"fuzz_stage": "backward"}},
}
WARM_UP = 8  # rounds that do not count


def build():
    """(model, step) of the GPT with its optimizer."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))
    import torch

    from models import gpt

    torch.set_num_threads(1)
    model, batch = gpt.build(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        gpt.loss(model, batch).backward()
        optimizer.step()

    return model, step


def under(task: str, model, step, folder: Path):
    """A function that runs one step as a training loop with this task does."""
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    from msprobe.pytorch import PrecisionDebugger

    name = task.split()[0]
    path = folder / "config.json"
    path.write_text(json.dumps({"task": name, "dump_path": str(folder / "dump"), **TASKS[task]}))
    debugger = PrecisionDebugger(config_path=str(path))
    if name == "grad_probe":
        debugger.monitor(model)
        return step

    def around():
        debugger.start(model)
        step()
        debugger.stop()
        debugger.step()

    return around


def work(task: str):
    """For each line of stdin, runs a step and prints its time. An empty task: without the tool."""
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        model, step = build()
        if task:
            step = under(task, model, step, Path(folder))
        print("ready", file=answer, flush=True)
        for _ in sys.stdin:
            started = time.process_time()
            step()
            print(time.process_time() - started, file=answer, flush=True)


def ratios(task: str, rounds: int) -> tuple:
    """(time of the training with the task, of the control) / time of the training without."""
    together = task.startswith("free_benchmark")
    workers = [Worker(__file__, "--worker", each) for each in ("", "", task)]
    workers = workers[1:] if together else workers  # two cores are enough for two at a time
    times = [[] for _ in workers]
    for index in range(WARM_UP + rounds):
        if together:
            for worker in workers:
                worker.begin()
            taken = [float(worker.answer()) for worker in workers]
        else:
            taken = [worker.turn() for worker in workers]
        for kept, value in zip(times, taken, strict=True):
            kept += [value] if index >= WARM_UP else []
    for worker in workers:
        worker.end()
    # The steps under free_benchmark differ, because each has other calls chosen: their mean counts.
    typical = statistics.mean if together else undisturbed
    bare, *others = map(typical, times)
    return others[-1] / bare, others[0] / bare if len(others) > 1 else None


def measure(task: str, processes: int, rounds: int) -> dict:
    """Medians over several sets of processes."""
    sets = [ratios(task, rounds) for _ in range(processes)]
    controls = [control for _, control in sets if control is not None]
    return {
        "ratio": statistics.median(ratio for ratio, _ in sets),
        "control": statistics.median(controls) if controls else None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=("grad_probe", "free_benchmark"))
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker is not None:
        work(options.worker)
        return
    tasks = [task for task in TASKS if task.startswith(options.only or "")]
    print(json.dumps({task: measure(task, options.processes, options.rounds) for task in tasks}))


if __name__ == "__main__":
    main()
