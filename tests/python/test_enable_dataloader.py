"""The key enable_dataloader: each batch is a step, without calls of the debugger."""

import json

import pytest
import torch
from recording import read_dump, run_forked
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _BaseDataLoaderIter

CALLS = ["Functional.linear.0.forward", "Tensor.sum.0.forward", "Functional.linear.0.backward"]


def train(folder, workers=0, epochs=1, level="L1", explicit=False, config=None, leave=False):
    """Returns whether the iterator's method is the original object, and the batches."""
    from msprobe.pytorch import PrecisionDebugger

    function, hashed = _BaseDataLoaderIter.__next__, hash(_BaseDataLoaderIter.__next__)
    torch.manual_seed(0)
    (folder / "config.json").write_text(json.dumps({"enable_dataloader": True, **(config or {})}))
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    debugger = PrecisionDebugger(
        str(folder / "config.json"), dump_path=str(folder / "out"), level=level, model=model
    )
    loader = DataLoader(torch.randn(6, 2), batch_size=2, num_workers=workers, shuffle=True)
    seen = []
    for _ in range(epochs):
        for batch in loader:
            if explicit:
                debugger.start(model)
            seen.append(batch.tolist())
            model(batch).sum().backward()
            if explicit:
                debugger.stop()
                debugger.step()
            if leave:
                break
        torch.relu(torch.ones(1))  # between batches: not recorded, unless the loop was left
    same = function is _BaseDataLoaderIter.__next__ and hash(function) == hashed
    return same, seen


def steps(folder):
    return sorted(path.name for path in (folder / "out").glob("step*"))


@pytest.mark.parametrize("workers", [0, 1])
def test_each_batch_is_a_step(workers, tmp_path):
    same, seen = run_forked(train, tmp_path, workers, epochs=2)
    assert same and len(seen) == 6
    assert steps(tmp_path) == [f"step{n}" for n in range(6)]
    for step in range(6):
        dump = read_dump(tmp_path / "out", step)
        assert dump.names[:2] == CALLS[:2] and CALLS[2] in dump.names
        assert not any("relu" in name or "stack" in name for name in dump.names)
        largest = dump.data["Functional.linear.0.forward"]["input_args"][0]["Max"]
        assert largest == pytest.approx(max(map(max, seen[step])))


def test_batches_are_the_same_as_without(tmp_path):
    (tmp_path / "on").mkdir()
    (tmp_path / "off").mkdir()
    on = run_forked(train, tmp_path / "on", epochs=2)
    off = run_forked(train, tmp_path / "off", epochs=2, config={"enable_dataloader": False})
    assert on == off
    assert steps(tmp_path / "off") == []


def test_calls_of_the_script_are_a_warning_each(tmp_path, capfd):
    run_forked(train, tmp_path, explicit=True, level="mix")
    assert steps(tmp_path) == ["step0", "step1", "step2"]
    assert "Module.0.Linear.forward.0" in read_dump(tmp_path / "out", 2).names
    said = capfd.readouterr().err
    for method in ("start", "stop", "step"):
        assert said.count(f"{method}() has no effect: with enable_dataloader") == 1


def test_wanted_steps(tmp_path):
    run_forked(train, tmp_path, epochs=2, config={"step": [1, "4-5"]})
    assert steps(tmp_path) == ["step1", "step4", "step5"]


def test_a_loop_that_is_left(tmp_path):
    """A loop ends by break: the step ends at the next batch, or with the program."""
    run_forked(train, tmp_path, epochs=2, leave=True)
    assert steps(tmp_path) == ["step0", "step1"]
    assert "Torch.relu.0.forward" in read_dump(tmp_path / "out", 0).names


def without_model(folder):
    from msprobe.pytorch import PrecisionDebugger

    (folder / "config.json").write_text('{"enable_dataloader": true, "level": "L0"}')
    PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    return [batch.tolist() for batch in DataLoader(torch.ones(2, 1))]


def test_what_goes_wrong_does_not_reach_the_training(tmp_path, capfd):
    assert run_forked(without_model, tmp_path) == [[[1.0]], [[1.0]]]
    assert "no modules are recorded: start() was given no model" in capfd.readouterr().err
