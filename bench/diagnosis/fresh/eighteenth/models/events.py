"""When the next event comes, and of which kind: an LSTM in continuous time (neural Hawkes)."""

import copy
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F

KINDS, WIDTH, HIDDEN, SAMPLES = 5, 10, 14, 4
BEGIN = KINDS  # the event before the first one
# How many events each row has, and until when it was watched.
EVENTS, ENDS = (7, 4, 6, 5, 3, 7), (9.0, 6.0, 7.5, 8.0, 5.0, 10.0)
SMOOTH, L2_OF_STATES = 1e-6, 1e-3
LR, GAMMA, MAX_NORM = 6e-3, 0.8, 1.7


class State(NamedTuple):
    """What the cell holds at an event, where it goes to, how fast, and how much is shown."""

    cell: torch.Tensor
    target: torch.Tensor
    decay: torch.Tensor
    out: torch.Tensor


def left_after(state, elapsed):
    """The cell goes from where it was at the event to its target."""
    faded = torch.exp(-state.decay * elapsed)
    return state.target + (state.cell - state.target) * faded


def hidden_after(state, elapsed):
    return state.out * torch.tanh(left_after(state, elapsed))


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.of_input = nn.Linear(WIDTH, 7 * HIDDEN)
        self.of_hidden = nn.Linear(HIDDEN, 7 * HIDDEN, bias=False)

    def begin(self, rows):
        zero = self.of_hidden.weight.new_zeros(rows, HIDDEN)
        return State(zero, zero, zero + 1, zero)

    def gates(self, x, hidden):
        return (self.of_input(x) + self.of_hidden(hidden)).chunk(7, dim=1)

    def forward(self, x, state, elapsed):
        left = left_after(state, elapsed)
        hidden = state.out * left.tanh()
        write, keep, show, write_target, keep_target, new, decay = self.gates(x, hidden)
        new = new.tanh()
        cell = keep.sigmoid() * left + write.sigmoid() * new
        target = keep_target.sigmoid() * state.target + write_target.sigmoid() * new
        return State(cell, target, F.softplus(decay), show.sigmoid())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(KINDS + 1, WIDTH)
        self.cell = Cell()
        self.to_rates = nn.Linear(HIDDEN, KINDS)
        self.log_scale = nn.Parameter(0.3 * torch.randn(KINDS))

    def embed(self, kinds):
        return self.embedding(kinds)

    def forward(self, kinds, gaps):
        """The states after all events: (rows, events, width) each."""
        state = self.cell.begin(len(kinds))
        states = []
        for x, gap in zip(self.embed(kinds).unbind(dim=1), gaps.unbind(dim=1), strict=True):
            state = self.cell(x, state, gap.unsqueeze(1))
            states.append(state)
        return State(*(torch.stack(each, dim=1) for each in zip(*states, strict=True)))

    def rates(self, hidden):
        """How many events of each kind come in a unit of time; each kind has its own scale."""
        scale = self.log_scale.exp()
        return scale * F.softplus(self.to_rates(hidden) / scale)


class Process(nn.Module):
    """The average of the weights of all steps is what predicts later."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        self.average = copy.deepcopy(self.net).requires_grad_(False)
        self.averaged = 0


def padded(rows):
    """After the last event, time stands still at the end: intervals of padding have no length."""
    longest = max(len(row["kinds"]) for row in rows)
    room = [longest - len(row["kinds"]) for row in rows]

    def fill(name, value):
        parts = [F.pad(row[name], (0, n), value=value) for row, n in zip(rows, room, strict=True)]
        return torch.stack(parts)

    ends = torch.stack([row["end"] for row in rows]).unsqueeze(1)
    kinds = fill("kinds", 0)
    real = torch.arange(longest) < torch.tensor([[len(row["kinds"])] for row in rows])
    times = torch.where(real, fill("times", 0.0), ends)
    shares = [
        F.pad(row["shares"], (0, 0, 0, n), value=0.5) for row, n in zip(rows, room, strict=True)
    ]
    return {
        "kinds": kinds,
        "real": real,
        "lengths": torch.diff(torch.cat([torch.zeros_like(ends), times, ends], dim=1)),
        "shares": torch.stack(shares),
    }


def gaps_of(inputs):
    """How long before each event the one before was; before the begin is nothing."""
    return F.pad(inputs["lengths"][:, :-1], (1, 0))


def log_rates(model, states, inputs):
    """The rate of the kind that came, just before it came."""
    before = State(*(each[:, :-1] for each in states))
    elapsed = inputs["lengths"][:, :-1].unsqueeze(2)
    rates = model.net.rates(hidden_after(before, elapsed))
    chosen = rates.gather(2, inputs["kinds"].unsqueeze(2)).squeeze(2)
    return ((chosen + SMOOTH).log() * inputs["real"]).sum()


def expected(model, states, inputs):
    """How many events were to be expected: the rates at some moments of each interval."""
    elapsed = inputs["lengths"].unsqueeze(2) * inputs["shares"]
    spread = State(*(each.unsqueeze(2) for each in states))
    rates = model.net.rates(hidden_after(spread, elapsed.unsqueeze(3)))
    return (rates.sum(dim=3).mean(dim=2) * inputs["lengths"]).sum()


def small_states(states, inputs):
    seen = F.pad(inputs["real"], (1, 0), value=True).unsqueeze(2)
    return L2_OF_STATES * (states.cell.square() * seen).sum()


def loss_of(model, inputs, count):
    kinds = F.pad(inputs["kinds"], (1, 0), value=BEGIN)
    states = model.net(kinds, gaps_of(inputs))
    came = log_rates(model, states, inputs)
    loss = expected(model, states, inputs) - came + small_states(states, inputs)
    return loss / count


def backward(model, inputs):
    loss_of(model, inputs, inputs["real"].sum()).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.net.parameters(), MAX_NORM)


@torch.no_grad()
def update_average(model):
    """The mean of the weights after each step; what was at the begin does not count."""
    model.averaged += 1
    for mean, mine in zip(model.average.parameters(), model.net.parameters(), strict=True):
        mean.add_(mine - mean, alpha=1 / model.averaged)


def build():
    return Process().train()


def optimizer(model, **more):
    adam = torch.optim.RAdam(model.net.parameters(), lr=LR, betas=(0.7, 0.9), **more)
    model.schedule = torch.optim.lr_scheduler.ExponentialLR(adam, GAMMA)
    return adam


def batch(generator):
    rows = []
    for count, end in zip(EVENTS, ENDS, strict=True):
        times = torch.rand(count, generator=generator).sort().values
        rows.append(
            {
                "times": 0.95 * end * times,
                "kinds": torch.randint(0, KINDS, (count,), generator=generator),
                "end": torch.tensor(end),
                "shares": torch.rand(count + 1, SAMPLES, generator=generator),
            }
        )
    return rows


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, padded(batch))
    clip(model)
    optimizer.step()
    model.schedule.step()
    update_average(model)
