"""The header names the device of the tensors, not the one that the process has used."""

import json

import torch
from torch import nn


def device_of(folder, device, with_model):
    from msprobe.pytorch import PrecisionDebugger

    torch.ones(2).npu()  # the process uses the device
    model, x = nn.Linear(3, 2).to(device), torch.ones(4, 3).to(device)
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start(model if with_model else None)
    model(x)
    debugger.stop()
    header = json.loads((folder / "step0" / "rank" / "dump.json").read_text())
    return header["provenance"]["device"]


def test_of_the_model(on_npu, tmp_path):
    assert on_npu(device_of, tmp_path / "a", "npu", True) == "npu: Simulated NPU"
    assert on_npu(device_of, tmp_path / "b", "cpu", True) == "cpu"


def test_of_the_tensors_without_a_model(on_npu, tmp_path):
    assert on_npu(device_of, tmp_path / "a", "npu", False) == "npu: Simulated NPU"
