"""A small vision transformer learns from a larger one: adapters of low rank, bfloat16 autocast."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, PATCH, SIZE, CLASSES, BATCH = 16, 2, 4, 12, 5, 4
RANK, ALPHA, HEAT, HARD, ACCUMULATE = 4, 8.0, 3.0, 0.3, 2


class LowRank(nn.Module):
    """A frozen layer and an adapter beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)
        nn.init.normal_(self.up.weight, std=0.05)
        self.scale = ALPHA / RANK

    def forward(self, x):
        return self.base(x) + self.scale * self.up(self.down(x))


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        wide = x.float() if x.dtype == torch.bfloat16 else x
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps)
        return (self.weight * wide).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.q_norm = RMSNorm(width // HEADS)
        self.k_norm = RMSNorm(width // HEADS)

    def forward(self, x):
        n, length, width = x.shape
        q, k, v = self.qkv(x).view(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        q, k = self.q_norm(q), self.k_norm(k)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.out(mixed.transpose(1, 2).reshape(n, length, width))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gain1 = nn.Parameter(torch.full((width,), 0.5))
        self.gain2 = nn.Parameter(torch.full((width,), 0.5))

    def forward(self, x):
        x = x + self.gain1 * self.attention(self.norm1(x))
        return x + self.gain2 * self.down(F.gelu(self.up(self.norm2(x))))


class ViT(nn.Module):
    def __init__(self, width, layers):
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.first = nn.Parameter(torch.randn(1, 1, width) * 0.5)
        self.places = nn.Parameter(torch.randn(1, 1 + (SIZE // PATCH) ** 2, width) * 0.3)
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, pictures):
        x = self.patches(pictures).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(len(x), -1, -1).to(x.dtype), x], dim=1)
        x = x + self.places
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = ViT(2 * WIDTH, 2).requires_grad_(False).eval()
        self.student = ViT(WIDTH, 2)
        for block in self.student.blocks:
            block.attention.qkv = LowRank(block.attention.qkv)
            block.up = LowRank(block.up)


def soft_loss(student, teacher):
    """Kullback and Leibler, of heated logits, in float32."""
    log_p = F.log_softmax(student / HEAT, dim=-1)
    log_q = F.log_softmax(teacher / HEAT, dim=-1)
    return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True) * HEAT**2


def loss_of(student, teacher, labels):
    hard = F.cross_entropy(student, labels)
    return HARD * hard + (1 - HARD) * soft_loss(student, teacher)


def logits_of(model, pictures):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        student = model.student(pictures)
        with torch.no_grad():
            teacher = model.teacher(pictures)
    return widened(student), widened(teacher)


def widened(logits):
    return logits.float() if logits.dtype == torch.bfloat16 else logits


def build():
    return Pair()


def layer_of(name):
    return int(name.split(".")[2]) + 1 if ".blocks." in name else 3 if "head" in name else 0


def optimizer(model):
    """The rate falls from layer to layer, down to the patches."""
    groups = [
        {"params": [p], "lr": 4e-3 * 0.7 ** (3 - layer_of(name))}
        for name, p in model.named_parameters()
        if p.requires_grad
    ]
    made = torch.optim.AdamW(groups, weight_decay=0.05)
    model.schedule = torch.optim.lr_scheduler.StepLR(made, 1, math.sqrt(0.5))
    return made


def batch(generator):
    pictures = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    return pictures, torch.randint(0, CLASSES, (BATCH,), generator=generator)


def accumulate(model, pictures, labels):
    for part, own in zip(pictures.chunk(ACCUMULATE), labels.chunk(ACCUMULATE), strict=True):
        (loss_of(*logits_of(model, part), own) / ACCUMULATE).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    accumulate(model, *batch)
    nn.utils.clip_grad_norm_([p for p in model.parameters() if p.requires_grad], 100.0)
    optimizer.step()
    model.schedule.step()
