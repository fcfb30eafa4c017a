"""Two speakers taken apart by a Conv-TasNet: mixing on the fly, the best order, two spectra."""

import itertools

import torch
import torch.nn as nn
import torch.nn.functional as F

RECORDINGS, SPEAKERS, SAMPLES = 4, 2, 160
LENGTHS = (160, 131, 148, 117)
FILTERS, KERNEL, HOP, BOTTLENECK, HIDDEN = 12, 8, 4, 8, 12
REPEATS, DILATIONS = 2, 3
SPECTRA, SPECTRUM_WEIGHT, EPS = (16, 32), 0.5, 1e-8
LR, WEIGHT_DECAY, MAX_NORM = 2e-3, 0.1, 2.0


class GlobalNorm(nn.Module):
    """Over all channels and times of a recording."""

    def __init__(self, channels):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(channels, 1))
        self.bias = nn.Parameter(torch.zeros(channels, 1))

    def forward(self, x):
        mean = x.mean(dim=(1, 2), keepdim=True)
        variance = (x - mean).pow(2).mean(dim=(1, 2), keepdim=True)
        return self.gain * (x - mean) / torch.sqrt(variance + EPS) + self.bias


class DepthwiseConv(nn.Conv1d):
    """Three taps for each channel, as far apart as the dilation says."""

    def __init__(self, channels, dilation):
        super().__init__(
            channels, channels, 3, padding=dilation, dilation=dilation, groups=channels
        )


class TemporalBlock(nn.Module):
    def __init__(self, dilation):
        super().__init__()
        self.expand = nn.Conv1d(BOTTLENECK, HIDDEN, 1)
        self.act1, self.norm1 = nn.PReLU(), GlobalNorm(HIDDEN)
        self.depthwise = DepthwiseConv(HIDDEN, dilation)
        self.act2, self.norm2 = nn.PReLU(), GlobalNorm(HIDDEN)
        self.residual = nn.Conv1d(HIDDEN, BOTTLENECK, 1)
        self.skip = nn.Conv1d(HIDDEN, BOTTLENECK, 1)

    def forward(self, x):
        h = self.norm1(self.act1(self.expand(x)))
        h = self.norm2(self.act2(self.depthwise(h)))
        return x + self.residual(h), self.skip(h)


class Separator(nn.Module):
    """A mask of the coded mixture for each speaker."""

    def __init__(self):
        super().__init__()
        self.norm = GlobalNorm(FILTERS)
        self.bottleneck = nn.Conv1d(FILTERS, BOTTLENECK, 1)
        self.blocks = nn.ModuleList(TemporalBlock(d) for d in dilations())
        self.act = nn.PReLU()
        self.masks = nn.Conv1d(BOTTLENECK, SPEAKERS * FILTERS, 1)

    def forward(self, coded):
        x = self.bottleneck(self.norm(coded))
        total = 0
        for block in self.blocks:
            x, skip = block(x)
            total = total + skip
        masks = torch.sigmoid(self.masks(self.act(total)))
        return masks.unflatten(1, (SPEAKERS, FILTERS))


class TasNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv1d(1, FILTERS, KERNEL, stride=HOP, bias=False)
        self.separator = Separator()
        self.decoder = nn.ConvTranspose1d(FILTERS, 1, KERNEL, stride=HOP, bias=False)

    def encode(self, mixture):
        return F.relu(self.encoder(mixture[:, None]))

    def decode(self, coded):
        """(B, S, F, T) -> (B, S, samples)"""
        return self.decoder(coded.flatten(0, 1)).view(*coded.shape[:2], -1)

    def forward(self, mixture):
        coded = self.encode(mixture)
        return self.decode(self.separator(coded) * coded[:, None])


def dilations():
    """1, 2, 4, and again from the beginning."""
    return [2 ** (index % DILATIONS) for index in range(REPEATS * DILATIONS)]


def mix(batch):
    """Speakers of random loudness, and what is heard of both."""
    gain = 10 ** (batch["decibels"] / 20)
    sources = batch["sources"] * gain[:, :, None]
    return sources.sum(dim=1), sources


def centred(x, heard):
    mean = (x * heard).sum(dim=-1, keepdim=True) / heard.sum(dim=-1, keepdim=True)
    return (x - mean) * heard


def ratio(wanted, noise):
    """In decibels."""
    energies = wanted.square().sum(dim=-1), noise.square().sum(dim=-1)
    return 10 * torch.log10((energies[0] + EPS) / (energies[1] + EPS))


def si_snr(estimate, source, heard):
    """How much of an estimate is along the source; its loudness does not matter."""
    estimate, source = centred(estimate, heard), centred(source, heard)
    along = (estimate * source).sum(dim=-1, keepdim=True)
    wanted = along * source / (source.square().sum(dim=-1, keepdim=True) + EPS)
    return ratio(wanted, estimate - wanted)


def best_order(estimates, sources, heard):
    """For each recording the order of the sources that fits best, and how well it fits."""
    orders = list(itertools.permutations(range(SPEAKERS)))
    scores = [si_snr(estimates, sources[:, list(o)], heard).mean(dim=1) for o in orders]
    best, index = torch.stack(scores, dim=1).max(dim=1)
    order = torch.tensor(orders)[index]
    return sources.gather(1, order[:, :, None].expand_as(sources)), best


def magnitudes(x, size):
    window = torch.hann_window(size, dtype=x.dtype)
    spectrum = torch.stft(
        x.flatten(0, 1), size, hop_length=size // 4, window=window, return_complex=True
    )
    power = spectrum.real.square() + spectrum.imag.square()
    return torch.sqrt(power + EPS).unflatten(0, x.shape[:2])


def spectrum_loss(estimates, sources):
    """Of each recording: distances of magnitudes and of their logarithms."""
    total = 0
    for size in SPECTRA:
        a, b = magnitudes(estimates, size), magnitudes(sources, size)
        far = torch.linalg.vector_norm(a - b, dim=(1, 2, 3))
        total = total + far / torch.linalg.vector_norm(b, dim=(1, 2, 3))
        total = total + (a.log() - b.log()).abs().mean(dim=(1, 2, 3))
    return total / len(SPECTRA)


def separate(model, mixture, heard):
    """What follows the end of a recording is silent."""
    return model(mixture) * heard


def losses(model, batch):
    """Of each recording."""
    mixture, sources = mix(batch)
    heard = batch["heard"][:, None]
    estimates = separate(model, mixture, heard)
    ordered, score = best_order(estimates, sources, heard)
    return SPECTRUM_WEIGHT * spectrum_loss(estimates, ordered) - score


def train(model, batch):
    loss = losses(model, batch).mean()
    loss.backward()
    return loss.item()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return TasNet()


def make_optimizer(parameters, **more):
    return torch.optim.AdamW(parameters, lr=LR, weight_decay=WEIGHT_DECAY, **more)


def optimizer(model, **more):
    made = make_optimizer(model.parameters(), **more)
    model.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(made, factor=0.5, patience=0)
    return made


def batch(generator):
    heard = (torch.arange(SAMPLES) < torch.tensor(LENGTHS)[:, None]).to(torch.get_default_dtype())
    noise = torch.randn(RECORDINGS, SPEAKERS, SAMPLES + 3, generator=generator)
    slow = noise[..., 3:] + 0.8 * noise[..., 2:-1] + 0.5 * noise[..., 1:-2] + 0.1
    return {
        "sources": slow * heard[:, None],
        "heard": heard,
        "decibels": 10 * torch.rand(RECORDINGS, SPEAKERS, generator=generator) - 5,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = train(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step(loss)
