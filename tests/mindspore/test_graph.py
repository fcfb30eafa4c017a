"""Cells of compiled graphs: every output and gradient is told, and the training is the same."""

import numpy as np
import pytest

ms = pytest.importorskip("mindspore")
from runs import forked  # noqa: E402

from mindspore import nn, ops  # noqa: E402
from msprobe import UsageError  # noqa: E402
from msprobe.mindspore.graph import GraphTaps  # noqa: E402

STEPS = 10


class Pair(nn.Cell):
    """A Cell whose output is a tuple with a tuple and a number."""

    def construct(self, x):
        return x, (3, x * 2)


class Mlp(nn.Cell):
    shape = (2, 4)

    def __init__(self):
        super().__init__()
        self.fc1, self.pair = nn.Dense(4, 8), Pair()
        self.act, self.fc2 = nn.ReLU(), nn.Dense(8, 4)

    def construct(self, x):
        a, (n, b) = self.pair(self.fc1(x))
        return self.fc2(self.act(a + b * n))


# Without dropout: two plain trainings in one process differ with it, also after set_seed.
class Cnn(nn.Cell):
    shape = (2, 3, 6, 6)

    def __init__(self):
        super().__init__()
        self.layers = nn.SequentialCell(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
        self.pool, self.flat = nn.MaxPool2d(2, 2), nn.Flatten()
        self.fc = nn.Dense(36, 5)

    def construct(self, x):
        return self.fc(self.flat(self.pool(self.layers(x))))


class Attention(nn.Cell):
    shape = (2, 3, 4)

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = nn.Dense(4, 4), nn.Dense(4, 4), nn.Dense(4, 4)
        self.norm = nn.LayerNorm((4,))

    def construct(self, x):
        scores = ops.softmax(ops.matmul(self.q(x), self.k(x).swapaxes(-1, -2)), -1)
        return self.norm(x + ops.matmul(scores, self.v(x)))


def train(network, mode, record=None):
    """All bits that a training computes: losses, gradients (of ms.jit) and weights."""
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE)
    ms.set_device("CPU")
    ms.set_seed(1)
    net = network()
    net.set_train()
    taps = GraphTaps(net, record) if record else None
    optimizer = nn.Momentum(net.trainable_params(), 0.1, 0.9)

    def forward(x):
        return ops.square(net(x)).mean()

    gradients_of = ops.value_and_grad(forward, None, optimizer.parameters)

    @ms.jit
    def step(x):
        loss, gradients = gradients_of(x)
        optimizer(gradients)
        return loss, gradients

    random, bits = np.random.RandomState(0), []
    for _ in range(STEPS):
        loss, gradients = step(ms.Tensor(random.randn(*network.shape).astype(np.float32)))
        bits += [t.asnumpy().tobytes() for t in (loss, *gradients, *net.trainable_params())]
    ms.set_context(mode=ms.PYNATIVE_MODE)
    return bits, taps


@pytest.mark.parametrize("mode", ["jit", "graph"])
@pytest.mark.parametrize("network", [Mlp, Cnn, Attention])
@forked
def test_training_is_the_same_in_every_bit(network, mode):
    told = []
    plain, _ = train(network, mode)
    tapped, taps = train(
        network,
        mode,
        lambda name, direction, arrays: told.append(
            (name, direction, [np.array(a) for a in arrays])
        ),
    )
    assert tapped == plain
    assert taps.error is None
    names = {
        f"Cell.{name}.{type(cell).__name__}" for name, cell in network().cells_and_names() if name
    }
    # MindSpore does not compile the hooks of Cells in a SequentialCell.
    inside = {name for name in names if name.startswith("Cell.layers.") and name[12].isdigit()}
    assert taps.left_out == inside
    names -= inside
    for direction in ("forward", "backward"):
        assert {name for name, way, _ in told if way == direction} == names
    assert len(told) == 2 * len(names) * STEPS


@forked
def test_values_and_tuples():
    told = {}

    def record(name, direction, arrays):
        told.setdefault((name, direction), [np.array(a) for a in arrays])

    train(Mlp, "jit", record)
    before, (first, second) = (
        told["Cell.fc1.Dense", "forward"][0],
        told["Cell.pair.Pair", "forward"],
    )
    assert np.array_equal(first, before)
    assert np.array_equal(second, before * 2)
    first, second = told["Cell.pair.Pair", "backward"]
    assert np.array_equal(first * 3, second)
    assert np.allclose(told["Cell.fc1.Dense", "backward"][0], first + 2 * second)


@forked
def test_an_error_ends_the_recording_and_not_the_training():
    def record(name, direction, arrays):
        raise ValueError("disk full")

    bits, taps = train(Mlp, "jit", record)
    assert str(taps.error) == "disk full"
    assert bits == train(Mlp, "jit")[0]
    taps.resume()
    assert not taps._recording


def test_a_model_must_be_a_cell():
    with pytest.raises(UsageError, match=r"expected a mindspore\.nn\.Cell, found int"):
        GraphTaps(3, print)
