"""Times steps of a MindSpore training with one tool in one process and prints one JSON object.

    python bench/mindspore/train.py --tool ours|peer --level L1 --task statistics --pairs 30

Steps with and without recording alternate, so that a change of the machine's speed affects both
alike. Times are processor times of the process (all its threads) in milliseconds: other programs on
the machine do not count. With --state the process takes turns of steps, one for each line of stdin,
and prints the time of each: run.py compares several such processes. --mode graph or jit: compiled.
"""

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import mindspore
from mindspore import Tensor, mint, nn, ops

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from idle import undisturbed

BLOCKS, WIDTH, BATCH = 12, 64, 32
TURN = 2  # steps


class Block(nn.Cell):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm((WIDTH,))
        self.fc1 = nn.Dense(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Dense(2 * WIDTH, WIDTH)

    def construct(self, x):
        return x + self.fc2(ops.gelu(self.fc1(self.norm(x)))) * 0.5


def build(mode: str = "pynative"):
    """(net, step): forward and backward pass of an MLP of 12 blocks."""
    if mode == "graph":
        mindspore.set_context(mode=mindspore.GRAPH_MODE)
    else:
        mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    mindspore.set_seed(0)
    net = nn.SequentialCell(*[Block() for _ in range(BLOCKS)])
    net.set_train()
    values = np.random.default_rng(0).standard_normal((BATCH, WIDTH))
    x = Tensor(values.astype("float32"))
    if mode == "pynative":
        loss_of = lambda: (net(x) ** 2).mean()  # noqa: E731
        return net, mindspore.value_and_grad(loss_of, None, net.trainable_params())

    def loss(x):
        return (net(x) ** 2).mean()

    step = mindspore.value_and_grad(loss, None, net.trainable_params())
    step = mindspore.jit(step) if mode == "jit" else step
    # A graph runs on other threads: the step ends when its loss is there.
    return net, lambda: step(x)[0].asnumpy()


def count_operators(step) -> int | None:
    """Operators that a step runs, as far as MindSpore shows them; None before 2.9."""
    if not hasattr(mindspore, "MsDispatchMode"):
        return None
    count = 0

    class Counting(mindspore.MsDispatchMode):
        def __ms_dispatch__(self, func, args=(), kwargs=None):
            nonlocal count
            count += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        step()
    return count


def import_debugger(tool: str):
    if (
        tool == "peer"
    ):  # mint.norm has no kernel on the CPU: as shipped the peer stops with an error
        mint.norm = lambda x, *_, **__: ops.sqrt(ops.reduce_sum(ops.square(x)))
    from msprobe.mindspore import PrecisionDebugger

    return PrecisionDebugger


def write_config(folder: Path, options) -> str:
    common = {"task": options.task, "level": options.level, "dump_path": str(folder / "dump")}
    part = {"scope": [], "list": [], "data_mode": ["all"]}
    if options.task == "statistics":
        part["summary_mode"] = "statistics"
    path = folder / "config.json"
    path.write_text(json.dumps({**common, "rank": [], "step": [], options.task: part}))
    return str(path)


def timed(work, clock=time.process_time) -> float:
    started = clock()
    work()
    return (clock() - started) * 1e3


def save_ms(arrays: list, folder: Path) -> float:
    """Time to write these arrays with numpy.save, each to a file."""
    folder.mkdir()

    def save():
        for index, array in enumerate(arrays):
            np.save(folder / f"{index}.npy", array)

    return timed(save)


def measure(options, folder: Path) -> dict:
    net, step = build()
    for _ in range(8):
        step()
    operators = count_operators(step)
    bare = [timed(step) for _ in range(options.pairs)]
    debugger = import_debugger(options.tool)(config_path=write_config(folder, options))

    def observed_step():
        debugger.start(net)
        step()
        debugger.stop()
        debugger.step()

    off, on, saved, arrays, entries = [], [], [], [], 0
    dump = folder / "dump"
    for pair in range(options.pairs + 1):
        off_ms, on_ms = timed(step), timed(observed_step)
        if pair == 0:  # warms up
            (path,) = dump.glob("step*/*/dump.json")
            entries = len(json.loads(path.read_text())["data"])
            arrays = [np.load(file) for file in path.parent.glob("dump_tensor_data/*.npy")]
            shutil.rmtree(dump)
            continue
        off.append(off_ms)
        on.append(on_ms)
        if arrays:
            saved.append(save_ms(arrays, folder / f"plain{pair}"))
    return {
        "operators": operators,
        "bare_ms": undisturbed(bare),
        "off_ms": undisturbed(off),
        "on_ms": undisturbed(on),
        "median_added_ms": statistics.median(a - b for a, b in zip(on, off, strict=True)),
        "median_off_ms": statistics.median(off),
        "save_ms": undisturbed(saved) if saved else None,
        "entries": entries,
        "files": len(arrays),
    }


def take_turns(state: str, folder: Path, answer):
    _, step = build()
    if state != "bare":
        debugger = import_debugger("ours")
        if state == "constructed":
            debugger(dump_path=str(folder), level="mix")
    for _ in range(8):
        step()
    print("ready", file=answer, flush=True)
    for _ in sys.stdin:
        # Of this thread alone, which does all the work of a step: whether MindSpore's idle threads
        # wait actively differs from process to process by a third of the processor time.
        spent = timed(lambda: [step() for _ in range(TURN)], time.thread_time)
        print(spent, file=answer, flush=True)


def take_compiled_turns(options, folder: Path, answer):
    """Prints the time of the first step, which compiles, and then for each line that of a step."""
    net, step = build(options.mode)
    work = step
    if options.state != "bare":
        # Else MindSpore calls the engine as a kernel (msprobe/mindspore/graph.py).
        if options.state == "callback":
            os.environ["MS_CUSTOM_AOT_WHITE_LIST"] = str(folder)
        debugger = import_debugger("ours")(dump_path=str(folder / "dump"), level="L0")

        def work():
            debugger.start(net)
            step()
            debugger.stop()
            debugger.step()

    print(timed(work, time.perf_counter), file=answer, flush=True)
    for _ in range(4):
        work()
    for _ in sys.stdin:
        began = time.perf_counter()
        spent = timed(work)
        print(spent, (time.perf_counter() - began) * 1e3, file=answer, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=("ours", "peer"), default="ours")
    parser.add_argument("--level", choices=("L0", "L1", "mix"), default="L1")
    parser.add_argument("--task", choices=("statistics", "tensor"), default="statistics")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument(
        "--state", choices=("bare", "imported", "constructed", "kernel", "callback")
    )
    parser.add_argument("--mode", choices=("pynative", "graph", "jit"), default="pynative")
    options = parser.parse_args()
    # The tool's own output goes to stderr: stdout has only the result.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        if options.mode != "pynative":
            take_compiled_turns(options, Path(folder), answer)
            return
        if options.state:
            take_turns(options.state, Path(folder), answer)
            return
        result = measure(options, Path(folder))
    for name in ("tool", "level", "task"):
        result[name] = getattr(options, name)
    print(json.dumps(result), file=answer, flush=True)


if __name__ == "__main__":
    main()
