"""Waves from spectra against critics of periods and scales: a HiFi-GAN (transformers)."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import SpeechT5HifiGan, SpeechT5HifiGanConfig

WAVES, LENGTH, FRAMES, HOP, WINDOW, MELS, CHANNELS = 4, 120, 12, 4, 16, 6, 6
PERIODS, SLOPE, LEAST = (2, 3), 0.1, 1e-3
MEL_WEIGHT, FEATURE_WEIGHT = 1.0, 1.5
LR, BETAS, GAMMA, MAX_NORM = 2e-3, (0.8, 0.99), 0.8, 5.0


def make_vocoder():
    config = SpeechT5HifiGanConfig(
        model_in_dim=MELS,
        upsample_initial_channel=16,
        upsample_rates=[2, 2],
        upsample_kernel_sizes=[4, 4],
        resblock_kernel_sizes=[3, 5],
        resblock_dilation_sizes=[[1, 2], [1, 3]],
        initializer_range=0.1,
        leaky_relu_slope=SLOPE,
    )
    vocoder = SpeechT5HifiGan(config)
    vocoder.apply_weight_norm()
    vocoder.mean.copy_(torch.linspace(-1.0, -2.0, MELS))
    vocoder.scale.copy_(torch.linspace(0.6, 1.4, MELS))
    return vocoder


class OfPeriod(nn.Module):
    """A wave in columns: neighbours in a column are one period apart."""

    def __init__(self, period):
        super().__init__()
        self.period = period
        self.first = nn.Conv2d(1, CHANNELS, (5, 1), (2, 1), (2, 0))
        self.second = nn.Conv2d(CHANNELS, CHANNELS, (3, 1), padding=(1, 0))
        self.last = nn.Conv2d(CHANNELS, 1, (3, 1), padding=(1, 0))

    def filled(self, x):
        missing = -x.shape[1] % self.period
        return F.pad(x.unsqueeze(1), (0, missing), mode="reflect")

    def columns(self, x):
        return self.filled(x).unflatten(2, (-1, self.period))

    def forward(self, x):
        """Scores, and features of all layers but the last."""
        first = F.leaky_relu(self.first(self.columns(x)), SLOPE)
        second = F.leaky_relu(self.second(first), SLOPE)
        return self.last(second).flatten(1), [first, second]


class OfScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.smooth = nn.AvgPool1d(4, 2, padding=2, count_include_pad=False)
        self.first = nn.Conv1d(1, CHANNELS, 7, 2, padding=3)
        self.second = nn.Conv1d(CHANNELS, CHANNELS, 5, padding=2, groups=2)
        self.last = nn.Conv1d(CHANNELS, 1, 3, padding=1)

    def forward(self, x):
        first = F.leaky_relu(self.first(self.smooth(x.unsqueeze(1))), SLOPE)
        second = F.leaky_relu(self.second(first), SLOPE)
        return self.last(second).flatten(1), [first, second]


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_periods = nn.ModuleList(OfPeriod(period) for period in PERIODS)
        self.of_scale = OfScale()

    def forward(self, x):
        answers = [each(x) for each in (*self.of_periods, self.of_scale)]
        return [scores for scores, _ in answers], [f for _, found in answers for f in found]


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.vocoder, self.critic = make_vocoder(), Critic()


def filters():
    """Triangles over the frequencies: (bands, frequencies)."""
    middles = torch.linspace(0, 1, MELS + 2) ** 1.5 * (WINDOW // 2)
    left, middle, right = (middles[k : k + MELS].unsqueeze(1) for k in range(3))
    places = torch.arange(WINDOW // 2 + 1)
    rising, falling = (places - left) / (middle - left), (right - places) / (right - middle)
    return torch.minimum(rising, falling).clamp(min=0) + 0.05


def spectrum(waves):
    """How loud each frequency is: (rows, frequencies, frames)."""
    beside = (WINDOW - HOP) // 2
    waves = F.pad(waves.unsqueeze(1), (beside, beside), mode="reflect").squeeze(1)
    window = torch.hann_window(WINDOW)
    found = torch.stft(waves, WINDOW, HOP, window=window, center=False, return_complex=True)
    return (found.real.square() + found.imag.square() + 1e-6).sqrt()


def mel(waves):
    """Logarithms of bands: (rows, frames, bands)."""
    return (filters() @ spectrum(waves)).clamp(min=LEAST).log().mT


def cut(batch):
    """A part of each wave, which begins with a frame, and the bands of the same frames."""
    places = (HOP * batch["starts"]).unsqueeze(1) + torch.arange(HOP * FRAMES)
    frames = batch["starts"].unsqueeze(1) + torch.arange(FRAMES)
    waves = batch["waves"].gather(1, places)
    wide = frames.unsqueeze(2).expand(-1, -1, MELS)
    bands = mel(batch["waves"]).gather(1, wide)
    return {"waves": waves, "bands": bands, "weight": batch["weight"]}


def weighted(values, weight):
    """The sum over rows of means, each with a weight."""
    return (values.flatten(1).mean(dim=1) * weight).sum()


def critic_loss(real, made, weight):
    """One for what is real, zero for what was made."""
    losses = [weighted((1 - r).square(), weight) for r in real]
    losses += [weighted(m.square(), weight) for m in made]
    return sum(losses)


def fooled_loss(made, weight):
    return sum(weighted((1 - m).square(), weight) for m in made)


def feature_loss(real, made, weight):
    return sum(weighted((r - m).abs(), weight) for r, m in zip(real, made, strict=True))


def mel_loss(bands, waves, weight):
    return weighted((bands - mel(waves)).square(), weight)


def critic_backward(model, inputs, rows):
    made = model.vocoder(inputs["bands"]).detach()
    real_scores, _ = model.critic(inputs["waves"])
    made_scores, _ = model.critic(made)
    (critic_loss(real_scores, made_scores, inputs["weight"]) / rows).backward()


def vocoder_backward(model, inputs, rows):
    """The critic does not learn here."""
    model.critic.requires_grad_(False)
    made, weight = model.vocoder(inputs["bands"]), inputs["weight"]
    _, real_features = model.critic(inputs["waves"])
    scores, features = model.critic(made)
    loss = fooled_loss(scores, weight) + MEL_WEIGHT * mel_loss(mel(inputs["waves"]), made, weight)
    loss = loss + FEATURE_WEIGHT * feature_loss(real_features, features, weight)
    (loss / rows).backward()
    model.critic.requires_grad_(True)


def clip(model):
    nn.utils.clip_grad_norm_(model.vocoder.parameters(), MAX_NORM)


def build():
    return Both().train()


def schedules_of(model, vocoder):
    rate = torch.optim.lr_scheduler.ExponentialLR
    return [rate(each, GAMMA) for each in (vocoder, model.judge)]


def optimizer(model, **more):
    """The critic has an optimizer of its own."""
    model.judge = torch.optim.AdamW(model.critic.parameters(), lr=LR, betas=BETAS, **more)
    vocoder = torch.optim.AdamW(model.vocoder.parameters(), lr=LR, betas=BETAS, **more)
    model.schedules = schedules_of(model, vocoder)
    return vocoder


def batch(generator):
    """Tones with noise; the last wave counts half."""

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    time = torch.arange(LENGTH).to(torch.get_default_dtype())
    tones = [(time * (0.2 + rand(WAVES, 1)) + 6 * rand(WAVES, 1)).sin() for _ in range(2)]
    noise = torch.randn(WAVES, LENGTH, generator=generator)
    most = LENGTH // HOP - FRAMES
    return {
        "waves": 0.4 * tones[0] + 0.3 * tones[1] + 0.05 * noise,
        "starts": torch.randint(most, (WAVES,), generator=generator),
        "weight": torch.tensor([1.0] * (WAVES - 1) + [0.5]),
    }


def step(model, optimizer, batch):
    inputs = cut(batch)
    rows = inputs["weight"].sum()
    optimizer.zero_grad()
    model.judge.zero_grad()
    critic_backward(model, inputs, rows)
    model.judge.step()
    vocoder_backward(model, inputs, rows)
    clip(model)
    optimizer.step()
    for each in model.schedules:
        each.step()
