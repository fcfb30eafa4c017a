"""Retrieval by two towers: bags of hashed words, sampled softmax with corrected popularity."""

import torch
from torch import nn
from torch.nn import functional as F

BUCKETS, ITEMS, WIDTH, OUT, BATCH, EXTRA = 23, 19, 8, 6, 6, 5
TEMPERATURE = 0.1
HIDDEN = -1e4


def hashed(words):
    return (words * 7919 + 13) % BUCKETS


def offsets_of(lengths):
    """Where each bag begins."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)[:-1]])


class UserTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum")
        self.ages = nn.Embedding(4, WIDTH)
        self.norm = nn.LayerNorm(2 * WIDTH + 1)
        self.deep = nn.Sequential(nn.Linear(2 * WIDTH + 1, 16), nn.ReLU(), nn.Linear(16, OUT))

    def bags(self, words, lengths, weights):
        summed = self.words(hashed(words), offsets_of(lengths), per_sample_weights=weights)
        return summed / lengths.clamp(min=1)[:, None]

    def forward(self, words, lengths, weights, age, income):
        parts = [self.bags(words, lengths, weights), self.ages(age), income.log1p()[:, None]]
        return self.deep(self.norm(torch.cat(parts, dim=-1)))


class ItemTower(nn.Module):
    def __init__(self):
        super().__init__()
        self.items = nn.Embedding(ITEMS, WIDTH)
        self.wide = nn.Linear(WIDTH, OUT, bias=False)
        self.cross = nn.Linear(WIDTH, WIDTH)

    def forward(self, items):
        x = self.items(items)
        x = x * self.cross(x) + x
        return self.wide(x)


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = UserTower()
        self.item = ItemTower()
        self.register_buffer("seen", torch.ones(ITEMS))

    @torch.no_grad()
    def count(self, items):
        self.seen.index_add_(0, items, torch.ones(len(items)))

    def log_popularity(self, items):
        return (self.seen / self.seen.sum())[items].log()

    def scores(self, users, items):
        u = F.normalize(users, dim=-1)
        v = F.normalize(items, dim=-1)
        return u @ v.T / TEMPERATURE

    def forward(self, user, positive, sampled):
        """Each user's scores of the positives of the batch and of sampled items."""
        candidates = torch.cat([positive, sampled])
        self.count(candidates)
        scores = self.scores(self.user(*user), self.item(candidates))
        scores = scores - self.log_popularity(candidates)
        return hide_accidental_hits(scores, positive, candidates)


def hide_accidental_hits(scores, positive, candidates):
    """A candidate that is the user's own item elsewhere is no negative."""
    same = positive[:, None] == candidates[None]
    own = torch.eye(len(positive), len(candidates), dtype=torch.bool)
    return scores.masked_fill(same & ~own, HIDDEN)


def retrieval_loss(scores, ratings):
    losses = F.cross_entropy(scores, torch.arange(len(scores)), reduction="none")
    return (losses * ratings).sum() / ratings.sum()


def build():
    return Towers()


def optimizer(model):
    tables = [model.user.words.weight, model.user.ages.weight, model.item.items.weight]
    known = {id(p) for p in tables}
    dense = [p for p in model.parameters() if id(p) not in known]
    made = torch.optim.Adagrad(tables, lr=0.05, initial_accumulator_value=0.1)
    model.dense_optimizer = torch.optim.AdamW(dense, lr=2e-3, weight_decay=0.02)
    return made


def batch(generator):
    lengths = torch.tensor([3, 1, 4, 2, 5, 2])
    total = int(lengths.sum())
    words = torch.randint(0, 1000, (total,), generator=generator)
    weights = torch.rand(total, generator=generator) + 0.5
    age = torch.randint(0, 4, (BATCH,), generator=generator)
    income = torch.rand(BATCH, generator=generator) * 50
    positive = torch.randint(0, ITEMS, (BATCH,), generator=generator)
    positive[3] = positive[1]
    sampled = torch.randint(0, ITEMS, (EXTRA,), generator=generator)
    ratings = torch.rand(BATCH, generator=generator) + 0.2
    return (words, lengths, weights, age, income), positive, sampled, ratings


def step(model, optimizer, batch):
    user, positive, sampled, ratings = batch
    for each in (optimizer, model.dense_optimizer):
        each.zero_grad()
    loss = retrieval_loss(model(user, positive, sampled), ratings)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 200.0)
    for each in (optimizer, model.dense_optimizer):
        each.step()
