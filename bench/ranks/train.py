"""One step of a small transformer on all processes of torchrun, recorded.

    torchrun --nproc_per_node=4 train.py FOLDER NOISE LAYERS

NOISE: how far all weights are off, as another kernel would leave them.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from msprobe.pytorch import PrecisionDebugger

WIDTH, ROWS, WORDS = 16, 2, 8


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mixed, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        q, k, v = self.mixed(self.norm1(x)).chunk(3, dim=-1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def main(folder, noise, layers):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(layers)), nn.Linear(WIDTH, 4))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1 + noise)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(dist.get_world_size(), ROWS, WORDS, WIDTH)[dist.get_rank()]
    debugger = PrecisionDebugger(dump_path=folder, task="statistics", level="mix")
    debugger.start(model=model)
    model(x).square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
    optimizer.step()
    debugger.stop()
    debugger.step()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
