"""Times one training program with one tool in one process and prints one JSON object.

    python bench/train.py --tool ours|peer --program toy40 --level L1 --task statistics --pairs 20

Three kinds of steps: bare (no tool in the process yet), off (between two collections) and on
(collecting). Off and on take turns of four steps, so that a change of the machine's speed affects
both alike. The first step of a turn has its own figure ("first_added_ms"): small blocks of memory
that it leaves between large tensors make the C library give memory back and fetch it again, which
later steps of the turn do not. Every figure is a median. The tool is the `msprobe` that this
Python imports; --tool only says which one that is. `ddp` is the GPT in two processes of one thread
each, measured in the first.

`--sketch paired`: each turn has plain steps, and pairs of steps that are recorded with and without
the key `sketch`. The result says, for the time on the clock and for that of the processor (all
threads; other programs do not count there), the milliseconds that a recording adds without sketches
("without_ms"), what sketches add to them ("more_ms"), and the second over the first ("share"); and
the bytes of the JSON files of both.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples"))

import torch

from models import gpt, resnet, toy

TURN = 4  # steps; the first one counts apart
PROGRAMS = {"toy40": toy, "gpt": gpt, "resnet": resnet, "ddp": gpt}
WORLD = 2
JSON_FILES = ("dump.json", "stack.json", "construct.json")  # what both tools write
ITEM_SIZES = {
    **{f"torch.{name}": 1 for name in ("bool", "uint8", "int8")},
    **{f"torch.{name}": 2 for name in ("float16", "bfloat16", "int16")},
    **{f"torch.{name}": 4 for name in ("float32", "int32")},
    **{f"torch.{name}": 8 for name in ("float64", "int64", "complex64")},
    "torch.complex128": 16,
}


def write_config(folder: Path, options, sketch: bool) -> Path:
    """The same config.json for both tools; msprobe 26 is also told to leave no API out."""
    config = {
        "task": options.task,
        "dump_path": str(folder / "dump"),
        "rank": [],
        "step": [],
        "level": options.level,
        options.task: {"scope": [], "list": [], "data_mode": ["all"]},
    }
    config[options.task]["summary_mode"] = options.summary
    if options.tensor_files == "packed":
        config["tensor_files"] = "packed"
    elif options.tensor_files == "unlinked":
        config["link_equal_tensors"] = False
    if options.tool == "peer":
        config["risk_level"] = "ALL"
    else:
        config["optimizer"] = options.optimizer == "recorded"
        config["reuse"] = options.reuse == "on"
        config["sketch"] = sketch
    path = folder / f"config_{'with' if sketch else 'without'}_sketch.json"
    path.write_text(json.dumps(config))
    return path


def described_tensors(node):
    """(dtype, shape) of every tensor described in a dump."""
    if isinstance(node, list):
        for item in node:
            yield from described_tensors(item)
    elif isinstance(node, dict):
        if node.get("dtype") in ITEM_SIZES and isinstance(node.get("shape"), list):
            yield node["dtype"], node["shape"]
        else:
            for item in node.values():
                yield from described_tensors(item)


def read_once_ms(tensors: list) -> float:
    """Median of 5: our kernel's time to read tensors of these dtypes and shapes once."""
    from msprobe import _engine

    data = [torch.ones(shape, dtype=getattr(torch, dtype[6:])) for dtype, shape in tensors]
    times = []
    for _ in range(5):
        started = time.perf_counter()
        for tensor in data:
            _engine.compute_stats(tensor)
        times.append((time.perf_counter() - started) * 1e3)
    return statistics.median(times)


def inspect_dump(folder: Path) -> dict:
    """Number of records, the tensors and their bytes, and the sizes of the files of one dump."""
    (path,) = folder.glob("step*/*/dump.json")
    data = json.loads(path.read_text())["data"]
    kept = {}  # files by inode: names that are linked to one file are written once
    for file in path.parent.glob("dump_tensor_data/*"):
        kept[file.stat().st_ino] = file.stat().st_size
    names = sum(1 for _ in path.parent.glob("dump_tensor_data/*"))
    files = list(kept.values())
    tensors = list(described_tensors(data))
    size = sum(ITEM_SIZES[dtype] * math.prod(shape) for dtype, shape in tensors)
    json_bytes = sum(path.with_name(name).stat().st_size for name in JSON_FILES)
    coverage = path.with_name("coverage.json")  # ours alone
    saved = json.loads(coverage.read_text()).get("reads_saved", {}) if coverage.exists() else {}
    seen = {"records": len(data), "tensors": tensors, "bytes": size, "files": files}
    seen |= {"names": names, "saved_bytes": saved.get("bytes", 0)}
    return seen | {"json_bytes": json_bytes}


def raw_write_ms(path: Path, size: int) -> float:
    """Time to write `size` bytes once, in large sequential pieces, to the disk of the dump."""
    piece = memoryview(bytes(8 << 20))
    started = time.perf_counter()
    with open(path, "wb", buffering=0) as file:
        for offset in range(0, size, len(piece)):
            file.write(piece[: min(len(piece), size - offset)])
    return (time.perf_counter() - started) * 1e3


def raw_files_ms(folder: Path, sizes: list) -> float:
    """Time to create files of these sizes, each with one write and nothing else."""
    bytes_of = memoryview(bytes(max(sizes, default=0)))
    folder.mkdir()
    started = time.perf_counter()
    for index, size in enumerate(sizes):
        file = os.open(f"{folder}/{index}.pt", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.write(file, bytes_of[:size])
        os.close(file)
    return (time.perf_counter() - started) * 1e3


class SketchPairs:
    """Pairs of steps that are recorded with and without sketches, and plain steps."""

    def __init__(self, folder: Path, options, step, observed_step):
        self._dump = folder / "dump"
        self._step, self._observed_step = step, observed_step
        self._configs = [write_config(folder, options, sketch=sketch) for sketch in (False, True)]
        self._clocks = (time.perf_counter, time.process_time)
        self._json_bytes = [0, 0]  # without and with sketches
        self._without, self._more = [], []  # ms: one figure for each clock

    def _timed(self, work) -> list:
        started = [clock() for clock in self._clocks]
        work()
        return [(clock() - start) * 1e3 for clock, start in zip(self._clocks, started, strict=True)]

    def _recorded(self, sketch: bool, name: str) -> list:
        from msprobe import _engine
        from msprobe.pytorch.process import PACKAGE

        _engine.configure(str(self._configs[sketch]), None, None, None, None, PACKAGE)
        ms = self._timed(self._observed_step)
        if not self._json_bytes[sketch]:
            self._json_bytes[sketch] = inspect_dump(self._dump)["json_bytes"]
        self._dump.rename(f"{self._dump}_{name}_{sketch:d}")
        return ms

    def turn(self, number: int) -> None:
        plain = [self._timed(self._step) for _ in range(TURN)][1:]
        plain = [statistics.median(ms) for ms in zip(*plain, strict=True)]
        for pair in range(TURN + 1):
            order = (False, True) if (number + pair) % 2 else (True, False)
            ms = {sketch: self._recorded(sketch, f"{number}_{pair}") for sketch in order}
            if number and pair:  # the first ones warm up
                self._without.append([a - b for a, b in zip(ms[False], plain, strict=True)])
                self._more.append([a - b for a, b in zip(ms[True], ms[False], strict=True)])

    def result(self) -> dict:
        result = {}
        for index, name in enumerate(("clock", "processor")):
            without = statistics.median(ms[index] for ms in self._without)
            more = statistics.median(ms[index] for ms in self._more)
            result[name] = {"without_ms": without, "more_ms": more, "share": more / without}
        names = ("json_bytes_without", "json_bytes")
        return result | dict(zip(names, self._json_bytes, strict=True))


def build(options):
    """(program, model, batch, optimizer); program ddp: the model of this rank."""
    program = PROGRAMS[options.program]
    model, batch = program.build(0)
    if options.program == "ddp":
        torch.set_num_threads(1)
        rendezvous = f"file://{options.rendezvous}"
        torch.distributed.init_process_group(
            "gloo", rendezvous, rank=options.rank, world_size=WORLD
        )
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    if options.optimizer != "plain":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    return program, model, batch, optimizer


def measure(options, folder: Path) -> dict:
    program, model, batch, optimizer = build(options)
    dump = folder / "dump"

    def step():
        optimizer.zero_grad()
        program.loss(model, batch).backward()
        optimizer.step()

    def timed(work) -> float:
        started = time.perf_counter()
        work()
        return (time.perf_counter() - started) * 1e3

    for _ in range(5):
        step()
    bare = [timed(step) for _ in range(options.pairs)]

    from msprobe.pytorch import PrecisionDebugger

    config = write_config(folder, options, sketch=options.sketch != "off")
    debugger = PrecisionDebugger(config_path=str(config))

    def observed_step():
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()

    if options.sketch == "paired":
        pairs = SketchPairs(folder, options, step, observed_step)
        for turn in range(math.ceil(options.pairs / TURN) + 1):
            pairs.turn(turn)
        return pairs.result()
    off, on, seen, raw, raw_files = [], [], None, [], []
    for turn in range(math.ceil(options.pairs / (TURN - 1)) + 1):
        off_ms = [timed(step) for _ in range(TURN)]
        on_ms = []
        for _ in range(TURN):
            on_ms.append(timed(observed_step))
            seen = inspect_dump(dump) if seen is None else seen
            # Dumps and raw files are deleted only at the end. Deleting them here would change the
            # times: after many deletions ext4 without a journal creates files slowly (it skips
            # every inode freed in the last minutes), and memory just freed fills quickly.
            dump.rename(folder / f"dump{turn}_{len(on_ms)}")
        if turn:  # the first turn warms up
            off.append(off_ms)
            on.append(on_ms)
            if options.task == "tensor":
                raw.append(raw_write_ms(folder / f"raw{turn}", sum(seen["files"])))
                raw_files.append(raw_files_ms(folder / f"raw_files{turn}", seen["files"]))

    def median(turns: list) -> float:
        return statistics.median(ms for turn in turns for ms in turn[1:])

    def added(turns_on: list, turns_off: list) -> float:
        return statistics.median(
            statistics.median(a[1:]) - statistics.median(b[1:])
            for a, b in zip(turns_on, turns_off, strict=True)
        )

    tensors, files = seen.pop("tensors"), seen.pop("files")
    return {
        "read_ms": read_once_ms(tensors) if options.tool == "ours" else None,
        "bare_ms": statistics.median(bare),
        "on_ms": median(on),
        "off_ms": median(off),
        "added_ms": added(on, off),
        "first_added_ms": statistics.median(turn[0] for turn in on) - median(off),
        "raw_write_ms": statistics.median(raw) if raw else None,
        "raw_files_ms": statistics.median(raw_files) if raw else None,
        "files": len(files),
        "file_bytes": sum(files),
        **seen,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=("ours", "peer"), required=True)
    parser.add_argument("--program", choices=PROGRAMS, required=True)
    parser.add_argument("--level", choices=("L0", "L1", "mix"), default="L1")
    parser.add_argument("--task", choices=("statistics", "tensor"), default="statistics")
    parser.add_argument("--summary", choices=("statistics", "md5"), default="statistics")
    parser.add_argument(
        "--tensor-files",
        choices=("linked", "unlinked", "packed"),
        default="linked",
        help="equal tensors as links; each tensor a file; one file for a step",
    )
    parser.add_argument(
        "--optimizer",
        choices=("plain", "adamw", "recorded"),
        default="plain",
        help="SGD; AdamW; AdamW with entries of its steps",
    )
    parser.add_argument("--reuse", choices=("on", "off"), default="on")
    parser.add_argument(
        "--sketch",
        choices=("on", "off", "paired"),
        default="on",
        help="the key sketch; paired: both, beside each other",
    )
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--scratch", help="where the dumps go (default: the temporary folder)")
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rendezvous", help=argparse.SUPPRESS)
    options = parser.parse_args()

    # The tool's own output goes to stderr: stdout has only the result.
    result_file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    if options.scratch:
        Path(options.scratch).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.scratch, ignore_cleanup_errors=True) as folder:
        other = None
        if options.program == "ddp" and options.rendezvous is None:
            options.rendezvous = f"{folder}/rendezvous"
            again = ["--rank", "1", "--rendezvous", options.rendezvous]
            other = subprocess.Popen([sys.executable, *sys.argv, *again])
        result = measure(options, Path(folder))
        if other is not None and other.wait() != 0:
            sys.exit(f"error: the second process ended with exit code {other.returncode}")
    for name in ("tool", "program", "level", "task", "summary", "optimizer", "tensor_files"):
        result[name] = getattr(options, name)
    print(json.dumps(result), file=result_file, flush=True)


if __name__ == "__main__":
    main()
