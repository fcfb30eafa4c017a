"""Speech to text: frames of a window, strided convolutions, a two-way GRU, a CTC loss."""

import torch
from torch import nn
from torch.nn import functional as F

WINDOW, HOP, BANDS, WIDTH, STATE, LETTERS, BATCH = 16, 8, 9, 16, 12, 7, 3
SAMPLES = 232
LENGTHS, TEXTS = (28, 21, 17), (5, 3, 4)  # frames and letters of each row
BLANK, CLIP = 0, 2.0
FLOOR = 1e-3


def spectrum(samples):
    """Logarithms of the squared spectrum, (batch, frames, bands)."""
    frames = samples.unfold(1, WINDOW, HOP) * torch.hann_window(WINDOW, dtype=samples.dtype)
    power = torch.fft.rfft(frames, dim=-1).abs().square()
    return torch.log(power + FLOOR)


def normalised(features, lengths):
    """Each row has mean 0 and deviation 1 over its own frames; padding is 0."""
    known = frames_of(features, lengths)
    count = lengths[:, None, None].to(features.dtype)
    mean = (features * known).sum(1, keepdim=True) / count
    centred = (features - mean) * known
    deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
    return centred / (deviation + 1e-5)


def frames_of(x, lengths):
    return (torch.arange(x.shape[1]) < lengths[:, None])[..., None].to(x.dtype)


def shorter(lengths):
    """Lengths behind the strided convolution."""
    return (lengths - 1) // 2 + 1


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv1d(BANDS, WIDTH, 3, padding=1)
        self.conv2 = nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.norm = nn.LayerNorm(WIDTH)

    def hidden(self, x, lengths):
        return x * frames_of(x.transpose(1, 2), lengths).transpose(1, 2)

    def forward(self, x, lengths):
        x = F.gelu(self.hidden(self.conv1(x.transpose(1, 2)), lengths))
        x = F.gelu(self.hidden(self.conv2(x), shorter(lengths)))
        return self.norm(x.transpose(1, 2))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, 3 * STATE)
        self.outer = nn.Linear(STATE, 3 * STATE)

    def forward(self, x, state):
        a, b = self.inner(x).chunk(3, dim=-1), self.outer(state).chunk(3, dim=-1)
        reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
        new = torch.tanh(a[2] + reset * b[2])
        return (1 - update) * new + update * state


class Direction(nn.Module):
    def __init__(self, backwards):
        super().__init__()
        self.cell, self.backwards = Cell(), backwards

    def forward(self, x, known):
        state, states = x.new_zeros(len(x), STATE), [None] * x.shape[1]
        times = range(x.shape[1])
        for time in reversed(times) if self.backwards else times:
            state = torch.where(known[:, time] > 0, self.cell(x[:, time], state), state)
            states[time] = state
        return torch.stack(states, dim=1)


class Recognizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.forth, self.back = Direction(False), Direction(True)
        self.head = nn.Linear(2 * STATE, LETTERS)

    def forward(self, features, lengths):
        x = self.encoder(features, lengths)
        known = frames_of(x, shorter(lengths))
        return self.head(torch.cat([self.forth(x, known), self.back(x, known)], dim=-1))


def build():
    model = Recognizer()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
    return model


def optimizer(model):
    return torch.optim.NAdam(model.parameters(), lr=3e-3)


def batch(generator):
    samples = torch.randn(BATCH, SAMPLES, generator=generator).to(torch.get_default_dtype())
    texts = torch.randint(1, LETTERS, (BATCH, max(TEXTS)), generator=generator)
    return samples, torch.tensor(LENGTHS), texts, torch.tensor(TEXTS)


def losses(logits, lengths, texts, sizes):
    """The CTC loss of each row, divided by its letters."""
    logs = F.log_softmax(logits, dim=-1).transpose(0, 1)
    each = F.ctc_loss(logs, texts, shorter(lengths), sizes, blank=BLANK, reduction="none")
    return each / sizes


def descend(model, samples, lengths, texts, sizes):
    features = normalised(spectrum(samples), lengths)
    losses(model(features, lengths), lengths, texts, sizes).mean().backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
