"""A run is compared with a recorded run while it trains: "baseline"."""

import json
import re
import subprocess
from pathlib import Path

import pytest
import torch
from recording import ForkedError, run_forked
from torch.nn import functional

STEPS = 3


def train(start, stop, fault=""):
    """Returns losses, weights and a random number. The faults are in step 1."""
    torch.manual_seed(3)
    layers = [torch.nn.Linear(6, 5), torch.nn.LayerNorm(5), torch.nn.Linear(5, 4)]
    if fault == "model":
        layers = [torch.nn.Linear(6, 7), torch.nn.LayerNorm(7), torch.nn.Linear(7, 4)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(3, 6)
    if fault == "dtype":
        model, x = model.double(), x.double()
    losses = []
    for step in range(STEPS):
        now = fault if step == 1 else ""
        start(model)
        hidden = model[1](model[0](x + 1 if now == "data" else x))
        if now != "missing":
            hidden = torch.mul(hidden, 1.5)
        hidden = functional.leaky_relu(model[2](hidden), 0.02 if now == "argument" else 0.01)
        if now == "value":
            model[2].weight.data[0, 0] += 0.5
        loss = functional.mse_loss(hidden, torch.ones_like(hidden))
        loss.backward()
        if now == "gradient":
            model[0].weight.grad *= 2
        optimizer.step()
        optimizer.zero_grad()
        stop()
        losses.append(loss.item())
    return losses, [p.detach().numpy().tobytes() for p in model.parameters()], torch.rand(1).item()


def record(*args, **keywords):
    return run_forked(record_here, *args, **keywords)


def record_here(folder, fault="", config=None, level="mix", **keywords):
    from msprobe.pytorch import PrecisionDebugger

    path = None
    if config is not None:
        path = Path(folder).with_suffix(".json")
        path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(path, dump_path=str(folder), level=level, **keywords)

    def stop():
        debugger.stop()
        debugger.step()

    return train(debugger.start, stop, fault)


def plain(fault=""):
    return run_forked(train, lambda _: None, lambda: None, fault)


def named(text):
    """The call that is named first, by the log or by the command."""
    return re.findall(r"FIRST DIVERGENCE +(?:step \d+, )?(\S+)", text)


def offline(msprobe_bin, target, golden):
    command = [msprobe_bin, "compare", target, golden, "-o", f"{target}_table"]
    return named(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


FAULTS = ["argument", "missing", "data", "value", "gradient"]


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@pytest.mark.parametrize("fault", FAULTS)
def test_names_the_call_that_compare_names(msprobe_bin, tmp_path, capfd, level, fault):
    record(tmp_path / "golden", level=level)
    capfd.readouterr()
    record(tmp_path / "now", fault, level=level, baseline=str(tmp_path / "golden"))
    live = named(capfd.readouterr().err)
    steps = [f"step{step}" for step in range(STEPS)]
    first = [offline(msprobe_bin, tmp_path / "now" / s, tmp_path / "golden" / s) for s in steps]
    assert live == next(names for names in first if names)


def test_training_is_the_same_bits(tmp_path):
    record(tmp_path / "golden")
    for fault in ("", "argument", "data"):
        now = record(tmp_path / f"now{fault}", fault, baseline=str(tmp_path / "golden"))
        assert now == plain(fault)


def test_the_same_run_gives_no_word(tmp_path, capfd):
    record(tmp_path / "golden")
    capfd.readouterr()
    record(tmp_path / "now", baseline=str(tmp_path / "golden"))
    assert "baseline" not in capfd.readouterr().err
    assert not list((tmp_path / "now").rglob("*.pt"))
    assert not list((tmp_path / "now").glob("first_divergence*"))


def test_keeps_the_tensors_of_the_call_and_of_the_next_ones(tmp_path):
    record(tmp_path / "golden")
    record(tmp_path / "now", "argument", baseline=str(tmp_path / "golden"))
    folder = tmp_path / "now/step1/rank"
    files = {file.name for file in (folder / "dump_tensor_data").iterdir()}
    call = "Functional.leaky_relu.0.forward"
    assert {f"{call}.input.0.pt", f"{call}.output.0.pt"} <= files
    data = json.loads((folder / "dump.json").read_text())["data"]
    assert data[call]["input_args"][0]["data_name"] == f"{call}.input.0.pt"
    value = torch.load(folder / "dump_tensor_data" / f"{call}.output.0.pt")
    assert value.max().item() == pytest.approx(data[call]["output"][0]["Max"], rel=1e-6)
    assert len({re.sub(r"\.(input|output|kwargs).*", "", name) for name in files}) > 3
    told = json.loads((tmp_path / "now/first_divergence.rank.json").read_text())
    assert told["name"] == call and told["step"] == "1" and "test_baseline.py" in told["source"]


def test_raises_in_the_program(tmp_path):
    record(tmp_path / "golden")
    with pytest.raises(ForkedError, match=r"DivergenceError: step 1 differs .*leaky_relu"):
        record(
            tmp_path / "now",
            "argument",
            baseline=str(tmp_path / "golden"),
            baseline_action="raise",
        )


def test_stops_the_recording(tmp_path):
    record(tmp_path / "golden")
    config = {"baseline": str(tmp_path / "golden"), "baseline_action": "stop"}
    assert record(tmp_path / "now", "argument", config) == plain("argument")
    assert sorted(folder.name for folder in (tmp_path / "now").glob("step*")) == ["step0", "step1"]


@pytest.mark.parametrize("fault", ["model", "dtype"])
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_blames_nobody_for_another_program(tmp_path, capfd, fault, level):
    record(tmp_path / "golden", level=level)
    capfd.readouterr()
    now = record(tmp_path / "now", fault, level=level, baseline=str(tmp_path / "golden"))
    log = capfd.readouterr().err
    assert now == plain(fault)
    assert log.count("is not compared with the baseline") == 1 and not named(log)
    assert f"of another {fault}" in log


@pytest.mark.parametrize("damage", ["cut", "nonsense", "step"])
def test_goes_on_with_a_baseline_that_cannot_be_used(tmp_path, capfd, damage):
    record(tmp_path / "golden")
    file = tmp_path / "golden/step0/rank/dump.json"
    baseline = tmp_path / "golden"
    if damage == "cut":
        file.write_text(file.read_text()[:3000])
    elif damage == "nonsense":
        file.write_text("nonsense")
    else:
        baseline = tmp_path / "golden/step2"
    capfd.readouterr()
    now = record(tmp_path / "now", baseline=str(baseline))
    log = capfd.readouterr().err
    assert now == plain() and not named(log)
    wanted = {
        "cut": "ends early",
        "nonsense": "step 0 is not compared",
        "step": "step 0 is not compared",
    }
    assert wanted[damage] in log


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"baseline": "nowhere"}, "nowhere"),
        ({"baseline": "golden", "baseline_action": "end"}, '"go_on", "stop" or "raise"'),
        ({"baseline": "golden", "task": "structure", "level": "mix"}, '"statistics" or "tensor"'),
        ({"baseline": "golden", "task": "tensor", "tensor": {"bench_path": "x"}}, "one of them"),
        ({"baseline": 3}, "expected a string"),
    ],
)
def test_refuses_what_it_cannot_do(tmp_path, config, words):
    with pytest.raises(ForkedError) as error:
        record(tmp_path / "now", config=config)
    assert words in str(error.value)
