"""Heat in a plate: a network that obeys the equation, and learns how well the plate conducts."""

import math

import torch
from torch import nn
from torch.nn import functional as F

INSIDE, CHUNKS, BEGIN, EDGE, SENSORS, MOMENTS = 48, 4, 16, 20, 5, 4
END, WIDTH, HEIGHT = 0.5, 2.0, 1.0
FREQUENCIES, SCALE, HIDDEN, LAYERS = 10, 0.12, 24, 3
AMBIENT, RISE = 20.0, 60.0
LEAST_CONDUCTIVITY, CAPACITY, POWER, SPOT = 0.05, 1.3, 4.0, 0.25
CAUSAL, KEEP, NORM_EPS = 0.02, 0.9, 1e-4
LR, GAMMA, MAX_NORM = 4e-3, 0.9, 50.0


class Factored(nn.Module):
    """A linear layer whose rows have a length of their own."""

    def __init__(self, inputs, outputs):
        super().__init__()
        weight = nn.init.xavier_normal_(torch.empty(outputs, inputs))
        self.log_length = nn.Parameter(0.5 + 0.1 * torch.randn(outputs))
        self.direction = nn.Parameter(weight / self.log_length.detach().exp().unsqueeze(1))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x):
        return F.linear(x, self.log_length.exp().unsqueeze(1) * self.direction, self.bias)


class Waves(nn.Module):
    """Places and times as waves of random frequencies, which do not learn."""

    def __init__(self):
        super().__init__()
        self.register_buffer("frequencies", SCALE * torch.randn(3, FREQUENCIES))
        self.register_buffer("extent", torch.tensor([END, WIDTH, HEIGHT]))

    def forward(self, points):
        unit = 2 * points / self.extent - 1
        phase = 2 * math.pi * (unit @ self.frequencies)
        return torch.cat([phase.cos(), phase.sin()], dim=-1)


class Temperature(nn.Module):
    """Each layer mixes what two gates have made of the input."""

    def __init__(self):
        super().__init__()
        self.waves = Waves()
        self.gate1 = Factored(2 * FREQUENCIES, HIDDEN)
        self.gate2 = Factored(2 * FREQUENCIES, HIDDEN)
        widths = [2 * FREQUENCIES] + [HIDDEN] * (LAYERS - 1)
        self.layers = nn.ModuleList(Factored(width, HIDDEN) for width in widths)
        self.out = Factored(HIDDEN, 1)

    def mix(self, h, u, v):
        return h * u + (1 - h) * v

    def forward(self, points):
        x = self.waves(points)
        u, v = torch.tanh(self.gate1(x)), torch.tanh(self.gate2(x))
        for layer in self.layers:
            x = self.mix(torch.tanh(layer(x)), u, v)
        return self.out(x).squeeze(-1)


class Conductivity(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 12)
        self.out = nn.Linear(12, 1)

    def forward(self, places):
        made = self.out(torch.tanh(self.layer(places)))
        return LEAST_CONDUCTIVITY + F.softplus(made).squeeze(-1)


class Plate(nn.Module):
    """`weights`: how much each of the four losses counts; they move with the gradients."""

    def __init__(self):
        super().__init__()
        self.temperature = Temperature()
        self.conductivity = Conductivity()
        self.register_buffer("weights", torch.ones(4))


def gradient(values, points):
    return torch.autograd.grad(values.sum(), points, create_graph=True)[0]


def heat_of_the_laser(points):
    """It goes round on an ellipse while it heats."""
    time, place = points[:, :1], points[:, 1:]
    angle = 2 * math.pi * time / END
    spot = torch.cat([1.0 + 0.5 * angle.cos(), 0.5 + 0.25 * angle.sin()], dim=1)
    away = (place - spot).square().sum(dim=1)
    return POWER * torch.exp(-away / (2 * SPOT**2))


def residuals(model, points):
    """What is left of: capacity du/dt = div(k grad u) + heat."""
    points = points.clone().requires_grad_()
    slopes = gradient(model.temperature(points), points)
    flux = model.conductivity(points[:, 1:]).unsqueeze(1) * slopes[:, 1:]
    along_x = gradient(flux[:, 0], points)[:, 1]
    along_y = gradient(flux[:, 1], points)[:, 2]
    return CAPACITY * slopes[:, 0] - (along_x + along_y) - heat_of_the_laser(points)


def causal_loss(left, times):
    """What is early has to be right before what is late counts."""
    chunks = left[times.argsort()].view(CHUNKS, -1).square().mean(dim=1)
    before = chunks.cumsum(dim=0) - chunks
    trust = torch.exp(-CAUSAL * before).detach()
    return (trust * chunks).mean()


def loss_of_equation(model, batch):
    points = batch["inside"]
    return causal_loss(residuals(model, points), points[:, 0])


def loss_of_begin(model, batch):
    """In the beginning, all is as warm as the room."""
    return model.temperature(batch["begin"]).square().mean()


def loss_of_edges(model, batch):
    """No heat leaves through the edges: the slope along their normals is zero."""
    points = batch["edge"].clone().requires_grad_()
    slopes = gradient(model.temperature(points), points)[:, 1:]
    return (slopes * batch["normal"]).sum(dim=1).square().mean()


def to_unit(degrees):
    """Degrees become what the network speaks of."""
    return (degrees - AMBIENT) / RISE


def loss_of_sensors(model, batch):
    """Sensors that are noisy have less weight."""
    error = model.temperature(batch["sensors"]) - to_unit(batch["measured"])
    return (error / batch["noise"]).square().mean()


def losses_of(model, batch):
    return torch.stack(
        [
            loss_of_equation(model, batch),
            loss_of_begin(model, batch),
            loss_of_edges(model, batch),
            loss_of_sensors(model, batch),
        ]
    )


def balance(model, losses):
    """Weights by which all losses have gradients of one length, slowly."""
    parameters = list(model.temperature.parameters())
    norms = []
    for loss in losses:
        found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
        squares = [g.square().sum() for g in found if g is not None]
        norms.append(torch.stack(squares).sum().sqrt())
    norms = torch.stack(norms)
    model.weights.lerp_(norms.sum() / (norms + NORM_EPS), 1 - KEEP)


def backward(model, batch):
    losses = losses_of(model, batch)
    balance(model, losses)
    (model.weights * losses).sum().backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Plate().train()


def optimizer(model, **more):
    nadam = torch.optim.NAdam(model.parameters(), lr=LR, **more)
    model.schedule = torch.optim.lr_scheduler.ExponentialLR(nadam, GAMMA)
    return nadam


def batch(generator):
    """Points in time and space, and what some sensors say at a few moments."""

    def points(count):
        extent = torch.tensor([END, WIDTH, HEIGHT])
        return extent * torch.rand(count, 3, generator=generator)

    begin, edge, sensors = points(BEGIN), points(EDGE), points(SENSORS)
    begin[:, 0] = 0.0
    normal = torch.eye(2).repeat(EDGE // 2, 1)
    far = torch.rand(EDGE, generator=generator).round()
    edge[:, 1] = torch.where(normal[:, 0] > 0, far * WIDTH, edge[:, 1])
    edge[:, 2] = torch.where(normal[:, 1] > 0, far * HEIGHT, edge[:, 2])
    sensors = sensors.repeat_interleave(MOMENTS, dim=0)
    sensors[:, 0] = END * torch.rand(SENSORS * MOMENTS, generator=generator)
    noise = (0.2 + 0.4 * torch.rand(SENSORS, generator=generator)).repeat_interleave(MOMENTS)
    error = noise * torch.randn(SENSORS * MOMENTS, generator=generator)
    return {
        "inside": points(INSIDE),
        "begin": begin,
        "edge": edge,
        "normal": normal,
        "sensors": sensors,
        "measured": AMBIENT + RISE * (1.2 * sensors[:, 0] + error),
        "noise": noise,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.schedule.step()
