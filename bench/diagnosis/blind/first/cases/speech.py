"""Cases of speech to text."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def longer_silence(speech):
    """Sixteen more samples of silence behind all rows: two more frames of padding."""
    descend = speech.descend

    def padded(model, samples, lengths, texts, sizes):
        descend(model, F.pad(samples, (0, 16)), lengths, F.pad(texts, (0, 1), value=1), sizes)

    speech.descend = padded


def row_by_row(speech):
    """Each row goes backward on its own, the last one first."""

    def descend(model, *batch):
        for row in reversed(range(speech.BATCH)):
            samples, lengths, texts, sizes = (each[row : row + 1] for each in batch)
            features = speech.normalised(speech.spectrum(samples), lengths)
            each = speech.losses(model(features, lengths), lengths, texts, sizes)
            (each.sum() / speech.BATCH).backward()

    speech.descend = descend


@fault("speech", line="each = F.ctc_loss(logs, texts, shorter(lengths)", api="Functional.ctc_loss")
def another_blank(speech):
    """The last letter is taken as the blank."""
    speech.BLANK = speech.LETTERS - 1


@fault("speech", line="return (lengths - 1) // 2 + 1", api="Tensor.__floordiv__")
def lengths_rounded_down(speech):
    """Lengths behind the stride are one too small: the last frame of each row is lost."""
    speech.shorter = lambda lengths: (lengths - 1) // 2  # here


@fault(
    "speech",
    module="encoder",
    module_only=r"encoder(\.conv2)?",
    line="return x * frames_of(x.transpose(1, 2), lengths)",
    api="Functional.gelu",
)
def padding_not_hidden(speech):
    """What the convolutions make of the padding is not set to zero: the strided one reads it."""

    class Encoder(speech.Encoder):
        def hidden(self, x, lengths):
            return x  # here

    speech.Encoder = Encoder


@fault("speech", module=r"forth\.cell", line="new = torch.tanh(a[2] + reset * b[2])")
def reset_of_the_wrong_half(speech):
    """The reset gate is applied to the input's part, not to the state's."""

    class Cell(speech.Cell):
        def forward(self, x, state):
            a, b = self.inner(x).chunk(3, dim=-1), self.outer(state).chunk(3, dim=-1)
            reset, update = torch.sigmoid(a[0] + b[0]), torch.sigmoid(a[1] + b[1])
            new = torch.tanh(reset * a[2] + b[2])  # here
            return (1 - update) * new + update * state

    speech.Cell = Cell


@fault(
    "speech", beside=longer_silence, line="mean = (features * known).sum(1, keepdim=True) / count"
)
def mean_of_all_frames(speech):
    """Rows are centred with the mean over the frames of the longest row, the padding included."""

    def normalised(features, lengths):
        known = speech.frames_of(features, lengths)
        count = lengths[:, None, None].to(features.dtype)
        mean = features[:, : max(speech.LENGTHS)].mean(1, keepdim=True)  # here
        centred = (features - mean) * known
        deviation = (centred.square().sum(1, keepdim=True) / count).sqrt()
        return centred / (deviation + 1e-5)

    speech.normalised = normalised


@fault("speech", beside=row_by_row, line="return each / sizes", api="Tensor.__truediv__")
def losses_not_divided(speech):
    """The loss of a row is divided by its frames, not by its letters."""

    def losses(logits, lengths, texts, sizes):
        logs = F.log_softmax(logits, dim=-1).transpose(0, 1)
        short = speech.shorter(lengths)
        each = F.ctc_loss(logs, texts, short, sizes, blank=speech.BLANK, reduction="none")
        return each / short  # here

    speech.losses = losses


harmless("padding", "speech")(longer_silence)
harmless("micro batches", "speech")(row_by_row)


@harmless("time steps", "speech")
def inputs_of_all_times(speech):
    """The inputs of all times by one product; the gates of the state remain in the loop."""

    class Direction(speech.Direction):
        def forward(self, x, known):
            inner = self.cell.inner(x).unbind(1)
            state, states = x.new_zeros(len(x), speech.STATE), []
            order = list(range(x.shape[1]))[:: -1 if self.backwards else 1]
            for time in order:
                a = inner[time].chunk(3, dim=-1)
                b = self.cell.outer(state).chunk(3, dim=-1)
                update = torch.sigmoid(a[1] + b[1])
                new = torch.tanh(a[2] + torch.sigmoid(a[0] + b[0]) * b[2])
                made = new + update * (state - new)
                state = torch.where(known[:, time] > 0, made, state)
                states.append(state)
            return torch.stack(states[:: -1 if self.backwards else 1], dim=1)

    speech.Direction = Direction


@harmless("split", "speech")
def spectrum_by_products(speech):
    """The spectrum by products with sines and cosines, as of ports without a Fourier transform."""

    def spectrum(samples):
        window = torch.hann_window(speech.WINDOW, dtype=samples.dtype)
        frames = samples.unfold(1, speech.WINDOW, speech.HOP) * window
        turns = torch.outer(torch.arange(speech.WINDOW), torch.arange(speech.BANDS))
        angles = turns.to(samples.dtype) * (2 * torch.pi / speech.WINDOW)
        power = (frames @ angles.cos()).square() + (frames @ angles.sin()).square()
        return torch.log(power + speech.FLOOR)

    speech.spectrum = spectrum
