"""Level debug: single values that the script saves, and their gradients."""

import json

import numpy as np
import pytest
from runs import bits, forked, run_forked

import mindspore
from mindspore import Tensor, nn, ops
from msprobe import UsageError
from msprobe.mindspore import PrecisionDebugger


def train(folder):
    """Two steps; with a folder, the values inside are saved."""
    mindspore.set_seed(1)
    net = nn.Dense(3, 4)
    debugger = None
    if folder is not None:
        debugger = PrecisionDebugger(dump_path=str(folder), task="tensor", level="debug")

    def forward(x):
        y = ops.tanh(net(x))
        if debugger is not None:
            debugger.save({"y": y, "label": "tanh", "parts": [y[:1], 3]}, "inside")
        return (y * y).sum()

    step = mindspore.value_and_grad(forward, None, net.trainable_params())
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    x = Tensor(np.arange(6, dtype=np.float32).reshape(2, 3))
    computed, values = [], []
    for _ in range(2):
        values.append(ops.tanh(net(x)).asnumpy())
        loss, gradients = step(x)
        if debugger is not None:
            debugger.save(gradients[0], "gradient", save_backward=False)
            debugger.step()
        optimizer(gradients)
        computed.append(bits(loss, list(gradients), list(net.trainable_params())))
    return computed, values


def test_values_and_gradients(tmp_path):
    computed, values = run_forked(train, tmp_path)
    assert computed == run_forked(train, None)[0]
    for step in range(2):
        (folder,) = (tmp_path / f"step{step}").iterdir()
        data = json.loads((folder / "debug.json").read_text())["data"]
        # Nobody uses `parts`: its gradient does not come, and the entry is written at step().
        assert list(data) == ["inside.0.debug", "gradient.0.debug", "inside_grad.0.debug"]
        assert data["inside_grad.0.debug"]["parts"][0] is None
        saved = data["inside.0.debug"]
        assert saved["y"]["dtype"] == "Float32" and saved["label"]["value"] == "tanh"

        def array(value, folder=folder):
            return np.load(folder / "dump_tensor_data" / value["data_name"])

        np.testing.assert_array_equal(array(saved["y"]), values[step])
        np.testing.assert_array_equal(array(saved["parts"][0]), values[step][:1])
        gradient = array(data["inside_grad.0.debug"]["y"])
        np.testing.assert_allclose(gradient, 2 * values[step], 1e-6)


@forked
def test_graph_mode(tmp_path):
    mindspore.set_context(mode=mindspore.GRAPH_MODE)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="debug")
    with pytest.raises(UsageError, match="save; expected PyNative mode, found graph mode"):
        debugger.save(3, "x")
