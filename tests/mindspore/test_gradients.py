"""Gradients of calls, Cells and parameters: the numbers that MindSpore computes."""

import numpy as np
import pytest
from runs import forked, record

import mindspore
from mindspore import Parameter, Tensor, mint, nn, ops


def data(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


@forked
def test_shares_of_a_gradient_are_added(tmp_path):
    class Twice(nn.Cell):
        def construct(self, x):
            return ops.relu(x) * x + x

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.twice = Twice()

        def construct(self, x):
            return self.twice(x * 2.0).sum()

    net, x = Net(), data(3, 4)
    grad = mindspore.grad(net)
    gradient, dump = record(tmp_path, lambda: grad(Tensor(x)), net, level="L0", task="tensor")
    entry = dump.data["Cell.twice.Twice.backward.0"]
    np.testing.assert_array_equal(dump.array(entry["input"][0]), np.ones((3, 4)))
    # The gradient of the Cell's input is half of that of x.
    np.testing.assert_allclose(dump.array(entry["output"][0]), gradient.asnumpy() / 2, rtol=1e-6)


class Half(nn.Cell):
    def construct(self, x):
        return x * 0.5


class Around(nn.Cell):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def construct(self, x):
        return self.inner(x)


@forked
def test_calls_of_which_one_node_makes_the_output(tmp_path):
    net, x = Around(Around(Around(Half()))), Tensor(data(3, 4))
    grad = mindspore.grad(lambda x: (net(x * 2.0) * 3.0).sum())
    _, dump = record(tmp_path, lambda: grad(x), net, level="L0", task="tensor")
    names = [name for name in dump.names if "backward" in name]
    assert sorted(names) == [
        "Cell.inner.Around.backward.0",
        "Cell.inner.inner.Around.backward.0",
        "Cell.inner.inner.inner.Half.backward.0",
    ]
    for name in names:
        np.testing.assert_array_equal(dump.array(dump.data[name]["input"][0]), np.full((3, 4), 3.0))
        output = dump.array(dump.data[name]["output"][0])
        np.testing.assert_array_equal(output, np.full((3, 4), 1.5))


@forked
def test_an_output_of_several_nodes_with_several_uses(tmp_path):
    class Square(nn.Cell):
        def construct(self, x):
            return ops.square(x * 0.5) + 1.0

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.square = Square()

        def construct(self, x):
            y = self.square(x * 2.0)
            used = (y * 3.0).sum()
            y[0] = 0.0  # in place: the gradients of the first row of y end here
            return used + (y * 4.0).sum()

    net, x = Net(), data(3, 4)
    grad = mindspore.grad(net)
    _, dump = record(tmp_path, lambda: grad(Tensor(x)), net, level="L0", task="tensor")
    entry = dump.data["Cell.square.Square.backward.0"]
    incoming = np.full((3, 4), 7.0)
    incoming[0] = 3.0
    np.testing.assert_array_equal(dump.array(entry["input"][0]), incoming)
    # d/du of (u/2)^2 is u/2, with u = 2x.
    np.testing.assert_allclose(dump.array(entry["output"][0]), incoming * x, rtol=1e-6)


@forked
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("shape", [(), (1,), (3, 4), (4, 4, 2), (0, 3)])
def test_shares_of_every_dtype_and_shape_are_added(tmp_path, dtype, shape):
    class Shares(nn.Cell):
        def construct(self, x):
            turned = x.transpose(tuple(reversed(range(x.ndim)))) if x.ndim > 1 else x
            return x * 2.0 + x * x, turned * 3.0

    class Net(nn.Cell):
        def __init__(self):
            super().__init__()
            self.shares = Shares()

        def construct(self, x):
            first, second = self.shares(x * 1.0)
            return first.sum() + second.sum()

    x = np.asarray(np.random.default_rng(0).integers(-8, 8, shape), dtype)
    net = Net()
    grad = mindspore.grad(net)
    gradient, dump = record(tmp_path, lambda: grad(Tensor(x)), net, level="L0", task="tensor")
    entry = dump.data["Cell.shares.Shares.backward.0"]
    np.testing.assert_array_equal(dump.array(entry["output"][0]), 2 * x + 5)
    np.testing.assert_array_equal(gradient.asnumpy(), 2 * x + 5)


@forked
def test_gradients_of_arguments_in_their_order(tmp_path):
    a, b = data(2, 3), data(3, 4, seed=1)
    grad = mindspore.grad(lambda a, b: ops.matmul(a, b).sum(), (0, 1))
    wanted, dump = record(tmp_path, lambda: grad(Tensor(a), Tensor(b)), level="L1", task="tensor")
    entry = dump.data["Functional.matmul.0.backward"]
    for value, gradient in zip(entry["output"], wanted, strict=True):
        np.testing.assert_allclose(dump.array(value), gradient.asnumpy(), rtol=1e-6)


@forked
def test_an_input_without_gradient_is_null(tmp_path):
    a, b = Tensor(data(2, 3)), Tensor(data(3, 4))
    grad = mindspore.grad(lambda a: ops.matmul(a, b).sum())
    _, dump = record(tmp_path, lambda: grad(a), level="L1")
    output = dump.data["Functional.matmul.0.backward"]["output"]
    assert output[0] is not None and output[1] is None


@forked
def test_several_outputs(tmp_path):
    grad = mindspore.grad(lambda x: (ops.split(x, 2, axis=1)[0] * 3.0).sum())
    _, dump = record(tmp_path, lambda: grad(Tensor(data(2, 4))), level="L1")
    entry = dump.data["Functional.split.0.backward"]
    assert entry["input"][0]["Max"] == 3.0
    assert len(entry["input"]) == 2


@forked
def test_parameters_are_complete_and_hooks_are_removed(tmp_path):
    net = nn.SequentialCell(nn.Dense(3, 3), nn.Dense(3, 2))
    net[1].weight.requires_grad = True
    shared = net[0]
    x = Tensor(data(4, 3))
    step = mindspore.value_and_grad(lambda: net(shared(x)).sum(), None, net.trainable_params())
    (_, wanted), dump = record(tmp_path, step, net, level="L0", task="tensor")
    by_name = dict(zip((p.name for p in net.trainable_params()), wanted, strict=True))
    entry = dump.data["Cell.0.Dense.parameters_grad.0"]
    np.testing.assert_array_equal(
        dump.array(entry["weight"][0]), by_name[net[0].weight.name].asnumpy()
    )
    assert [name for name in dump.names if name.startswith("Cell.0.Dense.forward")] == [
        "Cell.0.Dense.forward.0",
        "Cell.0.Dense.forward.1",
    ]
    before = (dump.folder / "dump.json").read_bytes()
    step()
    assert (dump.folder / "dump.json").read_bytes() == before


@forked
def test_frozen_parameters_have_none(tmp_path):
    net = nn.SequentialCell(nn.Dense(3, 2))
    net[0].bias.requires_grad = False
    x = Tensor(data(4, 3))
    step = mindspore.value_and_grad(lambda: net(x).sum(), None, net.trainable_params())
    _, dump = record(tmp_path, step, net, level="L0")
    assert list(dump.data["Cell.0.Dense.parameters_grad.0"]) == ["weight"]


@forked
def test_captured_tensors_and_parameters_outside_of_cells(tmp_path):
    scale = Parameter(Tensor(data(3)), name="scale")

    def run():
        return mindspore.grad(lambda x: (mint.sin(x) * scale).sum())(Tensor(data(2, 3)))

    gradient, dump = record(tmp_path, run, level="L1", task="tensor")
    output = dump.data["Mint.sin.0.backward"]["output"][0]
    np.testing.assert_array_equal(dump.array(output), gradient.asnumpy())
