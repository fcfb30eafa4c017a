"""A decoder as in Llama: RMS norms, rotary positions, grouped attention, gated layers."""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, KV_HEADS, LENGTH, LAYERS, BATCH = 61, 32, 4, 2, 12, 2, 4
SIZE = WIDTH // HEADS
PAD = 0
ACCUMULATE = 2  # micro batches in a step
CLIP = 1.0


class RMSNorm(nn.Module):
    eps = 1e-6

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x


def rotary_angles(positions):
    """Cosines and sines, (batch, 1, length, size)."""
    frequencies = 10000.0 ** (-torch.arange(0, SIZE, 2).float() / SIZE)
    angles = positions[:, None, :, None].float() * frequencies
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos(), angles.sin()


def rotate_half(x):
    left, right = x.chunk(2, dim=-1)
    return torch.cat([-right, left], dim=-1)


def rotate(x, cos, sin):
    return x * cos + rotate_half(x) * sin


def repeat_heads(x):
    """Keys and values of a group are used by several heads."""
    return x.repeat_interleave(HEADS // KV_HEADS, dim=1)


def causal_mask(length, valid):
    """What is added to the scores: (batch, 1, length, length)."""
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    hidden = future[None, None] | ~valid[:, None, None, :]
    return torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)


def positions_of(valid):
    return (valid.long().cumsum(-1) - 1).clamp(min=0)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.k = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False)
        self.v = nn.Linear(WIDTH, KV_HEADS * SIZE, bias=False)
        self.out = nn.Linear(HEADS * SIZE, WIDTH, bias=False)

    def heads(self, x):
        batch, length, _ = x.shape
        q = self.q(x).view(batch, length, HEADS, SIZE).transpose(1, 2)
        k = self.k(x).view(batch, length, KV_HEADS, SIZE).transpose(1, 2)
        v = self.v(x).view(batch, length, KV_HEADS, SIZE).transpose(1, 2)
        return q, k, v

    def attend(self, q, k, v, mask):
        scores = q @ k.transpose(-2, -1) / math.sqrt(SIZE)
        scores = scores + mask
        weights = F.softmax(scores, dim=-1)
        return weights @ v

    def forward(self, x, mask, cos, sin):
        q, k, v = self.heads(x)
        q = rotate(q, cos, sin)
        k = rotate(k, cos, sin)
        mixed = self.attend(q, repeat_heads(k), repeat_heads(v), mask)
        return self.out(mixed.transpose(1, 2).flatten(2))


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.norm1 = RMSNorm(WIDTH)
        self.attention = Attention()
        self.norm2 = RMSNorm(WIDTH)
        self.mlp = MLP()

    def forward(self, x, mask, cos, sin):
        x = x + self.attention(self.norm1(x), mask, cos, sin)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block(index) for index in range(LAYERS))
        self.norm = RMSNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def run_blocks(self, x, mask, cos, sin):
        for block in self.blocks:
            x = block(x, mask, cos, sin)
        return x

    def forward(self, tokens):
        valid = tokens != PAD
        mask = causal_mask(tokens.shape[1], valid)
        cos, sin = rotary_angles(positions_of(valid))
        x = self.tokens(tokens)
        x = self.run_blocks(x, mask, cos, sin)
        return self.head(self.norm(x))


def initialise(model):
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.15)


def build():
    model = GPT()
    initialise(model)
    return model


def groups(model):
    """Matrices are decayed, norms are not."""
    decayed = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    return [
        {"params": decayed, "weight_decay": 0.1, "lr": 3e-3},
        {"params": others, "weight_decay": 0.0, "lr": 3e-3},
    ]


def optimizer(model):
    return torch.optim.AdamW(groups(model), betas=(0.9, 0.95), eps=1e-8)


def batch(generator):
    """Texts of different lengths, padded at the left."""
    tokens = torch.randint(1, VOCABULARY, (BATCH, LENGTH), generator=generator)
    for row, missing in enumerate((0, 3, 0, 5)):
        tokens[row, :missing] = PAD
    return tokens


def token_loss(logits, labels):
    """The sum over tokens that are not padding."""
    logits, labels = logits[:, :-1], labels[:, 1:]
    return F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, reduction="sum"
    )


def loss(model, tokens, count):
    return token_loss(model(tokens), tokens) / count


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def accumulate(model, tokens):
    count = int((tokens[:, 1:] != PAD).sum())
    for part in tokens.chunk(ACCUMULATE):
        loss(model, part, count).backward()


def step(model, optimizer, tokens):
    optimizer.zero_grad()
    accumulate(model, tokens)
    clip(model)
    optimizer.step()
