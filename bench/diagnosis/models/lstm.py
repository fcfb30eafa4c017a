"""A tagger with a two-way recurrent layer, written out, and texts of different lengths."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, STATE, TAGS, LENGTH, BATCH = 41, 12, 16, 7, 6, 4
FORGET = 1.0  # bias of the forget gate at the begin
IGNORED = -100
CLIP = 0.5


class Cell(nn.Module):
    """Gates in the order of torch.nn.LSTM: input, forget, cell, output."""

    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, 4 * STATE)
        self.outer = nn.Linear(STATE, 4 * STATE)

    def gates(self, x, state):
        return (self.inner(x) + self.outer(state)).chunk(4, dim=-1)

    def forward(self, x, state, memory):
        i, f, g, o = self.gates(x, state)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        return o.sigmoid() * memory.tanh(), memory


class Recurrence(nn.Module):
    def __init__(self, width, backwards):
        super().__init__()
        self.cell = Cell(width)
        self.backwards = backwards

    def times(self, length):
        return reversed(range(length)) if self.backwards else range(length)

    def forward(self, x, valid):
        state = memory = x.new_zeros(len(x), STATE)
        states = [None] * x.shape[1]
        for time in self.times(x.shape[1]):
            new, kept = self.cell(x[:, time], state, memory)
            known = valid[:, time, None]
            state, memory = torch.where(known, new, state), torch.where(known, kept, memory)
            states[time] = state
        return torch.stack(states, dim=1)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.left = Recurrence(WIDTH, backwards=False)
        self.right = Recurrence(WIDTH, backwards=True)
        self.norm = nn.LayerNorm(2 * STATE)
        self.head = nn.Linear(2 * STATE, TAGS)

    def both(self, x, valid):
        return torch.cat([self.left(x, valid), self.right(x, valid)], dim=-1)

    def forward(self, words, valid):
        x = self.words(words)
        return self.head(self.norm(self.both(x, valid)))


def initialise(model):
    for name, parameter in model.named_parameters():
        if name.endswith("bias") and "cell" in name:
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    for recurrence in (model.left, model.right):
        with torch.no_grad():
            recurrence.cell.inner.bias[STATE : 2 * STATE] = FORGET


def build():
    model = Tagger()
    initialise(model)
    return model


def optimizer(model):
    return torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.99)


def batch(generator):
    words = torch.randint(VOCABULARY, (BATCH, LENGTH), generator=generator)
    tags = torch.randint(TAGS, (BATCH, LENGTH), generator=generator)
    lengths = torch.tensor([6, 4, 5, 3])
    valid = torch.arange(LENGTH) < lengths[:, None]
    return words, tags.masked_fill(~valid, IGNORED), valid


def loss(logits, tags):
    return F.cross_entropy(logits.flatten(0, 1), tags.flatten(), ignore_index=IGNORED)


def clip(model):
    torch.nn.utils.clip_grad_value_(model.parameters(), CLIP)


def step(model, optimizer, batch):
    words, tags, valid = batch
    optimizer.zero_grad()
    loss(model(words, valid), tags).backward()
    clip(model)
    optimizer.step()
