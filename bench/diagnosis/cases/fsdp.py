"""Cases of sharded weights."""

import torch
from case import fault, harmless
from torch.distributed.fsdp import fully_shard


@fault("fsdp", module="0.norm", api="Functional.layer_norm")
def epsilon(fsdp):
    """The epsilon of the norms is 1e-2."""
    fsdp.Block.eps = 1e-2


@fault("fsdp", api="Optimizer.clip_grad_norm_", update=True)
def clipped_by_half(fsdp):
    """Gradients are clipped to half of the norm."""
    fsdp.CLIP = 0.25


@fault("fsdp", api="Functional.cross_entropy")
def loss_divided_by_the_processes(fsdp):
    """The loss is divided by the number of processes, though gradients are averaged already."""
    right = fsdp.loss

    def loss(logits, labels):
        return right(logits, labels) / fsdp.RANKS  # here

    fsdp.loss = loss


@harmless("renamed", "fsdp")
def one_shard_for_all(fsdp):
    """All weights are in one group of shards."""
    fsdp.sharded = lambda model: fully_shard(model)


@harmless("environment", "fsdp")
def optimizer_without_foreach(fsdp):
    """The optimizer goes from weight to weight."""
    fsdp.optimizer = lambda m: torch.optim.AdamW(m.parameters(), lr=1e-2, foreach=False)
