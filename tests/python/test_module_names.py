"""Which modules are recorded, and under which names."""

import torch
from recording import forked, read_dump
from torch import nn

from msprobe.pytorch import PrecisionDebugger

X = torch.ones(1, 2)


class OwnNames(nn.Sequential):
    """Has its own named_modules()."""

    def named_modules(self, memo=None, prefix="", remove_duplicate=True):
        yield prefix, self
        for name, module in self._modules.items():
            yield f"{prefix}.own_{name}", module


class OwnItems(dict):
    """Replaces a module's dict, with another order of items."""

    def items(self):
        return reversed(super().items())


def recorded(debugger, folder, step):
    """Names of the modules with a call in one step, without "Module." and the class."""
    debugger.step()
    names = read_dump(folder, step).names
    calls = [name.split(".") for name in names if ".forward." in name]
    return [".".join(parts[1:-3]) for parts in calls]


@forked
def test_names_follow_the_model(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    shared = nn.ReLU()
    inner = OwnNames(nn.Linear(2, 2), nn.Tanh())
    scripted = torch.jit.script(nn.Sequential(nn.Linear(2, 2)))
    model = nn.Sequential(shared, nn.Sequential(shared, nn.Identity()), inner, scripted, None)
    reversed_ = nn.Sequential(nn.Sequential(), nn.Sequential())
    reversed_[0].x = reversed_[1].y = nn.ReLU()
    reversed_._modules = OwnItems(reversed_._modules)
    model.add_module("reversed", reversed_)
    del model._modules["4"]

    debugger.start(model)
    model(X)
    debugger.stop()
    at_first = ["0", "0", "1.1", "1", "2.own_0", "2.own_1", "2", "3"]
    of_reversed = ["reversed.1.y", "reversed.0", "reversed.1.y", "reversed.1", "reversed"]
    assert recorded(debugger, tmp_path, 0) == at_first + of_reversed

    # Between two steps one module is removed, one added and one replaced.
    del model._modules["reversed"], model._modules["3"]
    model.add_module("head", nn.Sequential(nn.Linear(2, 2)))
    model[1] = nn.Tanh()
    debugger.start(model)
    model(X)
    # The same within a step.
    model.head.append(nn.GELU())
    model[0] = nn.Softmax(dim=0)
    model(X)
    debugger.stop()
    assert recorded(debugger, tmp_path, 1) == [
        *("0", "1", "2.own_0", "2.own_1", "2", "head.0", "head"),
        *("0", "1", "2.own_0", "2.own_1", "2", "head.0", "head.1", "head"),
    ]


@forked
def test_parameters_follow_the_model(tmp_path):
    model = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)))
    model[0][1].weight.requires_grad_(False)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    debugger.start([model, nn.ReLU()])
    model[0].scale = nn.Parameter(torch.ones(2))
    model[0][0].bias = nn.Parameter(torch.zeros(2))
    (model(X) * model[0].scale).sum().backward()
    debugger.stop()
    data = read_dump(tmp_path).data
    assert {name: [*data[name]] for name in data if "parameters_grad" in name} == {
        "Module.0.0.Sequential.parameters_grad.0": ["scale"],
        "Module.0.0.0.Linear.parameters_grad.0": ["weight", "bias"],
        "Module.0.0.1.Linear.parameters_grad.0": ["bias"],
    }
