"""Masked scores are recorded with the statistics of the elements that are not masked."""

import json
import math

import pytest
import torch
from recording import read_dump, run_forked


def record(folder, tensor):

    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="statistics")
    debugger.start()
    torch.relu(tensor)
    debugger.stop()
    debugger.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mask", ["lowest", "-inf", "-1e4"])
def test_the_others_have_their_numbers(tmp_path, dtype, mask):
    value = {"lowest": torch.finfo(dtype).min, "-inf": -math.inf, "-1e4": -1e4}[mask]
    torch.manual_seed(1)
    scores = torch.randn(5, 7, 9).to(dtype)
    hidden = torch.rand(5, 7, 9) < 0.3
    run_forked(record, tmp_path / "out", scores.masked_fill(hidden, value))
    entry = read_dump(tmp_path / "out").data["Torch.relu.0.forward"]["input_args"][0]
    others = scores[~hidden].double()
    assert entry["extremes"] == int(hidden.sum())
    # A narrow float has the digits of a float32.
    assert torch.tensor(entry["rest_max"]).float() == others.max().float()
    assert torch.tensor(entry["rest_min"]).float() == others.min().float()
    assert math.isclose(entry["rest_norm"], float(others.norm()), rel_tol=1e-6)
    output = read_dump(tmp_path / "out").data["Torch.relu.0.forward"]["output"][0]
    assert "extremes" not in json.dumps(output)
