"""Cases of speech recognition."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@fault("speech", line=["mask = mask_of(lengths, x.shape[1])[..., None]", "mean = (x * mask).sum(1"])
def padding_in_the_mean(speech):
    """Padded frames count in the mean and in the variance."""

    def normalise(x, lengths):
        mask = speech.mask_of(lengths, x.shape[1])[..., None]
        mean = x.mean(1, keepdim=True)  # here
        var = (x - mean).square().mean(1, keepdim=True)
        return (x - mean) / (var + 1e-5).sqrt() * mask

    speech.normalise = normalise


@fault("speech", line=["return (power + FLOOR).log()"])
def floor_of_the_logarithm(speech):
    """The floor below the logarithm is that of another library."""
    speech.log_features = lambda power: (power + 1e-2).log()  # here


@fault(
    "speech",
    module="subsample",
    line=["x = x * mask_of(lengths, x.shape[-1])", "x = F.gelu(self.conv2(x))"],
)
def padding_leaks_by_the_bias(speech):
    """Frames behind the end are not masked between the convolutions: the bias leaks in."""

    class Subsample(speech.Subsample):
        def forward(self, x, lengths):
            x = F.gelu(self.conv1(x.transpose(1, 2)))
            x = F.gelu(self.conv2(x))  # here
            return x.transpose(1, 2), speech.lengths_behind(lengths)

    speech.Subsample = Subsample


@fault("speech", module="recurrent", line=["return y[order.argsort()]"])
def not_put_back(speech):
    """Sorted utterances are put back by the order itself instead of its inverse."""

    class Recurrent(speech.Recurrent):
        def run(self, x, lengths):
            order = lengths.argsort(descending=True)
            packed = pack_padded_sequence(x[order], lengths[order], batch_first=True)
            y = self.gru(packed)[0]
            y, _ = pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])
            return y[order]  # here

        def forward(self, x, lengths):
            return x + self.join(self.run(x, lengths))  # here

    speech.Recurrent = Recurrent


@fault(
    "speech",
    module="recurrent",
    line=["packed = pack_padded_sequence(x[order]", "y, _ = pad_packed_sequence"],
)
def recurrence_not_packed(speech):
    """The recurrence runs over the padding: the backward direction begins there."""

    class Recurrent(speech.Recurrent):
        def run(self, x, lengths):
            y = self.gru(x)[0]  # here
            return y * speech.mask_of(lengths, x.shape[1])[..., None]

    speech.Recurrent = Recurrent


@fault("speech", line=["losses = F.ctc_loss(log_probs"])
def blank_is_the_last(speech):
    """The blank is the last letter."""

    def ctc(logits, lengths, letters, sizes):
        log_probs = F.log_softmax(logits, dim=-1).transpose(0, 1)
        last = speech.LETTERS - 1
        losses = F.ctc_loss(log_probs, letters, lengths, sizes, last, "none")  # here
        return (losses / sizes).mean()

    speech.ctc = ctc


@fault(
    "speech", line=["before = F.pad(x[:, :-1], (0, 0, 1, 0))", "return torch.cat([x, x - before]"]
)
def deltas_of_the_next_frame(speech):
    """Differences are those to the frame behind."""

    def with_deltas(x):
        after = F.pad(x[:, 1:], (0, 0, 0, 1))  # here
        return torch.cat([x, x - after], dim=-1)  # here

    speech.with_deltas = with_deltas


@fault("speech", line=["return (losses / sizes).mean()"])
def loss_of_utterances(speech):
    """The loss is not divided by the number of letters of each utterance."""

    def ctc(logits, lengths, letters, sizes):
        log_probs = F.log_softmax(logits, dim=-1).transpose(0, 1)
        blank = speech.BLANK
        losses = F.ctc_loss(log_probs, letters, lengths, sizes, blank, reduction="none")
        return losses.mean() / sizes.float().mean()  # here

    speech.ctc = ctc


@fault("speech", api="Optimizer.NAdam.step", update=True)
def warm_up_begins_at_zero(speech):
    """The rate of the first step is zero."""
    speech.rate = lambda t, warm_up=4: min((t + 1) ** -0.5, t * warm_up**-1.5)


@harmless("reordered", "speech")
def sorted_by_pytorch(speech):
    """The utterances are sorted by pack_padded_sequence itself."""

    class Recurrent(speech.Recurrent):
        def run(self, x, lengths):
            packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            y = self.gru(packed)[0]
            return pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]

    speech.Recurrent = Recurrent


@harmless("time steps", "speech")
def utterance_after_utterance(speech):
    """The recurrence runs for each utterance without padding."""

    class Recurrent(speech.Recurrent):
        def run(self, x, lengths):
            rows = [self.gru(row[None, :n])[0][0] for row, n in zip(x, lengths, strict=True)]
            y = nn.utils.rnn.pad_sequence(rows, batch_first=True)
            return F.pad(y, (0, 0, 0, x.shape[1] - y.shape[1]))

    speech.Recurrent = Recurrent


@harmless("loss", "speech")
def mean_of_ctc_itself(speech):
    """CTC's own mean divides by the letters of each utterance."""

    def ctc(logits, lengths, letters, sizes):
        log_probs = F.log_softmax(logits.transpose(0, 1), dim=-1)
        return F.ctc_loss(log_probs, letters, lengths, sizes, speech.BLANK, reduction="mean")

    speech.ctc = ctc


@harmless("padding", "speech", group="whole step")
def four_more_frames(speech):
    """Four more frames of padding."""
    backward = speech.backward
    speech.backward = lambda model, power, lengths, letters, sizes: backward(
        model, F.pad(power, (0, 0, 0, 4)), lengths, F.pad(letters, (0, 2)), sizes
    )


@harmless("rows", "speech", group="whole step")
def longest_first(speech):
    """The utterances are sorted by length in the batch."""
    backward = speech.backward

    def changed(model, *batch):
        order = batch[1].argsort(descending=True)
        backward(model, *(each[order] for each in batch))

    speech.backward = changed


@harmless("micro batches", "speech", group="whole step")
def two_and_two(speech):
    """Two micro-batches of two utterances; the shorter ones have less padding."""

    def backward(model, power, lengths, letters, sizes):
        for rows in (slice(0, 2), slice(2, 4)):
            longest = int(lengths[rows].max())
            logits, frames = model(power[rows, :longest], lengths[rows])
            (speech.ctc(logits, frames, letters[rows], sizes[rows]) / 2).backward()

    speech.backward = backward
