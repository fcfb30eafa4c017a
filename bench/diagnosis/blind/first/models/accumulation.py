"""A classifier of sequences, trained with gradient accumulation and a schedule."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, TIMES, CLASSES, BATCH, MICRO = 10, 24, 6, 5, 12, 4
CLIP, LR, WARMUP = 0.7, 4e-3, 4
SMOOTHING = 0.1


class Mixer(nn.Module):
    """Mixes times, then features, as of MLP-Mixer."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH)
        self.times = nn.Linear(TIMES, TIMES)
        self.norm2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def mix_times(self, x):
        return self.times(x.transpose(1, 2)).transpose(1, 2)

    def forward(self, x):
        x = x + self.mix_times(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(FEATURES, WIDTH)
        self.layers = nn.ModuleList(Mixer() for _ in range(3))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def pool(self, x):
        return x.mean(dim=1)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.pool(self.norm(x)))


def build():
    model = Classifier()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.trunc_normal_(parameter, std=0.25)
    return model


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)


def set_rate(optimizer, number):
    """Linear warm-up; `number` counts the steps of the optimizer from 1."""
    for group in optimizer.param_groups:
        group["lr"] = LR * min(1.0, number / WARMUP)


def number_of(optimizer):
    """The step that comes, from 1."""
    optimizer.steps_made = getattr(optimizer, "steps_made", 0) + 1
    return optimizer.steps_made


def batch(generator):
    x = torch.randn(BATCH, TIMES, FEATURES, generator=generator).to(torch.get_default_dtype())
    weights = torch.rand(BATCH, generator=generator).to(torch.get_default_dtype()) + 0.5
    return x, torch.randint(CLASSES, (BATCH,), generator=generator), weights


def loss(logits, labels, weights, total):
    """The weighted mean over the whole batch; `total` is the sum of its weights."""
    each = F.cross_entropy(logits, labels, reduction="none", label_smoothing=SMOOTHING)
    return (each * weights).sum() / total


def micro_batches(batch):
    return zip(*(each.split(MICRO) for each in batch), strict=True)


def accumulate(model, batch):
    total = batch[2].sum()
    for x, labels, weights in micro_batches(batch):
        loss(model(x), labels, weights, total).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def step(model, optimizer, batch):
    set_rate(optimizer, number_of(optimizer))
    accumulate(model, batch)
    clip(model)
    optimizer.step()
    optimizer.zero_grad()
