"""Dump folders that cannot be written: real ones, not injected faults (those: test_faults.py).

The training gives the same bits and ends well, and one line says why nothing more is recorded.
"""

import os
import resource
import shutil
import signal
import subprocess

import pytest
import torch
from recording import run_forked
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

STEPS = 4


def train(folder, task, at_step):
    """The weights' bytes, and what was logged."""
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
    """Files stop growing, and whoever tries all the same is killed."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    return limit(resource.RLIMIT_FSIZE, 3000)


def no_descriptors(folder):
    return limit(resource.RLIMIT_NOFILE, len(os.listdir("/proc/self/fd")) - 1)


def removed(folder):
    """Somebody tidies up while a step is recorded, and puts a file in the way."""
    shutil.rmtree(folder)
    folder.write_text("gone")


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run_forked(train, tmp_path_factory.mktemp("plain") / "none", None, None)[0]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@pytest.mark.parametrize(
    "prepare, at_step, reason",
    [
        (a_file, None, "Not a directory"),
        (below_a_file, None, "cannot create the directory"),
        (a_symlink_loop, None, "Too many levels of symbolic links"),
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


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 64 KiB, where this user may mount one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        mounted = subprocess.run(mount, capture_output=True).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("no right to mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk(small_disk, plain, tmp_path, msprobe_bin):
    (tmp_path / "dump").symlink_to(small_disk / "dump")
    (small_disk / "dump").mkdir()
    weights, log = run_forked(train, tmp_path / "dump", "tensor", None)
    assert weights == plain
    assert log.count("[ERROR]") == 1 and "No space left on device" in log
    recovered = subprocess.run(
        [msprobe_bin, "recover", str(small_disk / "dump")], capture_output=True, text=True
    )
    assert "records kept" in recovered.stdout + recovered.stderr
