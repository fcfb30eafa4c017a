"""Diseases in electrocardiograms: a residual network over time, and the heart rate beside it."""

from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class Config:
    records: int = 6
    leads: int = 3
    samples: int = 96
    diseases: int = 5
    width: int = 12
    window: int = 25
    eps: float = 1e-6
    beta: float = 0.5
    rate_weight: float = 0.4
    pos_weight: tuple = (1.0, 3.0, 2.0, 5.0, 1.5)
    lr: float = 4e-3
    weight_decay: float = 0.1
    max_norm: float = 1.0


cfg = Config()


def remove_wander(signal):
    """The base line moves slowly: it is the mean of a long window, which is shorter at the ends."""
    half = cfg.window // 2
    slow = F.avg_pool1d(signal, cfg.window, 1, padding=half, count_include_pad=False)
    return signal - slow


def standardize(signal):
    mean = signal.mean(dim=2, keepdim=True)
    std = signal.std(dim=2, keepdim=True)
    return (signal - mean) / (std + cfg.eps)


def drop_leads(signal, keep):
    """Some leads are taken away; those that are left are larger for it."""
    share = keep.mean(dim=1, keepdim=True)
    return signal * (keep / share).unsqueeze(2)


def prepare(batch):
    return drop_leads(standardize(remove_wander(batch["signal"])), batch["keep"])


def about_people(batch):
    return torch.stack([batch["age"] / 100, batch["sex"]], dim=1)


class SqueezeExcite(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.down = nn.Linear(channels, channels // 2)
        self.up = nn.Linear(channels // 2, channels)

    def gates(self, x):
        squeezed = F.relu(self.down(x.mean(dim=2)))
        return torch.sigmoid(self.up(squeezed))

    def forward(self, x):
        return x * self.gates(x).unsqueeze(2)


class ResBlock(nn.Module):
    """Norms and activations come before convolutions; the shortcut sees neither."""

    def __init__(self, c_in, c_out):
        super().__init__()
        self.norm1 = nn.GroupNorm(4, c_in)
        self.conv1 = nn.Conv1d(c_in, c_out, 5, stride=2, padding=2)
        self.norm2 = nn.GroupNorm(4, c_out)
        self.conv2 = nn.Conv1d(c_out, c_out, 5, padding=2)
        self.se = SqueezeExcite(c_out)
        self.shortcut = nn.Conv1d(c_in, c_out, 1, stride=2)

    def forward(self, x):
        h = self.conv1(F.relu(self.norm1(x)))
        h = self.conv2(F.relu(self.norm2(h)))
        return self.se(h) + self.shortcut(x)


class AttentionPool(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.score = nn.Linear(channels, 1)

    def forward(self, x):
        x = x.transpose(1, 2)
        weights = torch.softmax(self.score(x), dim=1)
        return (weights * x).sum(dim=1)


class HeartNet(nn.Module):
    def __init__(self):
        super().__init__()
        c = cfg.width
        self.stem = nn.Conv1d(cfg.leads, c, 7, stride=2, padding=3)
        self.block1 = ResBlock(c, c)
        self.block2 = ResBlock(c, 2 * c)
        self.norm = nn.GroupNorm(4, 2 * c)
        self.pool = AttentionPool(2 * c)
        self.person = nn.Linear(2, 8)
        self.label_head = nn.Linear(2 * c + 8, cfg.diseases)
        self.rate_head = nn.Linear(2 * c + 8, 1)

    def describe(self, signal, people):
        x = self.block2(self.block1(self.stem(signal)))
        pooled = self.pool(F.relu(self.norm(x)))
        person = torch.tanh(self.person(people))
        return torch.cat([pooled, person], dim=1)

    def forward(self, signal, people):
        x = self.describe(signal, people)
        return self.label_head(x), self.rate_head(x)


def label_losses(logits, batch):
    """Rare diseases have more weight; what no doctor looked for has no loss."""
    pos_weight = torch.tensor(cfg.pos_weight, dtype=logits.dtype)
    losses = F.binary_cross_entropy_with_logits(
        logits, batch["labels"], pos_weight=pos_weight, reduction="none"
    )
    return losses * batch["known"]


def rate_losses(rate, batch):
    target = (batch["bpm"] - 75) / 25
    return F.smooth_l1_loss(rate.squeeze(1), target, beta=cfg.beta, reduction="none")


def counts_of(batch):
    return batch["known"].sum(), len(batch["signal"])


def loss_of(model, batch, counts):
    logits, rate = model(prepare(batch), about_people(batch))
    loss = label_losses(logits, batch).sum() / counts[0]
    return loss + cfg.rate_weight * rate_losses(rate, batch).sum() / counts[1]


def backward(model, batch):
    loss = loss_of(model, batch, counts_of(batch))
    loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), cfg.max_norm)


def build():
    return HeartNet().train()


def parameter_groups(model):
    """Only matrices and kernels decay."""
    kernels = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim <= 1]
    decay = {"params": kernels, "weight_decay": cfg.weight_decay}
    return [decay, {"params": others, "weight_decay": 0.0}]


def optimizer(model, **more):
    adamw = torch.optim.AdamW(parameter_groups(model), lr=cfg.lr, **more)
    model.warmup = torch.optim.lr_scheduler.LinearLR(adamw, 0.25, total_iters=4)
    return adamw


def batch(generator):
    """Beats of several rates, with a wave of the breath and noise."""

    def rand(*size):
        return torch.rand(*size, generator=generator)

    bpm = 50 + 70 * rand(cfg.records)
    time = torch.arange(cfg.samples) / 32
    phase = (time * bpm[:, None] / 60 + rand(cfg.records, 1)) % 1
    beats = torch.exp(-((phase - 0.5) ** 2) / 0.004)
    size = 0.3 + 2 * rand(cfg.records, cfg.leads, 1)
    breath = torch.sin(time * 1.7 + 6 * rand(cfg.records, cfg.leads, 1))
    noise = torch.randn(cfg.records, cfg.leads, cfg.samples, generator=generator)
    keep = (rand(cfg.records, cfg.leads) < 0.7).to(bpm.dtype)
    keep[:, 1] = 1.0
    return {
        "signal": size * (beats[:, None] + 0.05 * noise) + 0.5 * breath + 0.2,
        "keep": keep,
        "age": 20 + 60 * rand(cfg.records),
        "sex": (rand(cfg.records) < 0.5).to(bpm.dtype),
        "labels": (rand(cfg.records, cfg.diseases) < 0.3).to(bpm.dtype),
        "known": (rand(cfg.records, cfg.diseases) < 0.8).to(bpm.dtype),
        "bpm": bpm,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.warmup.step()
