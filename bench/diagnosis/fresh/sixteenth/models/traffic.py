"""The traffic of the next hour by diffusion on roads (torch_geometric): sensors that fail often."""

import torch
from torch import nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import coalesce, scatter

SENSORS, NEAR, WINDOWS, PAST, FUTURE, DAY = 10, 3, 4, 5, 4, 288
HIDDEN, ORDER, LAYERS, THRESHOLD = 10, 2, 2, 0.1
LR, ADAM_EPS, MAX_NORM, MILESTONES, GAMMA, L1_WEIGHT = 1e-2, 1e-3, 5.0, (1, 4), 0.3, 1e-3


def edges_of(distances):
    """Only near sensors are joined: a Gaussian of the way, in units of its spread."""
    known = distances[distances.isfinite()]
    weights = torch.exp(-((distances / known.std()) ** 2))
    weights = torch.where(distances.isfinite() & (weights > THRESHOLD), weights, 0.0)
    source, target = weights.nonzero().unbind(dim=1)
    return torch.stack([source, target]), weights[source, target]


def probabilities(edge_index, weight, sensors):
    """Weights of a random walk: those of all edges that leave a sensor add up to one."""
    leaving = scatter(weight, edge_index[0], dim_size=sensors, reduce="sum")
    return edge_index, weight / leaving[edge_index[0]]


def supports_of(distances):
    """The walk along the roads, and the one against them."""
    edge_index, weight = edges_of(distances)
    edge_index, weight = coalesce(edge_index, weight, num_nodes=len(distances))
    directions = (edge_index, edge_index.flip(0))
    return [probabilities(each, weight, len(distances)) for each in directions]


class Walk(MessagePassing):
    """One step along all edges."""

    def __init__(self):
        super().__init__(aggr="add", node_dim=-2)

    def forward(self, x, edge_index, weight):
        return self.propagate(edge_index, x=x, weight=weight)

    def message(self, x_j, weight):
        return weight.unsqueeze(-1) * x_j


class Diffusion(nn.Module):
    """What arrives at each sensor, by polynomials of Chebyshev of both walks."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.walk = Walk()
        self.linear = nn.Linear(inputs * (2 * ORDER + 1), outputs)

    def spread(self, x, support):
        return self.walk(x, *support)

    def terms(self, x, supports):
        found = [x]
        for support in supports:
            before, now = x, self.spread(x, support)
            found.append(now)
            for _ in range(ORDER - 1):
                before, now = now, 2 * self.spread(now, support) - before
                found.append(now)
        return found

    def forward(self, x, supports):
        return self.linear(torch.cat(self.terms(x, supports), dim=-1))


class Cell(nn.Module):
    """A gated recurrence whose products are diffusions."""

    def __init__(self, inputs):
        super().__init__()
        self.gates = Diffusion(inputs + HIDDEN, 2 * HIDDEN)
        self.new = Diffusion(inputs + HIDDEN, HIDDEN)
        nn.init.ones_(self.gates.linear.bias)

    def forward(self, x, state, supports):
        both = torch.cat([x, state], dim=-1)
        reset, keep = self.gates(both, supports).sigmoid().chunk(2, dim=-1)
        new = self.new(torch.cat([x, reset * state], dim=-1), supports).tanh()
        return keep * state + (1 - keep) * new


class Stack(nn.Module):
    def __init__(self, inputs):
        super().__init__()
        widths = [inputs] + [HIDDEN] * (LAYERS - 1)
        self.cells = nn.ModuleList(Cell(width) for width in widths)

    def forward(self, x, states, supports):
        found = []
        for cell, state in zip(self.cells, states, strict=True):
            x = cell(x, state, supports)
            found.append(x)
        return x, found


class Traffic(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Stack(3)
        self.decoder = Stack(3)
        self.norm = nn.LayerNorm(HIDDEN)
        self.speed = nn.Linear(HIDDEN, 1)
        self.register_buffer("mean", torch.zeros(()))
        self.register_buffer("std", torch.ones(()))

    def encode(self, past, supports):
        states = [past.new_zeros(*past.shape[:1], past.shape[2], HIDDEN) for _ in range(LAYERS)]
        for moment in past.unbind(dim=1):
            _, states = self.encoder(moment, states, supports)
        return states

    def decode(self, states, hours, truth, told, supports):
        """Each speed is the input of the next moment; some are replaced by the truth."""
        speed = torch.zeros_like(truth[:, 0])
        found = []
        for k in range(FUTURE):
            x, states = self.decoder(torch.cat([speed, hours[:, k]], dim=-1), states, supports)
            made = self.speed(self.norm(x))
            found.append(made)
            speed = truth[:, k] if told[k] else made
        return torch.stack(found, dim=1)

    def forward(self, batch, supports):
        past = torch.cat([self.scaled(batch["past"]), hours_of(batch, 0, PAST)], dim=-1)
        states = self.encode(past, supports)
        hours = hours_of(batch, PAST, PAST + FUTURE)
        truth = self.scaled(batch["future"])
        return self.decode(states, hours, truth, batch["told"], supports) * self.std + self.mean

    def scaled(self, speeds):
        return (speeds - self.mean) / self.std


def hours_of(batch, begin, end):
    """The hour as a place on a circle, for all sensors: (windows, moments, sensors, 2)."""
    moments = batch["start"].unsqueeze(1) + torch.arange(begin, end)
    angle = 2 * torch.pi * moments.to(batch["past"].dtype) / DAY
    hours = torch.stack([angle.sin(), angle.cos()], dim=-1)
    return hours.unsqueeze(2).expand(-1, -1, batch["past"].shape[2], -1)


@torch.no_grad()
def fit(model, past):
    """Mean and spread of speeds; a sensor that says zero has failed."""
    known = past[past != 0]
    model.mean.copy_(known.mean())
    model.std.copy_(known.std())


def count_of(batch):
    return (batch["future"] != 0).sum()


def error_sum(speeds, future):
    """The sum of absolute errors, where the truth is known."""
    known = (future != 0).to(speeds.dtype)
    return ((speeds - future).abs() * known).sum()


def loss_of(model, batch, count):
    supports = supports_of(batch["distances"])
    return error_sum(model(batch, supports), batch["future"]) / count


def penalty(model):
    """Weights of diffusions are few."""
    weights = [p for name, p in model.named_parameters() if name.endswith("linear.weight")]
    return L1_WEIGHT * sum(p.abs().sum() for p in weights)


def backward(model, batch):
    (loss_of(model, batch, count_of(batch)) + penalty(model)).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Traffic().train()


def optimizer(model, **more):
    adam = torch.optim.Adam(model.parameters(), lr=LR, eps=ADAM_EPS, **more)
    model.schedule = torch.optim.lr_scheduler.MultiStepLR(adam, MILESTONES, GAMMA)
    return adam


def make_distances(generator):
    """Each road has a length; from most sensors there is no road to another one."""
    places = torch.rand(SENSORS, 2, generator=generator)
    away = torch.cdist(places, places) * (1 + torch.rand(SENSORS, SENSORS, generator=generator))
    far = away.argsort(dim=1).argsort(dim=1) > NEAR
    return away.masked_fill(far, torch.inf).fill_diagonal_(0.0)


def batch(generator):
    """Speeds go up and down with the hour; a tenth of the values is missing."""
    moments, start = PAST + FUTURE, torch.randint(0, DAY, (WINDOWS,), generator=generator)
    hour = (start.unsqueeze(1) + torch.arange(moments)) / DAY
    wave = torch.sin(2 * torch.pi * hour).unsqueeze(2)
    noise = torch.randn(WINDOWS, moments, SENSORS, generator=generator)
    level = 40 + 20 * torch.rand(SENSORS, generator=generator)
    speeds = level + 10 * wave + 3 * noise
    missing = torch.rand(WINDOWS, moments, SENSORS, generator=generator) < 0.1
    speeds = speeds.masked_fill(missing, 0.0).unsqueeze(3)
    return {
        "past": speeds[:, :PAST],
        "future": speeds[:, PAST:],
        "start": start,
        "told": (torch.rand(FUTURE, generator=generator) < 0.5).tolist(),
        "distances": make_distances(generator),
    }


def step(model, optimizer, batch):
    fit(model, batch["past"])
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.schedule.step()
