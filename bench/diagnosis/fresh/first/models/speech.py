"""Speech recognition: normalised features, convolutions, a packed GRU, CTC."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

BINS, WIDTH, LETTERS, BATCH, FRAMES = 8, 12, 7, 4, 24
BLANK = 0
FLOOR = 1e-5


def lengths_behind(lengths):
    return (lengths + 1) // 2


def mask_of(lengths, size):
    return torch.arange(size)[None] < lengths[:, None]


def log_features(power):
    return (power + FLOOR).log()


def normalise(x, lengths):
    """Zero mean and unit variance of each utterance, over its own frames."""
    mask = mask_of(lengths, x.shape[1])[..., None]
    count = lengths[:, None, None]
    mean = (x * mask).sum(1, keepdim=True) / count
    var = ((x - mean).square() * mask).sum(1, keepdim=True) / count
    return (x - mean) / (var + 1e-5).sqrt() * mask


def with_deltas(x):
    """Features and their differences to the frame before."""
    before = F.pad(x[:, :-1], (0, 0, 1, 0))
    return torch.cat([x, x - before], dim=-1)


class Subsample(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(2 * BINS, WIDTH, 3, 2, 1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, 1, 1)

    def forward(self, x, lengths):
        x = F.gelu(self.conv1(x.transpose(1, 2)))
        lengths = lengths_behind(lengths)
        x = x * mask_of(lengths, x.shape[-1])[:, None]
        x = F.gelu(self.conv2(x))
        return x.transpose(1, 2), lengths


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True, bidirectional=True)
        self.join = nn.Linear(2 * WIDTH, WIDTH)

    def run(self, x, lengths):
        """Sorted by length, packed, and put back."""
        order = lengths.argsort(descending=True)
        packed = pack_padded_sequence(x[order], lengths[order], batch_first=True)
        y, _ = pad_packed_sequence(self.gru(packed)[0], batch_first=True, total_length=x.shape[1])
        return y[order.argsort()]

    def forward(self, x, lengths):
        return x + self.join(self.run(x, lengths))


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.subsample = Subsample()
        self.recurrent = Recurrent()
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, LETTERS)

    def forward(self, power, lengths):
        x = with_deltas(normalise(log_features(power), lengths))
        x, lengths = self.subsample(x, lengths)
        x = self.recurrent(x, lengths)
        return self.head(self.norm(x)), lengths


def ctc(logits, lengths, letters, sizes):
    """The mean over utterances of the loss of a letter."""
    log_probs = F.log_softmax(logits, dim=-1).transpose(0, 1)
    losses = F.ctc_loss(log_probs, letters, lengths, sizes, blank=BLANK, reduction="none")
    return (losses / sizes).mean()


def build():
    return Recogniser()


def rate(t, warm_up=4):
    return min((t + 1) ** -0.5, (t + 1) * warm_up**-1.5)


def optimizer(model):
    made = torch.optim.NAdam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), weight_decay=1e-4)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(made, rate)
    return made


def batch(generator):
    lengths = torch.tensor([17, 24, 12, 20])
    power = torch.rand(BATCH, FRAMES, BINS, generator=generator).pow(4)
    power = power * mask_of(lengths, FRAMES)[..., None]
    letters = torch.randint(1, LETTERS, (BATCH, 4), generator=generator)
    return power, lengths, letters, torch.tensor([3, 4, 2, 3])


def backward(model, power, lengths, letters, sizes):
    logits, frames = model(power, lengths)
    ctc(logits, frames, letters, sizes).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, *batch)
    nn.utils.clip_grad_norm_(model.parameters(), 50.0)
    optimizer.step()
    model.schedule.step()
