"""forward_backward_dump_end: records no more forward calls, only gradients of recorded calls."""

import pytest
import torch
from recording import read_dump, run_forked


def train(folder, level):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.GELU())
    head = torch.nn.Linear(3, 2)
    model.add_module("head", head)
    debugger.start(model)
    hidden = model[1](model[0](torch.ones(2, 3)))
    debugger.forward_backward_dump_end()
    head(hidden).sum().backward()
    debugger.stop()
    debugger.step()


@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_only_gradients_follow(level, tmp_path):
    run_forked(train, tmp_path, level)
    # Gradients of parameters belong to no call.
    names = [name for name in read_dump(tmp_path).names if "parameters_grad" not in name]
    assert not [name for name in names if "head" in name or ".sum." in name]
    assert any("backward" in name for name in names)
    assert any("forward" in name for name in names)
