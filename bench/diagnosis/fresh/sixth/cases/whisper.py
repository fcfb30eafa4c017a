"""Cases of the Whisper."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "whisper",
    line=[
        "logs = torch.maximum(logs, logs.amax(dim=(1, 2), keepdim=True) - 8.0)",
    ],
)
def loudest_of_the_batch(whisper):
    """Logarithms are cut off below the loudest place of the whole batch."""

    def log_mel(audio):
        mel = whisper.mel_filters().t() @ whisper.power_spectrum(audio)
        logs = mel.clamp(min=1e-10).log10()
        logs = torch.maximum(logs, logs.max() - 8.0)  # here
        return (logs + 4.0) / 4.0

    whisper.log_mel = log_mel


@fault(
    "whisper",
    line=[
        "return (place >= start[:, None]) & (place < (start + width)[:, None])",
        'times = spans(data["time_start"], data["time_width"], FRAMES)',
    ],
)
def width_is_the_end(whisper):
    """The width of a span is taken for its end: most spans are empty."""

    def spans(start, width, size):
        place = torch.arange(size)
        return (place >= start[:, None]) & (place < width[:, None])  # here

    whisper.spans = spans


@fault(
    "whisper",
    line=[
        'return data["tokens"].masked_fill(place >= data["lengths"][:, None], IGNORED)',
        "return (make_labels(data) != IGNORED).sum()",
        "count = token_count(data)",
    ],
)
def end_is_padding(whisper):
    """All that equals the padding is ignored: the end of a text, which has that number, too."""

    def make_labels(data):
        tokens = data["tokens"]
        return tokens.masked_fill(tokens == whisper.END, whisper.IGNORED)  # here

    whisper.make_labels = make_labels


@fault(
    "whisper",
    api=r"Functional\.embedding|Tensor\.(masked_fill|__setitem__|roll|__eq__)",
    module=r"|model\.decoder(\.embed_tokens)?",
    line=[
        "shifted = labels.roll(1, dims=1)",
        "shifted[:, 0] = START",
        "return shifted.masked_fill(shifted == IGNORED, END)",
        "decoder_inputs = shift_right(labels)",
    ],
)
def shifted_twice(whisper):
    """Labels were shifted by the collator, and are shifted by the model again."""
    shift_right = whisper.shift_right

    def twice(labels):
        return shift_right(shift_right(labels))  # here

    whisper.shift_right = twice


@fault(
    "whisper",
    line=[
        "smooth = -log_probs.mean(dim=-1).masked_fill(ignored, 0.0)",
        "return (1 - SMOOTHING) * nll.sum() + SMOOTHING * smooth.sum()",
    ],
)
def smoothed_behind_the_end(whisper):
    """What is ignored is left out of the entropy, but not of its smooth part."""

    def smoothed_sum(logits, labels):
        log_probs = logits.log_softmax(dim=-1)
        ignored = labels == whisper.IGNORED
        nll = -log_probs.gather(-1, labels.clamp(min=0)[..., None]).squeeze(-1)
        nll = nll.masked_fill(ignored, 0.0)
        smooth = -log_probs.mean(dim=-1)  # here
        share = whisper.SMOOTHING
        return (1 - share) * nll.sum() + share * smooth.sum()  # here

    whisper.smoothed_sum = smoothed_sum


@fault(
    "whisper",
    line=[
        "loss = loss_sum(model, part) / count",
        "        loss.backward()",
        "count = token_count(data)",
        "return (make_labels(data) != IGNORED).sum()",
    ],
)
def divided_by_its_own_tokens(whisper):
    """Each micro-batch is divided by its own tokens, and the losses are averaged."""

    def backward(model, data):
        for part in whisper.micro_batches(data):
            loss = whisper.loss_sum(model, part) / whisper.token_count(part)  # here
            (loss / whisper.ACCUMULATION).backward()  # here

    whisper.backward = backward


@fault("whisper", api=r"Optimizer\.AdamW\.step", update=True)
def cross_attention_learns_slowly(whisper):
    """`encoder` is part of the names of cross attention, too: it gets the rate of the encoder."""

    def learning_rate(name):
        return whisper.LR * whisper.ENCODER_SHARE if "encoder" in name else whisper.LR

    whisper.learning_rate = learning_rate


@fault(
    "whisper",
    # Forward, nothing is wrong in the first step. Backward, the table gets no gradient of the head.
    api=r"Functional\.(embedding|linear)|Optimizer\.AdamW\.step|Module\.proj_out\..*"
    r"|Module\.model\.decoder\.embed_tokens\..*"
    r"|.*clip_grad_norm_|.*get_total_norm",
    module=r"|proj_out|model\.decoder(\.embed_tokens)?",
    update=True,
)
def head_is_a_copy(whisper):
    """The head is a copy of the table: they are tied no longer."""
    build = whisper.build

    def built():
        model = build()
        model.proj_out.weight = torch.nn.Parameter(model.proj_out.weight.detach().clone())
        return model

    whisper.build = built


@harmless("fused", "whisper")
def attention_written_out(whisper):
    """The attention is the eager one."""
    make_config = whisper.make_config
    whisper.make_config = lambda: make_config(attn_implementation="eager")


@harmless("fused", "whisper")
def spectrum_by_two_products(whisper):
    """Frames are taken by unfold; cosines and sines are multiplied with them."""

    def power_spectrum(audio):
        half, size = whisper.N_FFT // 2, whisper.N_FFT
        wide = F.pad(audio[:, None], (half, half), mode="reflect")[:, 0]
        frames = wide.unfold(-1, size, whisper.HOP)[:, :-1] * torch.hann_window(size)
        angle = torch.outer(torch.arange(size), torch.arange(half + 1)) * (2 * math.pi / size)
        real, imaginary = frames @ angle.cos(), frames @ angle.sin()
        return (real.square() + imaginary.square()).transpose(1, 2)

    whisper.power_spectrum = power_spectrum


@harmless("loss", "whisper")
def smoothed_by_the_library(whisper):
    """The entropy of PyTorch smooths and ignores by itself."""

    def smoothed_sum(logits, labels):
        return F.cross_entropy(
            logits.flatten(0, 1),
            labels.flatten(),
            ignore_index=whisper.IGNORED,
            label_smoothing=whisper.SMOOTHING,
            reduction="sum",
        )

    whisper.smoothed_sum = smoothed_sum


@harmless("mask", "whisper")
def spans_by_a_loop(whisper):
    """Spans are set to zero one after the other, as NumPy programs do it."""

    def spec_augment(features, data):
        features = features.clone()
        for row, feature in enumerate(features):
            start, width = int(data["time_start"][row]), int(data["time_width"][row])
            feature[:, start : start + width] = 0.0
            start, width = int(data["band_start"][row]), int(data["band_width"][row])
            feature[start : start + width] = 0.0
        return features

    whisper.spec_augment = spec_augment


@harmless("micro batches", "whisper", group="whole step")
def six_micro_batches(whisper):
    """Each recording is a micro-batch."""
    whisper.ACCUMULATION = 6


@harmless("padding", "whisper", group="whole step")
def texts_filled_up_to_sixteen(whisper):
    """All texts are filled up to sixteen tokens."""
    backward = whisper.backward

    def filled(model, data):
        tokens = data["tokens"]
        tokens = F.pad(tokens, (0, 16 - tokens.shape[1]), value=whisper.END)
        backward(model, data | {"tokens": tokens})

    whisper.backward = filled


@harmless("rows", "whisper", group="whole step")
def longest_recordings_first(whisper):
    """The recordings are sorted by the length of their texts."""
    backward = whisper.backward

    def longest_first(model, data):
        order = data["lengths"].argsort(descending=True, stable=True)
        backward(model, {name: value[order] for name, value in data.items()})

    whisper.backward = longest_first


@harmless("recomputed", "whisper", group="whole step")
def layers_computed_again(whisper):
    """All layers are computed again in the backward pass."""
    build = whisper.build

    def built():
        model = build()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    whisper.build = built


@harmless("scaled", "whisper", group="whole step")
def divided_behind_the_passes(whisper):
    """The sums go backward as they are; gradients are divided by the number of tokens."""

    def backward(model, data):
        for part in whisper.micro_batches(data):
            whisper.loss_sum(model, part).backward()
        count = whisper.token_count(data)
        torch._foreach_div_([p.grad for p in model.parameters() if p.grad is not None], count)

    whisper.backward = backward
