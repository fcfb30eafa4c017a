"""Provenance in a dump: facts of the run, and fingerprints of its initial weights."""

import json
import subprocess

import torch
from recording import read_dump, run_forked


def record(folder, seed=1, scale=1.0, level="mix", models=False):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        model[0].bias.mul_(scale)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    for _ in range(2):
        debugger.start([model, model[0]] if models else model)
        model(torch.ones(5, 4)).sum().backward()
        debugger.stop()
        debugger.step()


def test_the_header_says_where_the_run_came_from(tmp_path):
    run_forked(record, tmp_path, seed=1234)
    provenance = read_dump(tmp_path).header["provenance"]
    assert provenance["torch"] == torch.__version__
    assert provenance["seed"] == 1234
    assert provenance["device"] == "cpu"
    assert provenance["threads"] == 1
    assert provenance["deterministic"] is False
    assert len(provenance["random_state"]) == 16
    assert not {"host", "user", "path"} & provenance.keys()


def test_weights_are_recorded_when_each_step_begins(tmp_path):
    run_forked(record, tmp_path)
    weights = json.loads((tmp_path / "step0/rank/weights.json").read_text())
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"]
    assert list(weights) == [*names, "1.num_batches_tracked"]
    assert all(len(weight["fp"]) == 11 for weight in weights.values())
    later = json.loads((tmp_path / "step1/rank/weights.json").read_text())
    differ = {name for name in later if later[name]["fp"] != weights[name]["fp"]}
    assert differ == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_names_in_a_list_of_models_carry_its_place(tmp_path):
    run_forked(record, tmp_path, level="L1", models=True)
    weights = json.loads((tmp_path / "step0/rank/weights.json").read_text())
    assert {"0.0.weight", "1.weight"} <= weights.keys()


def began(target, golden, msprobe_bin, folder):
    command = [msprobe_bin, "compare", "-tp", target, "-gp", golden, "-o", folder / "out"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line for line in lines if line.startswith("  began "))


def test_compare_tells_whether_the_weights_were_the_same(tmp_path, msprobe_bin):
    for name, scale in (("a", 1.0), ("b", 1.0), ("c", 1.5)):
        run_forked(record, tmp_path / name, scale=scale)
    a, b, c = (tmp_path / name / "step0" for name in "abc")
    assert "from the same weights (7) and the same data" in began(a, b, msprobe_bin, tmp_path)
    assert "other weights (1 of 7 differ, first 0.bias)" in began(a, c, msprobe_bin, tmp_path)
