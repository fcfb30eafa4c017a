"""Task free_benchmark on a device: the table of the host, and which steps wait for it."""

import csv
import json

import pytest
import torch
from device_runs import syncs


def train(folder, device, mode, dtype=torch.float32, stage="forward"):
    """Waits in the steps, and the rows of the table without places in the program."""
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir(parents=True, exist_ok=True)
    section = {"budget": 0, "pert_mode": mode, "fuzz_stage": stage}
    config = {"dump_path": str(folder), "task": "free_benchmark", "level": "L1"}
    (folder / "config.json").write_text(json.dumps({**config, "free_benchmark": section}))
    torch.manual_seed(0)
    debugger = PrecisionDebugger(str(folder / "config.json"))
    x = torch.tensor([1.0, 1e-3, 120.0, 3.0], dtype=dtype).to(device).requires_grad_()
    waits = []
    for _ in range(2):
        debugger.start()
        before = syncs()
        y = torch.exp(x * 0.1)  # infinite in float16
        z = torch.softmax(y, 0) * torch.log(y - 0.9)
        z.relu_()
        torch.cumsum(z, 0).sum().backward()
        waits.append(syncs() - before)
        debugger.stop()
        debugger.step()
    rows = []
    for file in sorted(folder.glob("step*/*/free_benchmark.csv")):
        rows += [list(row.values()) for row in csv.DictReader(file.read_text().splitlines())]
    return waits, rows


@pytest.mark.parametrize("settings", [{}, {"SIMNPU_ASYNC": "1", "SIMNPU_POISON": "1"}])
@pytest.mark.parametrize("stage", ["forward", "backward"])
@pytest.mark.parametrize("mode", ["no_change", "improve_precision"])
def test_no_step_waits_for_a_comparison(on_npu, tmp_path, mode, stage, settings):
    dtype = torch.float16 if mode == "improve_precision" else torch.float32
    waits, rows = on_npu(train, tmp_path / "npu", "npu", mode, dtype, stage, **settings)
    _, here = on_npu(train, tmp_path / "cpu", "cpu", mode, dtype, stage)
    assert waits == [0, 0]
    assert rows == here
    assert bool(rows) == (mode == "improve_precision" and stage == "forward")


def test_noise_is_made_on_the_host(on_npu, tmp_path):
    """A copy to the host and one to the device for each of nine calls, and no other wait."""
    waits, rows = on_npu(train, tmp_path / "npu", "npu", "add_noise")
    _, here = on_npu(train, tmp_path / "cpu", "cpu", "add_noise")
    assert waits == [18, 18]
    assert rows == here
