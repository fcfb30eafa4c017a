"""Forty small layers with almost no arithmetic, to show the cost of a tool for each record."""

import torch
from torch import nn
from torch.nn import functional as F


class Toy(nn.Module):
    """Alternating Linear and ReLU on 16 x 32 tensors."""

    def __init__(self, layers: int = 40, width: int = 32):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def forward(self, x):
        for layer in self.layers:
            x = F.relu(layer(x)) + x * 0.5
        return x


def build(seed: int = 0):
    torch.manual_seed(seed)
    return Toy(), (torch.randn(16, 32), torch.randn(16, 32))


def loss(model, batch):
    inputs, targets = batch
    return F.mse_loss(model(inputs), targets)
