"""A training is killed at a random moment: every acknowledged record is in its dump.

A record is acknowledged when its call has returned to Python. The child then writes the name to a
pipe, whose content survives the child. The normal test kills at four moments, the campaign at 50.
"""

import json
import os
import random
import select
import shutil
import signal
import subprocess
import time
from collections import defaultdict

import numpy as np
import pytest

import mindspore
from mindspore import Tensor, nn, ops

LATEST_S = 0.3  # after the first acknowledged record
KINDS = [(level, task) for level in ("mix", "L1", "L0") for task in ("tensor", "statistics")]
LAYERS = 12


class Layer(nn.Cell):
    """Reports its own function calls; the caller reports the call of the Cell."""

    def __init__(self, told):
        super().__init__()
        self.dense = nn.Dense(24, 24)
        self.told = told

    def construct(self, x):
        x = ops.tanh(self.dense(x))
        self.told("Functional.tanh")
        x = ops.sin(x)
        self.told("Functional.sin")
        return x


def child_main(folder, level, task, pipe):
    """Trains until it is killed."""
    from msprobe.mindspore import PrecisionDebugger

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level, task=task)
    step, calls = 0, defaultdict(int)

    def tell(names):
        os.write(pipe, "".join(f"{step} {name}\n" for name in names).encode())

    def told(api):
        if level != "L0":
            tell([f"{api}.{calls[api]}.forward"])
        calls[api] += 1

    net = nn.CellList([Layer(told) for _ in range(LAYERS)])
    x = Tensor(np.random.default_rng(0).standard_normal((16, 24)).astype("float32"))

    def forward():
        y = x
        for index, layer in enumerate(net):
            y = layer(y)
            if level != "L1":
                tell([f"Cell.{index}.Layer.forward.0"])
        return y.mean()

    train = mindspore.value_and_grad(forward, None, net.trainable_params())
    while True:
        debugger.start(net)
        train()
        if level != "L0":
            tell(f"{api}.{n}.backward" for api in calls for n in range(calls[api]))
        if level != "L1":
            tell(f"Cell.{index}.Layer.backward.0" for index in range(1, LAYERS))
        debugger.stop()
        debugger.step()
        step += 1
        calls.clear()


def hear(reader, delay):
    """What the child wrote until `delay` seconds after its first record."""
    heard, deadline = bytearray(), None
    while deadline is None or time.monotonic() < deadline:
        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        if not select.select([reader], [], [], left)[0]:
            continue
        got = os.read(reader, 1 << 16)
        if not got:
            break  # it ended by itself
        heard += got
        deadline = deadline or time.monotonic() + delay
    return heard


def train_and_kill(folder, level, task, dice):
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
    heard = hear(reader, dice.uniform(0, LATEST_S))
    os.kill(child, signal.SIGKILL)
    while got := os.read(reader, 1 << 16):
        heard += got
    os.close(reader)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, "it did not live until the kill"
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


def check_last_step(binary, rank, names):
    """Reads the step that was cut, recovers it, and reads it again."""
    listed = set(msprobe(binary, "show", rank).split())
    assert names <= listed, f"show does not list {sorted(names - listed)[:5]}"
    before = (rank / "dump.json").read_bytes()
    msprobe(binary, "recover", rank)
    for file in ("dump.json", "stack.json", "construct.json"):
        json.loads((rank / file).read_text())
    kept = set(json.loads((rank / "dump.json").read_text())["data"])
    assert names <= kept, f"recover lost {sorted(names - kept)[:5]}"
    assert "nothing to do" in msprobe(binary, "recover", rank)
    # Recovery leaves complete entries unchanged, cuts after the last one and closes the file.
    after = (rank / "dump.json").read_bytes()
    assert before.startswith(after.removesuffix(b"\n}}\n"))
    for file in (rank / "dump_tensor_data").glob("*.npy"):
        np.load(file)


def check(binary, folder, acknowledged):
    for step, names in acknowledged.items():
        (rank,) = (folder / f"step{step}").iterdir()
        if step + 1 in acknowledged:
            kept = json.loads((rank / "dump.json").read_text())["data"]
            assert names <= set(kept), f"step {step}"
        else:
            check_last_step(binary, rank, names)


def rounds(count, seed, folder, binary):
    dice = random.Random(seed)
    records = cut = 0
    for number in range(count):
        place = folder / f"{number}"
        acknowledged = train_and_kill(place, *KINDS[number % len(KINDS)], dice)
        assert acknowledged
        (last,) = place.glob(f"step{max(acknowledged)}/*/dump.json")
        cut += not last.read_bytes().endswith(b"\n}}\n")
        records += sum(map(len, acknowledged.values()))
        check(binary, place, acknowledged)
        shutil.rmtree(place)
    return records, cut


def test_four_kills_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, _ = rounds(4, 1, tmp_path, msprobe_bin)
    assert records > 30


@pytest.mark.campaign
def test_fifty_kills_lose_no_acknowledged_record(tmp_path, msprobe_bin):
    records, cut = rounds(50, 2, tmp_path, msprobe_bin)
    print(f"50 kills, {cut} in a step: {records} records, none lost")
    assert cut > 10, "the kills did not fall into steps"


def test_a_missing_record_is_seen(tmp_path, msprobe_bin):
    """Tests the check: it fails if an acknowledged name is not in the dump."""
    acknowledged = train_and_kill(tmp_path / "run", "L1", "statistics", random.Random(3))
    acknowledged[max(acknowledged)].add("Functional.tanh.99.forward")
    with pytest.raises(AssertionError, match=r"show does not list \['Functional.tanh.99.forward'"):
        check(msprobe_bin, tmp_path / "run", acknowledged)
