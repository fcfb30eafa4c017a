"""A Whisper of transformers: spectra of its own, SpecAugment, smoothed labels, two rates."""

import torch
from torch import nn
from transformers import WhisperConfig, WhisperForConditionalGeneration

N_FFT, HOP, MELS, FRAMES, RECORDINGS, ACCUMULATION = 32, 16, 8, 24, 6, 2
VOCAB, END, START, LANGUAGE, TASK, FIRST_WORD, WORDS = 24, 1, 2, 3, 5, 7, 6
IGNORED, SMOOTHING = -100, 0.1
LR, ENCODER_SHARE, MAX_NORM, WARMUP, TOTAL_STEPS = 4e-3, 0.3, 1.0, 2, 8


def make_config(**changes):
    return WhisperConfig(
        vocab_size=VOCAB,
        num_mel_bins=MELS,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_source_positions=FRAMES // 2,
        max_target_positions=24,
        init_std=0.2,
        pad_token_id=END,
        bos_token_id=END,
        eos_token_id=END,
        decoder_start_token_id=START,
        suppress_tokens=None,
        begin_suppress_tokens=None,
        use_cache=False,
        **changes,
    )


def mel_filters():
    """Triangles, wider for higher frequencies."""
    bins = torch.arange(N_FFT // 2 + 1)[:, None] / (N_FFT // 2)
    edges = torch.linspace(0, 1, MELS + 2) ** 1.5
    left, middle, right = edges[:-2], edges[1:-1], edges[2:]
    up, down = (bins - left) / (middle - left), (right - bins) / (right - middle)
    return torch.minimum(up, down).clamp(min=0.0) + 1e-3


def power_spectrum(audio):
    """Recordings, frequencies, frames: without the last frame, as Whisper has it."""
    window = torch.hann_window(N_FFT)
    stft = torch.stft(audio, N_FFT, HOP, window=window, return_complex=True)
    return stft[..., :-1].abs() ** 2


def log_mel(audio):
    """Logarithms, cut off eight decades below the loudest place of each recording."""
    mel = mel_filters().t() @ power_spectrum(audio)
    logs = mel.clamp(min=1e-10).log10()
    logs = torch.maximum(logs, logs.amax(dim=(1, 2), keepdim=True) - 8.0)
    return (logs + 4.0) / 4.0


def spans(start, width, size):
    """True from `start` on, for `width` places."""
    place = torch.arange(size)
    return (place >= start[:, None]) & (place < (start + width)[:, None])


def spec_augment(features, data):
    times = spans(data["time_start"], data["time_width"], FRAMES)
    bands = spans(data["band_start"], data["band_width"], MELS)
    return features.masked_fill(times[:, None, :] | bands[:, :, None], 0.0)


def make_labels(data):
    """What is to be said: the end of the text is, what fills it up is not."""
    place = torch.arange(data["tokens"].shape[1])
    return data["tokens"].masked_fill(place >= data["lengths"][:, None], IGNORED)


def shift_right(labels):
    """What was said before."""
    shifted = labels.roll(1, dims=1)
    shifted[:, 0] = START
    return shifted.masked_fill(shifted == IGNORED, END)


def smoothed_sum(logits, labels):
    """The sum over tokens, a part of which wants all words alike."""
    log_probs = logits.log_softmax(dim=-1)
    ignored = labels == IGNORED
    nll = -log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
    nll = nll.masked_fill(ignored, 0.0)
    smooth = -log_probs.mean(dim=-1).masked_fill(ignored, 0.0)
    return (1 - SMOOTHING) * nll.sum() + SMOOTHING * smooth.sum()


def token_count(data):
    return (make_labels(data) != IGNORED).sum()


def predict(model, data, labels):
    features = spec_augment(log_mel(data["audio"]), data)
    decoder_inputs = shift_right(labels)
    return model(input_features=features, decoder_input_ids=decoder_inputs).logits


def loss_sum(model, data):
    labels = make_labels(data)
    return smoothed_sum(predict(model, data, labels), labels)


def micro_batches(data):
    for values in zip(*(value.chunk(ACCUMULATION) for value in data.values()), strict=True):
        yield dict(zip(data, values, strict=True))


def backward(model, data):
    """Each micro-batch is divided by the tokens of all."""
    count = token_count(data)
    for part in micro_batches(data):
        loss = loss_sum(model, part) / count
        loss.backward()


def learning_rate(name):
    return LR * ENCODER_SHARE if name.startswith("model.encoder.") else LR


def param_groups(model):
    groups = {}
    for name, p in model.named_parameters():
        if p.requires_grad:
            decay = 0.0 if p.ndim < 2 else 0.05
            lr = learning_rate(name)
            group = groups.setdefault((lr, decay), {"params": [], "lr": lr, "weight_decay": decay})
            group["params"].append(p)
    return list(groups.values())


def rate_at(t):
    return min((t + 1) / WARMUP, (TOTAL_STEPS - t) / (TOTAL_STEPS - WARMUP))


def build():
    return WhisperForConditionalGeneration(make_config()).train()


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), lr=LR, betas=(0.9, 0.98), eps=1e-6, **more)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(made, rate_at)
    return made


def batch(generator):
    lengths = torch.randint(4, WORDS + 4, (RECORDINGS,), generator=generator)
    tokens = torch.randint(FIRST_WORD, VOCAB, (RECORDINGS, WORDS + 3), generator=generator)
    tokens[:, 0] = LANGUAGE + torch.randint(0, 2, (RECORDINGS,), generator=generator)
    tokens[:, 1] = TASK
    place = torch.arange(WORDS + 3)
    audio = torch.randn(RECORDINGS, FRAMES * HOP, generator=generator)
    audio = audio * torch.logspace(-3, 0, RECORDINGS)[:, None]  # some speak softly
    silent = torch.arange(FRAMES * HOP) >= HOP * (lengths * 2 + 4)[:, None]
    return {
        "audio": audio.masked_fill(silent, 0.0),
        "tokens": tokens.masked_fill(place >= lengths[:, None] - 1, END),
        "lengths": lengths,
        "time_start": torch.randint(2, 10, (RECORDINGS,), generator=generator),
        "time_width": torch.randint(2, 6, (RECORDINGS,), generator=generator),
        "band_start": torch.randint(1, 5, (RECORDINGS,), generator=generator),
        "band_width": torch.randint(1, 3, (RECORDINGS,), generator=generator),
    }


def step(model, optimizer, batch):
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad()
