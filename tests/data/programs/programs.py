"""Tiny trainings whose every number is made of integers: the same bits wherever they run.

`PROGRAMS[name]()` builds one and returns `(model, step)`; `step()` is forward and backward and
returns the loss.
"""

import torch
from models import gpt, lstm, resnet
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def pattern(shape, seed: int) -> torch.Tensor:
    """Multiples of 1/64 between -1/2 and 1/2; no two seeds look alike."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) * (2 * seed + 7) + seed * seed) % 61 - 30).reshape(shape) / 64.0


def settle(model: nn.Module) -> nn.Module:
    """Overwrites all parameters, since random numbers depend on the machine's vector unit."""
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            parameter.copy_(pattern(parameter.shape, seed) + (parameter.dim() == 1) * 0.5)
    return model


def training(module, model, batch):
    def step():
        loss = module.loss(model, batch)
        loss.backward()
        return loss

    return settle(model), step


def small_gpt():
    model, _ = gpt.build(layers=1, width=8, heads=2, batch=1, length=4, vocabulary=11)
    text = (torch.arange(10) * 7 % 11).reshape(2, 5)
    return training(gpt, model, (text[:, :-1].contiguous(), text[:, 1:].contiguous()))


def small_resnet():
    model = resnet.ResNet(resnet.BasicBlock, (1, 1), 4, 3, large_input=False)
    return training(resnet, model, (pattern((2, 3, 8, 8), 50), torch.tensor([0, 2])))


def small_lstm():
    model = lstm.Forecaster(width=4)
    return training(lstm, model, (pattern((2, 3, 1), 50), pattern((2, 3, 1), 51)))


class Encoder(nn.Module):
    """An encoder layer that is computed again in the backward pass, between two linears."""

    def __init__(self, use_reentrant: bool):
        super().__init__()
        self.embed = nn.Linear(4, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)
        self.use_reentrant = use_reentrant

    def forward(self, x):
        x = self.embed(x)
        return self.head(checkpoint(self.layer, x, use_reentrant=self.use_reentrant))


def encoder(use_reentrant: bool):
    model, inputs = Encoder(use_reentrant), pattern((2, 3, 4), 50)

    def step():
        loss = model(inputs).pow(2).mean()
        loss.backward()
        return loss

    return settle(model), step


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


def data_parallel():
    """One of the processes of a group that is there already; averages a metric as well."""
    rank = torch.distributed.get_rank()
    model = nn.parallel.DistributedDataParallel(settle(Classifier()))
    inputs, labels = pattern((4, 6), 50 + rank), torch.arange(4) % 3

    def step():
        loss = F.cross_entropy(model(inputs), labels)
        loss.backward()
        metric = loss.detach().clone()
        torch.distributed.all_reduce(metric)
        return loss

    return model, step


PROGRAMS = {
    "gpt": small_gpt,
    "resnet": small_resnet,
    "lstm": small_lstm,
    "encoder_reentrant": lambda: encoder(True),
    "encoder": lambda: encoder(False),
    "ddp": data_parallel,
}
