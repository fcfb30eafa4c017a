"""Cases of the text that becomes speech."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("voice", line="return torch.log(duration.to(torch.get_default_dtype()) + 1)")
def logarithm_without_one(voice):
    """The targets are logarithms of durations, not of durations and one."""

    def log_target(duration):
        return torch.log(duration.to(torch.get_default_dtype()).clamp(min=1))  # here

    voice.log_target = log_target


@fault(
    "voice",
    # Forward nothing is wrong; backward the encoder has a gradient from the durations.
    line=[
        "log_duration = self.duration(x.detach(), mask)",
        "return silence(x + self.speaker(speaker).unsqueeze(1), mask)",
        "said = self.predict(x, mask)",
    ],
    api=r"Tensor\.detach|Module\.adaptor\.(duration\.)?((conv1\.)?(conv\.)?)?[A-Z].*"
    r"|Module\.encoder\.1\.[A-Z].*",
)
def durations_teach_the_encoder(voice):
    """The states are not detached before durations are foretold."""

    class VarianceAdaptor(voice.VarianceAdaptor):
        def predict(self, x, mask):
            log_duration = self.duration(x, mask)  # here
            pitch = self.pitch(x, mask)
            energy = self.energy(x, mask)
            return {"log_duration": log_duration, "pitch": pitch, "energy": energy}

    voice.VarianceAdaptor = VarianceAdaptor


@fault("voice", line="scores = torch.matmul(q, k.transpose(2, 3)) / (DIM // HEADS) ** 0.5")
def scaled_by_all_heads(voice):
    """Scores are divided by the root of the whole width, not of that of a head."""

    class Attention(voice.Attention):
        def mixed(self, q, k, v, mask):
            scores = torch.matmul(q, k.transpose(2, 3)) / voice.DIM**0.5  # here
            scores = scores.masked_fill(mask[:, None, None, :], float("-inf"))
            return torch.matmul(torch.softmax(scores, dim=-1), v)

    voice.Attention = Attention


@fault(
    "voice",
    line="energy = self.energy_embedding(torch.bucketize(energy, self.energy_bins))",
    api=r"Module\.adaptor\.energy_embedding\..*|Functional\.embedding|Torch\.bucketize",
    module=r"adaptor\.energy_embedding|adaptor",
    module_only=r"adaptor\.energy_embedding",
)
def energy_in_bins_of_pitch(voice):
    """Energies are sorted into the bins of pitches."""

    class VarianceAdaptor(voice.VarianceAdaptor):
        def embed(self, pitch, energy):
            pitch = self.pitch_embedding(torch.bucketize(pitch, self.pitch_bins))
            energy = torch.bucketize(energy, self.pitch_bins)  # here
            return pitch + self.energy_embedding(energy)  # here

    voice.VarianceAdaptor = VarianceAdaptor


@fault(
    "voice",
    line=[
        'last = mel_loss(said["mel_post"], mel, frames) / values',
        "return (said - target).abs().masked_fill(mask.unsqueeze(-1), 0.0).sum()",
    ],
)
def postnet_is_not_judged(voice):
    """The spectra before the postnet are judged twice."""
    total_loss = voice.total_loss

    def judged(said, batch, phonemes, values):
        said = said | {"mel_post": said["mel"]}  # here
        return total_loss(said, batch, phonemes, values)

    voice.total_loss = judged


@fault(
    "voice",
    line=[
        'return (batch["phonemes"] != 0).sum(), batch["duration"].sum() * MELS',
        'first = mel_loss(said["mel"], mel, frames) / values',
        'last = mel_loss(said["mel_post"], mel, frames) / values',
    ],
)
def divided_by_frames_alone(voice):
    """The errors of spectra are divided by frames, each of which has several values."""

    def counts(batch):
        return (batch["phonemes"] != 0).sum(), batch["duration"].sum()  # here

    voice.counts = counts


@fault(
    "voice",
    line=[
        'x = x + self.embed(batch["pitch"], batch["energy"])',
        "pitch = self.pitch_embedding(torch.bucketize(pitch, self.pitch_bins))",
    ],
    api=r"Module\.adaptor\.pitch_embedding\..*|Functional\.embedding|Torch\.bucketize",
    module=r"adaptor\.pitch_embedding|adaptor",
    module_only=r"adaptor\.pitch_embedding",
)
def foretold_pitch_in_training(voice):
    """The pitch that is foretold goes to the decoder, where the true one should in training."""

    class VarianceAdaptor(voice.VarianceAdaptor):
        def forward(self, x, mask, batch):
            said = self.predict(x, mask)
            x = x + self.embed(said["pitch"], batch["energy"])  # here
            return said, voice.regulate(voice.silence(x, mask), batch["duration"])

    voice.VarianceAdaptor = VarianceAdaptor


@fault(
    "voice",
    line="x = self.norm1(x + self.attention(x, mask))",
    api=r"Module\.encoder\.0\.norm1\..*|Functional\.layer_norm|Torch\.layer_norm",
    module=r"encoder\.0(\.norm1)?",
    module_only=r"encoder\.0\.norm1",
)
def norms_with_a_large_epsilon(voice):
    """What is added to the variance is a hundredth, as another framework's default is larger."""
    voice.make_norm = lambda: torch.nn.LayerNorm(voice.DIM, eps=1e-2)


@fault("voice", api=r"Optimizer\.Adam\.step", update=True)
def warm_up_is_too_quick(voice):
    """The rate grows with the wrong power of the length of the warm-up."""

    def noam(done):
        now = done + 1
        return voice.DIM**-0.5 * min(now**-0.5, now * voice.WARMUP**-1.0)

    voice.noam = noam


@harmless("fused", "voice")
def repeated_by_a_product(voice):
    """Phonemes are repeated by a product with ones and zeros."""

    def regulate(x, duration):
        end = duration.cumsum(dim=1)
        frame = torch.arange(int(end[:, -1].max())).view(1, -1, 1)
        spoken = (frame >= (end - duration).unsqueeze(1)) & (frame < end.unsqueeze(1))
        return spoken.to(x.dtype) @ x

    voice.regulate = regulate


@harmless("fused", "voice")
def attention_by_pytorch(voice):
    """The attention is PyTorch's."""

    class Attention(voice.Attention):
        def mixed(self, q, k, v, mask):
            seen = ~mask[:, None, None, :]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    voice.Attention = Attention


@harmless("loss", "voice")
def frames_are_chosen(voice):
    """The frames that count are chosen, before errors are computed."""

    def mel_loss(said, target, mask):
        return F.l1_loss(said[~mask], target[~mask], reduction="sum")

    voice.mel_loss = mel_loss


@harmless("reordered", "voice")
def energy_before_durations(voice):
    """Energies are foretold before pitches, and durations last."""

    class VarianceAdaptor(voice.VarianceAdaptor):
        def predict(self, x, mask):
            energy, pitch = self.energy(x, mask), self.pitch(x, mask)
            log_duration = self.duration(x.detach(), mask)
            return {"log_duration": log_duration, "pitch": pitch, "energy": energy}

    voice.VarianceAdaptor = VarianceAdaptor


@harmless("split", "voice")
def convolutions_by_products(voice):
    """A convolution over time is a product with windows."""

    class Conv(voice.Conv):
        def forward(self, x):
            weight = self.conv.weight
            room = weight.shape[2] // 2
            windows = F.pad(x, (0, 0, room, room)).unfold(1, weight.shape[2], 1)
            return F.linear(windows.flatten(2), weight.flatten(1), self.conv.bias)

    voice.Conv = Conv


@harmless("rows", "voice", group="whole step")
def sentences_in_another_order(voice):
    """The sentences are in another order."""
    train = voice.train

    def shuffled(model, batch):
        train(model, {name: value[[3, 1, 0, 2]] for name, value in batch.items()})

    voice.train = shuffled


@harmless("micro batches", "voice", group="whole step")
def one_sentence_at_a_time(voice):
    """Each sentence goes backward alone, divided by the counts of all."""

    def train(model, batch):
        whole = voice.counts(batch)
        for row in range(len(batch["speaker"])):
            part = {name: value[row : row + 1] for name, value in batch.items()}
            voice.total_loss(model(part), part, *whole).backward()

    voice.train = train


@harmless("padding", "voice", group="whole step")
def sentences_padded_further(voice):
    """Sentences have four more columns of padding."""
    train = voice.train
    names = ("phonemes", "duration", "pitch", "energy")

    def padded(model, batch):
        train(model, batch | {name: F.pad(batch[name], (0, 4)) for name in names})

    voice.train = padded


@harmless("scaled", "voice", group="whole step")
def divided_after_the_backward_pass(voice):
    """The loss is multiplied with the phonemes; gradients are divided before they are clipped."""
    clip = voice.clip

    def train(model, batch):
        phonemes, values = voice.counts(batch)
        model.phonemes = phonemes
        (voice.total_loss(model(batch), batch, phonemes, values) * phonemes).backward()

    def divided(model):
        for p in model.parameters():
            p.grad.div_(model.phonemes)
        clip(model)

    voice.train, voice.clip = train, divided


@harmless("recomputed", "voice", group="whole step")
def blocks_computed_again(voice):
    """The blocks are computed again in the backward pass."""

    class FFTBlock(voice.FFTBlock):
        def forward(self, x, mask):
            return checkpoint(super().forward, x, mask, use_reentrant=False)

    voice.FFTBlock = FFTBlock
