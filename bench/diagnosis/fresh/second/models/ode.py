"""A latent differential equation between irregular observations, by Runge-Kutta, and Shampoo."""

import math

import torch
from torch import nn

SERIES, WIDTH, HIDDEN, TIMES, BATCH, STEPS = 3, 8, 12, 5, 6, 2
CUT = 3  # the gradient goes back through so many observations
EMPTY = 1e-3


class Field(nn.Module):
    """The derivative of the state; it knows the phase of the day."""

    def __init__(self):
        super().__init__()
        self.inside = nn.Linear(WIDTH + 2, HIDDEN)
        self.outside = nn.Linear(HIDDEN, WIDTH)

    def forward(self, time, h):
        phase = torch.stack([torch.sin(time), torch.cos(time)], dim=-1)
        return self.outside(torch.tanh(self.inside(torch.cat([h, phase], dim=-1)))) - 0.1 * h


def runge_kutta(field, time, h, size):
    """One step of the classical method; `size` differs from row to row."""
    half, wide = 0.5 * size, size[:, None]
    k1 = field(time, h)
    k2 = field(time + half, h + 0.5 * wide * k1)
    k3 = field(time + half, h + 0.5 * wide * k2)
    k4 = field(time + size, h + wide * k3)
    return h + wide / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def flow(field, start, end, h):
    size = (end - start) / STEPS
    for number in range(STEPS):
        h = runge_kutta(field, start + number * size, h, size)
    return h


class Jump(nn.Module):
    """An observation changes the state by a gated cell; what was not seen is its prediction."""

    def __init__(self):
        super().__init__()
        self.cell = nn.GRUCell(2 * SERIES, WIDTH)

    def forward(self, h, x, seen, predicted):
        filled = torch.where(seen, x, predicted)
        changed = self.cell(torch.cat([filled, seen.to(h.dtype)], dim=-1), h)
        return torch.where(seen.any(dim=-1, keepdim=True), changed, h)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.field = Field()
        self.jump = Jump()
        self.read = nn.Linear(WIDTH, 2 * SERIES)
        self.begin = nn.Parameter(torch.randn(WIDTH) * 0.3)

    def forward(self, x, seen, times):
        h = self.begin.expand(len(x), -1)
        time, means, logs = torch.zeros(len(x)), [], []
        for number in range(x.shape[1]):
            if number == x.shape[1] - CUT:
                h = h.detach()
            h = flow(self.field, time, times[:, number], h)
            mean, log_variance = self.read(h).chunk(2, dim=-1)
            means.append(mean)
            logs.append(log_variance)
            h = self.jump(h, x[:, number], seen[:, number], mean)
            time = times[:, number]
        return torch.stack(means, dim=1), torch.stack(logs, dim=1)


def loss_of(mean, log_variance, x, seen):
    """The likelihood of what was seen: a mean for each series, then over the series."""
    bounded = log_variance.clamp(-4, 4)
    value = 0.5 * (bounded + (x - mean).square() * torch.exp(-bounded) + math.log(2 * math.pi))
    counts = seen.sum(dim=(0, 1)).clamp(min=1)
    return ((value * seen).sum(dim=(0, 1)) / counts).mean()


def penalty(model):
    """The size of the field's Jacobian, roughly: the norms of its matrices."""
    return model.field.inside.weight.norm() * model.field.outside.weight.norm()


def root(matrix, power):
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values.clamp(min=1e-6) ** power) @ vectors.T


class Shampoo(torch.optim.Optimizer):
    """Matrices are preconditioned from both sides; others by the root of their squares."""

    def __init__(self, weights, lr, momentum=0.9, epsilon=1e-2):
        super().__init__(weights, {"lr": lr, "momentum": momentum, "epsilon": epsilon})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                made = self.direction(weight.grad, self.state[weight], group)
                held = self.state[weight].setdefault("held", torch.zeros_like(weight))
                held.mul_(group["momentum"]).add_(made)
                weight.add_(held, alpha=-group["lr"])

    def direction(self, gradient, state, group):
        if gradient.dim() != 2:
            state["square"] = state.get("square", group["epsilon"]) + gradient.square()
            return gradient / state["square"].sqrt()
        if not state:
            rows, columns = gradient.shape
            state["left"] = group["epsilon"] * torch.eye(rows)
            state["right"] = group["epsilon"] * torch.eye(columns)
        state["left"] += gradient @ gradient.T
        state["right"] += gradient.T @ gradient
        return root(state["left"], -0.25) @ gradient @ root(state["right"], -0.25)


def build():
    return Model()


def optimizer(model):
    made = Shampoo(model.parameters(), lr=0.02)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda t: min(1.0, (t + 1) / 4))
    return made


def batch(generator):
    x = torch.randn(BATCH, TIMES, SERIES, generator=generator)
    seen = torch.rand(BATCH, TIMES, SERIES, generator=generator) < 0.6
    seen[0, 1] = False
    times = (torch.rand(BATCH, TIMES, generator=generator) + 0.1).cumsum(dim=1)
    return x, seen, times


def backward(model, x, seen, times):
    mean, log_variance = model(x, seen, times)
    (loss_of(mean, log_variance, x, seen) + EMPTY * penalty(model)).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, *batch)
    nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    model.schedule.step()
