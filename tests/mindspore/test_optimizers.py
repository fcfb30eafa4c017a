"""Steps of optimizers are recorded: weights, gradients, moments, hyper-parameters."""

import json

import numpy as np
import pytest
from mindspore.experimental.optim import AdamW
from runs import bits, read_dump, run_forked

import mindspore
from mindspore import Tensor, nn, ops
from msprobe.mindspore import PrecisionDebugger


def train(path, make, kind):
    """Two steps; returns the bits of the weights after them."""
    mindspore.set_seed(1)
    np.random.seed(1)
    net = nn.SequentialCell(nn.Dense(4, 3), nn.LayerNorm((3,)))
    optimizer = make(net.trainable_params())

    def forward(x):
        return ops.square(net(x)).mean()

    step = mindspore.value_and_grad(forward, None, optimizer.parameters)

    @mindspore.jit
    def whole(x):
        loss, gradients = step(x)
        optimizer(gradients)
        return loss

    debugger = PrecisionDebugger(dump_path=str(path), level="mix") if path else None
    for number in range(2):
        x = Tensor(np.random.default_rng(number).standard_normal((5, 4)).astype("float32"))
        if debugger:
            debugger.start(net)
        if kind == "jit":
            whole(x)
        else:
            optimizer(step(x)[1])
        if debugger:
            debugger.stop()
            debugger.step()
    assert "__call__" not in vars(nn.Optimizer)
    return bits(*net.trainable_params())


MAKE = {
    "Momentum": lambda p: nn.Momentum(p, 0.1, 0.9, weight_decay=0.01),
    "Adam": lambda p: nn.Adam(p, 1e-3),
    "AdamW": lambda p: AdamW(p, lr=1e-3),
}
STEPS = [(name, kind) for name in MAKE for kind in ("pynative", "jit")]
STEPS.remove(("AdamW", "jit"))  # its groups are no constants of a graph


@pytest.mark.parametrize(("name", "kind"), STEPS)
def test_a_step_is_an_entry(tmp_path, name, kind):
    recorded = run_forked(train, tmp_path, MAKE[name], kind)
    assert recorded == run_forked(train, None, MAKE[name], kind)
    call = f"Optimizer.{name}.step.0.forward"
    entries = [read_dump(tmp_path, step).data[call] for step in (0, 1)]
    given, made = entries[1]["input_kwargs"], entries[0]["output"][0]
    assert set(given["weights"]) == {"0.weight", "0.bias", "1.gamma", "1.beta"}
    assert given["weights"] == made["weights"]  # nothing changes them between the steps
    assert given["state"]["0.weight"] == made["state"]["0.weight"]
    assert made["weights"] != entries[0]["input_kwargs"]["weights"]
    group = given["param_groups"][0]
    assert group["lr"]["value"] == (0.1 if name == "Momentum" else 0.001)
    assert set(given["gradients"]) == (set() if kind == "jit" else set(given["weights"]))
    if kind == "jit":
        coverage = json.dumps(read_dump(tmp_path, 0).coverage["modules_not_observed"])
        assert "whole (test_optimizers.py:" in coverage
