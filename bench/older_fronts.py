"""Times a step under a front of an older tool beside the same step under ours; prints JSON.

    python bench/older_fronts.py --front hooks|ptdbg|ptdbg-0.1 --program toy40 --data statistics

Both record the same calls in one process, in turns, so that a change of the machine's speed
affects both alike. `data` is the data that both record: statistics, or all elements too. The
figure is the ratio of the times that they add to a step without a tool.
"""

import argparse
import contextlib
import importlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import torch

from models import gpt, resnet, toy

PROGRAMS = {"toy40": toy, "gpt": gpt, "resnet": resnet}
FRONTS = ("hooks", "ptdbg", "ptdbg-0.1")


@contextlib.contextmanager
def ours(folder: Path, model, data: str):
    """Calls the engine as PrecisionDebugger does; each use begins a new recording."""
    from msprobe import _engine
    from msprobe.pytorch import hooks
    from msprobe.pytorch.process import PACKAGE

    task = "tensor" if data == "elements" else "statistics"
    _engine.configure("", task, str(folder), "L1", None, PACKAGE)
    hooks.begin(model)
    yield
    hooks.end()


@contextlib.contextmanager
def older(front: str, folder: Path, model, data: str):
    """The calls that a script of the older tool makes around a step."""
    folder.mkdir()
    if front == "hooks":
        tool = importlib.import_module("torch_npu.hooks")

        from msprobe.compat import recorder

        tool.set_dump_path(folder / "dump.pkl")
        yield
        recorder.end()  # torch_npu.hooks has no call to end a dump: it ends with the program
        return
    import ptdbg_ascend as tool

    tool.set_dump_path(folder / "dump.pkl" if front == "ptdbg-0.1" else folder)
    tool.set_dump_switch("ON", summary_only=data == "statistics")
    yield
    tool.set_dump_switch("OFF")


def register(front: str, model, data: str):
    """The calls that a script of the older tool makes once."""
    if front == "hooks":
        from torch_npu.hooks import register_hook, wrap_acc_cmp_hook

        register_hook(model, wrap_acc_cmp_hook, sample=data == "statistics")
    else:
        from ptdbg_ascend import acc_cmp_dump, register_hook

        register_hook(model, acc_cmp_dump)


def measure(options, folder: Path) -> dict:
    program = PROGRAMS[options.program]
    model, batch = program.build(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

    def step():
        optimizer.zero_grad()
        program.loss(model, batch).backward()
        optimizer.step()

    def timed(recording) -> float:
        started = time.perf_counter()
        with recording:
            step()
        return (time.perf_counter() - started) * 1e3

    for _ in range(5):
        step()
    register(options.front, model, options.data)
    bare, ours_ms, older_ms = [], [], []
    for pair in range(options.pairs + 1):
        bare.append(timed(contextlib.nullcontext()))
        ours_ms.append(timed(ours(folder / "ours", model, options.data)))
        older_ms.append(timed(older(options.front, folder / "older", model, options.data)))
        for kind in ("ours", "older"):
            if options.data == "elements":  # not deleted: see bench/train.py
                (folder / kind).rename(folder / f"{kind}{pair}")
            else:
                shutil.rmtree(folder / kind)
    return {
        "bare_ms": statistics.median(bare[1:]),
        "ours_ms": statistics.median(ours_ms[1:]),
        "older_ms": statistics.median(older_ms[1:]),
        "added_ratio": statistics.median(
            (a - c) / (b - c) for a, b, c in zip(older_ms[1:], ours_ms[1:], bare[1:], strict=True)
        ),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--front", choices=FRONTS, required=True)
    parser.add_argument("--program", choices=PROGRAMS, required=True)
    parser.add_argument("--data", choices=("statistics", "elements"), default="statistics")
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--scratch", help="where the dumps go (default: the temporary folder)")
    options = parser.parse_args()
    result_file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(dir=options.scratch, ignore_cleanup_errors=True) as folder:
        result = measure(options, Path(folder))
    for name in ("front", "program", "data"):
        result[name] = getattr(options, name)
    print(json.dumps(result), file=result_file, flush=True)


if __name__ == "__main__":
    main()
