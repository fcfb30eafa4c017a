"""An input used twice in a module: its gradient is a sum that the tool computes itself."""

import pytest
import torch
from recording import read_dump, run_forked


class Residual(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x):
        return x + self.linear(x)


def train(folder):
    from msprobe.pytorch import PrecisionDebugger

    model = torch.nn.Sequential(torch.nn.Linear(3, 3), Residual())
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix")
    debugger.start(model)
    hidden = model[0](torch.ones(2, 3))
    hidden.retain_grad()
    model[1](hidden).sum().backward()
    debugger.stop()
    return hidden.grad.abs().max().item(), hidden.grad.norm().item()


def test_the_sum_is_measured_and_is_not_recorded_as_a_call(tmp_path):
    largest, norm = run_forked(train, tmp_path)
    data = read_dump(tmp_path).data
    assert [name for name in data if "__add__" in name] == [
        "Tensor.__add__.0.forward",
        "Tensor.__add__.0.backward",
    ]
    gradient = data["Module.1.Residual.backward.0"]["output"][0]
    assert max(abs(gradient["Max"]), abs(gradient["Min"])) == pytest.approx(largest, rel=2**-24)
    assert abs(gradient["Norm"] - norm) < 1e-5
