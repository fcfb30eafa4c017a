"""A speech transducer: an LSTM reads frames, another one labels; the loss sums over all paths."""

import torch
from torch import nn
from torch.nn import functional as F

BANDS, FRAMES, LABELS, VOCABULARY, BATCH = 6, 14, 4, 12, 4  # a vocabulary without the blank
WIDTH, JOINT, STACK = 20, 16, 2
BLANK, NEVER = 0, -1e30
RATE, WARM, LARGEST, CTC = 2e-2, 4, 2.0, 0.3


def stacked(frames, lengths):
    """Two frames are one, so that there are half as many."""
    rows, times, bands = frames.shape
    return frames.reshape(rows, times // STACK, STACK * bands), lengths // STACK


def hidden_bands(frames, start):
    """A few bands of each recording are zero (SpecAugment)."""
    band = torch.arange(frames.shape[-1])
    hidden = (band >= start[:, None]) & (band < start[:, None] + 2)
    return frames.masked_fill(hidden[:, None], 0.0)


def read(labels):
    """What the predictor reads: a blank, then the labels."""
    return F.pad(labels, (1, 0), value=BLANK)


class Transducer(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Linear(STACK * BANDS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=1e-5)
        self.frames = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.words = nn.Embedding(VOCABULARY + 1, WIDTH)
        self.labels = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.joint = nn.Linear(2 * WIDTH, JOINT)
        self.head = nn.Linear(JOINT, VOCABULARY + 1)
        self.ctc = nn.Linear(WIDTH, VOCABULARY + 1)

    def encode(self, frames):
        return self.frames(F.silu(self.norm(self.enter(frames))))[0]

    def predict(self, labels):
        return self.labels(self.words(read(labels)))[0]

    def join(self, heard, said):
        """(rows, frames, labels + 1, JOINT)"""
        shape = (-1, heard.shape[1], said.shape[1], -1)
        pairs = torch.cat([heard[:, :, None].expand(shape), said[:, None].expand(shape)], dim=-1)
        return self.joint(pairs)

    def forward(self, frames, labels):
        heard = self.encode(frames)
        logits = self.head(torch.tanh(self.join(heard, self.predict(labels))))
        return logits.log_softmax(dim=-1), self.ctc(heard).log_softmax(dim=-1)


def steps_of(log_p, labels):
    """The logarithms of a blank, (rows, frames, labels + 1), and of the next label."""
    places = labels[:, None, :, None].expand(-1, log_p.shape[1], -1, -1)
    return log_p[..., BLANK], log_p[:, :, :-1].gather(-1, places).squeeze(-1)


def paths(blank, label):
    """The logarithm of the sum over all paths to each place (alpha): a list of frames."""
    rows, times, places = blank.shape
    columns = []
    for time in range(times):
        column = []
        for place in range(places):
            here = []
            if time:
                here.append(columns[-1][:, place] + blank[:, time - 1, place])
            if place:
                here.append(column[-1] + label[:, time, place - 1])
            if not here:
                here.append(torch.zeros(rows))
            column.append(here[0] if len(here) == 1 else torch.logaddexp(*here))
        columns.append(torch.stack(column, dim=1))
    return torch.stack(columns, dim=1)


def transducer_loss(log_p, labels, frames, lengths):
    """The negative logarithm of the sum over all paths that end with a blank in the last frame."""
    blank, label = steps_of(log_p, labels)
    row = torch.arange(len(labels))
    last = paths(blank, label)[row, frames - 1, lengths] + blank[row, frames - 1, lengths]
    return -last / lengths


def ctc_loss(log_p, labels, frames, lengths):
    each = F.ctc_loss(log_p.transpose(0, 1), labels, frames, lengths, BLANK, reduction="none")
    return each / lengths


def build():
    model = Transducer()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.3)
    return model


def rate_of(step):
    """Noam's schedule: it climbs, then falls with the root; `step` counts from 1."""
    return WIDTH**-0.5 * min(step**-0.5, step * WARM**-1.5)


def optimizer(model):
    made = torch.optim.Adam(model.parameters(), lr=RATE, betas=(0.9, 0.98), eps=1e-9)
    scale = torch.optim.lr_scheduler.LambdaLR(made, lambda done: rate_of(done + 1))
    model.__dict__["schedule"] = scale
    return made


def batch(generator):
    frames = torch.randn(BATCH, FRAMES, BANDS, generator=generator).to(torch.get_default_dtype())
    labels = torch.randint(1, VOCABULARY + 1, (BATCH, LABELS), generator=generator)
    start = torch.randint(BANDS - 1, (BATCH,), generator=generator)
    return frames, torch.tensor([14, 10, 12, 8]), labels, torch.tensor([2, 4, 3, 2]), start


def descend(model, frames, sizes, labels, lengths, start):
    frames, sizes = stacked(hidden_bands(frames, start), sizes)
    log_p, log_ctc = model(frames, labels)
    loss = transducer_loss(log_p, labels, sizes, lengths)
    (loss + CTC * ctc_loss(log_ctc, labels, sizes, lengths)).mean().backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    nn.utils.clip_grad_value_(model.parameters(), LARGEST)
    optimizer.step()
    model.schedule.step()
