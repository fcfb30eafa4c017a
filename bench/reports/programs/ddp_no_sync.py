"""Two processes with DDP and two micro-batches: the condition of no_sync is off by one.

The first micro-batch is averaged over the ranks, the last one is not (FunASR#3472).
`torchrun --nproc-per-node 2 ddp_no_sync.py FOLDER LEVEL`
"""

import contextlib

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.manual_seed(14)
ACCUMULATED = 2


class Classifier(nn.Module):
    def __init__(self, features=10, width=20, classes=5):
        super().__init__()
        self.enter = nn.Linear(features, width)
        self.norm = nn.LayerNorm(width)
        self.leave = nn.Linear(width, classes)

    def forward(self, x):
        return self.leave(F.gelu(self.norm(self.enter(x))))


dist.init_process_group("gloo")
rank = dist.get_rank()
model = DistributedDataParallel(Classifier())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
data, labels = torch.randn(2, 4, 6, 10), torch.randint(0, 5, (2, 4, 6))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    for index in range(ACCUMULATED):
        own = rank * ACCUMULATED + index
        last = index % ACCUMULATED == 0 if BUG else (index + 1) % ACCUMULATED == 0
        if ALT:
            model.require_backward_grad_sync = last
        context = contextlib.nullcontext() if last or ALT else model.no_sync()
        with context:
            loss = F.cross_entropy(model(data[step, own]), labels[step, own])
            (loss / ACCUMULATED).backward()
        losses.append(loss.item())
    optimizer.step()
    optimizer.zero_grad()
    dbg.stop()
    dbg.step()
made = digest(losses, model)
dist.destroy_process_group()
