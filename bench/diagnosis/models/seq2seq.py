"""An encoder and a decoder with attention to the encoder, relative positions, as in T5."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, SOURCE, TARGET, BATCH, BUCKETS = 43, 24, 3, 9, 7, 4, 8
SIZE = WIDTH // HEADS
PAD, START = 0, 1
LR = 1e-2


def distance(queries, keys, two_way):
    """Buckets of relative positions."""
    apart = torch.arange(keys)[None] - torch.arange(queries)[:, None]
    if two_way:
        return apart.clamp(-(BUCKETS // 2), BUCKETS // 2 - 1) + BUCKETS // 2
    return (-apart).clamp(0, BUCKETS - 1)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.k = nn.Linear(WIDTH, WIDTH, bias=False)
        self.v = nn.Linear(WIDTH, WIDTH, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)

    def split(self, x):
        return x.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)

    def attend(self, q, k, v, bias):
        scores = torch.matmul(q, k.transpose(2, 3)) + bias
        weights = torch.softmax(scores, dim=-1)
        return torch.matmul(weights, v)

    def forward(self, x, memory, bias):
        q, k, v = self.split(self.q(x)), self.split(self.k(memory)), self.split(self.v(memory))
        return self.o(self.attend(q, k, v, bias).transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.down = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))


class Part(nn.Module):
    """The encoder, or the decoder with attention to what the encoder computed."""

    def __init__(self, decodes):
        super().__init__()
        self.decodes = decodes
        self.distances = nn.Embedding(BUCKETS, HEADS)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.own = Attention()
        self.cross = Attention() if decodes else None
        self.feed = Feed()

    def bias(self, x, valid):
        length = x.shape[1]
        bias = self.distances(distance(length, length, not self.decodes)).permute(2, 0, 1)[None]
        bias = bias.masked_fill(~valid[:, None, None, :], -1e9)
        if self.decodes:
            future = torch.ones(length, length, dtype=torch.bool).triu(1)
            bias = bias.masked_fill(future, -1e9)
        return bias

    def look(self, x, memory, memory_valid):
        hidden = torch.zeros(memory_valid.shape).masked_fill(~memory_valid, -1e9)
        return x + self.cross(self.norms[1](x), memory, hidden[:, None, None, :])

    def forward(self, x, valid, memory=None, memory_valid=None):
        y = self.norms[0](x)
        x = x + self.own(y, y, self.bias(x, valid))
        if self.decodes:
            x = self.look(x, memory, memory_valid)
        return self.norms[3](x + self.feed(self.norms[2](x)))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.encoder = Part(decodes=False)
        self.decoder = Part(decodes=True)

    def logits(self, x):
        return F.linear(x * WIDTH**-0.5, self.words.weight)

    def encode(self, source):
        return self.encoder(self.words(source), source != PAD)

    def forward(self, source, given):
        memory = self.encode(source)
        x = self.decoder(self.words(given), given != PAD, memory, source != PAD)
        return self.logits(x)


def build():
    model = Translator()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model


def optimizer(model):
    return torch.optim.Adagrad(model.parameters(), lr=LR)


def batch(generator):
    source = torch.randint(2, VOCABULARY, (BATCH, SOURCE), generator=generator)
    target = torch.randint(2, VOCABULARY, (BATCH, TARGET), generator=generator)
    for row, missing in enumerate((0, 2, 1, 4)):
        source[row, SOURCE - missing :] = PAD
        target[row, TARGET - missing // 2 :] = PAD
    return source, target


def shifted(target):
    return F.pad(target[:, :-1], (1, 0), value=START)


def loss(logits, target):
    losses = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")
    known = (target != PAD).float()
    return (losses * known).sum() / known.sum()


def scaled(value):
    return value


def step(model, optimizer, batch):
    source, target = batch
    optimizer.zero_grad()
    scaled(loss(model(source, shifted(target)), target)).backward()
    optimizer.step()
