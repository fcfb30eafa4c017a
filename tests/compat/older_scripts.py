"""Scripts of the older tools, run in a child, and what they left in its folder."""

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
    """Calls linear, relu, linear; then the caller's sum."""

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

# What ptdbg_ascend records of train(net()), in this order.
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
    """`function(*args)` in a child that works in `folder`: its result, and what it said."""
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
    """(names of the types that catch it, code, text) of what `function` raises; None: nothing."""
    try:
        function(*args, **kwargs)
    except BaseException as error:
        types = [each.__name__ for each in type(error).__mro__]
        return types, getattr(error, "code", None), str(error)
    return None


def read(path):
    """R(p) of the requirements: the lines of a .pkl."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def names(path, stacks=False):
    return [line[0] for line in read(path) if stacks or not line[0].endswith("_stack_info")]


def calls(path):
    """The calls of a .pkl file, each once, without its values."""
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
    """One step as ptdbg_ascend 0.1 dumped it."""
    model = model or net()
    ptdbg.set_dump_path(path)
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump, dump_step=dump_step)
    ptdbg.set_dump_switch("ON", **switch)
    train(model, x)
    ptdbg.set_dump_switch("OFF")


def dump_counted(path="dump", model=None, tag="ptdbg_dump", x=None, mode="all", **switch):
    """One step as ptdbg_ascend 1 and later dumped it."""
    model = model or net()
    ptdbg.set_dump_path(path, dump_tag=tag)
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", mode=mode, **switch)
    train(model, x)
    ptdbg.set_dump_switch("OFF")


RANK0 = f"ptdbg_dump_v{ptdbg.__version__}/rank0"
