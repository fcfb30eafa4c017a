"""Text becomes speech: a FastSpeech 2 with durations, pitch, energy and several speakers."""

import torch
import torch.nn as nn

PHONEMES, SPEAKERS, DIM, HEADS, WIDE, MELS, BINS = 28, 3, 16, 2, 24, 10, 8
SENTENCES = (9, 5, 7, 4)  # the phonemes of each sentence
LONGEST, MAX_FRAMES = 9, 64
PITCH_RANGE, ENERGY_RANGE = (-2.0, 2.0), (0.0, 3.0)
WARMUP, MAX_NORM = 6, 1.0


def make_norm():
    return nn.LayerNorm(DIM)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
        self.value, self.fc = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)

    def split_heads(self, x):
        batch, length, _ = x.shape
        return x.view(batch, length, HEADS, DIM // HEADS).permute(0, 2, 1, 3)

    def mixed(self, q, k, v, mask):
        scores = torch.matmul(q, k.transpose(2, 3)) / (DIM // HEADS) ** 0.5
        scores = scores.masked_fill(mask[:, None, None, :], float("-inf"))
        return torch.matmul(torch.softmax(scores, dim=-1), v)

    def forward(self, x, mask):
        q = self.split_heads(self.query(x))
        k = self.split_heads(self.key(x))
        v = self.split_heads(self.value(x))
        out = self.mixed(q, k, v, mask).permute(0, 2, 1, 3)
        return self.fc(out.reshape(x.shape))


class Conv(nn.Module):
    """A convolution over time of (batch, time, channels)."""

    def __init__(self, inputs, outputs, kernel):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, padding=kernel // 2)

    def forward(self, x):
        return self.conv(x.transpose(1, 2)).transpose(1, 2)


class FFTBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention, self.norm1 = Attention(), make_norm()
        self.conv1, self.conv2 = Conv(DIM, WIDE, 3), Conv(WIDE, DIM, 1)
        self.norm2 = make_norm()

    def forward(self, x, mask):
        x = self.norm1(x + self.attention(x, mask))
        x = silence(x, mask)
        x = self.norm2(x + self.conv2(torch.relu(self.conv1(x))))
        return silence(x, mask)


class Predictor(nn.Module):
    """One number for each phoneme."""

    def __init__(self):
        super().__init__()
        self.conv1, self.norm1 = Conv(DIM, DIM, 3), make_norm()
        self.conv2, self.norm2 = Conv(DIM, DIM, 3), make_norm()
        self.out = nn.Linear(DIM, 1)

    def forward(self, x, mask):
        x = silence(self.norm1(torch.relu(self.conv1(x))), mask)
        x = silence(self.norm2(torch.relu(self.conv2(x))), mask)
        return silence(self.out(x), mask).squeeze(-1)


class Postnet(nn.Module):
    """What the decoder missed."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = Conv(MELS, WIDE, 5), Conv(WIDE, MELS, 5)

    def forward(self, mel, mask):
        return self.conv2(silence(torch.tanh(self.conv1(mel)), mask))


class VarianceAdaptor(nn.Module):
    def __init__(self):
        super().__init__()
        self.duration, self.pitch, self.energy = Predictor(), Predictor(), Predictor()
        self.pitch_embedding = nn.Embedding(BINS, DIM)
        self.energy_embedding = nn.Embedding(BINS, DIM)
        self.register_buffer("pitch_bins", torch.linspace(*PITCH_RANGE, BINS - 1))
        self.register_buffer("energy_bins", torch.linspace(*ENERGY_RANGE, BINS - 1))

    def predict(self, x, mask):
        """The durations do not teach the encoder."""
        log_duration = self.duration(x.detach(), mask)
        pitch = self.pitch(x, mask)
        energy = self.energy(x, mask)
        return {"log_duration": log_duration, "pitch": pitch, "energy": energy}

    def embed(self, pitch, energy):
        pitch = self.pitch_embedding(torch.bucketize(pitch, self.pitch_bins))
        energy = self.energy_embedding(torch.bucketize(energy, self.energy_bins))
        return pitch + energy

    def forward(self, x, mask, batch):
        """In training the true pitch, energy and durations are used."""
        said = self.predict(x, mask)
        x = x + self.embed(batch["pitch"], batch["energy"])
        return said, regulate(silence(x, mask), batch["duration"])


class FastSpeech2(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(PHONEMES, DIM, padding_idx=0)
        self.speaker = nn.Embedding(SPEAKERS, DIM)
        self.encoder = nn.ModuleList(FFTBlock() for _ in range(2))
        self.adaptor = VarianceAdaptor()
        self.decoder = nn.ModuleList(FFTBlock() for _ in range(2))
        self.mel, self.postnet = nn.Linear(DIM, MELS), Postnet()
        self.register_buffer("table", sinusoids(MAX_FRAMES))

    def encode(self, phonemes, speaker, mask):
        x = self.embedding(phonemes) + self.table[: phonemes.shape[1]]
        for block in self.encoder:
            x = block(x, mask)
        return silence(x + self.speaker(speaker).unsqueeze(1), mask)

    def decode(self, x, mask):
        x = x + self.table[: x.shape[1]]
        for block in self.decoder:
            x = block(x, mask)
        mel = silence(self.mel(x), mask)
        return mel, mel + self.postnet(mel, mask)

    def forward(self, batch):
        mask = batch["phonemes"] == 0
        x = self.encode(batch["phonemes"], batch["speaker"], mask)
        said, frames = self.adaptor(x, mask, batch)
        said["mel"], said["mel_post"] = self.decode(frames, frame_mask(batch["duration"]))
        return said


def silence(x, mask):
    return x.masked_fill(mask.unsqueeze(-1), 0.0)


def sinusoids(length):
    place = torch.arange(length, dtype=torch.get_default_dtype()).unsqueeze(1)
    rate = 10000 ** (-torch.arange(0, DIM, 2, dtype=place.dtype) / DIM)
    return torch.cat([torch.sin(place * rate), torch.cos(place * rate)], dim=1)


def frame_mask(duration):
    """Frames behind the end of a sentence."""
    frames = duration.sum(dim=1)
    return torch.arange(int(frames.max())) >= frames.unsqueeze(1)


def regulate(x, duration):
    """Each phoneme is repeated for as many frames as it lasts."""
    pairs = zip(x, duration, strict=True)
    rows = [torch.repeat_interleave(row, count, dim=0) for row, count in pairs]
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


def phoneme_loss(said, target, mask):
    """The sum of squares over real phonemes."""
    return ((said - target) ** 2).masked_fill(mask, 0.0).sum()


def mel_loss(said, target, mask):
    return (said - target).abs().masked_fill(mask.unsqueeze(-1), 0.0).sum()


def log_target(duration):
    return torch.log(duration.to(torch.get_default_dtype()) + 1)


def counts(batch):
    """How many phonemes and how many values of spectra there are."""
    return (batch["phonemes"] != 0).sum(), batch["duration"].sum() * MELS


def total_loss(said, batch, phonemes, values):
    mask, frames = batch["phonemes"] == 0, frame_mask(batch["duration"])
    mel = batch["mel"][:, : frames.shape[1]]
    first = mel_loss(said["mel"], mel, frames) / values
    last = mel_loss(said["mel_post"], mel, frames) / values
    duration = phoneme_loss(said["log_duration"], log_target(batch["duration"]), mask)
    pitch = phoneme_loss(said["pitch"], batch["pitch"], mask)
    energy = phoneme_loss(said["energy"], batch["energy"], mask)
    return first + last + (duration + pitch + energy) / phonemes


def train(model, batch):
    total_loss(model(batch), batch, *counts(batch)).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def noam(done):
    now = done + 1
    return DIM**-0.5 * min(now**-0.5, now * WARMUP**-1.5)


def build():
    return FastSpeech2().train()


def optimizer(model, **more):
    made = torch.optim.Adam(model.parameters(), lr=0.2, betas=(0.9, 0.98), eps=1e-9, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, noam)
    return made


def batch(generator):
    shape = (len(SENTENCES), LONGEST)
    phonemes = torch.randint(1, PHONEMES, shape, generator=generator)
    duration = torch.randint(1, 5, shape, generator=generator)
    pitch = torch.randn(shape, generator=generator)
    energy = 3 * torch.rand(shape, generator=generator)
    gone = torch.arange(LONGEST) >= torch.tensor(SENTENCES).unsqueeze(1)
    return {
        "phonemes": phonemes.masked_fill(gone, 0),
        "duration": duration.masked_fill(gone, 0),
        "pitch": pitch.masked_fill(gone, 0),
        "energy": energy.masked_fill(gone, 0),
        "speaker": torch.randint(0, SPEAKERS, (len(SENTENCES),), generator=generator),
        "mel": torch.randn(len(SENTENCES), 4 * LONGEST, MELS, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    train(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()
