"""Cases of two processes."""

import torch
import torch.distributed as dist
from case import fault, harmless


@fault("ddp", module="shared", line="dist.all_reduce(total)")
def all_reduce_missing(ddp):
    """The mean is that of one process: the sum over the processes is missing."""

    class Shared(ddp.Shared):
        def forward(self, x):
            total = x.detach().sum(dim=0)
            return x - total / (len(x) * ddp.RANKS)  # here

    ddp.Shared = Shared


@fault("ddp", module="shared", line="dist.all_reduce(total)", api="Distributed.all_reduce")
def maximum_for_sum(ddp):
    """The processes take the largest instead of the sum."""

    class Shared(ddp.Shared):
        def forward(self, x):
            total = x.detach().sum(dim=0)
            dist.all_reduce(total, op=dist.ReduceOp.MAX)  # here
            return x - total / (len(x) * ddp.RANKS)

    ddp.Shared = Shared


@fault("ddp", api="Optimizer.SGD.step", update=True)
def gradients_not_averaged(ddp):
    """The model is not wrapped: gradients stay those of one process."""

    class Alone(torch.nn.Module):
        def __init__(self, net):
            super().__init__()
            self.module = net

        def forward(self, x):
            return self.module(x)

    ddp.wrapped = Alone


@fault("ddp", api="Functional.cross_entropy", rank=1)
def one_process_sums(ddp):
    """Process 1 sums its losses instead of averaging them: its loss is the first wrong number."""
    right = ddp.loss

    def loss(logits, labels):
        if dist.get_rank() == 0:
            return right(logits, labels)
        return torch.nn.functional.cross_entropy(logits, labels, reduction="sum")  # here

    ddp.loss = loss


@harmless("inserted", "ddp")
def gathered_and_added(ddp):
    """The sum over the processes by all_gather and a sum."""

    class Shared(ddp.Shared):
        def forward(self, x):
            parts = [torch.empty(x.shape[1]) for _ in range(ddp.RANKS)]
            dist.all_gather(parts, x.detach().sum(dim=0))
            return x - torch.stack(parts).sum(dim=0) / (len(x) * ddp.RANKS)

    ddp.Shared = Shared


@harmless("reordered", "ddp")
def small_buckets(ddp):
    """Gradients travel in many small buckets."""
    ddp.wrapped = lambda net: torch.nn.parallel.DistributedDataParallel(net, bucket_cap_mb=0.001)
