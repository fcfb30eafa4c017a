"""The key link_equal_tensors: tensors of a step with the same elements share one file."""

import hashlib
import json
import os
import shutil
import subprocess

import pytest
import torch
from recording import read_dump, run_forked

from models import gpt, lstm, resnet


def tiny_resnet(seed):
    torch.manual_seed(seed)
    model = resnet.ResNet(resnet.BasicBlock, (1, 1), 4, 5, large_input=False)
    return model, (torch.randn(4, 3, 8, 8), torch.randint(5, (4,)))


PROGRAMS = {
    "gpt": (lambda s: gpt.build(s, layers=2, width=16, heads=2, length=8), gpt.loss),
    "resnet": (tiny_resnet, resnet.loss),
    "lstm": (lambda s: lstm.build(s, batch=3, length=6), lstm.loss),
}


def train(folder, name, keys, budget):
    """Trains one step; returns a digest of the weights."""
    from msprobe.pytorch import PrecisionDebugger

    os.environ["MSPROBE_TENSOR_BUDGET_MB"] = budget
    build, loss = PROGRAMS[name]
    model, batch = build(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = None
    if keys is not None:
        (folder / "config.json").write_text(json.dumps({"task": "tensor", "level": "mix", **keys}))
        debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
        debugger.start(model)
    loss(model, batch).backward()
    optimizer.step()
    if debugger:
        debugger.stop()
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(weights).hexdigest()


def contents(folder):
    files = sorted((folder / "step0/rank/dump_tensor_data").iterdir())
    return {file.name: file.read_bytes() for file in files}


def inodes(folder):
    return {file.stat().st_ino for file in folder.rglob("*.pt")}


@pytest.mark.parametrize("budget", ["0", "64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_files_with_and_without_links(name, budget, tmp_path, msprobe_bin):
    linked, whole = tmp_path / "linked", tmp_path / "whole"
    linked.mkdir()
    whole.mkdir()
    trained = run_forked(train, tmp_path, name, None, budget)
    assert run_forked(train, linked, name, {}, budget) == trained
    assert run_forked(train, whole, name, {"link_equal_tensors": False}, budget) == trained
    files = contents(linked / "out")
    assert files == contents(whole / "out")
    assert len(inodes(whole)) == len(files)
    assert len(inodes(linked)) == len(set(files.values())) < 0.8 * len(files)
    assert len(read_dump(linked / "out").tensors()) == len(files)  # torch.load reads each
    done = subprocess.run([msprobe_bin, "recover", linked / "out"], capture_output=True)
    assert done.returncode == 0 and b"tensor file" not in done.stdout, done.stdout
    command = [msprobe_bin, "compare", "-tp", linked / "out/step0", "-gp", whole / "out/step0"]
    done = subprocess.run([*command, "-o", tmp_path / "result"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_copied_folder_has_files_of_its_own(tmp_path):
    run_forked(train, tmp_path, "lstm", {}, "0")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert contents(tmp_path / "copy") == contents(tmp_path / "out")
    assert len(inodes(tmp_path / "copy")) == len(contents(tmp_path / "copy"))


def refuse_links(folder, error):
    """The system call link(2) fails, as on a file system without hard links."""
    import ctypes

    class Filter(ctypes.Structure):
        _fields_ = [
            ("code", ctypes.c_uint16),
            ("jt", ctypes.c_uint8),
            ("jf", ctypes.c_uint8),
            ("k", ctypes.c_uint32),
        ]

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_uint16), ("filters", ctypes.POINTER(Filter))]

    # link and linkat of x86-64 fail with `error`, other calls are allowed (seccomp, classic BPF).
    steps = [(0x20, 0, 0, 0), (0x15, 1, 0, 86), (0x15, 0, 1, 265)]
    steps += [(0x06, 0, 0, 0x00050000 | error), (0x06, 0, 0, 0x7FFF0000)]
    program = Program(len(steps), (Filter * len(steps))(*(Filter(*step) for step in steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0
    return train(folder, "lstm", {}, "0")


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of system calls of x86-64")
@pytest.mark.parametrize("error", [1, 18, 31, 95])  # EPERM, EXDEV, EMLINK, EOPNOTSUPP
def test_without_links_every_tensor_is_written(error, tmp_path):
    run_forked(refuse_links, tmp_path, error)
    files = contents(tmp_path / "out")
    assert len(inodes(tmp_path)) == len(files) > 10
    assert len(read_dump(tmp_path / "out").tensors()) == len(files)
