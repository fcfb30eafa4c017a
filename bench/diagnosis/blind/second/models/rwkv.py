"""A language model as RWKV: mixed times, weighted sums that decay, and a state between segments."""

import torch
from torch import nn
from torch.nn import functional as F

VOCABULARY, WIDTH, LAYERS, SEGMENT, SEGMENTS, BATCH = 37, 24, 2, 6, 2, 4
EPS, SMALLEST, Z, RATE, LARGEST, PADDING = 1e-5, -1e4, 1e-3, 5e-3, 0.5, -100


def delayed(x, last):
    """Each time sees the one before it; the first one sees the last of the segment before."""
    return torch.cat([last[:, None], x[:, :-1]], dim=1)


def mixed(x, before, share):
    return x * share + before * (1 - share)


def weighted(decay, bonus, keys, values, state):
    """Means of the values, weighted by exp(key) and the decay; the present one has a bonus.

    The state is a sum of values, a sum of weights, and the exponent that both are divided by.
    """
    above, below, scale = state
    means = []
    for key, value in zip(keys.unbind(1), values.unbind(1), strict=True):
        top = torch.maximum(scale, bonus + key)
        past, now = torch.exp(scale - top), torch.exp(bonus + key - top)
        means.append((past * above + now * value) / (past * below + now))
        top = torch.maximum(scale + decay, key)
        past, now = torch.exp(scale + decay - top), torch.exp(key - top)
        above, below, scale = past * above + now * value, past * below + now, top
    return torch.stack(means, dim=1), (above, below, scale)


class TimeMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.decay = nn.Parameter(torch.linspace(-2.0, 1.0, WIDTH))
        self.bonus = nn.Parameter(torch.linspace(0.5, -0.5, WIDTH))
        self.shares = nn.Parameter(torch.rand(3, WIDTH))
        self.key = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(WIDTH, WIDTH, bias=False)
        self.accept = nn.Linear(WIDTH, WIDTH, bias=False)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)

    def rate(self):
        return -torch.exp(self.decay)

    def forward(self, x, state):
        before = delayed(x, state[0])
        key = self.key(mixed(x, before, self.shares[0]))
        value = self.value(mixed(x, before, self.shares[1]))
        accept = self.accept(mixed(x, before, self.shares[2])).sigmoid()
        means, sums = weighted(self.rate(), self.bonus, key, value, state[1:])
        return self.out(accept * means), (x[:, -1], *sums)


class ChannelMix(nn.Module):
    def __init__(self):
        super().__init__()
        self.shares = nn.Parameter(torch.rand(2, WIDTH))
        self.key = nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.accept = nn.Linear(WIDTH, WIDTH, bias=False)
        self.value = nn.Linear(2 * WIDTH, WIDTH, bias=False)

    def feed(self, x):
        return self.value(F.relu(self.key(x)).square())

    def forward(self, x, last):
        before = delayed(x, last)
        accept = self.accept(mixed(x, before, self.shares[1])).sigmoid()
        return accept * self.feed(mixed(x, before, self.shares[0])), x[:, -1]


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, EPS), nn.LayerNorm(WIDTH, EPS)
        self.times, self.channels = TimeMix(), ChannelMix()

    def forward(self, x, state):
        moved, of_times = self.times(self.norm1(x), state[:4])
        x = x + moved
        moved, of_channels = self.channels(self.norm2(x), state[4])
        return x + moved, (*of_times, of_channels)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.first_norm = nn.LayerNorm(WIDTH, EPS)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, tokens, states):
        x, kept = self.first_norm(self.words(tokens)), []
        for block, state in zip(self.blocks, states, strict=True):
            x, state = block(x, state)
            kept.append(state)
        return self.head(self.norm(x)), kept


def begun(rows):
    """The states before the first segment."""
    zero = torch.zeros(rows, WIDTH)
    return [(zero, zero, zero, zero + SMALLEST, zero) for _ in range(LAYERS)]


def handed_on(states):
    """The states that the next segment begins with: gradients end here."""
    return [tuple(each.detach() for each in state) for state in states]


def build():
    model = Model()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2 and "shares" not in name:
            nn.init.normal_(parameter, std=0.3)
    return model


def optimizer(model):
    return torch.optim.NAdam(model.parameters(), lr=RATE, momentum_decay=1e-2)


def batch(generator):
    """Tokens, and labels: some texts end early."""
    tokens = torch.randint(VOCABULARY, (BATCH, SEGMENT * SEGMENTS + 1), generator=generator)
    ends = torch.randint(SEGMENT, SEGMENT * SEGMENTS, (BATCH, 1), generator=generator)
    beyond = torch.arange(SEGMENT * SEGMENTS) > ends
    return tokens[:, :-1], tokens[:, 1:].masked_fill(beyond, PADDING)


def loss_of(logits, labels):
    """Sums of the entropy and of the squared normaliser, where there are labels."""
    entropy = F.cross_entropy(logits.mT, labels, ignore_index=PADDING, reduction="sum")
    known = labels != PADDING
    return entropy + Z * (logits.logsumexp(dim=-1).square() * known).sum()


def total_of(model, tokens, labels):
    """The loss of all segments; they hand on their states."""
    states, total = begun(len(tokens)), 0.0
    for part, wanted in zip(tokens.split(SEGMENT, 1), labels.split(SEGMENT, 1), strict=True):
        logits, states = model(part, states)
        total, states = total + loss_of(logits, wanted), handed_on(states)
    return total


def descend(model, tokens, labels):
    (total_of(model, tokens, labels) / (labels != PADDING).sum()).backward()


def step(model, optimizer, batch):
    descend(model, *batch)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    optimizer.step()
    optimizer.zero_grad()
