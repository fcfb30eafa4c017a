"""Counts what recording costs on a device: kernels, copies and waits, on a simulated NPU.

    python bench/devices.py [--only "md5 L1"] [--peer PYTHON] [--rounds 5] [--json FILE]

Each setting trains a small GPT in a process of its own; every other step is recorded. Counts are
exact. Times are those of the simulation (tests/devices): the clock of its host runs with the
processor time of the program, so they depend on this machine a little. --peer: a Python with
msprobe 26.2 and the same PyTorch, measured in the same run.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
STATISTICS = {"task": "statistics"}
SETTINGS = {
    "statistics L0": ("L0", STATISTICS),
    "statistics L1": ("L1", STATISTICS),
    # What msprobe 26.2 records: no optimizer.
    "statistics L1 calls": ("L1", {**STATISTICS, "optimizer": False}),
    "statistics mix": ("mix", STATISTICS),
    "md5 L1": ("L1", {**STATISTICS, "statistics": {"summary_mode": "md5"}}),
    "tensor L1": ("L1", {"task": "tensor"}),
    "structure mix": ("mix", {"task": "structure"}),
    "nan_check L1": ("L1", {"task": "nan_check"}),
    "overflow_check L1": ("L1", {"task": "overflow_check"}),
}
# What msprobe 26.2 has, and the keys that it requires.
OF_THE_PEER = ("statistics L1", "md5 L1", "tensor L1")
REQUIRED = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}


def configuration(setting, folder, peer):
    level, chosen = SETTINGS[setting]
    config = {"dump_path": folder, "level": level, **chosen}
    if peer:
        task = config["task"]
        config = {"rank": [], "step": [], **config, task: {**REQUIRED, **config.get(task, {})}}
    return config


def counted(sim):
    counts = sim.counts()
    return [sum(counts[kind].values()) for kind in ("kernels", "copies", "syncs")]


def measure(setting, rounds, peer):
    """One process: rounds of a step without and a step with recording, as lists of numbers."""
    sys.path.insert(0, str(HERE.parent / "examples"))
    import torch
    import torch_npu

    from models import gpt

    sim = torch_npu.sim
    torch.set_num_threads(1)
    model, batch = gpt.build(layers=2, width=32, heads=4, batch=2, length=16, vocabulary=64)
    model, batch = model.npu(), [each.npu() for each in batch]
    optimizer = torch.optim.Adam(model.parameters())
    from msprobe.pytorch import PrecisionDebugger

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.json")
        path.write_text(json.dumps(configuration(setting, folder, peer)))
        debugger = PrecisionDebugger(str(path))
        rows = {False: [], True: []}
        for turn in range(2 * rounds):
            recorded = turn % 2 == 1
            torch.npu.synchronize()
            sim.reset()
            begun = max(sim.clocks(0))
            if recorded:
                debugger.start(model)
            started, first = counted(sim), sim.clocks(0)[0]
            optimizer.zero_grad()
            gpt.loss(model, batch).backward()
            optimizer.step()
            inside, last = counted(sim), sim.clocks(0)[0]
            if recorded:
                debugger.stop()
                debugger.step()
            kernels, copies, waits = counted(sim)
            torch.npu.synchronize()
            rows[recorded].append(
                {
                    "kernels": kernels,
                    "copies": copies,
                    "waits in the step": inside[2] - started[2],
                    "waits around it": waits - inside[2] + started[2],
                    "of the program": last - first,
                    "microseconds": max(sim.clocks(0)) - begun,
                }
            )
        tensors = 0
        for dump in sorted(Path(folder).glob("step*/*/dump.json"))[-1:]:
            tensors = dump.read_text().replace(" ", "").count('"type":"torch.Tensor"')
    print(json.dumps({"off": rows[False][1:], "on": rows[True][1:], "tensors": tensors}))


def middle(rows, name):
    return statistics.median(row[name] for row in rows)


def row_of(setting, measured):
    off, on, tensors = measured["off"], measured["on"], max(measured["tensors"], 1)
    more = {name: middle(on, name) - middle(off, name) for name in off[0]}
    before, after = middle(off, "microseconds") / 1e3, middle(on, "microseconds") / 1e3
    inside = middle(on, "of the program") / 1e3
    return "  ".join(
        (
            f"{setting:24} {measured['tensors']:5} tensors",
            f"{more['kernels'] / tensors:5.2f} kernels and {more['copies'] / tensors:5.3f} copies",
            f"waits {more['waits in the step']:4.0f} in the step",
            f"{more['waits around it']:3.0f} around it",
            f"step {before:5.2f} -> {after:6.2f} ms (x {after / before:4.1f})",
            f"{inside:6.2f} between start() and stop()",
        )
    )


def run(python, setting, rounds, peer, simulated):
    command = [python, __file__, "--measure", setting, "--rounds", str(rounds)]
    done = subprocess.run(
        [*command, *(["--as-peer"] if peer else [])],
        env={**os.environ, "PYTHONPATH": str(simulated)},
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        return None, done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
    return json.loads(lines[-1]), []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="settings whose name has this text")
    parser.add_argument("--peer", help="a Python with msprobe 26.2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", help="write the rows to this file")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        return measure(arguments.measure, arguments.rounds, arguments.as_peer)
    sys.path.insert(0, str(HERE.parent / "tests" / "devices"))
    import simnpu_build

    if reason := simnpu_build.why_not():
        return f"no simulated NPU: {reason}"
    simulated, all_rows = simnpu_build.build(), {}
    for setting in (each for each in SETTINGS if arguments.only in each):
        pythons = [("", sys.executable)]
        if arguments.peer and setting in OF_THE_PEER:
            pythons.append(("26.2: ", arguments.peer))
        for name, python in pythons:
            measured, failed = run(python, setting, arguments.rounds, bool(name), simulated)
            all_rows[name + setting] = measured
            print(
                row_of(name + setting, measured) if measured else f"{name}{setting}: {failed}",
                flush=True,
            )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(all_rows))


if __name__ == "__main__":
    sys.exit(main())
