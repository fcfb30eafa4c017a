"""Dump folders that cannot be written: the training gives the same bits and ends normally.

One line says why recording ended, and the earlier records can be recovered.
"""

import json
import os
import shutil
import subprocess

import pytest
from programs import PROGRAMS, trainer
from runs import bits, run_forked

from killed_training import without_closing
from msprobe.mindspore import PrecisionDebugger

STEPS = 6


def train(folder, task):
    """Checksums of losses, gradients and weights, and the log."""
    log = os.open(f"{folder}.log", os.O_RDWR | os.O_CREAT)
    os.dup2(log, 2)
    net, loss = PROGRAMS["mlp"](3)
    step, optimizer = trainer(net, loss)
    arguments = {"dump_path": str(folder), "task": task, "level": "mix"}
    debugger = PrecisionDebugger(**arguments) if task else None
    seen = []
    for _ in range(STEPS):
        if debugger:
            debugger.start(net)
        value, gradients = step()
        if debugger:
            debugger.stop()
            debugger.step()
        optimizer(gradients)
        seen.append(bits(value, gradients))
    seen.append(bits(list(net.get_parameters())))
    return seen, os.pread(log, 1 << 20, 0).decode()


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return run_forked(train, tmp_path_factory.mktemp("plain") / "none", None)[0]


@pytest.mark.parametrize("task", ["statistics", "tensor"])
def test_a_full_disk(small_disk, plain, tmp_path, msprobe_bin, task):
    (tmp_path / "dump").symlink_to(small_disk / "dump")
    (small_disk / "dump").mkdir()
    seen, log = run_forked(train, tmp_path / "dump", task)
    assert seen == plain
    assert log.count("[ERROR]") == 1 and "No space left on device" in log
    # There is no room to close the files: they are recovered in another place.
    copy = tmp_path / "copy"
    shutil.copytree(small_disk / "dump", copy)
    (rank,) = copy.glob("step0/*")
    before = (rank / "dump.json").read_bytes()
    subprocess.run([msprobe_bin, "recover", str(copy)], check=True)
    after = (rank / "dump.json").read_bytes()
    assert before.startswith(without_closing(after))
    kept = json.loads(after)["data"]
    assert len(kept) > 1
    assert len(kept) >= before.count(b'\n"') - 1  # all lines but one that may be incomplete


def test_a_file_that_takes_nothing(plain, tmp_path):
    rank = tmp_path / "dump" / "step0" / "rank"
    rank.mkdir(parents=True)
    (rank / "dump.json").symlink_to("/dev/full")
    seen, log = run_forked(train, tmp_path / "dump", "statistics")
    assert seen == plain
    assert log.count("[ERROR]") == 1 and "No space left on device" in log
