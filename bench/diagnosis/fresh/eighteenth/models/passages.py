"""Passages that answer questions: a BERT compares words with words, as in ColBERT (transformers).

Embeddings are computed in micro-batches, first without a graph; when the gradients of the loss for
all of them are known, they are computed again.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import BertConfig, BertModel, get_linear_schedule_with_warmup

PAD, CLS, SEP, MASK, QUESTION, PASSAGE = 0, 1, 2, 3, 4, 5
PUNCTUATION, WORDS = (6, 7, 8), 44
QUESTIONS, WAYS, QUESTION_WORDS = 4, 3, 9
# How many words each question has, and each of its passages.
ASKED, TOLD = (4, 6, 3, 5), ((9, 6, 4), (5, 10, 7), (8, 8, 3), (6, 4, 11))
PER_DEVICE, WIDTH, DIM = 3, 20, 8
TEACHER_TEMP, TEMP, DISTILLED, CONTRASTED = 2.0, 0.5, 1.0, 0.4
LR, DECAY, MAX_NORM, WARMUP, TOTAL = 3e-3, 0.05, 1.0, 2, 10


def make_bert(**more):
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=36,
        max_position_embeddings=24,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.25,
        **({"attn_implementation": "sdpa"} | more),
    )
    return BertModel(config, add_pooling_layer=False)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = make_bert()
        self.project = nn.Linear(WIDTH, DIM, bias=False)

    def unit(self, x):
        return F.normalize(x, dim=-1)

    def forward(self, tokens, seen):
        """An embedding of length one for each token."""
        states = self.bert(tokens, attention_mask=seen.long()).last_hidden_state
        return self.unit(self.project(states))


def marked(words, mark):
    """The mark stands between the begin and the first word."""
    return torch.cat([words.new_tensor([CLS, mark]), words, words.new_tensor([SEP])])


def pad_passages(passages):
    return nn.utils.rnn.pad_sequence(passages, batch_first=True, padding_value=PAD)


def pad_questions(questions):
    """Questions are filled with masks, which are embedded, too, but are not looked at."""
    filled = torch.full((len(questions), QUESTION_WORDS), MASK)
    for row, tokens in zip(filled, questions, strict=True):
        row[: len(tokens)] = tokens
    return filled


def compared(tokens):
    """Neither padding nor punctuation is compared."""
    return (tokens != PAD) & ~torch.isin(tokens, torch.tensor(PUNCTUATION))


def collate(rows):
    """The passages of a question stand one behind the other; the first one answers it."""
    passages = [marked(words, PASSAGE) for row in rows for words in row["passages"]]
    return {
        "questions": pad_questions([marked(row["question"], QUESTION) for row in rows]),
        "passages": pad_passages(passages),
        "teacher": torch.stack([row["teacher"] for row in rows]),
    }


def embed_questions(model, tokens):
    return model(tokens, tokens != MASK)


def embed_passages(model, tokens):
    return model(tokens, tokens != PAD)


def scores_of(questions, passages, kept):
    """Each word of a question looks for the most similar word: (questions, passages)."""
    likeness = questions.unsqueeze(1) @ passages.unsqueeze(0).mT
    likeness = likeness.masked_fill(~kept[None, :, None], -torch.inf)
    return likeness.max(dim=3).values.sum(dim=2)


def distilled(scores, teacher):
    """The passages of the same question should be ranked as the teacher does."""
    rows = torch.arange(len(scores))
    own = scores.unflatten(1, (-1, WAYS))[rows, rows]
    wanted = (teacher / TEACHER_TEMP).log_softmax(dim=1)
    return F.kl_div(own.log_softmax(dim=1), wanted, reduction="batchmean", log_target=True)


def contrasted(scores):
    """Of the passages of all questions, the own first one is the right one."""
    labels = WAYS * torch.arange(len(scores))
    return F.cross_entropy(scores / TEMP, labels)


def loss_of(questions, passages, inputs):
    scores = scores_of(questions, passages, compared(inputs["passages"]))
    loss = DISTILLED * distilled(scores, inputs["teacher"])
    return loss + CONTRASTED * contrasted(scores)


def in_parts(tokens):
    return tokens.split(PER_DEVICE)


@torch.no_grad()
def first_pass(model, embed, tokens):
    return torch.cat([embed(model, part) for part in in_parts(tokens)]).requires_grad_()


def second_pass(model, embed, tokens, gradients):
    for part, gradient in zip(in_parts(tokens), in_parts(gradients), strict=True):
        embed(model, part).backward(gradient)


def accumulate(model, inputs):
    questions = first_pass(model, embed_questions, inputs["questions"])
    passages = first_pass(model, embed_passages, inputs["passages"])
    loss_of(questions, passages, inputs).backward()
    second_pass(model, embed_questions, inputs["questions"], questions.grad)
    second_pass(model, embed_passages, inputs["passages"], passages.grad)


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Encoder().train()


def decays(name):
    return not name.endswith("bias") and "LayerNorm" not in name


def optimizer(model, **more):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name)], "weight_decay": DECAY},
        {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, **more)
    model.schedule = get_linear_schedule_with_warmup(adamw, WARMUP, TOTAL)
    model.schedule.step()
    return adamw


def batch(generator):
    def words(count):
        return torch.randint(PUNCTUATION[0], WORDS, (count,), generator=generator)

    return [
        {
            "question": words(asked),
            "passages": [words(count) for count in told],
            "teacher": 3 * torch.randn(WAYS, generator=generator),
        }
        for asked, told in zip(ASKED, TOLD, strict=True)
    ]


def step(model, optimizer, batch):
    inputs = collate(batch)
    optimizer.zero_grad()
    accumulate(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
