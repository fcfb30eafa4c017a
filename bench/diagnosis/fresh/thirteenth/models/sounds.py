"""Which sounds are heard at home, and when: a CRNN on mel spectra, with strong and weak labels."""

import math

import torch
from torch import nn
from torch.nn import functional as F

# Sounds, the first of which have labels for each frame; the others are labelled as a whole.
CLIPS, STRONG, SAMPLES, CLASSES = 6, 3, 1024, 4
SAMPLE_RATE, N_FFT, HOP, N_MELS, TOP_DB, AMIN = 2000, 64, 32, 12, 60.0, 1e-10
CHANNELS, HIDDEN, TIME_POOL = 8, 10, 4
WEAK_WEIGHT = 0.5
LEARNING_RATE, RAMP_UP, MAX_NORM = 3e-3, 6, 0.3


def hz_to_mel(hz):
    return 2595.0 * math.log10(1.0 + hz / 700.0)


def mel_filters():
    """Triangles between the corners, which are evenly spaced in mel: (bins, mels)."""
    bins = torch.linspace(0, SAMPLE_RATE / 2, N_FFT // 2 + 1)
    mels = torch.linspace(0, hz_to_mel(SAMPLE_RATE / 2), N_MELS + 2)
    corners = 700.0 * (10.0 ** (mels / 2595.0) - 1.0)
    width = corners.diff()
    slopes = corners.unsqueeze(0) - bins.unsqueeze(1)
    rising = -slopes[:, :-2] / width[:-1]
    falling = slopes[:, 2:] / width[1:]
    return torch.minimum(rising, falling).clamp(min=0)


class LogMel(nn.Module):
    """Mel spectra in decibels, with zero mean and unit variance in each clip."""

    def __init__(self):
        super().__init__()
        self.register_buffer("window", self.make_window())
        self.register_buffer("filters", mel_filters())

    def make_window(self):
        return torch.hann_window(N_FFT)

    def power(self, waves):
        spectrum = torch.stft(waves, N_FFT, HOP, window=self.window, return_complex=True)
        return spectrum.abs().pow(2).transpose(1, 2)

    def to_mel(self, power):
        return power @ self.filters

    def to_decibel(self, mel):
        decibel = 10.0 * torch.log10(mel.clamp(min=AMIN))
        loudest = decibel.amax(dim=(1, 2), keepdim=True)
        return torch.maximum(decibel, loudest - TOP_DB)

    def normalize(self, x):
        mean = x.mean(dim=(1, 2), keepdim=True)
        std = x.std(dim=(1, 2), keepdim=True)
        return (x - mean) / (std + 1e-5)

    @torch.no_grad()
    def forward(self, waves):
        """(clips, frames, mels)"""
        return self.normalize(self.to_decibel(self.to_mel(self.power(waves))))


def spec_augment(x, time_mask, mel_mask):
    """Some frames and some mels of each clip are hidden."""
    x = x.masked_fill(time_mask.unsqueeze(2), 0.0)
    return x.masked_fill(mel_mask.unsqueeze(1), 0.0)


def mixup(values, partner, share):
    """Each clip is mixed with another one."""
    share = share.view(-1, *[1] * (values.dim() - 1))
    return share * values + (1 - share) * values[partner]


class ConvBlock(nn.Module):
    def __init__(self, channels_in, pool):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, 2 * CHANNELS, 3, padding=1)
        self.bn = nn.BatchNorm2d(2 * CHANNELS, eps=1e-3, momentum=0.01)
        self.pool = nn.AvgPool2d(pool)

    def gate(self, x):
        value, gate = x.chunk(2, dim=1)
        return value * torch.sigmoid(gate)

    def forward(self, x):
        return self.pool(self.gate(self.bn(self.conv(x))))


class AttentionPool(nn.Module):
    """The chance that a sound is heard at all: frames that matter count more."""

    def __init__(self):
        super().__init__()
        self.attention = nn.Linear(2 * HIDDEN, CLASSES)

    def forward(self, states, strong):
        weights = torch.softmax(self.attention(states), dim=1)
        return (weights * strong).sum(dim=1)


class CRNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.log_mel = LogMel()
        self.cnn = nn.Sequential(ConvBlock(1, (2, 2)), ConvBlock(CHANNELS, (2, 3)))
        self.rnn = nn.GRU(CHANNELS * N_MELS // 6, HIDDEN, batch_first=True, bidirectional=True)
        self.classifier = nn.Linear(2 * HIDDEN, CLASSES)
        self.pool = AttentionPool()

    def encode(self, x):
        x = self.cnn(x.unsqueeze(1))
        return x.transpose(1, 2).flatten(2)

    def recur(self, x):
        return self.rnn(x)[0]

    def forward(self, x):
        states = self.recur(self.encode(x))
        strong = torch.sigmoid(self.classifier(states))
        return strong, self.pool(states, strong).clamp(1e-7, 1.0 - 1e-7)


def frame_labels(events):
    """A sound is heard in a frame of the output if it is in one of the frames it is made of."""
    return F.max_pool1d(events.transpose(1, 2), TIME_POOL).transpose(1, 2)


def strong_loss(strong, events, is_strong):
    """Over clips whose frames have labels."""
    losses = F.binary_cross_entropy(strong, frame_labels(events), reduction="none")
    losses = losses.mean(dim=(1, 2))
    return (losses * is_strong).sum() / is_strong.sum()


def weak_loss(weak, tags):
    return F.binary_cross_entropy(weak, tags)


def prepare(model, batch):
    """Augmented spectra, and the labels that belong to them."""
    x = model.log_mel(batch["waves"])
    x = mixup(x, batch["partner"], batch["share"])
    x = spec_augment(x, batch["time_mask"], batch["mel_mask"])
    events = mixup(batch["events"], batch["partner"], batch["share"])
    tags = mixup(batch["tags"], batch["partner"], batch["share"])
    return x, events, tags


def training_step(model, batch):
    x, events, tags = prepare(model, batch)
    strong, weak = model(x)
    loss = strong_loss(strong, events, batch["is_strong"])
    loss = loss + WEAK_WEIGHT * weak_loss(weak, tags)
    loss.backward()


def clip_gradients(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return CRNN().train()


def ramp_up(done):
    """Slow at first, as exp(-5 (1 - t)^2)."""
    t = min((done + 1) / RAMP_UP, 1.0)
    return math.exp(-5.0 * (1.0 - t) ** 2)


def optimizer(model, **more):
    adam = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(adam, ramp_up)
    return adam


def make_events(generator):
    """(clips, frames, classes): 1 from the onset of a sound to its end."""
    frames = SAMPLES // HOP + 1
    onset = torch.randint(0, frames - 8, (CLIPS, 1, CLASSES), generator=generator)
    length = torch.randint(4, 16, (CLIPS, 1, CLASSES), generator=generator)
    heard = torch.rand(CLIPS, 1, CLASSES, generator=generator) < 0.6
    frame = torch.arange(frames).view(1, -1, 1)
    return (heard & (frame >= onset) & (frame < onset + length)).to(torch.get_default_dtype())


def make_waves(events, generator):
    """A tone for each class, loud where the sound is heard, and noise; clips differ in loudness."""
    t = torch.arange(SAMPLES) / SAMPLE_RATE
    tones = torch.stack([torch.sin(2 * math.pi * hz * t) for hz in (90.0, 210.0, 400.0, 700.0)])
    loud = events.repeat_interleave(HOP, dim=1)[:, :SAMPLES]
    noise = 0.05 * torch.randn(CLIPS, SAMPLES, generator=generator)
    quiet = torch.logspace(-4, 0, CLIPS).unsqueeze(1)
    return quiet * ((loud * tones.t()).sum(dim=2) + noise)


def batch(generator):
    events = make_events(generator)
    frames = events.shape[1]
    start = torch.randint(0, frames - 6, (CLIPS, 1), generator=generator)
    lowest = torch.randint(0, N_MELS - 3, (CLIPS, 1), generator=generator)
    frame, mel = torch.arange(frames), torch.arange(N_MELS)
    return {
        "waves": make_waves(events, generator),
        "events": events,
        "tags": events.amax(dim=1),
        "is_strong": (torch.arange(CLIPS) < STRONG).to(events.dtype),
        "partner": torch.tensor([1, 2, 0, 5, 3, 4]),
        "share": 0.5 + 0.5 * torch.rand(CLIPS, generator=generator),
        "time_mask": (frame >= start) & (frame < start + 5),
        "mel_mask": (mel >= lowest) & (mel < lowest + 2),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    training_step(model, batch)
    clip_gradients(model)
    optimizer.step()
    model.scheduler.step()
