"""Trains the programs and records them: record.py OUT [--only REGEX] [--open | --held-out].

Each recording is OUT/<program>.<layout>[.<bug>]; what is held out lies in OUT-held. Each training
runs in float64 too, and result.pt has its losses and weights: those of a right layout must be the
golden's, those of a bug must not.
"""

import argparse
import atexit
import importlib
import importlib.util
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

import torch
from catalogue import cases

# Imported once, before the processes are forked.
PREPARED = ("optim", "tensor.parallel", "fsdp", "pipelining")
PREPARED = [f"torch.distributed.{name}" for name in PREPARED]
WRONG = 1e-6  # smallest one that is no rounding, also not in float32


def held_of(out):
    """The folder of the recordings that are held out: OUT-held, beside OUT."""
    return out.with_name(out.name + "-held")


def folder_of(case, out):
    return (held_of(out) if case.held_out else out) / case.name


def golden_of(case, out):
    """The golden of a bug that is held out may be open."""
    return (held_of(out) if case.program_held_out else out) / case.golden


def difference(target, golden):
    """Largest difference of a loss or weight on any rank, and where; relative to the largest."""
    golden_losses, golden_weights = golden[0]
    worst = (0.0, "")
    for rank, (losses, weights) in enumerate(target):
        pairs = [
            (f"loss {i}", a, b) for i, (a, b) in enumerate(zip(losses, golden_losses, strict=False))
        ]
        pairs += [(name, weight, golden_weights[name]) for name, weight in weights.items()]
        for name, ours, theirs in pairs:
            ours, theirs = torch.as_tensor(ours).double(), torch.as_tensor(theirs).double()
            if ours.shape != theirs.shape:
                return float("inf"), f"{name}: {tuple(ours.shape)}, not {tuple(theirs.shape)}"
            off = (ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-3)
            worst = max(worst, (off.item(), f"{name} of rank {rank}"))
    missing = golden_weights.keys() - {name for _, weights in target for name in weights}
    return (float("inf"), f"no rank has {min(missing)}") if missing else worst


def arguments(case, into, options):
    given = ["--layout", case.layout, "--variant", case.variant, "--bug", case.bug]
    given += ["--task", options.task, "--level", options.level]
    return [str(case.script), *given, "--dump", str(into), "--result", str(into / "result.pt")]


def train(case, into, options):
    """Runs the program under torchrun; layout "one" is a process of its own."""
    command = [options.python]
    if case.processes > 1:
        command += ["-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc_per_node", str(case.processes)]
    command += arguments(case, into, options)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    with open(into / "log.txt", "w") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, timeout=300)
    if done.returncode:
        raise RuntimeError(f"{case.name} failed: {into / 'log.txt'}")


def child(case, into, rank, port, options):
    """One rank, in a forked process: what torchrun would start."""
    log = os.open(into / "log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    if case.processes > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(case.processes))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = arguments(case, into, options)
    sys.path.insert(0, str(case.script.parent))
    status = 1
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        debugger = sys.modules.get("msprobe.pytorch")
        if debugger and status == 0:
            atexit._run_exitfuncs()
        os._exit(status)


def train_forked(case, into, options):
    """As train(), without importing PyTorch again in each process: a third of the time."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    waiting = {}
    for rank in range(case.processes):
        if (pid := os.fork()) == 0:
            child(case, into, rank, port, options)
        waiting[pid] = rank
    end, failed = time.monotonic() + 300, False
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            waiting.pop(pid)
            failed = failed or status != 0
        elif failed or time.monotonic() > end:
            for pid in waiting:
                os.kill(pid, signal.SIGKILL)
            failed = True
        time.sleep(0.02)
    if failed:
        raise RuntimeError(f"{case.name} failed: {into / 'log.txt'}")


def judge(case, into, out):
    """One line about the float64 results, and whether they are as they should be."""
    if case.layout == case.against:
        return "golden", True
    target, golden = (torch.load(path / "result.pt") for path in (into, golden_of(case, out)))
    off, where = difference(target, golden)
    good = off <= case.rounding if not case.bug else off >= WRONG
    return f"{off:.1e} off at {where}" + ("" if good else "  NOT AS IT SHOULD BE"), good


def is_installed(package):
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # what it lies in
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", default="", help="regular expression of names of recordings")
    parser.add_argument("--fork", action="store_true", help="without torchrun; much faster")
    parser.add_argument("--task", default="statistics", help="statistics or tensor")
    parser.add_argument("--level", default="mix", help="L0, L1 or mix")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--new", action="store_true", help="skip what is recorded already")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--open", action="store_true")
    which.add_argument("--held-out", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in PREPARED if options.fork else ():
        importlib.import_module(name)
    wrong = []
    chosen = [
        case
        for case in cases()
        if re.search(options.only, case.name)
        and not (options.open and case.held_out)
        and not (options.held_out and not case.held_out)
    ]
    done = set()
    for case in sorted(chosen, key=lambda case: case.layout != "one"):
        golden = golden_of(case, options.out)
        if case.name in done and not (golden / "result.pt").exists():
            continue  # of a further pair that was not chosen
        absent = [name for name in case.needs if not is_installed(name)]
        if absent:
            print(f"{case.name}: not recorded, it needs {', '.join(absent)}", flush=True)
            continue
        into = folder_of(case, options.out)
        began = time.monotonic()
        if case.name not in done and not (options.new and (into / "result.pt").exists()):
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir(parents=True)
            try:
                (train_forked if options.fork else train)(case, into, options)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                wrong.append(case.name)
                print(error, flush=True)
                continue
        done.add(case.name)
        said, good = judge(case, into, options.out)
        wrong += [] if good else [case.name]
        print(f"{case.name}: {said} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen)} recordings, {len(wrong)} not as they should be: {', '.join(wrong)}")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
