"""Runs scripts of the older tools in a child, and reads the files that they wrote."""

import json
import os
import re
import tempfile

import numpy as np
import torch
from recording import run_forked
from torch.nn import functional as F

import ptdbg_ascend as ptdbg


class Net(torch.nn.Module):
    """Calls linear, relu, linear; train() then calls sum."""

    def __init__(self, width=3):
        super().__init__()
        self.first = torch.nn.Linear(4, width)
        self.second = torch.nn.Linear(width, 2)

    def forward(self, x):
        return self.second(F.relu(self.first(x)))


def net(seed=0, width=3):
    torch.manual_seed(seed)
    return Net(width)


X = torch.linspace(-1, 2, 20).reshape(5, 4)

# The calls that ptdbg_ascend records for train(net()), in this order.
CALLS = [
    "Functional_linear_0_forward",
    "Functional_relu_0_forward",
    "Functional_linear_1_forward",
    "Tensor_sum_0_forward",
    "Tensor_sum_0_backward",
    "Functional_linear_1_backward",
    "Functional_relu_0_backward",
    "Functional_linear_0_backward",
]


def train(model, x=None):
    model(X if x is None else x).sum().backward()


def run_in(folder, function, *args):
    """Runs `function(*args)` in a child, in `folder`: returns the result and the stderr text."""
    folder.mkdir(exist_ok=True, parents=True)
    with tempfile.TemporaryFile("w+") as said:

        def work():
            os.chdir(folder)
            os.dup2(said.fileno(), 2)
            return function(*args)

        result = run_forked(work)
        said.seek(0)
        return result, said.read()


def error_of(function, *args, **kwargs):
    """(type names of the exception and its bases, code, text), or None without an exception."""
    try:
        function(*args, **kwargs)
    except BaseException as error:
        types = [each.__name__ for each in type(error).__mro__]
        return types, getattr(error, "code", None), str(error)
    return None


def read(path):
    """The lines of a .pkl file (R(p) in the requirements)."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(path, stacks=False):
    return [line[0] for line in read(path) if stacks or not line[0].endswith("_stack_info")]


def calls(path):
    """The names of the calls in a .pkl file, each once."""
    found = [re.sub(r"_(input|output|stack_info)[.\w]*$", "", name) for name in names(path, True)]
    return list(dict.fromkeys(found))


def line(path, name):
    found = [each for each in read(path) if each[0] == name]
    assert len(found) == 1, f"{name} is there {len(found)} times: {names(path)}"
    return found[0]


def arrays(folder):
    return {path.name[: -len(".npy")]: np.load(path) for path in sorted(folder.glob("*.npy"))}


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def dump_numbered(path="npu_dump.pkl", model=None, dump_step=1, x=None, **switch):
    """Dumps one step as with ptdbg_ascend 0.1."""
    model = model or net()
    ptdbg.set_dump_path(path)
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump, dump_step=dump_step)
    ptdbg.set_dump_switch("ON", **switch)
    train(model, x)
    ptdbg.set_dump_switch("OFF")


def dump_counted(path="dump", model=None, tag="ptdbg_dump", x=None, mode="all", **switch):
    """Dumps one step as with ptdbg_ascend 1 and later."""
    model = model or net()
    ptdbg.set_dump_path(path, dump_tag=tag)
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", mode=mode, **switch)
    train(model, x)
    ptdbg.set_dump_switch("OFF")


RANK0 = f"ptdbg_dump_v{ptdbg.__version__}/rank0"
