"""A two-layer LSTM that predicts the next value of a few noisy sine waves."""

import torch
from torch import nn
from torch.nn import functional as F


class Forecaster(nn.Module):
    def __init__(self, width: int = 48, layers: int = 2):
        super().__init__()
        self.lstm = nn.LSTM(1, width, layers, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        states, _ = self.lstm(x)
        return self.head(states)


def build(seed: int = 0, *, batch=16, length=24):
    torch.manual_seed(seed)
    model = Forecaster()
    time = torch.arange(length + 1) * 0.3 + torch.rand(batch, 1) * 6
    wave = (torch.sin(time) + 0.05 * torch.randn(batch, length + 1)).unsqueeze(-1)
    return model, (wave[:, :-1].contiguous(), wave[:, 1:].contiguous())


def loss(model, batch):
    inputs, targets = batch
    return F.mse_loss(model(inputs), targets)
