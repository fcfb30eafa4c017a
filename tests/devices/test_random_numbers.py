"""Random numbers of a device: seeds, states, and what no seed can help with."""

import json
import subprocess

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def enhanced(device):
    from msprobe.pytorch import seed_all

    seed_all(5, is_enhanced=True)
    x = torch.ones(100, device=device)
    drop = nn.Dropout(0.5)
    return [F.dropout(x).tolist() for _ in range(2)], drop(x).tolist()


def test_is_enhanced_holds_for_dropout(on_npu):
    for device in ("cpu", "npu"):
        (first, second), module = on_npu(enhanced, device)
        assert first == second == module


def record(folder, device):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(1)
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5)), torch.ones(4, 8)
    model, x = model.to(device), x.to(device)
    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="mix")
    debugger.start(model)
    model(x).sum().backward()
    debugger.stop()


def test_no_seed_helps_between_two_devices(on_npu, tmp_path, msprobe_bin):
    for device in ("npu", "cpu"):
        on_npu(record, tmp_path / device, device)
    compare = [msprobe_bin, "compare", str(tmp_path / "npu"), str(tmp_path / "cpu")]
    done = subprocess.run(
        compare, capture_output=True, text=True, cwd=tmp_path, env={"COLUMNS": "400"}
    )
    said = " ".join(done.stdout.replace("|", " ").split())
    assert "generators of npu (target) and cpu (golden)" in said, done.stdout + done.stderr
    assert "fix the seed" not in said


TRAIN = """
import torch, torch_npu
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Linear(8, 2)).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    model(torch.ones(4, 6).npu()).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_selfcheck_looks_at_the_generator_of_the_device(simulated, npu_program, tmp_path):
    log = tmp_path / "log"
    run = (
        "import runpy, sys\n"
        f"sys.argv = ['x', {str(log)!r}, 'optimizer', '0', '', 'train.py']\n"
        "runpy.run_module('msprobe.pytorch.selfcheck', run_name='__main__')\n"
    )
    (tmp_path / "train.py").write_text(TRAIN)
    done = npu_program(run)
    assert done.returncode == 0, done.stderr
    assert b"npu 0" in log.read_bytes()


SWAPPED = """
import torch, torch_npu
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(2):
    model(torch.ones({rows}, 64).npu()).sum().backward()
    optimizer.step()
"""


@pytest.mark.parametrize("rows", [64, 20_000])  # 5 MB: the device computes the fingerprint
def test_determinism_sees_two_elements_that_change_places(
    simulated, tmp_path, forking_msprobe, monkeypatch, rows
):
    (tmp_path / "train.py").write_text(SWAPPED.format(rows=rows))
    monkeypatch.setenv("PYTHONPATH", str(simulated))
    monkeypatch.setenv("SIMNPU_FAULT", "gelu:swap")
    # Which calls swap is drawn in each process.
    for _ in range(10):
        done = subprocess.run(
            [forking_msprobe, "determinism", "--runs", "3", "--format", "json", "train.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        report = json.loads(done.stdout)
        if report["verdict"] == "differs":
            break
    assert report["first"]["name"] == "Functional.gelu.0.forward", done.stdout + done.stderr
    assert report["first"]["cause"] == "operation"
