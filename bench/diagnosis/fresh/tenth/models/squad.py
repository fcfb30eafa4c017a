"""An ALBERT that marks answers in a paragraph, trained by Fabric, with an attack on its words."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.fabric import Fabric
from transformers import AlbertConfig, AlbertModel

VOCAB_SIZE, HIDDEN, LAYERS, MAX_LENGTH = 48, 16, 3, 22
PAD, CLS, SEP, FIRST_WORD = 0, 1, 2, 3
ACCUMULATE, EPSILON, VERDICT_WEIGHT = 2, 0.3, 0.5
LR, WEIGHT_DECAY, MAX_GRAD_NORM, WARMUP_STEPS, TOTAL_STEPS = 4e-3, 0.05, 1.0, 3, 20
NO_DECAY = ("bias", "LayerNorm.weight", "layer_norm.weight")

# (words of the question, words of the paragraph, whether it has an answer)
EXAMPLES = ((4, 13, True), (6, 13, True), (3, 9, False), (5, 12, True), (2, 8, True), (4, 6, False))


def make_config(**changes):
    return AlbertConfig(
        vocab_size=VOCAB_SIZE,
        embedding_size=8,
        hidden_size=HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        pad_token_id=PAD,
        bos_token_id=CLS,
        eos_token_id=SEP,
        **changes,
    )


class Reader(nn.Module):
    """Scores of where an answer begins and ends, and of whether there is one."""

    def __init__(self):
        super().__init__()
        self.albert = AlbertModel(make_config())
        self.depth = nn.Parameter(torch.randn(LAYERS + 1))
        self.span = nn.Linear(HIDDEN, 2)
        self.verdict = nn.Linear(HIDDEN, 1)

    def mix(self, hidden_states):
        """A learned mean of the states of all layers."""
        weights = self.depth.softmax(dim=0)
        return torch.einsum("d,dblh->blh", weights, torch.stack(hidden_states))

    def span_scores(self, states):
        start, end = self.span(states).unbind(dim=-1)
        return start, end

    def forward(self, input_ids, token_type_ids, attention_mask):
        output = self.albert(
            input_ids,
            attention_mask=attention_mask,
            token_type_ids=token_type_ids,
            output_hidden_states=True,
        )
        start, end = self.span_scores(self.mix(output.hidden_states))
        hidden = ~may_answer(input_ids, token_type_ids, attention_mask)
        lowest = torch.finfo(start.dtype).min
        start, end = start.masked_fill(hidden, lowest), end.masked_fill(hidden, lowest)
        return start, end, self.verdict(output.pooler_output).squeeze(-1)


class Attack:
    """Moves the embeddings of words to where the loss grows fastest, and back again."""

    def __init__(self, weight):
        self.weight, self.saved = weight, None

    def move(self):
        self.saved = self.weight.data.clone()
        gradient = self.weight.grad
        self.weight.data.add_(EPSILON * gradient / gradient.norm())

    def restore(self):
        self.weight.data.copy_(self.saved)


class Training(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Reader()
        self.attack = Attack(self.net.albert.embeddings.word_embeddings.weight)


def may_answer(input_ids, token_type_ids, attention_mask):
    """Words of the paragraph, or the first place, which stands for no answer."""
    allowed = (token_type_ids == 1) & (attention_mask == 1) & (input_ids != SEP)
    allowed[:, 0] = True
    return allowed


def place_in_row(place, question_length, answerable):
    """From a place in the paragraph to one in the row: [CLS] question [SEP] paragraph [SEP]."""
    return torch.where(answerable, place + question_length + 2, 0)


def cross_entropy(scores, place):
    return F.cross_entropy(scores, place, reduction="sum")


def span_loss(start, end, batch):
    answerable, length = batch["answerable"], batch["question_length"]
    first = place_in_row(batch["first"], length, answerable)
    last = place_in_row(batch["last"], length, answerable)
    return (cross_entropy(start, first) + cross_entropy(end, last)) / 2


def verdict_loss(logits, batch):
    wanted = batch["answerable"].to(logits.dtype)
    return F.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")


def loss_of(net, batch):
    """The sum over the rows."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    start, end, verdict = net(*(batch[name] for name in names))
    return span_loss(start, end, batch) + VERDICT_WEIGHT * verdict_loss(verdict, batch)


def chunks(batch):
    for values in zip(*(value.chunk(ACCUMULATE) for value in batch.values()), strict=True):
        yield dict(zip(batch, values, strict=True))


def accumulate(model, batch):
    rows = len(batch["input_ids"])
    for part in chunks(batch):
        model.fabric.backward(loss_of(model.net, part) / rows)


def gradients(model, optimizer, batch):
    """Those of the words as they are, and of the attacked ones."""
    optimizer.zero_grad()
    accumulate(model, batch)
    model.attack.move()
    accumulate(model, batch)
    model.attack.restore()
    model.fabric.clip_gradients(model.net, optimizer, max_norm=MAX_GRAD_NORM)


def advance(model, optimizer):
    optimizer.step()
    model.scheduler.step()


def param_groups(net):
    named = list(net.named_parameters())
    decay = [p for name, p in named if not name.endswith(NO_DECAY)]
    rest = [p for name, p in named if name.endswith(NO_DECAY)]
    return [{"params": decay, "weight_decay": WEIGHT_DECAY}, {"params": rest, "weight_decay": 0.0}]


def rate(t):
    if t < WARMUP_STEPS:
        return (t + 1) / WARMUP_STEPS
    return (TOTAL_STEPS - t) / (TOTAL_STEPS - WARMUP_STEPS)


def build():
    return Training().train()


def optimizer(model, **more):
    fabric = Fabric(accelerator="cpu", devices=1)
    made = torch.optim.AdamW(param_groups(model.net), lr=LR, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, rate)
    model.net, made = fabric.setup(model.net, made)
    model.fabric = fabric
    return made


def encode(question_length, paragraph_length, generator):
    """One row of numbers, its segments and its mask."""
    total = question_length + paragraph_length
    words = torch.randint(FIRST_WORD, VOCAB_SIZE, (total,), generator=generator).tolist()
    ids = [CLS, *words[:question_length], SEP, *words[question_length:], SEP]
    types = [0] * (question_length + 2) + [1] * (paragraph_length + 1)
    gap = [0] * (MAX_LENGTH - len(ids))
    return ids + [PAD] * len(gap), types + gap, [1] * len(ids) + gap


def batch(generator):
    rows = [encode(question, paragraph, generator) for question, paragraph, _ in EXAMPLES]
    ids, types, mask = (torch.tensor(each) for each in zip(*rows, strict=True))
    lengths = torch.tensor([paragraph for _, paragraph, _ in EXAMPLES])
    ends = (torch.rand(2, len(rows), generator=generator) * lengths).long().sort(dim=0).values
    return {
        "input_ids": ids,
        "token_type_ids": types,
        "attention_mask": mask,
        "question_length": torch.tensor([question for question, *_ in EXAMPLES]),
        "first": ends[0],
        "last": ends[1],
        "answerable": torch.tensor([answerable for *_, answerable in EXAMPLES]),
    }


def step(model, optimizer, batch):
    gradients(model, optimizer, batch)
    advance(model, optimizer)
