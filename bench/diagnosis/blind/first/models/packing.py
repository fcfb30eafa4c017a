"""A decoder over packed texts: documents of several lengths share a row."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, HEADS, LAYERS = 71, 32, 4, 2
LENGTHS = ((5, 7, 4), (9, 3, 4))  # of the documents of each row
LENGTH = 16
SIZE = WIDTH // HEADS
EPS = 1e-5
CLIP = 50.0


def segments():
    """The number of the document of each place, (rows, length)."""
    rows = [[index for index, size in enumerate(row) for _ in range(size)] for row in LENGTHS]
    return torch.tensor(rows)


def positions_of(documents):
    """Positions begin at 0 in each document."""
    begins = torch.ones_like(documents, dtype=torch.bool)
    begins[:, 1:] = documents[:, 1:] != documents[:, :-1]
    places = torch.arange(documents.shape[1]).expand_as(documents)
    first = torch.where(begins, places, torch.zeros_like(places)).cummax(dim=1).values
    return places - first


def mask_of(documents):
    """True where a query sees a key: the same document, and not the future."""
    same = documents[:, :, None] == documents[:, None, :]
    past = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    return (same & past)[:, None]


def rotary(positions):
    steps = torch.arange(0, SIZE, 2) / SIZE
    angles = positions[..., None] * (1.0 / 10000.0**steps)
    return angles.cos()[:, None], angles.sin()[:, None]


def turn(x, cos, sin):
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=EPS)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def project(self, x):
        return [
            part.unflatten(-1, (HEADS, SIZE)).transpose(1, 2)
            for part in self.qkv(x).chunk(3, dim=-1)
        ]

    def attend(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(-1, -2)) * SIZE**-0.5
        scores = scores.masked_fill(~mask, float("-inf"))
        return torch.matmul(scores.softmax(-1), v)

    def forward(self, x, mask, cos, sin):
        q, k, v = self.project(self.norm(x))
        mixed = self.attend(turn(q, cos, sin), turn(k, cos, sin), v, mask)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


class Feed(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH, eps=EPS)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.attentions = nn.ModuleList(Attention() for _ in range(LAYERS))
        self.feeds = nn.ModuleList(Feed() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, eps=EPS)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def layers(self, x, mask, cos, sin):
        for attention, feed in zip(self.attentions, self.feeds, strict=True):
            x = feed(attention(x, mask, cos, sin))
        return x

    def forward(self, tokens, documents):
        cos, sin = rotary(positions_of(documents))
        x = self.layers(self.tokens(tokens), mask_of(documents), cos, sin)
        return self.head(self.norm(x))


def build():
    model = Decoder()
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.18)
        elif name.endswith("bias"):
            nn.init.normal_(parameter, std=0.05)
    return model


def optimizer(model):
    return torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)


def batch(generator):
    return torch.randint(VOCABULARY, (len(LENGTHS), LENGTH), generator=generator), segments()


def labels_of(tokens, documents):
    """The next token of the same document; -100 at the last."""
    labels = torch.full_like(tokens, -100)
    labels[:, :-1] = tokens[:, 1:]
    labels[:, :-1][documents[:, 1:] != documents[:, :-1]] = -100
    return labels


def loss(logits, labels):
    total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
    return total / (labels != -100).sum()


def step(model, optimizer, batch):
    tokens, documents = batch
    optimizer.zero_grad()
    loss(model(tokens, documents), labels_of(tokens, documents)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
