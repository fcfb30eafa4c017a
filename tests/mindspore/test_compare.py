"""Dumps of MindSpore are compared: two runs of ours, and one of ours with one of msprobe 26."""

import csv
import json
import re
import subprocess
from pathlib import Path

import numpy as np
from runs import read_dump, run_forked

import mindspore
from mindspore import Tensor, nn, ops
from msprobe.mindspore import PrecisionDebugger
from recorded import recorded

# msprobe 26 lists the gradients of a Primitive's inputs as they arrive, ours as the inputs stand.
ARRIVAL = re.compile(r"Primitive\..*\.backward\.output\.")


class Net(nn.Cell):
    """The network of tests/data/dumps/frameworks.tar, mindspore_cnn."""

    def __init__(self, wrong):
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(3, 8, 3, has_bias=True),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(8, 8, 3),
            nn.BatchNorm2d(8),
            nn.LeakyReLU(0.1),
            nn.AvgPool2d(2, 2),
        )
        self.short = nn.Conv2d(3, 8, 1, has_bias=True)
        self.head = nn.Dense(32, 10)
        self.wrong = wrong

    def construct(self, x):
        y = self.features(x)
        z = ops.avg_pool2d(self.short(x), 4, 4)
        y = ops.sigmoid(ops.flatten(y + z))
        if self.wrong:
            y = y * 1.01
        return self.head(y)


def record(path, level, wrong=False):
    mindspore.set_seed(5)
    np.random.seed(5)
    net = Net(wrong)
    net.set_train()
    x = Tensor(np.random.default_rng(1).standard_normal((4, 3, 8, 8)).astype("float32"))
    labels = Tensor(np.array([1, 2, 3, 4]), mindspore.int32)

    def loss():
        return ops.cross_entropy(net(x), labels)

    step = mindspore.value_and_grad(loss, None, net.trainable_params())
    debugger = PrecisionDebugger(dump_path=str(path), level=level)
    debugger.start(net)
    step()
    debugger.stop()
    return str(read_dump(path).folder)


def compare(binary, folder, target, golden):
    """Its report, and the rows of its table."""
    table = folder / "table.csv"
    words = [binary, "compare", target, golden, "-o", folder, "--table-file", table]
    done = subprocess.run([*map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with table.open(encoding="utf-8-sig") as file:
        return done.stdout, list(csv.DictReader(file))


def test_R_D_M2_two_runs_of_ours(tmp_path, msprobe_bin):
    runs = [run_forked(record, tmp_path / name, "mix") for name in "ab"]
    _, rows = compare(msprobe_bin, tmp_path, *runs)
    forward = [row for row in rows if ".forward" in row["NPU Name"]]
    assert len(forward) > 100
    judged = [row for row in forward if ".BatchNorm." not in row["NPU Name"]]
    assert {row["Verdict"] for row in judged} == {"equal"}, judged
    left = {row["NPU Name"]: row["Verdict"] for row in forward if row not in judged}
    name = "Primitive.bn_train.BatchNorm.0.forward.output"
    assert [left[f"{name}.{place}"] for place in range(3)] == ["equal", "unknown", "unknown"]


def test_the_wrong_line_is_named(tmp_path, msprobe_bin):
    wrong = run_forked(record, tmp_path / "wrong", "mix", wrong=True)
    right = run_forked(record, tmp_path / "right", "mix")
    report, _ = compare(msprobe_bin, tmp_path, wrong, right)
    line = 1 + Path(__file__).read_text().split("\n").index("            y = y * 1.01")
    assert f"test_compare.py:{line}" in report.replace(", line ", ":"), report


def test_ours_beside_the_older_tool(root, tmp_path, msprobe_bin):
    """The weights differ; every call of the older tool has its partner, of the same type."""
    older = recorded("dumps/frameworks/mindspore_cnn")
    ours = run_forked(record, tmp_path / "ours", "mix")
    names = set(json.loads((older / "dump.json").read_text())["data"])
    for target, golden in ((ours, older), (older, ours)):
        report, rows = compare(msprobe_bin, tmp_path, target, golden)
        assert "msprobe 26" in report
        pairs = [row for row in rows if "N/A" not in (row["NPU Name"], row["Bench Name"])]
        side = "NPU" if target == older else "Bench"
        alone = {
            name for name in names if not any(row[f"{side} Name"].startswith(name) for row in pairs)
        }
        assert not alone, sorted(alone)
        for row in pairs:
            assert row["NPU Name"] == row["Bench Name"]
            if not ARRIVAL.match(row["NPU Name"]):
                assert row["NPU Dtype"] == row["Bench Dtype"], row
                assert row["NPU Tensor Shape"] == row["Bench Tensor Shape"], row
