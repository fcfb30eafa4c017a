"""What somebody buys next: a SASRec on histories, with negatives drawn by how items sell."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

ITEMS, MAX_LEN, DIM, HEADS, BLOCKS, GAPS = 50, 11, 16, 2, 2, 6
HISTORIES = (12, 7, 9, 4, 10)  # what each customer bought, with the last one to be foretold
NEGATIVES, TEMPERATURE = 8, 0.5
LR, BETAS, MAX_NORM, WARMUP, TOTAL = 5e-3, (0.9, 0.98), 1.0, 2, 15
PADDING = 0


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(DIM, 3 * DIM)
        self.out = nn.Linear(DIM, DIM)

    def project(self, x):
        return self.qkv(x).chunk(3, dim=-1)

    def heads(self, x):
        return x.unflatten(-1, (HEADS, DIM // HEADS)).transpose(1, 2)

    def attend(self, q, k, v, allowed):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)

    def forward(self, x, allowed):
        q, k, v = (self.heads(each) for each in self.project(x))
        mixed = self.attend(q, k, v, allowed)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.attn = nn.LayerNorm(DIM), SelfAttention()
        self.ffn_norm = nn.LayerNorm(DIM)
        self.ffn = nn.Sequential(nn.Linear(DIM, 32), nn.GELU(), nn.Linear(32, DIM))

    def forward(self, x, allowed):
        x = x + self.attn(self.attn_norm(x), allowed)
        return x + self.ffn(self.ffn_norm(x))


class SASRec(nn.Module):
    def __init__(self):
        super().__init__()
        self.item_emb = nn.Embedding(ITEMS + 1, DIM, padding_idx=PADDING)
        self.pos_emb = nn.Embedding(MAX_LEN + 8, DIM)
        self.gap_emb = nn.Embedding(GAPS, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(DIM)
        self.register_buffer("sold", torch.ones(ITEMS + 1))
        for table in (self.item_emb, self.pos_emb, self.gap_emb):
            nn.init.normal_(table.weight, std=0.2)
        with torch.no_grad():
            self.item_emb.weight[PADDING] = 0

    def embed(self, items, days):
        x = self.item_emb(items) * math.sqrt(DIM)
        return x + self.pos_emb(positions(items)) + self.gap_emb(gaps(days))

    def forward(self, items, days):
        x = self.embed(items, days)
        allowed = attention_mask(items)
        for block in self.blocks:
            x = block(x, allowed)
        return self.norm(x)


def positions(items):
    """Counted from the last item, because histories are padded on the left."""
    length = items.shape[1]
    return torch.arange(length - 1, -1, -1).expand_as(items)


def gaps(days):
    """How long ago the item before was bought: a day, two, four, ..."""
    passed = days.diff(dim=1, prepend=days[:, :1])
    return torch.log2(passed + 1).long().clamp(0, GAPS - 1)


def attention_mask(items):
    """Items that are not later and no padding; padding looks at itself."""
    length = items.shape[1]
    causal = torch.ones(length, length, dtype=torch.bool).tril()
    allowed = causal & (items != PADDING)[:, None, :]
    return (allowed | torch.eye(length, dtype=torch.bool))[:, None]


def shift(batch):
    """What is known, and what comes after it."""
    history = batch["history"]
    return history[:, :-1], batch["days"][:, :-1], history[:, 1:]


@torch.no_grad()
def count_sales(model, items):
    bought = items[items != PADDING]
    model.sold.index_add_(0, bought, torch.ones_like(bought, dtype=model.sold.dtype))


def log_chance(model, items):
    """How likely an item is drawn as a negative."""
    return (model.sold / model.sold.sum()).log()[items]


def score_positives(model, states, items):
    return (states * model.item_emb(items)).sum(dim=-1) / TEMPERATURE


def score_negatives(model, states, items):
    return torch.einsum("bld,bnd->bln", states, model.item_emb(items)) / TEMPERATURE


def all_scores(model, states, positives, negatives):
    right = score_positives(model, states, positives)
    wrong = score_negatives(model, states, negatives)
    return right, wrong


def sampled_softmax(right, wrong):
    """Of each place: how surprising the right item is among the wrong ones."""
    logits = torch.cat([right[..., None], wrong], dim=-1)
    target = torch.zeros(right.numel(), dtype=torch.long)
    return F.cross_entropy(logits.flatten(0, 1), target, reduction="none").view_as(right)


def place_losses(model, batch):
    """Of each place of each customer, and which places count."""
    items, days, positives = shift(batch)
    negatives = batch["negatives"]
    states = model(items, days)
    right, wrong = all_scores(model, states, positives, negatives)
    right = right - log_chance(model, positives)
    wrong = wrong - log_chance(model, negatives)[:, None, :]
    hit = positives[:, :, None] == negatives[:, None, :]
    wrong = wrong.masked_fill(hit, torch.finfo(wrong.dtype).min)
    return sampled_softmax(right, wrong), items != PADDING


def mean_loss(losses, counted):
    counted = counted.to(losses.dtype)
    return (losses * counted).sum() / counted.sum()


def train(model, batch):
    count_sales(model, batch["history"])
    mean_loss(*place_losses(model, batch)).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def rate(step):
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / (TOTAL - WARMUP)))


def make_optimizer(model, **more):
    return torch.optim.Adam(model.parameters(), lr=LR, betas=BETAS, **more)


def build():
    return SASRec().train()


def optimizer(model, **more):
    made = make_optimizer(model, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, rate)
    return made


def batch(generator):
    width = MAX_LEN + 1
    history = torch.zeros(len(HISTORIES), width, dtype=torch.long)
    days = torch.zeros(len(HISTORIES), width)
    for row, count in enumerate(HISTORIES):
        chosen = torch.rand(count, generator=generator).square() * ITEMS  # few items sell well
        history[row, width - count :] = chosen.long() + 1
        passed = torch.randint(0, 20, (count,), generator=generator)
        days[row, width - count :] = passed.cumsum(0).to(days.dtype)
    negatives = torch.rand(len(HISTORIES), NEGATIVES, generator=generator).square() * ITEMS
    return {"history": history, "days": days, "negatives": negatives.long() + 1}


def step(model, optimizer, batch):
    optimizer.zero_grad()
    train(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()
