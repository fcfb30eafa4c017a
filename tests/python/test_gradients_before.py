"""What lay in .grad when a backward pass began: recorded, compared, and said."""

import contextlib
import json
import subprocess
import weakref

import pytest
import torch
import torch.distributed
from recording import digest, forked, read_dump, run_forked, run_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

ENTRY = "Optimizer.gradients_before.{}.forward"


def small():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def batch(number):
    return torch.randn(5, 3, generator=torch.Generator().manual_seed(number))


def debugger(folder, level="mix", task="statistics", **config):
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "config.json"
    values = {"task": task, "level": level, "dump_path": str(folder)}
    path.write_text(json.dumps(values | config))
    return PrecisionDebugger(str(path))


def train(folder, forgotten=-1, level="mix", steps=3, passes=1, on=True, none=True, **config):
    """Weights after the last step. `forgotten`: the step in which zero_grad is not called."""
    model = small()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    recorder = debugger(folder, level, **config) if on else None
    for step in range(steps):
        if recorder:
            recorder.start(model)
        if step != forgotten:
            optimizer.zero_grad(set_to_none=none)
        for number in range(passes):
            model(batch(10 * step + number)).square().mean().backward()
        optimizer.step()
        if recorder:
            recorder.stop()
            recorder.step()
    return digest(list(model.parameters()))


def before(folder, step=0):
    """Number of the pass -> what lay there, by parameter; and the dump."""
    dump = read_dump(folder, step)
    found = {}
    for name, entry in dump.data.items():
        if name.startswith("Optimizer.gradients_before."):
            found[int(name.split(".")[2])] = entry["output"][0]
    return found, dump


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
@forked
def test_each_pass_has_what_the_passes_before_it_left(level, tmp_path):
    model = small()
    recorder = debugger(tmp_path, level)
    recorder.start(model)
    norms = []
    for number in range(3):
        model(batch(number)).square().mean().backward()
        norms.append({name: p.grad.norm().item() for name, p in model.named_parameters()})
    recorder.stop()
    found, dump = before(tmp_path)
    assert sorted(found) == [1, 2]  # nothing lay there when pass 0 began
    for number, values in found.items():
        assert list(values) == ["0.weight", "0.bias", "2.weight", "2.bias"]
        for name, value in values.items():
            assert value["Norm"] == pytest.approx(norms[number - 1][name], rel=1e-6)
            assert value["fp"] and "data_name" not in value
    backward = [".backward" in name for name in dump.names]
    assert sum(backward[: dump.names.index(ENTRY.format(1))]) == sum(backward) // 3  # of pass 0
    if level == "mix":  # the gradients that the pass before has recorded
        kept = dump.data["Module.2.Linear.parameters_grad.0"]
        assert kept["weight"][0]["fp"] == found[1]["2.weight"]["fp"]
    header = json.loads((tmp_path / "step0/rank/dump.json").read_text())
    assert header["provenance"]["gradients_before"] is True
    stacks = json.loads((tmp_path / "step0/rank/stack.json").read_text())
    frames = stacks[dump.data[ENTRY.format(1)]["stack"]][1]
    assert any(".square().mean().backward()" in frame for frame in frames)


@pytest.mark.parametrize("level", ["L1", "mix"])
@forked
def test_a_model_that_a_call_shows(level, tmp_path):
    """start() without a model: the first header is written before the model is known."""
    model = small()
    recorder = debugger(tmp_path, level)
    for _ in range(2):
        recorder.start()
        for number in range(2):
            model(batch(number)).square().mean().backward()
        recorder.stop()
        recorder.step()
    names = ["0.weight", "0.bias", "2.weight", "2.bias"]
    first, second = (
        {n: list(values) for n, values in before(tmp_path, s)[0].items()} for s in (0, 1)
    )
    assert first == {1: names}
    assert second == {0: names, 1: names}
    header = json.loads((tmp_path / "step1/rank/dump.json").read_text())
    assert header["provenance"]["gradients_before"] is True


@pytest.mark.parametrize(
    ("config", "keys"),
    [
        ({"task": "tensor"}, {"Max", "fp"}),
        ({"statistics": {"summary_mode": "md5"}}, {"md5", "fp"}),
    ],
)
def test_every_task_has_them(config, keys, tmp_path):
    run_forked(train, tmp_path, passes=2, steps=1, **config)
    found, _ = before(tmp_path)
    assert list(found) == [1]
    assert keys <= found[1]["2.weight"].keys()
    assert not list(tmp_path.glob("step0/rank/dump_tensor_data/*gradients_before*"))


@pytest.mark.parametrize("none", [True, False])
def test_what_zero_grad_leaves_is_nothing(none, tmp_path):
    run_forked(train, tmp_path, none=none)
    for step in range(3):
        assert before(tmp_path, step)[0] == {}


@forked
def test_a_device_tells_later(tmp_path, monkeypatch):
    monkeypatch.setenv("MSPROBE_STATISTICS", "framework")
    train(tmp_path, passes=2, steps=1)
    found, _ = before(tmp_path)
    assert found[1]["2.weight"]["Norm"] > 0 and "fp" not in found[1]["2.weight"]


def fails(_):
    raise RuntimeError


def odd_passes(folder):
    model = small()
    recorder = debugger(folder)
    recorder.start(model)
    x = batch(0).requires_grad_()
    model(x).sum().backward()
    torch.autograd.grad(model(x).sum(), x)  # pass 1
    checkpoint(model, x, use_reentrant=True).sum().backward()  # 2, and one inside it
    y = model(x)
    y.register_hook(fails)  # pass 3 does not end
    with contextlib.suppress(RuntimeError):
        y.sum().backward()
    recorder.stop()
    recorder.start(model)
    model(x).sum().backward()  # 4
    grads = [weakref.ref(p.grad) for p in model.parameters()]
    model.zero_grad()
    assert [grad() for grad in grads] == [None] * 4
    recorder.stop()


def test_passes_are_counted_and_nothing_is_kept(tmp_path):
    run_forked(odd_passes, tmp_path)
    found, _ = before(tmp_path)
    assert {1, 2} <= found.keys() and max(found) in (3, 4)


@pytest.mark.parametrize("level", ["L0", "mix"])
def test_training_stays_bit_identical(level, tmp_path):
    kind = {"forgotten": 1, "level": level, "passes": 2, "none": False}
    on = run_forked(train, tmp_path / "on", **kind)
    assert on == run_forked(train, tmp_path / "off", on=False, **kind)


def compared(msprobe_bin, target, golden, *more):
    command = [msprobe_bin, "compare", target, golden, "-o", golden / "out", *more]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_a_forgotten_zero_grad_is_said(tmp_path, msprobe_bin):
    good, wrong = tmp_path / "good", tmp_path / "wrong"
    run_forked(train, good)
    run_forked(train, wrong, forgotten=1, baseline=str(good))  # judged while it trains, too
    first = json.loads((wrong / "first_divergence.rank.json").read_text())
    assert (first["step"], first["name"]) == ("1", ENTRY.format(0))
    assert "optimizer.zero_grad" not in first["source"] and ".backward()" in first["source"]
    report = json.loads(compared(msprobe_bin, wrong / "step1", good / "step1", "--format", "json"))
    found = report["first_divergence"]
    assert (found["target_name"], found["golden_name"]) == (ENTRY.format(0), None)
    assert (found["class"], found["module"], found["fix_hint"]) == ("introduced", None, None)
    assert report["runners_up"] == [] and report["calls"]["introduced"] == 1
    assert report["verdict"] == "differs" and report["calls"]["target_only"] == 0
    text = compared(
        msprobe_bin, good, wrong, "--lang", "zh", "--explain", "Optimizer.SGD.step.0.forward"
    )
    text = text.replace("\n  | ", "").replace(" ", "")  # a line may end at any space
    assert "此前的8个调用逐位相等" in text  # the backward calls of the pass are not before it
    assert "`0.weight`在标杆侧已有梯度" in text and "未调用zero_grad" in text


def exchange(rank, folder, inverted):
    """Two parts of a batch; the gradients are exchanged with the second one, or `inverted`."""
    model = small()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    recorder = debugger(folder / f"config{rank}", dump_path=str(folder))
    for step in range(2):
        recorder.start(parallel)
        optimizer.zero_grad()
        for part in range(2):
            exchanges = part == (0 if inverted and step else 1)
            with contextlib.nullcontext() if exchanges else parallel.no_sync():
                parallel(batch(100 * rank + 10 * step + part)).square().mean().backward()
        optimizer.step()
        recorder.stop()
        recorder.step()


def test_ranks_that_drift_apart_are_said(tmp_path, msprobe_bin):
    good, wrong = tmp_path / "good", tmp_path / "wrong"
    run_ranks(2, exchange, good, False)
    run_ranks(2, exchange, wrong, True)
    report = json.loads(compared(msprobe_bin, wrong, good, "--format", "json"))
    assert report["first"]["name"] == ENTRY.format(1) and report["first"]["ranks"] == ["0", "1"]
    drift = report["drift"]
    assert (drift["run"], drift["after_step"], drift["parameter"]) == ("target", 1, "0.weight")
    text = " ".join(compared(msprobe_bin, good, wrong).replace("\n  | ", " ").split())
    assert "after step 1 the ranks of the golden no longer have the same weights" in text
    assert "`0.weight` had another gradient before this backward pass" in text
