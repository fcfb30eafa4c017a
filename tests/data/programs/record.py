"""Records every program with the msprobe that this Python imports, whichever generation it is.

    python tests/data/programs/record.py FOLDER [PROGRAM/LEVEL_MODE ...]

leaves FOLDER/<program>/<level>_<mode>/<rank...>/{dump,stack,construct}.json and result.json: the bits
of the loss and of the gradients, by which a reader sees whether this machine computes the same.
"""

import argparse
import inspect
import json
import multiprocessing
import os
import re
import sys
import tempfile
import zlib
from pathlib import Path

# Before PyTorch is loaded: arithmetic that does not depend on the processor.
os.environ |= {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"}
os.environ.setdefault("MSPROBE_LOG_LEVEL", "3")

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
sys.path[:0] = [str(HERE), str(ROOT / "examples")]

import torch
import torch._dynamo
from msprobe.pytorch import PrecisionDebugger

from programs import PROGRAMS

WORLD = 2
STEPS = {"lstm": 2}  # in a second step counters begin anew
SETTINGS = [f"{program}/mix_statistics" for program in PROGRAMS]
SETTINGS += ["gpt/L1_md5", "encoder/L1_statistics", "encoder_reentrant/L1_statistics"]


def make_debugger(model, setting: str, folder: Path):
    level, mode = setting.rpartition("/")[2].split("_")
    config = {"task": "statistics", "dump_path": str(folder), "level": level}
    config |= {"rank": [], "step": []}
    config["statistics"] = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": mode}
    config["risk_level"] = "ALL"  # 26: no API is left out
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    starts_model = "model" in inspect.signature(PrecisionDebugger.start).parameters
    debugger = PrecisionDebugger(str(path), **({} if starts_model else {"model": model}))
    return debugger, ({"model": model} if starts_model else {})


def digest(model) -> str:
    crc = 0
    for parameter in model.parameters():
        crc = zlib.crc32(parameter.grad.contiguous().numpy().tobytes(), crc)
    return f"{crc:08x}"


def run(setting: str, folder: Path, rank: int | None):
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)
    program = setting.partition("/")[0]
    if rank is not None:
        rendezvous = f"file://{folder.parent}/rendezvous"
        torch.distributed.init_process_group("gloo", rendezvous, rank=rank, world_size=WORLD)
    model, step = PROGRAMS[program]()
    debugger, start = make_debugger(model, setting, folder)
    for _ in range(STEPS.get(program, 1)):
        model.zero_grad()
        debugger.start(**start)
        loss = step()
        debugger.stop()
        debugger.step()
    result = {"loss": loss.item().hex(), "gradients": digest(model)}
    (folder / "result.json").write_text(json.dumps(result) + "\n")
    if rank is not None:
        torch.distributed.destroy_process_group()


def run_all(work):
    """`work`: one list of arguments of `run` a process; returns when all have ended."""
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=run, args=arguments) for arguments in work]
    for child in children:
        child.start()
    for child, arguments in zip(children, work, strict=True):
        child.join()
        if child.exitcode != 0:
            sys.exit(f"error: {arguments[0]} ended with exit code {child.exitcode}")


def user_frames(frames: list) -> list:
    """The frames of the repository; their paths begin there."""
    return [
        re.sub(re.escape(f"{ROOT}/"), "", frame)
        for frame in frames
        if frame.startswith(f"File {ROOT}/") and "/site-packages/" not in frame
    ]


def only_user_frames(stacks: dict) -> dict:
    """msprobe 1.0: entry -> frames; later: number -> [entries, frames]."""
    if "0" in stacks:
        return {key: [names, user_frames(frames)] for key, (names, frames) in stacks.items()}
    return {entry: user_frames(frames) for entry, frames in stacks.items()}


def lay_out(text: str) -> str:
    """The same JSON, one member a line: as the tools write it it is three times as long."""
    top = json.loads(text)
    data = top.pop("data", None)
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in top.items()]
    if data is not None:
        inner = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in data.items())
        lines.append('"data": {\n' + inner + "\n}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def keep(made: Path, target: Path):
    """Copies what is compared; folders are named as our own are."""
    (target / "result.json").write_text((made / "result.json").read_text())
    for dump in sorted(made.glob("step*/*/dump.json")):
        step, rank = dump.parent.parent.name, re.sub(r"proc\d+$", "rank", dump.parent.name)
        folder = target / step / rank
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("dump.json", "construct.json", "stack.json"):
            text = dump.with_name(name).read_text()
            if name == "stack.json":
                text = json.dumps(only_user_frames(json.loads(text)))
            (folder / name).write_text(lay_out(text))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("settings", nargs="*", metavar="PROGRAM/LEVEL_MODE", default=SETTINGS)
    options = parser.parse_args()
    for setting in options.settings:
        ranks = range(WORLD) if setting.startswith("ddp/") else [None]
        with tempfile.TemporaryDirectory() as made:
            folders = [Path(made) / str(rank) for rank in ranks]
            for folder in folders:
                folder.mkdir()
            run_all([(setting, folder, rank) for folder, rank in zip(folders, ranks, strict=True)])
            target = options.folder / setting
            target.mkdir(parents=True, exist_ok=True)
            for folder in folders:
                keep(folder, target)


if __name__ == "__main__":
    main()
