"""The end of a process whose device still frees the graph."""

import subprocess
import sys

import pytest

EXIT = """
import sys, torch, torch.nn as nn, torch_npu
from msprobe.pytorch import PrecisionDebugger
model = nn.Sequential(*[m for _ in range(30) for m in (nn.Linear(64, 64), nn.ReLU())]).npu()
debugger = PrecisionDebugger(dump_path="out", task="statistics", level="L1")
debugger.start(model)
model(torch.randn(64, 64).npu()).sum().backward()
debugger.stop()
"""


# PyTorch 2.13 on CPython 3.11 aborts in half of the runs of such a script, also without the tool.
@pytest.mark.parametrize("times", [4, pytest.param(30, marks=pytest.mark.campaign)])
def test_a_script_ends_right_after_backward_and_stop(npu_program, times):
    for _ in range(times):
        done = npu_program(EXIT)
        assert done.returncode == 0, done.stderr


# `msprobe selfcheck` and `determinism` run a program without a PrecisionDebugger first. A thread
# that has the name of PyTorch's, and computes, stands for one that frees a graph.
BUSY = """
import ctypes, threading, time
def busy():
    ctypes.CDLL(None).prctl(15, b"pt_autograd_0")
    started.set()
    end = time.perf_counter() + 0.3
    while time.perf_counter() < end:
        pass
    open("freed", "w").close()
started = threading.Event()
threading.Thread(target=busy, daemon=True).start()
started.wait()
"""


def test_a_program_that_nothing_records_ends_after_its_threads(tmp_path):
    (tmp_path / "train.py").write_text(BUSY)
    observe = [sys.executable, "-m", "msprobe.pytorch.selfcheck", "log", "optimizer", "0", ""]
    subprocess.run([*observe, "train.py"], cwd=tmp_path, check=True)
    assert (tmp_path / "freed").exists()
