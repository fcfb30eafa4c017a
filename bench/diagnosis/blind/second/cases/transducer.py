"""Cases of the speech transducer."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def recordings_by_length(transducer):
    """The recordings stand by their length, the longest first; labels are padded with another
    label, and there are two frames of padding more."""
    descend = transducer.descend

    def padded(model, frames, sizes, labels, lengths, start):
        order = sizes.argsort(descending=True)
        known = torch.arange(transducer.LABELS) < lengths[:, None]
        labels = labels.where(known, torch.tensor(transducer.VOCABULARY))
        frames = F.pad(frames, (0, 0, 0, 2))
        values = (frames, sizes, labels, lengths, start)
        descend(model, *(each[order] for each in values))

    transducer.descend = padded


def one_recording_at_a_time(transducer):
    """Each recording goes backward on its own, cut to its own length."""
    descend = transducer.descend
    losses = transducer.transducer_loss, transducer.ctc_loss

    def share(loss):
        return lambda *arguments: loss(*arguments) / transducer.BATCH

    transducer.transducer_loss, transducer.ctc_loss = (share(each) for each in losses)

    def one_by_one(model, frames, sizes, labels, lengths, start):
        for row in range(len(frames)):
            one = slice(row, row + 1)
            own, most = frames[one, : sizes[row]], labels[one, : lengths[row]]
            descend(model, own, sizes[one], most, lengths[one], start[one])

    transducer.descend = one_by_one


@fault(
    "transducer",
    module=r"(words)?",
    line=["return F.pad(labels, (1, 0), value=BLANK)"],
    api=r"Functional\.(embedding|pad)",
)
def predictor_reads_the_next_label(transducer):
    """The predictor reads the label that it has to predict: the blank stands at the end."""
    transducer.read = lambda labels: F.pad(labels, (0, 1), value=transducer.BLANK)  # here


@fault(
    "transducer",
    line=[
        "here.append(columns[-1][:, place] + blank[:, time - 1, place])",
        "column.append(here[0] if len(here) == 1",
    ],
)
def blank_of_the_frame_after(transducer):
    """A path that goes on in time takes the blank of the frame that it comes to."""

    def paths(blank, label):
        columns = []
        for time in range(blank.shape[1]):
            column = []
            for place in range(blank.shape[2]):
                here = []
                if time:
                    here.append(columns[-1][:, place] + blank[:, time, place])  # here
                if place:
                    here.append(column[-1] + label[:, time, place - 1])
                if not here:
                    here.append(torch.zeros(len(blank)))
                column.append(here[0] if len(here) == 1 else torch.logaddexp(*here))  # here
            columns.append(torch.stack(column, dim=1))
        return torch.stack(columns, dim=1)

    transducer.paths = paths


@fault(
    "transducer",
    line=["return frames.reshape(rows, times // STACK, STACK * bands), lengths // STACK"],
    module=r"(enter)?",
    api=r"Tensor\.(reshape|view)|Functional\.linear",
)
def bands_of_two_frames_interleaved(transducer):
    """Frames are stacked along the wrong axis: halves of the recording stand side by side."""

    def stacked(frames, lengths):
        rows, times, bands = frames.shape
        shape = (rows, transducer.STACK, times // transducer.STACK, bands)
        halves = frames.reshape(shape)  # here
        return halves.transpose(1, 2).flatten(2), lengths // transducer.STACK  # here

    transducer.stacked = stacked


@fault("transducer", api="Optimizer.Adam.step", update=True)
def warm_up_not_scaled(transducer):
    """The warm-up is divided by the root of its steps alone: the first rates are larger."""

    def rate_of(step):
        return transducer.WIDTH**-0.5 * min(step**-0.5, step * transducer.WARM**-0.5)

    transducer.rate_of = rate_of


@fault(
    "transducer",
    beside=recordings_by_length,
    line=["last = paths(blank, label)[row, frames - 1, lengths] + blank"],
)
def last_blank_forgotten(transducer):
    """The blank that ends a path is not counted."""

    def transducer_loss(log_p, labels, frames, lengths):
        blank, label = transducer.steps_of(log_p, labels)
        row = torch.arange(len(labels))
        last = transducer.paths(blank, label)[row, frames - 1, lengths]  # here
        return -last / lengths  # here

    transducer.transducer_loss = transducer_loss


@fault(
    "transducer",
    beside=one_recording_at_a_time,
    line=["hidden = (band >= start[:, None])", "return frames.masked_fill(hidden[:, None], 0.0)"],
)
def times_hidden_for_bands(transducer):
    """Frames are hidden, in place of bands."""

    def hidden_bands(frames, start):
        time = torch.arange(frames.shape[1])
        hidden = (time >= start[:, None]) & (time < start[:, None] + 2)  # here
        return frames.masked_fill(hidden[..., None], 0.0)  # here

    transducer.hidden_bands = hidden_bands


harmless("padding", "transducer")(recordings_by_length)
harmless("micro batches", "transducer")(one_recording_at_a_time)


@harmless("split", "transducer")
def joint_of_two_products(transducer):
    """Frames and labels are multiplied before they are added: no pairs are joined."""

    class Transducer(transducer.Transducer):
        def join(self, heard, said):
            of_frames, of_labels = self.joint.weight.chunk(2, dim=1)
            left = F.linear(heard, of_frames)
            return left[:, :, None] + F.linear(said, of_labels, self.joint.bias)[:, None]

    transducer.Transducer = Transducer


@harmless("time steps", "transducer")
def paths_by_diagonals(transducer):
    """The sums over paths go by diagonals, on which frame and place have the same sum."""

    def paths(blank, label):
        rows, times, places = blank.shape
        number = torch.arange(places)
        value = torch.full((rows, places), transducer.NEVER)
        value = value.index_fill(1, torch.tensor(0), 0.0)
        diagonals = [value]
        for diagonal in range(1, times + places - 1):
            time = diagonal - number
            inside = (time >= 0) & (time < times)
            own = time.clamp(0, times - 1)
            stay = value + blank[:, (time - 1).clamp(0, times - 1), number]
            stay = stay.masked_fill(time <= 0, transducer.NEVER)
            come = value[:, :-1] + label[:, own[1:], number[:-1]]
            come = F.pad(come, (1, 0), value=transducer.NEVER)
            value = torch.logaddexp(stay, come).masked_fill(~inside, transducer.NEVER)
            diagonals.append(value)
        every = torch.stack(diagonals, dim=1)
        time = torch.arange(times)[:, None]
        return every[:, time + number, number.expand(times, -1)]

    transducer.paths = paths
