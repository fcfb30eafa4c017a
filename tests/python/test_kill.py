"""A run dies at a random moment, in any way: every acknowledged record is in its dump.

A record is acknowledged when its call has returned to Python. The child then writes the name to a
pipe, whose content survives the child. The normal test kills at a dozen moments, the campaign at
hundreds.
"""

import faulthandler
import json
import os
import random
import resource
import select
import shutil
import signal
import subprocess
import time
from collections import defaultdict

import pytest
import torch
from recording import read_dump, whole_tensors
from torch.nn import functional as F

LATEST_S = 0.15  # after the first acknowledged record
# How a run dies: the signal that it receives, and the exit code.
DEATHS = {
    "kill -9": (signal.SIGKILL, -signal.SIGKILL),
    "SIGTERM": (signal.SIGTERM, -signal.SIGTERM),
    "abort": (signal.SIGABRT, -signal.SIGABRT),
    "os._exit": (signal.SIGUSR1, 3),  # called by a signal handler of the program
}
KINDS = [(level, task) for level in ("L1", "mix", "L0") for task in ("statistics", "tensor")]


class Layer(torch.nn.Module):
    """Reports its own function calls; the caller reports the call of the module."""

    def __init__(self, told):
        super().__init__()
        self.linear = torch.nn.Linear(24, 24)
        self.told = told

    def forward(self, x):
        x = F.linear(x, self.linear.weight, self.linear.bias)
        self.told("Functional.linear")
        x = F.gelu(x)
        self.told("Functional.gelu")
        x = torch.tanh(x)
        self.told("Torch.tanh")
        return x


def child_main(folder, level, task, pipe):
    """Trains until it is killed."""
    from msprobe.pytorch import PrecisionDebugger

    torch.set_num_threads(1)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.disable()  # pytest enables it to print the stack of an abort
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(3))
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)
    step, calls = 0, defaultdict(int)

    def tell(names):
        os.write(pipe, "".join(f"{step} {name}\n" for name in names).encode())

    def told(api):
        if level != "L0":
            tell([f"{api}.{calls[api]}.forward"])
        calls[api] += 1

    model = torch.nn.ModuleList(Layer(told) for _ in range(24))
    x = torch.randn(16, 24)
    while True:
        debugger.start(model)
        y = x
        for index, layer in enumerate(model):
            y = layer(y)
            if level != "L1":
                tell([f"Module.{index}.Layer.forward.0"])
        y.sum().backward()
        if level != "L0":
            tell(f"{api}.{n}.backward" for api in calls for n in range(calls[api]))
        if level != "L1":
            tell(f"Module.{index}.Layer.backward.0" for index in range(1, len(model)))
        debugger.stop()
        debugger.step()
        step += 1
        calls.clear()


def train_and_kill(folder, level, task, dice, death="kill -9"):
    """Step -> names acknowledged before the kill."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            os.environ["MSPROBE_TENSOR_BUDGET_MB"] = dice.choice(["0", "64"])
            child_main(folder, level, task, writer)
        finally:
            os._exit(9)
    os.close(writer)
    heard, deadline = bytearray(), None
    delay = dice.uniform(0, LATEST_S)
    while deadline is None or time.monotonic() < deadline:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([reader], [], [], left)[0]:
            continue
        got = os.read(reader, 1 << 16)
        if not got:
            break  # it ended before the signal
        heard += got
        if deadline is None:
            deadline = time.monotonic() + delay
    sent, code = DEATHS[death]
    os.kill(child, sent)
    while got := os.read(reader, 1 << 16):
        heard += got
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == code, "it did not live until the kill"
    acknowledged = defaultdict(set)
    for line in heard.decode().splitlines(keepends=True):
        assert line.endswith("\n")  # each write of the child is a whole line
        step, name = line.split()
        acknowledged[int(step)].add(name)
    return acknowledged


def msprobe(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check(binary, folder, acknowledged):
    """Reads finished steps as JSON, and the last step before and after its recovery."""
    for step, names in acknowledged.items():
        rank = folder / f"step{step}" / "rank"
        if step + 1 in acknowledged:
            assert names <= set(read_dump(folder, step).names), f"step {step}"
            continue
        listed = set(msprobe(binary, "show", rank).split())
        assert names <= listed, f"step {step}: show does not list {sorted(names - listed)[:5]}"
        before = (rank / "dump.json").read_bytes()
        msprobe(binary, "recover", rank)
        for file in ("dump.json", "stack.json", "construct.json"):
            json.loads((rank / file).read_text())
        kept = set(json.loads((rank / "dump.json").read_text())["data"])
        assert names <= kept, f"step {step}: recover lost {sorted(names - kept)[:5]}"
        assert "nothing to do" in msprobe(binary, "recover", rank)
        # Recovery leaves complete entries unchanged, cuts after the last one and closes the file.
        after = (rank / "dump.json").read_bytes()
        assert before.startswith(after.removesuffix(b"\n}}\n"))
        if (rank / "dump_tensor_data").exists():
            whole_tensors(rank / "dump_tensor_data")
    lost = {path.name for path in folder.glob("step*")} - {f"step{step}" for step in acknowledged}
    assert len(lost) <= 1, "only the step that was about to begin has no acknowledged record"


def rounds(count, seed, folder, binary):
    dice = random.Random(seed)
    records = cut = 0
    for number in range(count):
        level, task = KINDS[number % len(KINDS)]
        place = folder / f"{number}"
        death = list(DEATHS)[number // len(KINDS) % len(DEATHS)]
        acknowledged = train_and_kill(place, level, task, dice, death)
        assert acknowledged
        last = place / f"step{max(acknowledged)}" / "rank" / "dump.json"
        cut += not last.read_bytes().endswith(b"\n}}\n")
        records += sum(map(len, acknowledged.values()))
        check(binary, place, acknowledged)
        shutil.rmtree(place)
    return records, cut


def test_a_dozen_deaths_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, _ = rounds(len(KINDS) * 2, 1, tmp_path, msprobe_bin)
    assert records > 100


@pytest.mark.parametrize("death", ["abort", "os._exit"])
def test_other_deaths(tmp_path, msprobe_bin, death):
    acknowledged = train_and_kill(tmp_path / "run", "mix", "tensor", random.Random(5), death)
    check(msprobe_bin, tmp_path / "run", acknowledged)


@pytest.mark.campaign
def test_two_hundred_deaths_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, cut = rounds(240, 2, tmp_path, msprobe_bin)
    print(f"240 deaths of {len(DEATHS)} kinds, {cut} in a step: {records} records, none lost")
    assert cut > 50, "the kills did not fall into steps"


def test_a_missing_record_is_seen(tmp_path, msprobe_bin):
    """Tests the check: it fails if an acknowledged name is not in the dump."""
    acknowledged = train_and_kill(tmp_path / "run", "L1", "statistics", random.Random(3))
    acknowledged[max(acknowledged)].add("Functional.gelu.99.forward")
    with pytest.raises(AssertionError, match=r"show does not list \['Functional.gelu.99.forward'"):
        check(msprobe_bin, tmp_path / "run", acknowledged)
