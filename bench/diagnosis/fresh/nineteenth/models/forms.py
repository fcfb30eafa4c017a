"""Fields of scanned forms, and which answer belongs to which question: a LayoutLM (transformers).

Each two forms are a micro-batch; their losses are divided by the counts of all forms.
"""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LayoutLMConfig, LayoutLMModel, get_polynomial_decay_schedule_with_warmup

PAD, CLS, SEP, WORDS, IGNORE = 0, 1, 2, 40, -100
OTHER, ASKS, ASKS_ON, ANSWERS, ANSWERS_ON = range(5)
LABELS, GRID, WIDTH, DIM = 5, 24, 20, 8
# Of each form: how many words its fields have; questions and answers follow one another.
FIELDS = ((2, 1, 1, 3), (1, 2, 2, 1, 1, 1), (3, 2), (1, 1, 2, 2), (2, 3, 1, 1), (1, 2))
PAGES = ((60.0, 80.0), (50.0, 90.0), (80.0, 60.0), (70.0, 100.0), (60.0, 60.0), (90.0, 70.0))
PER_DEVICE, FOCUS, LINKED = 2, 2.0, 0.7
LR, DECAY, MAX_NORM, WARMUP, TOTAL = 3e-3, 0.02, 0.6, 2, 12


def make_layout(**more):
    config = LayoutLMConfig(
        vocab_size=WORDS,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        max_2d_position_embeddings=GRID,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.2,
        pad_token_id=PAD,
        **more,
    )
    return LayoutLMModel(config)


class Linker(nn.Module):
    """Whether an answer belongs to a question, by a product with both and a matrix between."""

    def __init__(self):
        super().__init__()
        self.question, self.answer = nn.Linear(WIDTH, DIM), nn.Linear(WIDTH, DIM)
        self.between = nn.Parameter(0.4 * torch.randn(DIM, DIM))
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, questions, answers):
        """(rows, questions, width), (rows, answers, width) -> (rows, questions, answers)."""
        asked = F.gelu(self.question(questions)) @ self.between
        return asked @ F.gelu(self.answer(answers)).mT + self.bias


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.layout = make_layout()
        self.label, self.linker = nn.Linear(WIDTH, LABELS), Linker()

    def read(self, inputs):
        answer = self.layout(
            input_ids=inputs["tokens"], bbox=inputs["boxes"], attention_mask=inputs["mask"]
        )
        return answer.last_hidden_state

    def forward(self, inputs):
        """Logits of labels, and of links between the first words of fields."""
        states = self.read(inputs)
        questions, answers = (chosen(states, inputs[name]) for name in ("questions", "answers"))
        return self.label(states), self.linker(questions, answers)


def chosen(states, places):
    """The states at some places of each row."""
    return states.gather(1, places.unsqueeze(2).expand(-1, -1, states.shape[2]))


def on_grid(boxes, page):
    """Pixels of a page -> cells of a grid: left, top, right, bottom."""
    scale = page.repeat(2)
    return (boxes * (GRID - 1) / scale).long().clamp(0, GRID - 1)


def spread(form):
    """Words -> their pieces: each has the box of its word, the first one has the label."""
    pieces = form["pieces"]
    boxes = on_grid(form["boxes"], form["page"]).repeat_interleave(pieces, dim=0)
    first = pieces.cumsum(0) - pieces
    labels = torch.full((int(pieces.sum()),), IGNORE)
    labels[first] = form["labels"]
    return boxes, labels, first


def prepared(form):
    boxes, labels, first = spread(form)
    tokens = torch.cat([torch.tensor([CLS]), form["tokens"], torch.tensor([SEP])])
    ends = torch.tensor([[0] * 4, [GRID - 1] * 4])
    starts = 1 + first[form["starts"]]
    return {
        "tokens": tokens,
        "boxes": torch.cat([ends[:1], boxes, ends[1:]]),
        "labels": F.pad(labels, (1, 1), value=IGNORE),
        "questions": starts[::2],
        "answers": starts[1::2],
    }


def pad(rows, value):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def collate(forms):
    """In each form, question k belongs to answer k; pairs of padding are no pairs."""
    rows = [prepared(form) for form in forms]
    values = {"tokens": PAD, "boxes": 0, "labels": IGNORE, "questions": 0, "answers": 0}
    inputs = {name: pad([row[name] for row in rows], v) for name, v in values.items()}
    fields = pad([torch.ones_like(row["questions"]) for row in rows], 0).bool()
    pairs = fields.unsqueeze(2) & fields.unsqueeze(1)
    linked = torch.eye(fields.shape[1], dtype=torch.bool) & pairs
    mask = (inputs["tokens"] != PAD).long()
    return inputs | {"mask": mask, "pairs": pairs, "linked": linked}


def counts_of(inputs):
    return (inputs["labels"] != IGNORE).sum(), inputs["pairs"].sum()


def label_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def link_loss(logits, inputs):
    """Pairs that are easy count less (focal)."""
    linked = inputs["linked"].to(logits.dtype)
    losses = F.binary_cross_entropy_with_logits(logits, linked, reduction="none")
    wrong = 1 - torch.exp(-losses)
    return (wrong**FOCUS * losses * inputs["pairs"]).sum()


def loss_of(model, inputs, counts):
    logits, links = model(inputs)
    labels, pairs = counts
    loss = label_loss(logits, inputs["labels"]) / labels
    return loss + LINKED * link_loss(links, inputs) / pairs


def in_parts(inputs):
    rows = len(inputs["tokens"])
    for k in range(0, rows, PER_DEVICE):
        yield {name: value[k : k + PER_DEVICE] for name, value in inputs.items()}


def accumulate(model, inputs):
    counts = counts_of(inputs)
    for part in in_parts(inputs):
        loss_of(model, part, counts).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Reader().train()


def optimizer(model, **more):
    adamw = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=DECAY, amsgrad=True, **more)
    model.schedule = get_polynomial_decay_schedule_with_warmup(adamw, WARMUP, TOTAL, power=2.0)
    model.schedule.step()
    return adamw


def one_form(fields, page, generator):
    """Words stand one below the other in two columns; some are cut into pieces."""
    words = sum(fields)
    pieces = torch.randint(1, 4, (words,), generator=generator)
    corner = torch.rand(words, 2, generator=generator) * 0.6 * page
    size = (0.1 + 0.25 * torch.rand(words, 2, generator=generator)) * page
    sizes = torch.tensor(fields)
    starts = sizes.cumsum(0) - sizes
    kinds = torch.tensor([ASKS, ANSWERS]).repeat(len(fields) // 2)
    labels = (kinds + 1).repeat_interleave(sizes)
    labels[starts] = kinds
    tokens = torch.randint(SEP + 1, WORDS, (int(pieces.sum()),), generator=generator)
    return {
        "tokens": tokens,
        "pieces": pieces,
        "boxes": torch.cat([corner, corner + size], dim=1),
        "page": page,
        "starts": starts,
        "labels": labels,
    }


def batch(generator):
    pages = zip(FIELDS, PAGES, strict=True)
    return [one_form(fields, torch.tensor(page), generator) for fields, page in pages]


def step(model, optimizer, batch):
    optimizer.zero_grad()
    accumulate(model, collate(batch))
    clip(model)
    optimizer.step()
    model.schedule.step()
