"""Moods of reviews of other goods than those with labels: a DistilBERT (transformers).

What the features tell about the goods is taken away by a gradient that is reversed. Each two
reviews are a micro-batch, padded for itself; losses are divided by the counts of all of them.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    DistilBertConfig,
    DistilBertModel,
    get_cosine_with_hard_restarts_schedule_with_warmup,
)

PAD, CLS, SEP, WORDS, IGNORE = 0, 1, 2, 40, -100
MOODS, WIDTH, HIDDEN = 3, 20, 12
LENGTHS, LABELS = (7, 4, 9, 5, 6, 3), (2, 0, IGNORE, 1, IGNORE, IGNORE)
PER_DEVICE, STEEP, BEGUN, KEEP, WARM = 2, 10.0, 1, 0.7, 1.5
FOREIGN, PULL, SMOOTH = 0.6, 0.3, 0.1
LR, FASTER, DECAY, MAX_NORM, WARMUP, TOTAL, CYCLES = 2e-3, 3.0, 0.1, 1.0, 1, 12, 2


def make_bert(**more):
    config = DistilBertConfig(
        vocab_size=WORDS,
        dim=WIDTH,
        n_layers=2,
        n_heads=2,
        hidden_dim=36,
        max_position_embeddings=24,
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.25,
        pad_token_id=PAD,
        **({"attn_implementation": "sdpa"} | more),
    )
    return DistilBertModel(config)


class Reversed(torch.autograd.Function):
    """The same numbers; the gradient has the opposite sign, and a strength."""

    @staticmethod
    def forward(ctx, x, strength):
        ctx.strength = strength
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -ctx.strength * gradient, None


def reversed_gradient(x, strength):
    return Reversed.apply(x, strength)


class Origin(nn.Module):
    """Whether a review is of the goods without labels."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, HIDDEN), nn.Linear(HIDDEN, 1)

    def forward(self, features, strength):
        hidden = F.leaky_relu(self.wide(reversed_gradient(features, strength)), 0.2)
        return self.narrow(hidden).squeeze(1)


class Reader(nn.Module):
    """The centres of moods are means of features that moved slowly."""

    def __init__(self):
        super().__init__()
        self.bert = make_bert()
        self.mood, self.origin = nn.Linear(WIDTH, MOODS), Origin()
        self.register_buffer("centres", torch.zeros(MOODS, WIDTH))
        self.register_buffer("progress", torch.tensor(BEGUN))

    def read(self, tokens, mask):
        return self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state

    def forward(self, inputs, strength):
        states = self.read(inputs["tokens"], inputs["mask"])
        features = pooled(states, inputs["mask"])
        return features, self.mood(features), self.origin(features, strength)


def pooled(states, mask):
    """The mean over what is no padding."""
    mask = mask.unsqueeze(2).to(states.dtype)
    return (states * mask).sum(dim=1) / mask.sum(dim=1)


def strength_of(progress):
    """From zero to one, steeply."""
    return 2 / (1 + math.exp(-STEEP * progress / TOTAL)) - 1


def mood_loss(logits, labels):
    return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction="sum")


def origin_loss(logits, foreign):
    """Labels are not quite zero and one."""
    wanted = foreign.to(logits.dtype) * (1 - SMOOTH) + 0.5 * SMOOTH
    return F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")


def pull_loss(features, logits, centres, foreign):
    """Reviews without labels are pulled to the centres of the moods that they seem to have."""
    likely = (logits.detach() / WARM).softmax(dim=1)
    return ((features - likely @ centres).square().mean(dim=1) * foreign).sum()


def counts_of(reviews):
    labelled = sum(review["label"] != IGNORE for review in reviews)
    return labelled, len(reviews), len(reviews) - labelled


def loss_of(model, inputs, counts):
    """The loss of a micro-batch, and its features."""
    labelled, all_of_them, foreign_ones = counts
    features, moods, origins = model(inputs, strength_of(model.progress.item()))
    foreign = inputs["labels"] == IGNORE
    loss = mood_loss(moods, inputs["labels"]) / labelled
    loss = loss + FOREIGN * origin_loss(origins, foreign) / all_of_them
    pull = pull_loss(features, moods, model.centres, foreign)
    return loss + PULL * pull / foreign_ones, features.detach()


def collate(reviews):
    tokens = nn.utils.rnn.pad_sequence(
        [review["tokens"] for review in reviews], batch_first=True, padding_value=PAD
    )
    labels = torch.tensor([review["label"] for review in reviews])
    return {"tokens": tokens, "mask": (tokens != PAD).long(), "labels": labels}


def accumulate(model, reviews):
    """Gives the features of all reviews, and their labels."""
    counts, seen = counts_of(reviews), []
    for k in range(0, len(reviews), PER_DEVICE):
        inputs = collate(reviews[k : k + PER_DEVICE])
        loss, features = loss_of(model, inputs, counts)
        loss.backward()
        seen.append((features, inputs["labels"]))
    features, labels = zip(*seen, strict=True)
    return torch.cat(features), torch.cat(labels)


def means_of(features, labels):
    """Sums of the features of each mood, and how many there are."""
    own = labels != IGNORE
    sums = features.new_zeros(MOODS, WIDTH).index_add_(0, labels[own], features[own])
    return sums, torch.bincount(labels[own], minlength=MOODS)


@torch.no_grad()
def move_centres(model, features, labels):
    """Moods that were not seen stay where they are."""
    sums, counts = means_of(features, labels)
    moved = model.centres.lerp(sums / counts.clamp(min=1).unsqueeze(1), 1 - KEEP)
    model.centres.copy_(torch.where((counts > 0).unsqueeze(1), moved, model.centres))


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Reader().train()


def decays(name):
    return not name.endswith("bias") and "norm" not in name.lower()


def rate_of(name):
    return LR if name.startswith("bert.") else FASTER * LR


def optimizer(model, **more):
    """What stands on the model learns faster; neither biases nor norms decay."""
    groups = {}
    for name, p in model.named_parameters():
        groups.setdefault((rate_of(name), DECAY * decays(name)), []).append(p)
    listed = [{"params": ps, "lr": lr, "weight_decay": d} for (lr, d), ps in groups.items()]
    adamw = torch.optim.AdamW(listed, **more)
    model.schedule = get_cosine_with_hard_restarts_schedule_with_warmup(
        adamw, WARMUP, TOTAL, num_cycles=CYCLES
    )
    model.schedule.step()
    return adamw


def batch(generator):
    reviews = []
    for length, label in zip(LENGTHS, LABELS, strict=True):
        words = torch.randint(SEP + 1, WORDS, (length,), generator=generator)
        tokens = torch.cat([torch.tensor([CLS]), words, torch.tensor([SEP])])
        reviews.append({"tokens": tokens, "label": label})
    return reviews


def step(model, optimizer, batch):
    optimizer.zero_grad()
    features, labels = accumulate(model, batch)
    clip(model)
    optimizer.step()
    move_centres(model, features, labels)
    model.progress += 1
    model.schedule.step()
