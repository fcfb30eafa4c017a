"""Trains a small transformer on handwritten digits and records what every operation computed.

    python train.py --record FOLDER [--fault] [--steps N]

With --fault one operation is subtly wrong: block 1 computes GELU with a mistyped coefficient. The
loss hardly changes; `msprobe compare` names the operation.
"""

import argparse
import math

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

WIDTH, HEADS = 32, 4
RIGHT, MISTYPED = 0.044715, 0.047415  # two digits are swapped


class Block(nn.Module):
    """Attention and a feed-forward part, written out as in model files."""

    def __init__(self, coefficient: float):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.coefficient = coefficient

    def attention(self, x):
        batch, length, _ = x.shape
        parts = self.qkv(x).view(batch, length, 3, HEADS, WIDTH // HEADS)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        weights = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS), dim=-1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, WIDTH))

    def gelu(self, x):
        # The planted fault: in block 1 the coefficient of the next line is wrong.
        cubic = x.pow(3) * self.coefficient
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + cubic)))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(self.gelu(self.up(self.norm2(x))))


class Reader(nn.Module):
    """Reads a digit as eight rows of eight pixels."""

    def __init__(self, fault: bool):
        super().__init__()
        self.rows = nn.Linear(8, WIDTH)
        self.positions = nn.Parameter(torch.randn(8, WIDTH) * 0.02)
        self.blocks = nn.ModuleList(
            Block(MISTYPED if fault and index == 1 else RIGHT) for index in range(2)
        )
        self.head = nn.Linear(WIDTH, 10)

    def forward(self, pictures):
        x = self.rows(pictures) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(dim=1))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", required=True, help="the folder for what is recorded")
    parser.add_argument("--fault", action="store_true", help="plant the fault")
    parser.add_argument("--steps", type=int, default=4)
    options = parser.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    digits = load_digits()
    pictures = torch.tensor(digits.images, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    model = Reader(options.fault)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    debugger = PrecisionDebugger(dump_path=options.record, task="statistics", level="mix")
    for step in range(options.steps):
        batch = slice(64 * step, 64 * (step + 1))
        debugger.start(model)
        loss = F.cross_entropy(model(pictures[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        debugger.stop()
        debugger.step()
        optimizer.step()
        print(f"step {step}  loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
