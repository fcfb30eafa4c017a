"""module_dump: one module's own calls, and nothing else."""

import pytest
import torch
from recording import forked, read_dump

from msprobe import UsageError
from msprobe.pytorch import PrecisionDebugger, module_dump, module_dump_end

X = torch.ones(1, 2)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(2, 2)
        self.scale = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return torch.relu(self.inner(x)) * self.scale


@forked
def test_one_module(tmp_path):
    block, other = Block(), torch.nn.Linear(2, 2)
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    module_dump(block, "early")  # nothing is recorded yet: no effect
    for _ in range(2):
        debugger.start()
        torch.relu(X)
        module_dump(block, "mine")
        out = other(block(block(X)))
        module_dump_end()
        block(X)
        debugger.module_dump(block, "mine")
        block(X)
        debugger.module_dump_end()
        out.sum().backward()
        debugger.stop()
        debugger.step()
    for step in range(2):
        names = read_dump(tmp_path, step).names
        assert names[:3] == [
            "Torch.relu.0.forward",
            "Module.mine.Block.forward.0",
            "Module.mine.Block.forward.1",
        ]
        modules = {name for name in names if name.startswith("Module")}
        assert modules == {
            "Module.mine.Block.forward.0",
            "Module.mine.Block.forward.1",
            "Module.mine.Block.forward.2",
            "Module.mine.Block.backward.0",
            "Module.mine.Block.backward.1",
            "Module.mine.Block.parameters_grad.0",
        }
        assert names.count("Functional.linear.0.forward") == 1
        assert "Functional.linear.1.forward" not in names


@forked
def test_recorded_anyway(tmp_path):
    block = Block()
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    debugger.start([block])
    module_dump(block.inner, "mine")  # only a warning
    block(X)
    module_dump_end()
    debugger.stop()
    assert read_dump(tmp_path).names == ["Module.0.inner.Linear.forward.0"]


@forked
def test_refused(tmp_path):
    PrecisionDebugger(dump_path=str(tmp_path))
    for arguments in ((3, "x"), (Block(), 3), ([Block()], "x"), (torch.jit.script(Block()), "x")):
        with pytest.raises(UsageError, match="expected"):
            module_dump(*arguments)


def test_before_construction():
    for call in (lambda: module_dump(Block(), "x"), module_dump_end):
        with pytest.raises(UsageError, match="to be constructed first"):
            call()
