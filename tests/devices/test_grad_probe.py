"""Task grad_probe on a device: the files of the host, and no step waits for them."""

import json
import os

import pytest
import torch
from device_runs import syncs

from models import gpt


def train(folder, device, level, steps=3, wide=False, forks=False):
    """Waits in each step of the optimizer."""
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir(parents=True, exist_ok=True)
    config = {"dump_path": str(folder), "task": "grad_probe", "grad_probe": {"grad_level": level}}
    (folder / "config.json").write_text(json.dumps(config))
    model, batch = gpt.build(1, layers=1, width=16, heads=2, batch=2, length=8, vocabulary=32)
    if wide:  # of more than 4 MB, and of more than 64 KB
        model.wide = torch.nn.Linear(1100, 1000)
    model, batch = model.to(device), [each.to(device) for each in batch]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    PrecisionDebugger(str(folder / "config.json")).monitor(model)
    waits = []
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=False)  # in the memory that was asked for
        loss = gpt.loss(model, batch)
        if wide:
            loss = loss + model.wide(model.wide.weight).square().sum() * 1e-3
        loss.backward()
        before = syncs()
        optimizer.step()
        waits.append(syncs() - before)
    from msprobe import _engine

    if forks:
        if (child := os.fork()) == 0:
            _engine.say_end()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    _engine.say_end()
    return waits


def files(folder):
    place = folder / "rank0"
    return {file.name: file.read_bytes() for file in sorted(place.iterdir())}


LATE = {"SIMNPU_ASYNC": "1", "SIMNPU_POISON": "1"}


@pytest.mark.parametrize("settings", [{}, LATE], ids=["soon", "late"])
@pytest.mark.parametrize("level", ["L0", "L1", "L2"])
def test_no_step_waits(on_npu, tmp_path, level, settings):
    assert on_npu(train, tmp_path / "npu", "npu", level, **settings) == [0, 0, 0]
    on_npu(train, tmp_path / "cpu", "cpu", level)
    ours, theirs = files(tmp_path / "npu"), files(tmp_path / "cpu")
    assert len(ours) >= 3 and ours == theirs


def test_without_room_it_waits(on_npu, tmp_path):
    waits = on_npu(train, tmp_path / "npu", "npu", "L1", 3, True, MSPROBE_HELD_MB="1", **LATE)
    assert all(waits)
    on_npu(train, tmp_path / "cpu", "cpu", "L1", 3, True)
    assert files(tmp_path / "npu") == files(tmp_path / "cpu")


def test_a_forked_child_has_no_part_in_it(on_npu, tmp_path):
    on_npu(train, tmp_path / "npu", "npu", "L1", 3, False, True, **LATE)
    on_npu(train, tmp_path / "cpu", "cpu", "L1")
    assert files(tmp_path / "npu") == files(tmp_path / "cpu")
