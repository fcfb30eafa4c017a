"""Which calls are recorded of a program that moves to a device, and which are the tool's own."""

import json

import torch
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
    assert not [name for name in names if name.startswith("Tensor.") and ".to." in name][1:]
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


LEAK = """
import gc, json, sys, torch, torch.nn.functional as F
if sys.argv[1] == "npu":
    import torch_npu
from msprobe.pytorch import PrecisionDebugger
json.dump({"task": "free_benchmark", "dump_path": "out", "level": "L1",
           "free_benchmark": {"budget": 0, "pert_mode": "no_change"}}, open("config.json", "w"))
debugger = PrecisionDebugger("config.json")
a = torch.randn(8, 8, device=sys.argv[1], requires_grad=True)
counts = []
for step in range(4):
    debugger.start()
    (F.softmax(a + a, -1).exp() + F.layer_norm(a + a, (8,)) + torch.sigmoid(a)).sum().backward()
    debugger.stop()
    debugger.step()
    a.grad = None
    gc.collect()
    counts.append(sum(isinstance(each, torch.Tensor) for each in gc.get_objects()))
print(counts[1], counts[-1])
"""


def test_free_benchmark_keeps_no_tensor(npu_program):
    for device in ("cpu", "npu"):
        done = npu_program(LEAK, device)
        before, after = done.stdout.split()[-2:]
        assert before == after, done.stderr
