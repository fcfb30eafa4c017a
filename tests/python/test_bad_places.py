"""Dump folders that cannot be written: real ones, not injected faults (those: test_faults.py).

A problem that is known at construction raises there. If a write fails later, the training gives the
same bits and ends normally, and one line says why recording ended.
"""

import json
import os
import re
import resource
import shutil
import signal
import subprocess
import time

import pytest
import torch
from recording import run_forked
from torch.nn import functional as F

from msprobe import MsprobeError
from msprobe.pytorch import PrecisionDebugger

STEPS = 4


def train(folder, task, at_step):
    """Trains; returns the bytes of the weights, and the log."""
    log = os.open(f"{folder}.log", os.O_RDWR | os.O_CREAT)
    os.dup2(log, 2)
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(300, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = PrecisionDebugger(dump_path=str(folder), task=task, level="mix") if task else None
    for step in range(STEPS):
        undo = at_step(folder) if step == 1 and at_step else None
        if debugger:
            debugger.start(model)
        F.dropout(model(torch.randn(5, 300)), 0.2).sum().backward()
        if debugger:
            debugger.stop()
            debugger.step()
        if undo:
            undo()
        optimizer.step()
        optimizer.zero_grad()
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    os.lseek(log, 0, os.SEEK_SET)
    return weights, os.read(log, 1 << 20).decode()


def a_file(folder):
    folder.write_text("not a folder")


def below_a_file(folder):
    folder.symlink_to("/etc/passwd/below")


def a_symlink_loop(folder):
    folder.symlink_to(folder)


def a_device(folder):
    (folder / "step0" / "rank").mkdir(parents=True)
    (folder / "step0" / "rank" / "dump.json").symlink_to("/dev/full")


def limit(what, value):
    old = resource.getrlimit(what)
    resource.setrlimit(what, (value, old[1]))
    return lambda: resource.setrlimit(what, old)


def quota(folder):
    """Limits the size of files; a write beyond the limit sends the signal SIGXFSZ."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    return limit(resource.RLIMIT_FSIZE, 3000)


def no_descriptors(folder):
    return limit(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1)


def removed(folder):
    """Removes the dump folder while a step is recorded, and creates a file in its place."""
    shutil.rmtree(folder)
    folder.write_text("gone")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run_forked(train, tmp_path_factory.mktemp("plain") / "none", None, None)[0]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize(
    "prepare, at_step, reason",
    [
        (a_device, None, "No space left on device"),
        (None, quota, "File too large"),
        (None, no_descriptors, "Too many open files"),
        (None, removed, "Not a directory"),
    ],
    ids=lambda value: getattr(value, "__name__", value or "-"),
)
def test_training_goes_on(tmp_path, plain, task, prepare, at_step, reason):
    folder = tmp_path / "dump"
    if prepare:
        prepare(folder)
    weights, log = run_forked(train, folder, task, at_step)
    assert weights == plain, "the training was changed"
    errors = [line for line in log.splitlines() if "[ERROR]" in line]
    assert len(errors) == 1, log
    assert "collection is off, the run goes on: " in errors[0] and reason in errors[0]


def proc(folder):
    folder.symlink_to("/proc/self")


def construct(config, environment, **arguments):
    """Type and text of the exception that the construction raises, or None."""
    os.environ.update(environment)
    try:
        PrecisionDebugger(config, **arguments)
    except MsprobeError as error:
        return f"{type(error).__name__}: {error}"
    return None


TASKS = ["statistics", "tensor", "structure", "nan_check", "overflow_check", "grad_probe"]
PLACES = [
    (a_file, "Not a directory"),
    (below_a_file, "Not a directory"),
    (a_symlink_loop, "Too many levels of symbolic links"),
    (proc, "cannot write to the directory"),
]


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize(
    "prepare, reason", PLACES, ids=lambda value: getattr(value, "__name__", "")
)
def test_the_construction_raises(tmp_path, task, prepare, reason):
    folder = tmp_path / "dump"
    prepare(folder)
    before = sorted(tmp_path.rglob("*"))
    said = run_forked(construct, None, {}, dump_path=str(folder), task=task)
    assert said.startswith("FileError: ") and str(folder) in said and reason in said
    assert 'name another folder in "dump_path"' in said
    assert sorted(tmp_path.rglob("*")) == before


def test_the_construction_leaves_nothing(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("there", "new", "new/deeper"):
        assert run_forked(construct, None, {}, dump_path=str(tmp_path / name)) is None
    assert list(tmp_path.rglob("*")) == [tmp_path / "there"]


def config(tmp_path, **keys):
    (tmp_path / "file").write_text("")
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"dump_path": str(tmp_path / "file/dump"), **keys}))
    return str(file)


RANK_1 = {"RANK": "1", "WORLD_SIZE": "2"}


@pytest.mark.parametrize(
    ("keys", "environment", "raises"),
    [
        ({}, {}, True),
        ({}, {"MSPROBE_DISABLE": "1"}, False),
        ({"dump_enable": True}, {}, True),
        ({"dump_enable": False}, {}, False),
        ({"level": "L2"}, {}, False),
        ({"rank": [1]}, RANK_1, True),
        ({"rank": [0]}, RANK_1, False),
        ({"rank": [0]}, {}, False),  # the rank is not known at construction
        ({}, RANK_1, True),
    ],
)
def test_a_process_that_writes_nothing_is_not_stopped(tmp_path, keys, environment, raises):
    said = run_forked(construct, config(tmp_path, **keys), environment)
    assert (said is not None) == raises, said


def reload(tmp_path):
    log = os.open(tmp_path / "log", os.O_RDWR | os.O_CREAT)
    os.dup2(log, 2)
    path = config(tmp_path, dump_enable=False)
    debugger = PrecisionDebugger(path)
    config(tmp_path, dump_enable=True)
    end = time.monotonic() + 60
    while time.monotonic() < end and "until the file is corrected" not in read(log):
        debugger.start()
        torch.relu(torch.ones(2))
        debugger.stop()
        debugger.step()
        time.sleep(0.05)
    return read(log)


def read(log):
    return os.pread(log, 1 << 20, 0).decode()


def test_a_bad_path_in_a_later_configuration_is_one_log_line(tmp_path):
    said = run_forked(reload, tmp_path)
    assert "collection is off until the file is corrected: " in said
    assert "file/dump: cannot create the directory: Not a directory" in said


def test_a_full_disk(small_disk, plain, tmp_path, msprobe_bin):
    (tmp_path / "dump").symlink_to(small_disk / "dump")
    (small_disk / "dump").mkdir()
    weights, log = run_forked(train, tmp_path / "dump", "tensor", None)
    assert weights == plain
    assert log.count("[ERROR]") == 1 and "No space left on device" in log
    # Some tensors must go before the files can be closed: nothing fits on the disk any more. Names
    # of one tensor are links to one file, whose space is free when the last of them is gone.
    tensors = sorted((small_disk / "dump").rglob("*.pt"), key=lambda file: file.stat().st_ino)
    for file in tensors[: len(tensors) // 2]:
        file.unlink()
    recovered = subprocess.run(
        [msprobe_bin, "recover", str(small_disk / "dump")], capture_output=True, text=True
    )
    assert re.search("records? kept", recovered.stdout + recovered.stderr)
