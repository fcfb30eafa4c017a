"""A decoder as of Qwen: grouped heads, norms of queries and keys, tied weights, a window."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, GROUPS, LENGTH, LAYERS, BATCH = 59, 32, 4, 2, 12, 2, 4
SIZE, WINDOW, BASE = WIDTH // HEADS, 6, 1000.0
EPS, CAP, LR, SMALL = 1e-6, 15.0, 2e-3, 1e-4


class Norm(nn.Module):
    """RMS norm with weights that are counted from 1, as of Gemma."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.eps = EPS

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * (1 + self.weight)


def angles(length):
    steps = BASE ** (-torch.arange(0, SIZE, 2) / SIZE)
    turns = torch.outer(torch.arange(length), steps)
    return turns.cos(), turns.sin()


def rotate(x, cos, sin):
    left, right = x.chunk(2, dim=-1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], dim=-1)


def window(length):
    """What is added to the scores: the present and WINDOW - 1 places before it."""
    apart = torch.arange(length)[:, None] - torch.arange(length)
    seen = (apart >= 0) & (apart < WINDOW)
    return torch.zeros(length, length).masked_fill(~seen, float("-inf"))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, HEADS * SIZE, bias=False)
        self.k = nn.Linear(WIDTH, GROUPS * SIZE, bias=False)
        self.v = nn.Linear(WIDTH, GROUPS * SIZE, bias=False)
        self.o = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.q_norm, self.k_norm = Norm(SIZE), Norm(SIZE)

    def heads(self, x):
        parts = (self.q(x), self.k(x), self.v(x))
        q, k, v = (part.unflatten(-1, (-1, SIZE)).transpose(1, 2) for part in parts)
        return self.q_norm(q), self.k_norm(k), v

    def attend(self, q, k, v, mask):
        k, v = (each.repeat_interleave(HEADS // GROUPS, dim=1) for each in (k, v))
        scores = q @ k.transpose(-1, -2) * SIZE**-0.5 + mask
        return F.softmax(scores, dim=-1) @ v

    def forward(self, x, cos, sin, mask):
        q, k, v = self.heads(x)
        mixed = self.attend(rotate(q, cos, sin), rotate(k, cos, sin), v, mask)
        return self.o(mixed.transpose(1, 2).flatten(2))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_up = nn.Linear(WIDTH, 4 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.gelu(gate) * up)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.attention = Norm(WIDTH), Attention()
        self.norm2, self.gated = Norm(WIDTH), Gated()

    def forward(self, x, cos, sin, mask):
        x = x + self.attention(self.norm1(x), cos, sin, mask)
        return x + self.gated(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = Norm(WIDTH)

    def embed(self, tokens):
        return self.tokens(tokens) * WIDTH**0.5

    def logits(self, x):
        """By the tied weights, with a soft cap."""
        return CAP * torch.tanh(F.linear(x, self.tokens.weight) / CAP)

    def forward(self, tokens):
        cos, sin = angles(tokens.shape[1])
        mask = window(tokens.shape[1])
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, cos, sin, mask)
        return self.logits(self.norm(x))


def build():
    model = Decoder()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.15)
    return model


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=LR, betas=(0.9, 0.95), weight_decay=0.1)


def batch(generator):
    return torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)


def loss(logits, tokens):
    """The mean over tokens, and a small weight on the squared normaliser (z-loss)."""
    logits, labels = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
    return F.cross_entropy(logits, labels) + SMALL * logits.logsumexp(-1).square().mean()


def descend(model, tokens):
    loss(model(tokens), tokens).backward()


def step(model, optimizer, tokens):
    optimizer.zero_grad()
    descend(model, tokens)
    optimizer.step()
