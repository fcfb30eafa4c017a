"""Which calls are recorded of a program that moves to a device, and which are the tool's own."""

import gc
import json

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def moved(folder):
    from msprobe.pytorch import PrecisionDebugger

    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4))
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    model.npu()
    x = torch.ones(4, 4).npu()
    model(x)
    model.half()
    debugger.stop()
    return list(json.loads((folder / "step0" / "rank" / "dump.json").read_text())["data"])


def test_moving_a_module_is_no_computation(on_npu, tmp_path):
    names = on_npu(moved, tmp_path)
    assert not [name for name in names if name.startswith(("Tensor.to.", "Tensor.npu."))]
    assert "Functional.batch_norm.0.forward" in names


def own_copies(folder, device):
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir()
    slices = {"slice": [{"dim": 0, "begin": 0, "end": 2}]}  # each tensor is copied at once
    (folder / "config.json").write_text(
        json.dumps({"level": "mix", "dump_path": str(folder), "statistics": slices})
    )
    debugger = PrecisionDebugger(str(folder / "config.json"))
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(device), torch.ones(4, 4).to(device)
    debugger.start(model)
    model(x).sum().backward()
    debugger.stop()
    rank = folder / "step0" / "rank"
    coverage = json.loads((rank / "coverage.json").read_text())
    return list(json.loads((rank / "dump.json").read_text())["data"]), coverage["not_observed"]


def test_the_copies_of_the_tool_are_no_calls_of_the_program(on_npu, tmp_path):
    ours, theirs = (on_npu(own_copies, tmp_path / device, device) for device in ("npu", "cpu"))
    assert ours == theirs


def living_tensors(folder, device):
    """How many tensors live after each step."""
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir()
    task = {"task": "free_benchmark", "free_benchmark": {"budget": 0, "pert_mode": "no_change"}}
    (folder / "config.json").write_text(
        json.dumps({"dump_path": str(folder), "level": "L1", **task})
    )
    debugger = PrecisionDebugger(str(folder / "config.json"))
    a = torch.randn(8, 8, device=device, requires_grad=True)
    counts = []
    for _ in range(4):
        debugger.start()
        b = F.softmax(a + a, -1).exp() + F.layer_norm(a + a, (8,)) + torch.sigmoid(a)
        b.sum().backward()
        debugger.stop()
        debugger.step()
        a.grad = None
        gc.collect()
        counts.append(sum(isinstance(each, torch.Tensor) for each in gc.get_objects()))
    return counts


@pytest.mark.parametrize("device", ["cpu", "npu"])
def test_free_benchmark_keeps_no_tensor(on_npu, tmp_path, device):
    counts = on_npu(living_tensors, tmp_path / "out", device)
    assert counts[1] == counts[-1]
