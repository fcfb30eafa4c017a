"""The training of train.py in MindSpore, from the same weights and the same pictures.

    python train_mindspore.py --weights FILE.npz --record FOLDER [--fault] [--steps N]

FILE.npz is written by export.py. With --fault one operation
is subtly wrong: block 1 computes GELU with a mistyped coefficient.
"""

import argparse
import math

import numpy as np

import mindspore
from mindspore import Parameter, Tensor, nn, ops
from msprobe.mindspore import PrecisionDebugger

WIDTH, HEADS = 32, 4
RIGHT, MISTYPED = 0.044715, 0.047415  # two digits are swapped


class Block(nn.Cell):
    """Attention and a feed-forward part, written out as in model files."""

    def __init__(self, coefficient: float):
        super().__init__()
        self.norm1 = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.qkv = nn.Dense(WIDTH, 3 * WIDTH)
        self.out = nn.Dense(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm((WIDTH,), epsilon=1e-5)
        self.up = nn.Dense(WIDTH, 4 * WIDTH)
        self.down = nn.Dense(4 * WIDTH, WIDTH)
        self.coefficient = coefficient

    def attention(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(x).reshape(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = ops.unbind(parts.permute(2, 0, 3, 1, 4), 0)
        weights = ops.softmax(q @ k.swapaxes(-2, -1) / math.sqrt(WIDTH // HEADS), axis=-1)
        return self.out((weights @ v).swapaxes(1, 2).reshape(batch, length, WIDTH))

    def gelu(self, x):
        # The planted fault: in block 1 the coefficient of the next line is wrong.
        cubic = x.pow(3) * self.coefficient
        return 0.5 * x * (1 + ops.tanh(math.sqrt(2 / math.pi) * (x + cubic)))

    def construct(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Reader(nn.Cell):
    """Reads a digit as eight rows of eight pixels."""

    def __init__(self, fault: bool):
        super().__init__()
        self.rows = nn.Dense(8, WIDTH)
        self.positions = Parameter(Tensor(np.zeros((8, WIDTH), np.float32)))
        self.blocks = nn.CellList(
            [Block(MISTYPED if fault and index == 1 else RIGHT) for index in range(2)]
        )
        self.head = nn.Dense(WIDTH, 10)

    def construct(self, pictures):
        x = self.rows(pictures) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(axis=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", required=True, help="what export.py has written")
    parser.add_argument("--record", required=True, help="the folder for what is recorded")
    parser.add_argument("--fault", action="store_true", help="plant the fault")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()

    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    saved = np.load(options.weights)
    pictures, labels = Tensor(saved["pictures"]), Tensor(saved["labels"], mindspore.int32)
    model = Reader(options.fault)
    for name, parameter in model.parameters_and_names():
        parameter.set_data(Tensor(saved[name.replace("gamma", "weight").replace("beta", "bias")]))
    model.set_train()
    optimizer = nn.Adam(model.trainable_params(), 3e-3)

    def loss_of(pictures, labels):
        return ops.cross_entropy(model(pictures), labels)

    gradients_of = mindspore.value_and_grad(loss_of, None, optimizer.parameters)
    debugger = PrecisionDebugger(dump_path=options.record, task="statistics", level="mix")
    for step in range(options.steps):
        batch = slice(64 * step, 64 * (step + 1))
        debugger.start(model)
        loss, gradients = gradients_of(pictures[batch], labels[batch])
        debugger.stop()
        debugger.step()
        optimizer(gradients)
        print(f"step {step}  loss {float(loss.asnumpy()):.4f}")


if __name__ == "__main__":
    main()
