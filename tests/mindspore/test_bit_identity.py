"""Recording changes no bit of losses, gradients, weights and random numbers."""

import json
import random
from functools import cache

import numpy as np
import pytest
from programs import PROGRAMS, trainer
from runs import bits, read_dump, run_forked

import mindspore
from mindspore import ops
from msprobe.mindspore import PrecisionDebugger

# On the CPU the masks of nn.Dropout differ between two plain runs from the sixth call on.
STEPS = dict.fromkeys(PROGRAMS, 10) | {"dropout": 5}
CONFIGS = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
    "structure": {"task": "structure"},
    "overflow_check": {"task": "overflow_check", "overflow_check": {"overflow_nums": -1}},
}


def train(program, debugger=None):
    """What each step computed, and the numbers that the random generators give after them."""
    net, loss = PROGRAMS[program](7)
    step, optimizer = trainer(net, loss)
    seen = []
    for _ in range(STEPS[program]):
        if debugger is not None:
            debugger.start(net)
        value, gradients = step()
        if debugger is not None:
            debugger.stop()
        optimizer(gradients)
        if debugger is not None:
            debugger.step()
        seen.append((bits(value), bits(gradients), bits(list(net.get_parameters()))))
    state = bits(mindspore.get_rng_state()) if hasattr(mindspore, "get_rng_state") else 0
    rest = bits(ops.dropout(ops.ones((64,)), 0.5, True), np.random.random(4))
    return seen, state, rest, random.random() if random.seed(0) is None else None


@cache
def plain(program):
    return run_forked(train, program)


def recorded(program, path, level, config):
    file = path / "config.json"
    file.write_text(json.dumps(config | {"level": level, "dump_path": str(path / "dump")}))
    result = train(program, PrecisionDebugger(str(file)))
    return result, len(read_dump(path / "dump", STEPS[program] - 1).names)


def cases():
    """All combinations; some of them only in the campaign."""
    for program in PROGRAMS:
        for level in ("L0", "L1", "mix"):
            for config in CONFIGS:
                often = config in ("statistics", "tensor") or program == "mlp"
                marks = () if often else pytest.mark.campaign
                yield pytest.param(program, level, config, marks=marks)


@pytest.mark.parametrize(("program", "level", "config"), cases())
def test_the_same_bits(tmp_path, program, level, config):
    result, names = run_forked(recorded, program, tmp_path, level, CONFIGS[config])
    assert result == plain(program)
    assert names > 0 or config in ("structure", "overflow_check")
