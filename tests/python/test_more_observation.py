"""More observation never makes the answer worse.

Each planted fault is recorded at level L1, at level mix, and with its tensors. If the comparison of
the first names the line of the fault, the others name it too.
"""

import json
import subprocess
import sys

import pytest

PROGRAM = """
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

FAULT = None


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.zeros(width))

    def forward(self, x):
        eps = 1e-3 if FAULT == "eps" else 1e-6
        size = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)  # fault: eps
        return x * size * self.weight + self.shift


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scale = q.shape[-1] ** (-0.25 if FAULT == "scale" else -0.5)
        scores = torch.matmul(q, k.transpose(-1, -2)) * scale  # fault: scale
        if FAULT == "mask":
            scores = scores.masked_fill(torch.ones_like(scores).triu(2) > 0, -1e9)  # fault: mask
        else:
            scores = scores.masked_fill(torch.ones_like(scores).triu(1) > 0, -1e9)
        return self.out(torch.matmul(F.softmax(scores, dim=-1), v))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        y = self.up(self.norm2(x))
        y = F.gelu(y, approximate="tanh" if FAULT == "gelu" else "none")  # fault: gelu
        y = self.down(y)
        if FAULT == "residual":
            return x + 0.999 * y  # fault: residual
        return x + y


def train(folder, level, task):
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(6, 16), Block(16), Block(16), nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, label = torch.randn(2, 5, 6), torch.randn(2, 5, 4)
    debugger = PrecisionDebugger(dump_path=folder, level=level, task=task)
    debugger.start(model)
    out = model(data)
    weight = 1.5 if FAULT == "loss" else 1.0
    loss = F.mse_loss(out, label) * weight  # fault: loss
    loss.backward()
    optimizer.step()
    debugger.stop()
    debugger.step()


out, faults = sys.argv[1], sys.argv[2].split(",")
for fault in [None, *faults]:
    for level, task in (("L1", "statistics"), ("mix", "statistics"), ("mix", "tensor")):
        child = os.fork()
        if child == 0:
            FAULT = fault
            train(f"{out}/{fault or 'right'}_{level}_{task}", level, task)
            sys.stdout.flush()
            os._exit(0)
        if os.waitpid(child, 0)[1] != 0:
            sys.exit(f"{fault} at {level} with {task} failed")
"""
FAULTS = ["eps", "mask", "residual", "scale"]
OBSERVED = ["L1_statistics", "mix_statistics", "mix_tensor"]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    out = tmp_path_factory.mktemp("faults")
    (out / "program.py").write_text(PROGRAM)
    subprocess.run(
        [sys.executable, str(out / "program.py"), str(out), ",".join(FAULTS)], check=True, cwd=out
    )
    return out


def planted_lines(fault):
    """The lines of one fault."""
    lines = PROGRAM.splitlines()
    return {number for number, line in enumerate(lines, 1) if f"fault: {fault}" in line}


def named(msprobe_bin, recorded, fault, how):
    """The line that the comparison names, and the kind of the call."""
    command = [msprobe_bin, "compare", str(recorded / f"{fault}_{how}/step0")]
    command += [str(recorded / f"right_{how}/step0"), "-o", str(recorded / f"out_{fault}_{how}")]
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["verdict"] == "differs"
    first = report["first_divergence"]
    assert first is not None, report["not_observed"]
    place = (first["source_line"] or "").split(" in ", 1)[0]
    file, _, number = place.rpartition(":")
    line = int(number) if file.endswith("program.py") else None
    return line, first


@pytest.mark.parametrize("fault", FAULTS)
def test_more_observation_names_the_same_line(recorded, msprobe_bin, fault):
    found = {how: named(msprobe_bin, recorded, fault, how) for how in OBSERVED}
    right = planted_lines(fault)
    hits = [how for how in OBSERVED if found[how][0] in right]
    assert hits == OBSERVED, {how: (line, first["why"]) for how, (line, first) in found.items()}
