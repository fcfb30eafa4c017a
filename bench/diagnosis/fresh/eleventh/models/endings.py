"""Which ending fits a story: a DeBERTa that chooses, in micro-batches, with rates by layer."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from transformers import DebertaV2Config, DebertaV2Model

VOCAB, HIDDEN, LAYERS, CHOICES, LENGTH = 45, 16, 3, 4, 18
PAD, CLS, SEP, FIRST = 0, 1, 2, 3
STORIES = (7, 5, 9, 6, 4)  # words of each story
ENDINGS = ((5, 3, 6, 4), (4, 7, 2), (3, 5, 4, 6), (6, 2), (5, 5, 3, 7))  # and of its endings
MICRO_BATCH, SMOOTHING, MARGIN, MARGIN_WEIGHT = 2, 0.1, 0.5, 0.3
LR, DECAY_OF_RATE, WEIGHT_DECAY, CLIP, WARMUP, TOTAL = 4e-3, 0.7, 0.02, 1.0, 3, 20
ABSENT = -1e4


def make_config(**changes):
    config = {
        "vocab_size": VOCAB,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 2,
        "intermediate_size": 24,
        "max_position_embeddings": 32,
        "type_vocab_size": 2,
        "relative_attention": True,
        "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"],
        "share_att_key": True,
        "norm_rel_ebd": "layer_norm",
        "position_biased_input": False,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "initializer_range": 0.2,
        "pad_token_id": PAD,
    }
    return DebertaV2Config(**(config | changes))


class Chooser(nn.Module):
    """One number for each ending: how well it fits."""

    def __init__(self):
        super().__init__()
        self.deberta = DebertaV2Model(make_config())
        self.dense = nn.Linear(HIDDEN, HIDDEN)
        self.score = nn.Linear(HIDDEN, 1)

    def encode(self, ids, types, mask):
        output = self.deberta(input_ids=ids, token_type_ids=types, attention_mask=mask)
        return output.last_hidden_state

    def pool(self, states, words):
        """The mean over the words of the ending."""
        words = words[:, :, None].to(states.dtype)
        return (states * words).sum(dim=1) / words.sum(dim=1)

    def forward(self, input_ids, token_type_ids, attention_mask):
        count, choices, _ = input_ids.shape
        rows = (each.flatten(0, 1) for each in (input_ids, token_type_ids, attention_mask))
        ids, types, mask = rows
        states = self.encode(ids, types, mask)
        pooled = torch.tanh(self.dense(self.pool(states, words_of_ending(ids, types))))
        return self.score(pooled).view(count, choices)


def words_of_ending(ids, types):
    return (types == 1) & (ids != SEP)


def hide_absent(scores, present):
    """Some stories have fewer endings."""
    return scores.masked_fill(~present, ABSENT)


def smooth_targets(label, present):
    """Nearly one for the right ending; the rest is shared by all that are there."""
    hot = F.one_hot(label, CHOICES)
    share = present / present.sum(dim=1, keepdim=True)
    return (1 - SMOOTHING) * hot + SMOOTHING * share


def choice_loss(scores, label, present):
    targets = smooth_targets(label, present)
    return -(targets * F.log_softmax(scores, dim=1)).sum(dim=1)


def margin_loss(scores, label):
    """The right ending has to be better than the best of the others."""
    right = scores.gather(1, label[:, None])[:, 0]
    others = scores.scatter(1, label[:, None], ABSENT)
    return F.relu(MARGIN - right + others.amax(dim=1))


def losses(model, batch):
    """Of each story."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    scores = hide_absent(model(**{name: batch[name] for name in names}), batch["present"])
    chosen = choice_loss(scores, batch["label"], batch["present"])
    return chosen + MARGIN_WEIGHT * margin_loss(scores, batch["label"])


def micro_batches(batch):
    for values in zip(*(each.split(MICRO_BATCH) for each in batch.values()), strict=True):
        yield dict(zip(batch, values, strict=True))


def accumulate(model, batch):
    stories = len(batch["label"])
    for part in micro_batches(batch):
        loss = losses(model, part).sum() / stories
        loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)


def depth_of(name):
    """0: the embeddings, 1 ...: the layers, and at last what is new."""
    if name.startswith("deberta.encoder.layer."):
        return int(name.split(".")[3]) + 1
    return 0 if name.startswith("deberta.") else LAYERS + 1


def rate_of(name):
    """The deeper a layer lies, the slower it learns."""
    return LR * DECAY_OF_RATE ** (LAYERS + 1 - depth_of(name))


def decay_of(name):
    return 0.0 if name.endswith(("bias", "LayerNorm.weight")) else WEIGHT_DECAY


def param_groups(model):
    return [
        {"params": [p], "lr": rate_of(name), "weight_decay": decay_of(name)}
        for name, p in model.named_parameters()
    ]


def warmup(t):
    return min((t + 1) / WARMUP, (TOTAL - t) / (TOTAL - WARMUP))


def build():
    return Chooser().train()


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), eps=1e-6, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, warmup)
    return made


def tokenize(story, ending):
    """[CLS] story [SEP] ending [SEP], filled up."""
    ids = [CLS, *story, SEP, *ending, SEP]
    types = [0] * (len(story) + 2) + [1] * (len(ending) + 1)
    gap = [0] * (LENGTH - len(ids))
    return ids + [PAD] * len(gap), types + gap, [1] * len(ids) + gap


def write(count, generator):
    return torch.randint(FIRST, VOCAB, (count,), generator=generator).tolist()


def batch(generator):
    rows, present = [], []
    for words, lengths in zip(STORIES, ENDINGS, strict=True):
        story = write(words, generator)
        given = [write(length, generator) for length in lengths]
        gap = CHOICES - len(given)
        rows += [tokenize(story, ending) for ending in given + [[FIRST]] * gap]
        present.append([True] * len(given) + [False] * gap)
    ids, types, mask = (torch.tensor(each) for each in zip(*rows, strict=True))
    chance = torch.rand(len(STORIES), generator=generator)
    label = (chance * torch.tensor([len(each) for each in ENDINGS])).long()
    return {
        "input_ids": ids.view(-1, CHOICES, LENGTH),
        "token_type_ids": types.view(-1, CHOICES, LENGTH),
        "attention_mask": mask.view(-1, CHOICES, LENGTH),
        "present": torch.tensor(present),
        "label": label,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    accumulate(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()
