"""Autocast and the default dtype of each call: recorded, and what `compare` says of them."""

import contextlib
import json
import subprocess
from collections import Counter

import pytest
import torch
from recording import read_dump, run_forked
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(width), nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.around = contextlib.nullcontext

    def forward(self, x):
        with self.around():
            return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(3))
        self.head = nn.Linear(width, 4)
        self.between = lambda: None

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        self.between()
        return self.head(x), torch.arange(4.0) / torch.ones(4)


def train(folder, dtype=None, left_out=None, added=None, wrong=None, default=None, level="L1"):
    """Two steps; `dtype`: of autocast around the forward pass. `left_out`: a block without it."""
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    if left_out is not None:
        net.blocks[left_out].around = lambda: torch.autocast("cpu", enabled=False)
    if added is not None:
        net.blocks[added].around = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
    if wrong is not None:
        net.blocks[1].around = lambda: torch.autocast("cpu", dtype=wrong)
    if default is not None:
        net.between = lambda: torch.set_default_dtype(default)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    data, labels = torch.randn(2, 8, 16), torch.randint(0, 4, (2, 8))
    for x, y in zip(data, labels, strict=True):
        optimizer.zero_grad()
        debugger.start(net)
        with torch.autocast("cpu", dtype=dtype) if dtype else contextlib.nullcontext():
            logits, scale = net(x)
        F.cross_entropy(logits.float() * scale.float(), y).backward()
        optimizer.step()
        debugger.stop()
        debugger.step()


def calls_in(dump):
    return {name: entry.get("precision") for name, entry in dump.data.items()}


@pytest.mark.parametrize("level", ["L0", "L1"])
def test_what_differs_from_the_header_is_recorded(tmp_path, level):
    run_forked(train, tmp_path, dtype=torch.bfloat16, left_out=1, level=level)
    dump = read_dump(tmp_path)
    assert dump.header["provenance"]["precision"] == "float32"
    said = calls_in(dump)
    counts = Counter(value for name, value in said.items() if name.endswith("backward"))
    assert set(counts) <= {None}
    on = "float32, autocast cpu bfloat16"
    if level == "L1":
        linear = [said[f"Functional.linear.{i}.forward"] for i in range(7)]
        assert linear == [on, on, None, None, on, on, on]
        assert said["Functional.cross_entropy.0.forward"] is None
    else:
        assert said["Module.blocks.1.Block.forward.0"] == on
        assert said["Module.blocks.1.up.Linear.forward.0"] is None
        assert said["Module.head.Linear.forward.0"] == on


def test_the_default_dtype_is_recorded(tmp_path):
    run_forked(train, tmp_path, default=torch.float64)
    said = calls_in(read_dump(tmp_path))
    assert said["Functional.linear.5.forward"] is None
    assert said["Torch.arange.0.forward"] == "float64"
    later = read_dump(tmp_path, step=1)
    assert later.header["provenance"]["precision"] == "float64"
    assert set(calls_in(later).values()) == {None}


@pytest.fixture
def compared(tmp_path, msprobe_bin):
    """What `compare` says of two trainings, of their first step as JSON, and as people see it."""

    def run(target, golden, *words):
        run_forked(train, tmp_path / "target", **target)
        run_forked(train, tmp_path / "golden", **golden)
        command = [msprobe_bin, "compare", "target/step0", "golden/step0", "-o", "o"]

        def ask(*more):
            done = subprocess.run(
                [*command, *more], cwd=tmp_path, capture_output=True, text=True, check=True
            )
            return done.stdout

        return json.loads(ask("--format", "json")), ask(*words)

    return run


BFLOAT16, FLOAT16 = {"dtype": torch.bfloat16}, {"dtype": torch.float16}


@pytest.mark.parametrize(
    ("target", "golden", "said"),
    [
        (
            BFLOAT16 | {"left_out": 1},
            BFLOAT16,
            "autocast is off in the target, on in the golden (cpu bfloat16)",
        ),
        (
            BFLOAT16,
            BFLOAT16 | {"left_out": 1},
            "autocast is on in the target (cpu bfloat16), off in the golden",
        ),
        (
            BFLOAT16 | {"wrong": torch.float16},
            BFLOAT16,
            "autocast is on in the target (cpu float16), in the golden with another dtype (cpu "
            "bfloat16)",
        ),
    ],
    ids=["left out", "left out of the golden", "another dtype"],
)
def test_autocast_that_is_another_one_in_a_block_is_named(compared, target, golden, said):
    report, _ = compared(target, golden)
    first = report["first_divergence"]
    assert first["target_name"] == "Functional.linear.2.forward"
    assert said in first["why"]
    assert "return x + self.down(F.gelu(self.up(self.norm(x))))" in first["source_line"]
    assert (
        f"{said}; this begins at Functional.linear.2.forward: " in report["beginning"]["settings"]
    )
    assert report["beginning"]["settings"].count("autocast") == 1


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize(
    ("target", "golden"),
    [(BFLOAT16, {}), ({}, BFLOAT16), (FLOAT16, BFLOAT16)],
    ids=["on", "off", "another dtype"],
)
def test_another_policy_of_the_whole_run_blames_nobody(compared, target, golden, level):
    report, _ = compared(target | {"level": level}, golden | {"level": level})
    assert report["first_divergence"] is None
    assert report["verdict"] == "noise"
    assert report["beginning"]["settings"].count("autocast") == 1


def test_a_default_dtype_that_stays_is_named(compared):
    report, _ = compared({"default": torch.float64}, {})
    first = report["first_divergence"]
    assert first["target_name"] == "Tensor.__truediv__.0.forward" or first[
        "target_name"
    ].startswith("Torch.")
    assert "the default dtype is float64 in the target, float32 in the golden" in first["why"]


def test_nothing_is_said_where_the_policies_are_the_same(compared):
    report, _ = compared(BFLOAT16, BFLOAT16)
    assert report["verdict"] == "equal"
    assert "autocast" not in (report["beginning"]["settings"] or "")


def test_what_is_said_in_chinese(compared):
    _, text = compared(BFLOAT16 | {"left_out": 1}, BFLOAT16, "--lang", "zh")
    assert "待比对侧未开启 autocast" in text
    assert "标杆侧已开启" in text
