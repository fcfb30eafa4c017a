"""Cases of the Wav2Vec2."""

import torch
from case import fault, harmless
from torch.nn import functional as F

CTC = 'each = F.ctc_loss(log_p.transpose(0, 1), letters, frames, counts, reduction="none")'
CALL = "waves, attention_mask=known, mask_time_indices=masked, output_hidden_states=True"


@fault(
    "wav2vec",
    api=r"Functional\.ctc_loss",
    line=[CTC, "log_p, frames = log_p_of(model, data), frames_of(data"],
)
def padding_is_spoken(wav2vec):
    """The CTC gets the frames of the longest wave for all."""
    ctc_loss = wav2vec.ctc_loss

    def longest(log_p, letters, frames, counts):
        frames = torch.full_like(frames, log_p.shape[1])  # here
        return ctc_loss(log_p, letters, frames, counts)

    wav2vec.ctc_loss = longest


@fault("wav2vec", line=CTC)
def last_letter_is_the_blank(wav2vec):
    """The CTC takes the last letter for the blank."""

    def ctc_loss(log_p, letters, frames, counts):
        each = F.ctc_loss(  # here
            log_p.transpose(0, 1),
            letters,
            frames,
            counts,
            blank=wav2vec.LETTERS - 1,
            reduction="none",  # here
        )
        return (each / counts).mean()

    wav2vec.ctc_loss = ctc_loss


@fault("wav2vec", line="return (each / counts).mean()")
def divided_by_all_letters(wav2vec):
    """The sum of all rows is divided by all letters: long texts count more."""

    def ctc_loss(log_p, letters, frames, counts):
        each = F.ctc_loss(log_p.transpose(0, 1), letters, frames, counts, reduction="none")
        return each.sum() / counts.sum()  # here

    wav2vec.ctc_loss = ctc_loss


@fault(
    "wav2vec",
    line=[
        "count = known.sum(dim=1, keepdim=True)",
        "mean = (waves * known).sum(dim=1, keepdim=True) / count",
        "apart = (waves - mean) * known",
        "return apart / (apart.square().sum(dim=1, keepdim=True) / count + 1e-7).sqrt()",
    ],
)
def normalised_with_the_padding(wav2vec):
    """The padding counts in the mean and in the variance."""

    def normalised(waves, known):
        mean = waves.mean(dim=1, keepdim=True)  # here
        variance = waves.var(dim=1, keepdim=True, correction=0)  # here
        return (waves - mean) / (variance + 1e-7).sqrt() * known  # here

    wav2vec.normalised = normalised


@fault(
    "wav2vec",
    api=r".*",  # the mask is made of that of the samples where the net begins
    module=r"net(\.encoder(\.pos_conv_embed(\.conv)?)?)?",
    line=CALL,
)
def padding_is_heard(wav2vec):
    """The net gets no mask of the padding."""

    class Model(wav2vec.Model):
        def forward(self, waves, known, masked):
            made = self.net(waves, mask_time_indices=masked, output_hidden_states=True)  # here
            return self.letters(self.mixture(list(made.hidden_states)))

    wav2vec.Model = Model


@fault("wav2vec", api=r"Tensor\.__setitem__", module=r"net", line=CALL)
def masks_begin_too_late(wav2vec):
    """What is masked is one frame late."""
    log_p_of = wav2vec.log_p_of
    wav2vec.log_p_of = lambda model, data: log_p_of(
        model,
        data | {"masked": data["masked"].roll(1, 1)},  # here
    )


@fault(
    "wav2vec",
    api=r".*",
    module=r"net\.feature_(extractor|projection).*",
    update=True,
)
def extractor_not_frozen(wav2vec):
    """The extractor learns, too. In the forward pass nothing is wrong."""
    wav2vec.freeze = lambda net: None


@fault("wav2vec", line="return logits.log_softmax(dim=-1)")
def softmax_before_the_logarithm(wav2vec):
    """The logits are probabilities before their log_softmax."""
    forward = wav2vec.Model.forward

    class Model(wav2vec.Model):
        def forward(self, waves, known, masked):
            return forward(self, waves, known, masked).softmax(dim=-1)  # here

    wav2vec.Model = Model


@fault(
    "wav2vec",
    module="",
    line=[
        'return torch.einsum("l,lbtw->btw", self.shares.softmax(dim=0), torch.stack(states))',
        "return self.letters(self.mixture(list(made.hidden_states)))",
    ],
)
def shares_of_other_layers(wav2vec):
    """Each layer has the share of the one before."""

    class Model(wav2vec.Model):
        def mixture(self, states):
            return super().mixture(states[1:] + states[:1])  # here

    wav2vec.Model = Model


@fault(
    "wav2vec",
    line=[
        "return -(log_p.mean(dim=-1) * known).sum() / frames.sum()",
        "known = torch.arange(log_p.shape[1]) < frames[:, None]",
    ],
)
def padding_is_even(wav2vec):
    """The distance from even probabilities counts the padding."""
    wav2vec.even_loss = lambda log_p, frames: -log_p.mean()  # here


@fault("wav2vec", api="Optimizer.AdamW.step", update=True)
def one_rate_for_all(wav2vec):
    """What lies below learns as fast as the letters."""
    wav2vec.above = lambda name: True


@harmless("fused", "wav2vec")
def eager_attention(wav2vec):
    """The attention of transformers is written out, not that of PyTorch."""
    config = wav2vec.config
    wav2vec.config = lambda **changes: config(attn_implementation="eager", **changes)


@harmless("loss", "wav2vec")
def ctc_written_out(wav2vec):
    """The CTC by its sums over time, in logarithms, row after row."""

    def row(log_p, letters):
        states = torch.zeros(2 * len(letters) + 1, dtype=torch.long)
        states[1::2] = letters
        skips = torch.zeros(len(states), dtype=torch.bool)
        skips[3::2] = letters[1:] != letters[:-1]
        none = log_p.new_full((1,), -1e30)
        alpha = torch.cat([log_p[0, states[:2]], none.expand(len(states) - 2)])
        for now in log_p[1:]:
            one, two = torch.cat([none, alpha[:-1]]), torch.cat([none, none, alpha[:-2]])
            before = torch.stack([alpha, one, torch.where(skips, two, none)])
            alpha = before.logsumexp(dim=0) + now[states]
        return -alpha[-2:].logsumexp(dim=0)

    def ctc_loss(log_p, letters, frames, counts):
        total = 0.0
        for own, text, length, count in zip(log_p, letters, frames, counts, strict=True):
            total = total + row(own[:length], text[:count]) / count
        return total / len(counts)

    wav2vec.ctc_loss = ctc_loss


@harmless("split", "wav2vec")
def weight_of_the_positions_written_out(wav2vec):
    """The normed weight of the convolution of positions is computed by hand, the padding cut."""

    class Model(wav2vec.Model):
        def __init__(self):
            super().__init__()
            conv = self.net.encoder.pos_conv_embed.conv
            parts = conv.parametrizations.weight

            def forward(x):
                length, direction = parts.original0, parts.original1
                size = direction.square().sum(dim=(0, 1), keepdim=True).sqrt()
                weight = length / size * direction
                halves = zip(x.chunk(2, dim=1), weight.chunk(2), strict=True)
                made = [F.conv1d(F.pad(part, (2, 2)), own) for part, own in halves]
                return torch.cat(made, dim=1) + conv.bias[:, None]

            conv.forward = forward

    wav2vec.Model = Model


@harmless("reordered", "wav2vec")
def layers_added_up(wav2vec):
    """The mixture adds one layer after the other, the last one first."""

    class Model(wav2vec.Model):
        def mixture(self, states):
            raised = self.shares.exp()
            total = 0.0
            for share, state in zip(reversed(list(raised)), reversed(states), strict=True):
                total = total + share * state
            return total / raised.sum()

    wav2vec.Model = Model


@harmless("fused", "wav2vec")
def optimizer_of_one_kernel(wav2vec):
    """The optimizer is fused."""
    optimizer = wav2vec.optimizer
    wav2vec.optimizer = lambda model: optimizer(model, fused=True)


@harmless("rows", "wav2vec", group="whole step")
def waves_turned(wav2vec):
    """The waves stand in the other order."""
    backward = wav2vec.backward
    wav2vec.backward = lambda model, data: backward(
        model, {name: value.flip(0) for name, value in data.items()}
    )


@harmless("padding", "wav2vec", group="whole step")
def more_silence(wav2vec):
    """Eight more samples of padding: two more frames."""
    backward = wav2vec.backward

    def longer(model, data):
        more = {"waves": F.pad(data["waves"], (0, 8)), "masked": F.pad(data["masked"], (0, 2))}
        backward(model, data | more)

    wav2vec.backward = longer


@harmless("micro batches", "wav2vec", group="whole step")
def wave_after_wave(wav2vec):
    """Each wave goes backward on its own, without padding."""

    def backward(model, data):
        frames = wav2vec.frames_of(data["samples"])
        for row in range(len(frames)):
            own = {name: value[row : row + 1] for name, value in data.items()}
            own["waves"] = own["waves"][:, : int(own["samples"])]
            own["masked"] = own["masked"][:, : int(frames[row])]
            ctc, even = wav2vec.losses_of(model, own)
            (ctc / len(frames) + even * (frames[row] / frames.sum())).backward()

    wav2vec.backward = backward


@harmless("recomputed", "wav2vec", group="whole step")
def layers_computed_again(wav2vec):
    """The layers are computed again in the backward pass."""
    build = wav2vec.build

    def again():
        model = build()
        model.net.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    wav2vec.build = again


@harmless("scaled", "wav2vec", group="whole step")
def even_part_backward_first(wav2vec):
    """The second loss goes backward first; both are 256 times as large."""

    def backward(model, data):
        ctc, even = wav2vec.losses_of(model, data)
        (256 * even).backward(retain_graph=True)
        (256 * ctc).backward()
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad.mul_(1 / 256)

    wav2vec.backward = backward
