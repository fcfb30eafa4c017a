"""Level debug: debug.json has the values given to save(), and their gradients."""

import atexit
import json
import os
import subprocess

import pytest
import torch
from recording import forked, run_forked

from msprobe.pytorch import PrecisionDebugger


def debug_json(folder, step=0, rank="rank"):
    return json.loads((folder / f"step{step}" / rank / "debug.json").read_text())


@forked
def test_structures(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="debug")
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    debugger.save(y, "y")
    debugger.save({"a": [x, 1, "text"], "b": (y, 2.5, True)}, "all")
    debugger.save(7, "number")
    (y.sum() + x.sum()).backward()
    debugger.save(y.detach(), "y", save_backward=False)
    whole = debug_json_text(tmp_path)
    debugger.step()
    found = debug_json(tmp_path)
    assert (found["level"], found["task"], found["dump_data_dir"]) == ("debug", "statistics", None)
    data = found["data"]
    assert list(data)[:3] == ["y.0.debug", "all.0.debug", "number.0.debug"]
    assert list(data)[-1] == "y.1.debug" and len(data) == 6
    assert data["y.0.debug"]["Max"] == 6.0
    assert data["all.0.debug"]["a"][1:] == [
        {"type": "int", "value": 1},
        {"type": "str", "value": "text"},
    ]
    assert data["number.0.debug"] == {"type": "int", "value": 7}
    assert data["y_grad.0.debug"]["Max"] == 1.0
    gradients = data["all_grad.0.debug"]
    assert (gradients["a"][0]["Max"], gradients["b"][0]["Max"]) == (4.0, 1.0)
    assert gradients["a"][1:] == [None, None] and gradients["b"][1:] == [None, None]
    # Lines are complete immediately: nothing waits for step().
    assert {name for name in data if f'"{name}"' in whole} == set(data)
    assert not x._backward_hooks  # no hook is left


def debug_json_text(folder):
    return (folder / "step0" / "rank" / "debug.json").read_text()


@forked
def test_files(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="debug", task="tensor")
    x = torch.ones(2, requires_grad=True)
    debugger.save(x, "x")
    debugger.save({"k": [x * 2]}, "d")
    (x * 5).sum().backward()
    debugger.step()
    tensors = tmp_path / "step0" / "rank" / "dump_tensor_data"
    assert sorted(f.name for f in tensors.iterdir()) == [
        "d.0.debug.k.0.pt",
        "x.0.debug.pt",
        "x_grad.0.debug.pt",
    ]
    assert torch.load(tensors / "x_grad.0.debug.pt").tolist() == [5.0, 5.0]
    data = debug_json(tmp_path)["data"]
    assert data["x.0.debug"]["data_name"] == "x.0.debug.pt"
    assert data["d_grad.0.debug"] == {"k": [None]}  # no gradient arrived


@forked
def test_steps_and_stop(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"rank": [1], "step": [1], "statistics": {"list": ["x"]}}')
    debugger = PrecisionDebugger(str(config), dump_path=str(tmp_path / "out"), level="debug")
    for step in range(3):
        debugger.start(rank_id=0)  # no effect here
        x = torch.ones(2, requires_grad=True)
        debugger.save(x, "x")
        debugger.stop()
        (x * step).sum().backward()
        debugger.step()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["step1"]
    assert list(debug_json(tmp_path / "out", 1)["data"]) == ["x.0.debug", "x_grad.0.debug"]
    names = sorted(path.name for path in (tmp_path / "out" / "step1" / "rank").iterdir())
    assert names == ["coverage.json", "debug.json"]


@forked
def test_unwanted_rank(tmp_path):
    torch.distributed.init_process_group(
        "gloo", store=torch.distributed.HashStore(), rank=0, world_size=1
    )
    config = tmp_path / "config.json"
    config.write_text('{"rank": [1], "level": "debug"}')
    debugger = PrecisionDebugger(str(config), dump_path=str(tmp_path / "out"))
    debugger.save(torch.ones(1), "x")
    assert not (tmp_path / "out").exists()


@forked
def test_refused(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "run"), level="debug")
    for value in (None, {1: torch.ones(1)}, [object()], torch.float32):
        debugger.save(value, "x")
    debugger.save(torch.ones(1), 3)
    assert not (tmp_path / "run").exists()


@forked
def test_other_levels(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "run"))
    debugger.save(torch.ones(1), "x")
    assert not (tmp_path / "run").exists()


def loop(folder=None):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    debugger = folder and PrecisionDebugger(dump_path=str(folder), level="debug", task="tensor")
    bits = []
    for _ in range(3):
        hidden = model[0](torch.rand(8, 4))
        if folder:
            debugger.save([hidden, dict(model.named_parameters())], "hidden")
        loss = model[1:](hidden.mul_(2)).sum()
        loss.backward()
        bits += [loss.item(), *(p.grad.tolist() for p in model.parameters())]
        optimizer.step()
        optimizer.zero_grad()
        if folder:
            debugger.step()
    return bits, [p.tolist() for p in model.parameters()], torch.get_rng_state().tolist()


def killed(folder):
    debugger = PrecisionDebugger(dump_path=str(folder), level="debug")
    x = torch.ones(3, requires_grad=True)
    debugger.save(x, "x")
    debugger.save([x, x], "pair")
    x.sum().backward()
    os._exit(0)


@forked
def test_left_open(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="debug")
    x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
    debugger.save([x, y], "pair")
    x.sum().backward()
    assert "pair_grad" not in debug_json_text(tmp_path)
    atexit._run_exitfuncs()
    gradients = debug_json(tmp_path)["data"]["pair_grad.0.debug"]
    assert gradients[0]["Max"] == 1.0 and gradients[1] is None


def test_training_is_the_same(tmp_path):
    assert run_forked(loop, tmp_path) == run_forked(loop)


def test_a_kill_loses_nothing(tmp_path, msprobe_bin):
    with pytest.raises(AssertionError, match="died with exit code 0"):
        run_forked(killed, tmp_path)
    shown = subprocess.run(
        [msprobe_bin, "show", tmp_path / "step0"], capture_output=True, text=True
    ).stdout
    for name in ("x.0.debug", "x_grad.0.debug", "pair.0.debug", "pair_grad.0.debug"):
        assert name in shown
