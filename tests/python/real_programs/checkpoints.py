"""Activation checkpointing: calls recomputed in backward are recorded again under their module."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import checkpoint as ckpt
from torch.utils.checkpoint import checkpoint

from real_programs.watch import program, state_of


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(x))))


class Stack(nn.Module):
    """Blocks that are called by `around(block, x)`."""

    def __init__(self, around):
        super().__init__()
        torch.manual_seed(3)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.around = around

    def forward(self, x):
        for block in self.blocks:
            x = self.around(block, x)
        return x


def train(watch, around, steps=3):
    model = Stack(around)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(steps):
        with watch(model):
            loss = model(torch.randn(3, 4, requires_grad=True)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss)
    return losses, state_of(model)


RECOMPUTED = [
    "Module.blocks.0.Block.forward.0",
    "Module.blocks.0.Block.forward.1",
    "Module.blocks.1.up.Linear.forward.1",
    "Functional.gelu.2.forward",
    "Module.blocks.1.up.Linear.parameters_grad.0",
]
# With use_reentrant, backward uses the graph of the second forward; otherwise that of the first.
SECOND = ["Module.blocks.1.up.Linear.backward.1", "Functional.gelu.2.backward"]
FIRST = ["Module.blocks.1.up.Linear.backward.0", "Functional.gelu.0.backward"]
# The last block is recomputed first: call 1 of blocks.0 contains the fourth gelu.
PARENTS = {
    "Functional.gelu.0.forward": "Module.blocks.0.Block.forward.0",
    "Functional.gelu.2.forward": "Module.blocks.1.Block.forward.1",
    "Functional.gelu.3.forward": "Module.blocks.0.Block.forward.1",
    "Module.blocks.1.up.Linear.forward.1": "Module.blocks.1.Block.forward.1",
    "Functional.linear.4.forward": "Module.blocks.1.up.Linear.forward.1",
    "Module.blocks.1.Block.forward.1": None,
}


@program(*RECOMPUTED, *SECOND, parents=PARENTS)
def reentrant(watch):
    return train(watch, lambda block, x: checkpoint(block, x, use_reentrant=True))


@program(*RECOMPUTED, *FIRST, parents=PARENTS)
def not_reentrant(watch):
    return train(watch, lambda block, x: checkpoint(block, x, use_reentrant=False))


@program(*RECOMPUTED, *FIRST, parents=PARENTS)
def to_the_end(watch):
    """Without early stop: the recomputation runs to the end."""
    with ckpt.set_checkpoint_early_stop(False):
        return train(watch, lambda block, x: checkpoint(block, x, use_reentrant=False))


@program(*RECOMPUTED, *FIRST, parents=PARENTS)
def nested(watch):
    def around(block, x):
        def inner(t):
            return checkpoint(block, t, use_reentrant=False) * 1.5

        return checkpoint(inner, x, use_reentrant=False)

    return train(watch, around)


@program(*RECOMPUTED, *FIRST, parents=PARENTS)
def selective(watch):
    """context_fn decides for each operation whether its result is kept."""

    def keep_products(context, operation, *args, **kwargs):
        keep = operation == torch.ops.aten.addmm.default
        return ckpt.CheckpointPolicy.MUST_SAVE if keep else ckpt.CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        return ckpt.create_selective_checkpoint_contexts(keep_products)

    return train(
        watch, lambda block, x: checkpoint(block, x, use_reentrant=False, context_fn=contexts)
    )


@program("Module.0.Linear.forward.1", "Module.2.Linear.forward.0")
def sequential(watch):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh())
    for _ in range(2):
        with watch(model):
            x = torch.randn(2, 3, requires_grad=True)
            ckpt.checkpoint_sequential(model, 2, x, use_reentrant=False).sum().backward()
    return state_of(model)


@program("Functional.gelu.1.forward", "Tensor.mul.0.forward")
def call_after_early_stop(watch):
    """The call that stops early ends with an exception; the next calls are recorded (C9)."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 3))
    with watch(model):
        x = torch.randn(2, 3, requires_grad=True)
        checkpoint(lambda t: F.gelu(model(t)).exp(), x, use_reentrant=False).sum().backward()
        y = watch.note("Tensor.mul.0.forward.output.0", x.mul(2))
    return y, state_of(model), x.grad
