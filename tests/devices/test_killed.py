"""What a killed run leaves of a device."""

import json
import os
import signal
import subprocess
import time

import torch

KILLED = """
import os, signal, sys, time, torch, torch.nn as nn, torch_npu
from msprobe.pytorch import PrecisionDebugger
debugger = PrecisionDebugger(dump_path="out", task="statistics", level="L1")
model = nn.Sequential(*[nn.Linear(8, 8) for _ in range(20)]).npu()
x = torch.randn(4, 8).npu()
debugger.start(model)
model(x).sum().backward()
{last}
os.kill(os.getpid(), signal.SIGKILL)
"""
LATER = "time.sleep(0.02); torch.relu(torch.ones(2)); time.sleep(0.02); torch.relu(torch.ones(2))"


def left(npu_program, tmp_path, msprobe_bin, last):
    done = npu_program(KILLED.format(last=last))
    assert done.returncode == -signal.SIGKILL, done.stderr
    folder = tmp_path / "out" / "step0" / "rank"
    subprocess.run([msprobe_bin, "recover", str(folder)], check=True, capture_output=True)
    return list(json.loads((folder / "dump.json").read_text())["data"])


def test_all_but_what_was_in_flight(npu_program, tmp_path, msprobe_bin):
    names = left(npu_program, tmp_path, msprobe_bin, "")
    assert len(names) >= 10 and names[0] == "Functional.linear.0.forward"


def test_everything_while_the_program_waits(npu_program, tmp_path, msprobe_bin):
    names = left(npu_program, tmp_path, msprobe_bin, "time.sleep(3)")
    assert sum("linear" in name for name in names) == 40


def test_everything_once_it_has_arrived(npu_program, tmp_path, msprobe_bin):
    names = left(npu_program, tmp_path, msprobe_bin, LATER)
    assert sum("linear" in name for name in names) == 40


def fork_within(folder):
    from msprobe.pytorch import PrecisionDebugger

    x = torch.ones(4).npu()
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    torch.relu(x)
    time.sleep(0.15)  # the thread that reads has asked once
    if (child := os.fork()) == 0:
        torch.relu(torch.ones(2))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    torch.tanh(x)
    debugger.stop()
    return status


def test_a_forked_child_has_no_part_in_it(on_npu, tmp_path):
    assert on_npu(fork_within, tmp_path) == 0
    names = list(json.loads((tmp_path / "step0/rank/dump.json").read_text())["data"])
    assert names == ["Torch.relu.0.forward", "Torch.tanh.0.forward"]
