"""A tagger: letters by convolution, a packed LSTM, a chain of tags, neighbours beside it."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

WORDS, CHARS, TAGS, LENGTH, LETTERS = 20, 12, 5, 8, 5
PAD, UNKNOWN, OUTSIDE, IGNORED = 0, 1, 0, -100
CHAR_DIM, CHAR_FILTERS, WORD_DIM, HIDDEN = 6, 6, 8, 8
WORD_DROP, NEIGHBOUR_WEIGHT, LR, RATE_DECAY, MAX_NORM = 0.2, 0.3, 0.1, 0.5, 2.0
NOWHERE = -1e4


class Letters(nn.Module):
    """The largest answer of each filter among the letters of a word."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(CHARS, CHAR_DIM, padding_idx=PAD)
        self.conv = nn.Conv1d(CHAR_DIM, CHAR_FILTERS, 3, padding=1)

    def answers(self, x):
        return self.conv(x.transpose(1, 2)).transpose(1, 2)

    def forward(self, chars):
        known = chars.flatten(0, 1) != PAD
        found = self.answers(self.embed(chars.flatten(0, 1)))
        found = found.masked_fill(~known[:, :, None], NOWHERE)
        found = found.max(dim=1).values * known.any(dim=1)[:, None]
        return found.view(*chars.shape[:2], CHAR_FILTERS)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = Letters()
        self.words = nn.Embedding(WORDS, WORD_DIM)
        self.lstm = nn.LSTM(WORD_DIM + CHAR_FILTERS, HIDDEN, bidirectional=True, batch_first=True)

    def run(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states = self.lstm(packed)[0]
        return pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0]

    def forward(self, words, chars, lengths):
        x = torch.cat([self.words(words), self.letters(chars)], dim=-1)
        return self.run(x, lengths)


class Chain(nn.Module):
    """Scores of the first tag, of the last one, and of a tag (column) behind another (row)."""

    def __init__(self):
        super().__init__()
        self.start = nn.Parameter(0.3 * torch.randn(TAGS))
        self.end = nn.Parameter(0.3 * torch.randn(TAGS))
        self.transitions = nn.Parameter(0.5 * torch.randn(TAGS, TAGS))

    def emitted(self, emissions, tags, mask):
        picked = emissions.gather(2, tags[:, :, None]).squeeze(2)
        return (picked * mask).sum(dim=1)

    def moved(self, tags, mask):
        scores = self.transitions[tags[:, :-1], tags[:, 1:]]
        return (scores * mask[:, 1:]).sum(dim=1)

    def ended(self, tags, mask):
        last = tags.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)
        return self.end[last]

    def score(self, emissions, tags, mask):
        begun = self.start[tags[:, 0]]
        inner = self.emitted(emissions, tags, mask) + self.moved(tags, mask)
        return begun + inner + self.ended(tags, mask)

    def advance(self, alpha, emission):
        reached = alpha[:, :, None] + self.transitions[None]
        return reached.logsumexp(dim=1) + emission

    def partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.shape[1]):
            moved = self.advance(alpha, emissions[:, t])
            alpha = torch.where(mask[:, t, None], moved, alpha)
        return (alpha + self.end).logsumexp(dim=1)

    def forward(self, emissions, tags, mask):
        return self.partition(emissions, mask) - self.score(emissions, tags, mask)


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.emit = nn.Linear(2 * HIDDEN, TAGS)
        self.next_word = nn.Linear(HIDDEN, WORDS)
        self.last_word = nn.Linear(HIDDEN, WORDS)
        self.chain = Chain()


def dropped(words, draw):
    return words.masked_fill((draw < WORD_DROP) & (words != PAD), UNKNOWN)


def neighbours(words, mask):
    """The word behind each word, and the one before it; none at the ends."""
    words = words.masked_fill(~mask, IGNORED)
    return F.pad(words[:, 1:], (0, 1), value=IGNORED), F.pad(words[:, :-1], (1, 0), value=IGNORED)


def word_loss(logits, wanted):
    return F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), reduction="sum")


def neighbour_loss(model, states, words, mask):
    ahead, behind = states.chunk(2, dim=-1)
    after, before = neighbours(words, mask)
    after = word_loss(model.next_word(ahead), after)
    before = word_loss(model.last_word(behind), before.masked_fill(~mask, IGNORED))
    return after + before


def losses(model, data):
    """The sum over sentences, and that over words."""
    mask = data["words"] != PAD
    states = model.encoder(dropped(data["words"], data["draw"]), data["chars"], data["lengths"])
    chain_sum = model.chain(model.emit(states), data["tags"], mask).sum()
    return chain_sum, neighbour_loss(model, states, data["words"], mask)


def counts(data):
    return len(data["lengths"]), data["lengths"].sum()


def total_loss(chain_sum, word_sum, sentences, words):
    return chain_sum / sentences + NEIGHBOUR_WEIGHT * word_sum / words


def backward(model, data):
    total_loss(*losses(model, data), *counts(data)).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def rate(t):
    return 1 / (1 + RATE_DECAY * t)


def build():
    return Tagger()


def optimizer(model, **more):
    made = torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda t: rate(t))
    return made


def batch(generator):
    lengths = torch.tensor([6, 8, 3, 7, 5, 4])
    shape = (len(lengths), LENGTH)
    there = torch.arange(LENGTH) < lengths[:, None]
    words = torch.randint(2, WORDS, shape, generator=generator)
    chars = torch.randint(1, CHARS, (*shape, LETTERS), generator=generator)
    letters = torch.randint(2, LETTERS + 1, shape, generator=generator)
    letter = (torch.arange(LETTERS) < letters[:, :, None]) & there[:, :, None]
    tags = torch.randint(0, TAGS, shape, generator=generator)
    return {
        "words": words.masked_fill(~there, PAD),
        "chars": chars.masked_fill(~letter, PAD),
        "tags": tags.masked_fill(~there, OUTSIDE),
        "lengths": lengths,
        "draw": torch.rand(shape, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()
