"""An encoder as in BERT: norms after the sum, learned positions, masked words, dropout."""

import math

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LENGTH, LAYERS, BATCH = 53, 32, 4, 10, 2, 4
SIZE = WIDTH // HEADS
MASK, IGNORED = 1, -100
DROPOUT = 0.1


def extended_mask(valid):
    return (1.0 - valid[:, None, None, :].float()) * -10000.0


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(DROPOUT)

    def heads(self, x):
        return x.view(*x.shape[:2], HEADS, SIZE).transpose(1, 2)

    def attend(self, q, k, v, mask):
        scores = q @ k.transpose(-2, -1) / math.sqrt(SIZE)
        weights = self.dropout((scores + mask).softmax(-1))
        return weights @ v

    def forward(self, x, mask):
        q, k, v = self.heads(self.query(x)), self.heads(self.key(x)), self.heads(self.value(x))
        return self.attend(q, k, v, mask).transpose(1, 2).reshape(x.shape)


def activation(x):
    return F.gelu(x)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = SelfAttention()
        self.output = nn.Linear(WIDTH, WIDTH)
        self.norm1 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.norm2 = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x, mask):
        x = self.norm1(x + self.dropout(self.output(self.attention(x, mask))))
        y = self.down(activation(self.up(x)))
        return self.norm2(x + self.dropout(y))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        self.positions = nn.Embedding(LENGTH + 2, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.dropout = nn.Dropout(DROPOUT)

    def position_ids(self, tokens):
        return torch.arange(tokens.shape[1])

    def forward(self, tokens, types):
        x = self.words(tokens) + self.positions(self.position_ids(tokens)) + self.types(types)
        return self.dropout(self.norm(x))


class Head(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.dense = nn.Linear(WIDTH, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-12)
        self.decoder = nn.Linear(WIDTH, VOCABULARY)
        self.tie(words)

    def tie(self, words):
        self.decoder.weight = words.weight

    def forward(self, x):
        return self.decoder(self.norm(activation(self.dense(x))))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = Head(self.embeddings.words)

    def forward(self, tokens, types, valid):
        x = self.embeddings(tokens, types)
        mask = extended_mask(valid)
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(x)


def build():
    model = Bert()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.999), eps=1e-8)


def schedule(optimizer):
    """Warm-up over ten steps; called after each step."""
    for group in optimizer.param_groups:
        group["lr"] = group.get("first_lr", 1e-3) * 1.1
        group["first_lr"] = group["lr"]


def batch(generator):
    tokens = torch.randint(2, VOCABULARY, (BATCH, LENGTH), generator=generator)
    valid = torch.ones(BATCH, LENGTH, dtype=torch.bool)
    for row, missing in enumerate((0, 2, 4, 1)):
        valid[row, LENGTH - missing :] = False
    tokens = tokens.masked_fill(~valid, 0)
    chosen = (torch.rand(BATCH, LENGTH, generator=generator) < 0.3) & valid
    chosen[:, 0] = True
    types = (torch.arange(LENGTH) > 4).long().expand(BATCH, LENGTH)
    return tokens, types, valid, chosen


def loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def labels_of(tokens, chosen):
    return tokens.masked_fill(~chosen, IGNORED)


def train_mode(model):
    model.train()


def step(model, optimizer, batch):
    tokens, types, valid, chosen = batch
    train_mode(model)
    optimizer.zero_grad()
    logits = model(tokens.masked_fill(chosen, MASK), types, valid)
    loss(logits, labels_of(tokens, chosen)).backward()
    optimizer.step()
    schedule(optimizer)
