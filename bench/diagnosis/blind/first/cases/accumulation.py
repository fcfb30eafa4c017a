"""Cases of the classifier with accumulation."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def micro_batches_of_three(accumulation):
    """Four micro batches of three rows for three of four."""
    accumulation.MICRO = 3


def rows_shuffled(accumulation):
    """The rows of the batch are in another order, so that others share a micro batch."""
    accumulate = accumulation.accumulate

    def shuffled(model, batch):
        order = torch.tensor([7, 2, 11, 0, 5, 9, 1, 10, 3, 8, 6, 4])
        accumulate(model, tuple(each[order] for each in batch))

    accumulation.accumulate = shuffled


@fault("accumulation", line="return (each * weights).sum() / total")
def mean_of_each_micro_batch(accumulation):
    """Each micro batch is divided by its own weights and by the number of micro batches."""

    def loss(logits, labels, weights, total):
        each = F.cross_entropy(
            logits, labels, reduction="none", label_smoothing=accumulation.SMOOTHING
        )
        return (each * weights).sum() / (weights.sum() * 3)  # here

    accumulation.loss = loss


@fault(
    "accumulation", api="Optimizer.clip_grad_norm_", update=True, line="nn.utils.clip_grad_norm_"
)
def clipped_in_each_micro_batch(accumulation):
    """Gradients are clipped behind each micro batch, while they are partial sums."""
    accumulation.CLIP = 0.2
    clip = accumulation.clip

    def accumulate(model, batch):
        total = batch[2].sum()
        for x, labels, weights in accumulation.micro_batches(batch):
            accumulation.loss(model(x), labels, weights, total).backward()
            clip(model)  # here

    accumulation.accumulate = accumulate
    accumulation.clip = lambda model: None


@fault("accumulation", line="for x, labels, weights in micro_batches(batch):", api="Tensor.split")
def last_micro_batch_dropped(accumulation):
    """The last micro batch is forgotten, as of a loader that drops the rest."""

    def accumulate(model, batch):
        total = batch[2].sum()
        for x, labels, weights in list(accumulation.micro_batches(batch))[:-1]:
            accumulation.loss(model(x), labels, weights, total).backward()  # here

    accumulation.accumulate = accumulate


@fault("accumulation", api="Optimizer.SGD.step", update=True)
def schedule_counts_micro_batches(accumulation):
    """The warm-up counts micro batches in place of steps: the rate is too large."""
    right = accumulation.number_of
    accumulation.number_of = lambda optimizer: right(optimizer) * 3


@fault(
    "accumulation",
    beside=micro_batches_of_three,
    module=r"layers\.0",
    module_only=r"layers\.0(\.times)?",
    line="return self.times(x.transpose(1, 2)).transpose(1, 2)",
    api="Tensor.transpose|Tensor.reshape",
)
def times_reshaped(accumulation):
    """Times and features are exchanged by a reshape in place of a transposition."""

    class Mixer(accumulation.Mixer):
        def mix_times(self, x):
            y = self.times(x.reshape(len(x), -1, accumulation.TIMES))  # here
            return y.reshape(x.shape)

    accumulation.Mixer = Mixer


@fault(
    "accumulation",
    beside=rows_shuffled,
    api="Optimizer.SGD.step|Module.head.Linear.*|Optimizer.gradients_before",
    update=True,
    line="    optimizer.zero_grad()",
)
def gradients_of_the_step_before(accumulation):
    """zero_grad is missing: the second step adds its gradients to those of the first."""

    def step(model, optimizer, batch):
        accumulation.set_rate(optimizer, accumulation.number_of(optimizer))
        accumulation.accumulate(model, batch)  # here
        accumulation.clip(model)
        optimizer.step()

    accumulation.step = step


harmless("micro batches", "accumulation")(micro_batches_of_three)
harmless("rows", "accumulation")(rows_shuffled)


@harmless("loss", "accumulation")
def smoothing_written_out(accumulation):
    """Label smoothing by log_softmax and smoothed one-hot labels."""

    def loss(logits, labels, weights, total):
        wanted = F.one_hot(labels, accumulation.CLASSES) * (1 - accumulation.SMOOTHING)
        wanted = wanted + accumulation.SMOOTHING / accumulation.CLASSES
        each = -(wanted * F.log_softmax(logits, dim=-1)).sum(-1)
        return torch.dot(each, weights) / total

    accumulation.loss = loss


@harmless("renamed", "accumulation")
def layers_in_a_stack(accumulation):
    """The layers and their norm are a module of its own."""

    class Stack(nn.Module):
        def __init__(self, layers, norm):
            super().__init__()
            self.blocks, self.last = layers, norm

        def forward(self, x):
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False)
            return self.last(x)

    class Classifier(accumulation.Classifier):
        def __init__(self):
            super().__init__()
            head = self.head
            self.stack = Stack(self.layers, self.norm)
            del self.layers, self.norm, self.head
            self.head = head

        def forward(self, x):
            return self.head(self.pool(self.stack(self.enter(x))))

    accumulation.Classifier = Classifier
