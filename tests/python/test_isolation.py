"""Flags of `msprobe compare` on recorded trainings."""

import subprocess
import sys

import pytest

TRAIN = """
import sys
import torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
words = sys.argv[1:]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.a(x))
        if "wrong" in words:
            h = h + 0.01 * h.detach().abs()  # other data goes into the next call
        else:
            h = h + 0.0 * h.detach().abs()
        return self.b(h).softmax(-1)

net = Net()
level = next((word for word in words if word in ("L0", "mix")), "mix")
task = "tensor" if "tensor" in words else "statistics"
debugger = PrecisionDebugger(dump_path=words[0], level=level, task=task)
x = torch.randn(4, 8)
debugger.start(net)
net(x).square().sum().backward()
debugger.stop()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with train.py and its recordings."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(TRAIN)
    for words in ("right", "wrong wrong", "right_t tensor", "wrong_t tensor wrong"):
        subprocess.run(
            [sys.executable, "train.py", *words.split()],
            cwd=folder,
            check=True,
            capture_output=True,
        )
    return folder


@pytest.fixture
def said(msprobe_bin, runs):
    def run(*words, code=0):
        done = subprocess.run(
            [msprobe_bin, *map(str, words)], cwd=runs, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code < 2 else done.stderr

    return run


def test_exact_needs_no_memory_flag(said, runs):
    """--exact and --tolerant were read only together with --memory."""
    flags = ("--no-stacks", "-o", "out")
    assert "bits decide: as asked for" in said("compare", "wrong", "right", "--exact", *flags)
    assert "bits decide" not in said("compare", "wrong", "right", "--tolerant", *flags)
