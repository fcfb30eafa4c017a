"""Two towers under precision policies: bfloat16 by autocast, and float16 with a scaled loss."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LENGTH, BATCH, FEATURES, CLASSES = 32, 6, 8, 12, 6
LR, CLIP, SCALE = 2e-3, 1.0, 512.0
TEMPERATURE = 0.2
ROUNDING = 3e-2  # of a harmless change in bfloat16 and float16, beside the largest value


class FloatNorm(nn.Module):
    """A layer norm in float32, whatever comes in."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.eps = 1e-5

    def forward(self, x):
        y = F.layer_norm(x.float(), self.weight.shape, self.weight, self.bias, self.eps)
        return y.to(x.dtype)


class Tower(nn.Module):
    """Attention over the times with a softmax in float32, and a feed-forward part."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(FEATURES, WIDTH)
        self.norm1 = FloatNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.norm2 = FloatNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def weights(self, scores):
        return torch.softmax(scores.float(), dim=-1).to(scores.dtype)

    def mix(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        return self.weights(q @ k.transpose(1, 2) * WIDTH**-0.5) @ v

    def feed(self, x):
        return self.down(F.silu(self.up(x)))

    def forward(self, x):
        x = self.enter(x)
        x = x + self.mix(self.norm1(x))
        x = x + self.feed(self.norm2(x))
        return x.float().mean(dim=1)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.brain = Tower()  # in bfloat16
        self.small = Tower()  # in float16
        self.head = nn.Linear(WIDTH, CLASSES)

    def encode(self, x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            left = self.brain(x)
        with torch.autocast("cpu", dtype=torch.float16):
            right = self.small(x)
        return left, right

    def forward(self, x):
        left, right = self.encode(x)
        return left, right, self.head(left * right)


def build():
    model = Towers()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=LR, eps=1e-6)


def batch(generator):
    x = torch.randn(BATCH, LENGTH, FEATURES, generator=generator)
    return x, torch.randint(CLASSES, (BATCH,), generator=generator)


def contrast(left, right):
    """Rows of both towers belong together; in float32."""
    left, right = F.normalize(left.float(), dim=-1), F.normalize(right.float(), dim=-1)
    scores = left @ right.t() / TEMPERATURE
    return F.cross_entropy(scores, torch.arange(len(scores)))


def loss(outputs, labels):
    left, right, logits = outputs
    return contrast(left, right) + F.cross_entropy(logits.float(), labels)


def backward(value):
    (value * SCALE).backward()


def unscale(model):
    for parameter in model.parameters():
        parameter.grad.mul_(1.0 / SCALE)


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def step(model, optimizer, batch):
    x, labels = batch
    optimizer.zero_grad()
    backward(loss(model(x), labels))
    unscale(model)
    clip(model)
    optimizer.step()
