"""Cases of the sounds at home."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "sounds",
    # It is made before the recording begins: its first use is the spectrum.
    line=[
        "return torch.hann_window(N_FFT)",
        "spectrum = torch.stft(waves, N_FFT, HOP, window=self.window, return_complex=True)",
    ],
    api=r"Torch\.(stft|hann_window)|Tensor\.stft",
    module="log_mel",
    module_only="log_mel",
)
def window_of_another_library(sounds):
    """The window is symmetric, as that of SciPy, not periodic."""

    class LogMel(sounds.LogMel):
        def make_window(self):
            return torch.hann_window(sounds.N_FFT, periodic=False)  # here

    sounds.LogMel = LogMel


@fault("sounds", line="loudest = decibel.amax(dim=(1, 2), keepdim=True)")
def loudest_of_all_clips(sounds):
    """Decibels are cut below the loudest value of the batch, not below that of each clip."""

    class LogMel(sounds.LogMel):
        def to_decibel(self, mel):
            decibel = 10.0 * torch.log10(mel.clamp(min=sounds.AMIN))
            return torch.maximum(decibel, decibel.amax() - sounds.TOP_DB)  # here

    sounds.LogMel = LogMel


@fault(
    "sounds",
    # The square is missing; the product with the filters is the first that lacks it.
    line=["return spectrum.abs().pow(2).transpose(1, 2)", "return power @ self.filters"],
)
def magnitude_for_power(sounds):
    """The spectrum is not squared, but decibels are computed as for power."""

    class LogMel(sounds.LogMel):
        def power(self, waves):
            spectrum = torch.stft(
                waves, sounds.N_FFT, sounds.HOP, window=self.window, return_complex=True
            )
            return spectrum.abs().transpose(1, 2)  # here

    sounds.LogMel = LogMel


@fault(
    "sounds",
    line=[
        'tags = mixup(batch["tags"], batch["partner"], batch["share"])',
        "return share * values + (1 - share) * values[partner]",
    ],
)
def labels_mixed_the_other_way(sounds):
    """The labels of clips are mixed with the shares of the two clips exchanged."""

    def prepare(model, batch):
        partner, share = batch["partner"], batch["share"]
        x = sounds.mixup(model.log_mel(batch["waves"]), partner, share)
        x = sounds.spec_augment(x, batch["time_mask"], batch["mel_mask"])
        events = sounds.mixup(batch["events"], partner, share)
        tags = sounds.mixup(batch["tags"], partner, 1 - share)  # here
        return x, events, tags

    sounds.prepare = prepare


@fault("sounds", line="value, gate = x.chunk(2, dim=1)", api=r"Tensor\.chunk|Torch\.chunk")
def halves_are_exchanged(sounds):
    """The first half of the channels is the gate, not the second one."""

    class ConvBlock(sounds.ConvBlock):
        def gate(self, x):
            gate, value = x.chunk(2, dim=1)  # here
            return value * torch.sigmoid(gate)  # here

    sounds.ConvBlock = ConvBlock


@fault(
    "sounds",
    line="weights = torch.softmax(self.attention(states), dim=1)",
    api=r"Torch\.softmax|Functional\.softmax|Tensor\.softmax",
    module="pool",
    module_only="pool",
)
def attention_over_classes(sounds):
    """The weights add up to one over the classes, not over the frames."""

    class AttentionPool(sounds.AttentionPool):
        def forward(self, states, strong):
            weights = torch.softmax(self.attention(states), dim=2)  # here
            return (weights * strong).sum(dim=1)

    sounds.AttentionPool = AttentionPool


@fault(
    "sounds",
    line=[
        "return F.max_pool1d(events.transpose(1, 2), TIME_POOL).transpose(1, 2)",
        'losses = F.binary_cross_entropy(strong, frame_labels(events), reduction="none")',
    ],
)
def every_fourth_label(sounds):
    """Of the labels of four frames the last one is taken, whatever the others say."""

    def frame_labels(events):
        pool = sounds.TIME_POOL
        return events[:, pool - 1 :: pool]  # here

    sounds.frame_labels = frame_labels


@fault("sounds", line="return (losses * is_strong).sum() / is_strong.sum()")
def weak_clips_have_frames(sounds):
    """The labels of frames count for all clips, also for those that have none."""

    def strong_loss(strong, events, is_strong):
        target = sounds.frame_labels(events)
        losses = F.binary_cross_entropy(strong, target, reduction="none")
        losses = losses.mean(dim=(1, 2))
        return losses.mean()  # here

    sounds.strong_loss = strong_loss


@fault("sounds", api=r"Optimizer\.Adam\.step", update=True)
def ramp_is_not_squared(sounds):
    """The rate grows with an exponential function whose exponent is not squared."""

    def ramp_up(done):
        return math.exp(-5.0 * (1.0 - min((done + 1) / sounds.RAMP_UP, 1.0)))

    sounds.ramp_up = ramp_up


@harmless("fused", "sounds")
def gate_by_pytorch(sounds):
    """The gate is PyTorch's."""

    class ConvBlock(sounds.ConvBlock):
        def gate(self, x):
            return F.glu(x, dim=1)

    sounds.ConvBlock = ConvBlock


@harmless("split", "sounds")
def spectrum_of_frames(sounds):
    """Frames are cut out and windowed, and each has its own Fourier transform."""

    class LogMel(sounds.LogMel):
        def power(self, waves):
            padded = F.pad(waves.unsqueeze(1), [sounds.N_FFT // 2] * 2, mode="reflect")
            frames = padded.squeeze(1).unfold(1, sounds.N_FFT, sounds.HOP) * self.window
            spectrum = torch.fft.rfft(frames)
            return spectrum.real.square() + spectrum.imag.square()

    sounds.LogMel = LogMel


@harmless("split", "sounds")
def decibels_by_natural_logarithms(sounds):
    """Decibels are natural logarithms, multiplied with a constant."""

    class LogMel(sounds.LogMel):
        def to_decibel(self, mel):
            decibel = mel.clamp(min=sounds.AMIN).log() * (10.0 / math.log(10.0))
            loudest = decibel.flatten(1).max(dim=1).values[:, None, None]
            return decibel.where(decibel > loudest - sounds.TOP_DB, loudest - sounds.TOP_DB)

    sounds.LogMel = LogMel


@harmless("loss", "sounds")
def entropy_written_out(sounds):
    """The entropy is two logarithms and two products."""

    def strong_loss(strong, events, is_strong):
        target = sounds.frame_labels(events)
        losses = -(target * strong.log() + (1 - target) * torch.log1p(-strong))
        weights = is_strong / is_strong.sum()
        return losses.flatten(1).mean(dim=1) @ weights

    sounds.strong_loss = strong_loss


@harmless("reordered", "sounds")
def labels_before_spectra(sounds):
    """Labels are mixed first, and mels are hidden before frames."""

    def prepare(model, batch):
        partner, share = batch["partner"], batch["share"]
        tags = sounds.mixup(batch["tags"], partner, share)
        events = sounds.mixup(batch["events"], partner, share)
        x = sounds.mixup(model.log_mel(batch["waves"]), partner, share)
        return sounds.spec_augment(x, batch["time_mask"], batch["mel_mask"]), events, tags

    def spec_augment(x, time_mask, mel_mask):
        x = x.masked_fill(mel_mask.unsqueeze(1), 0.0)
        return x.masked_fill(time_mask.unsqueeze(2), 0.0)

    sounds.prepare, sounds.spec_augment = prepare, spec_augment


@harmless("rows", "sounds", group="whole step")
def clips_in_another_order(sounds):
    """The clips are in another order; the partner of each is the same clip."""
    training_step = sounds.training_step

    def shuffled(model, batch):
        order = torch.tensor([3, 0, 4, 2, 5, 1])
        rows = {name: value[order] for name, value in batch.items()}
        training_step(model, rows | {"partner": order.argsort()[rows["partner"]]})

    sounds.training_step = shuffled


@harmless("micro batches", "sounds", group="whole step")
def losses_go_backward_alone(sounds):
    """The loss of tags goes backward first, then that of frames, through the same states."""

    def training_step(model, batch):
        x, events, tags = sounds.prepare(model, batch)
        strong, weak = model(x)
        (sounds.WEAK_WEIGHT * sounds.weak_loss(weak, tags)).backward(retain_graph=True)
        sounds.strong_loss(strong, events, batch["is_strong"]).backward()

    sounds.training_step = training_step


@harmless("scaled", "sounds", group="whole step")
def losses_are_scaled(sounds):
    """Both losses are scaled, and the gradients are unscaled before they are clipped."""
    strong_loss, weak_loss = sounds.strong_loss, sounds.weak_loss
    clip_gradients = sounds.clip_gradients
    sounds.strong_loss = lambda *inputs: strong_loss(*inputs) * 128.0
    sounds.weak_loss = lambda *inputs: weak_loss(*inputs) * 128.0

    def unscaled(model):
        for p in model.parameters():
            p.grad /= 128.0
        clip_gradients(model)

    sounds.clip_gradients = unscaled


@harmless("recomputed", "sounds", group="whole step")
def recurrence_computed_again(sounds):
    """The recurrent layer is computed again in the backward pass."""

    class CRNN(sounds.CRNN):
        def recur(self, x):
            return checkpoint(super().recur, x, use_reentrant=False)

    sounds.CRNN = CRNN
