"""A filter of states: an encoder with its own noise, a learned motion, smoothing, gaps."""

import math

import torch
from torch import nn
from torch.nn import functional as F

STREAMS, FRAMES, PIXELS, HIDDEN = 6, 5, 10, 12
STATE, SEEN, CONTROLS = 4, 2, 2
LR, MOTION_LR, MAX_NORM, DRAWN_WEIGHT, FLOOR = 1e-2, 3e-3, 5.0, 2.0, 1e-2


class Encoder(nn.Module):
    """What is seen in a frame, and how uncertain that is."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(PIXELS, HIDDEN)
        self.place = nn.Linear(HIDDEN, SEEN)
        self.noise = nn.Linear(HIDDEN, SEEN)

    def forward(self, frames):
        h = torch.tanh(self.hidden(frames))
        return self.place(h), F.softplus(self.noise(h)) + FLOOR


class Motion(nn.Module):
    def __init__(self):
        super().__init__()
        self.change = nn.Parameter(0.2 * torch.randn(STATE, STATE))
        self.control = nn.Parameter(0.3 * torch.randn(STATE, CONTROLS))
        self.log_deviation = nn.Parameter(torch.full((STATE,), -1.0) + 0.2 * torch.randn(STATE))

    def matrix(self):
        return torch.eye(STATE) + self.change

    def noise(self):
        return torch.diag_embed((2 * self.log_deviation).exp())

    def spread(self, cov):
        a = self.matrix()
        return a @ cov @ a.t() + self.noise()

    def forward(self, mean, cov, u):
        return mean @ self.matrix().t() + u @ self.control.t(), self.spread(cov)


class Filter(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.motion = Motion()
        self.draw = nn.Sequential(nn.Linear(STATE, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, PIXELS))
        self.first_mean = nn.Parameter(0.1 * torch.randn(STATE))
        self.register_buffer("look", torch.eye(SEEN, STATE))
        self.register_buffer("mean", torch.zeros(STREAMS, STATE))
        self.register_buffer("cov", torch.eye(STATE).repeat(STREAMS, 1, 1))


def begin(model, is_new):
    """The state that the last window left; a new stream begins at the learned mean."""
    mean = torch.where(is_new[:, None], model.first_mean, model.mean)
    cov = torch.where(is_new[:, None, None], torch.eye(STATE), model.cov)
    return mean, cov


def surprise(model, mean, cov, place, noise):
    residual = place - mean @ model.look.t()
    return residual, model.look @ cov @ model.look.t() + torch.diag_embed(noise)


def gain(model, cov, total):
    return torch.linalg.solve(total, model.look @ cov).transpose(-2, -1)


def corrected(model, cov, k, noise):
    """The form of Joseph, which stays symmetric."""
    rest = torch.eye(STATE) - k @ model.look
    left = rest @ cov @ rest.transpose(-2, -1)
    return left + k @ torch.diag_embed(noise) @ k.transpose(-2, -1)


def surprise_loss(residual, total):
    """The negative logarithm of the density of each residual."""
    root = torch.linalg.cholesky(total)
    white = torch.linalg.solve_triangular(root, residual[:, :, None], upper=False).squeeze(2)
    log_det = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum(dim=-1)
    return 0.5 * (white.square().sum(dim=-1) + log_det + SEEN * math.log(2 * math.pi))


def encoded(model, frames):
    return model.encoder(frames)


def filtered(model, data, state):
    """Losses of all frames, and what was expected and known at each."""
    places, noises = encoded(model, data["frames"])
    mean, cov = state
    losses, expected, known = [], [], []
    for t in range(data["frames"].shape[1]):
        mean, cov = model.motion(mean, cov, data["controls"][:, t])
        expected.append((mean, cov))
        residual, total = surprise(model, mean, cov, places[:, t], noises[:, t])
        seen = data["seen"][:, t]
        losses.append(surprise_loss(residual, total) * seen)
        k = gain(model, cov, total)
        moved = mean + (k @ residual[:, :, None]).squeeze(2)
        mean = torch.where(seen[:, None], moved, mean)
        sure = corrected(model, cov, k, noises[:, t])
        cov = torch.where(seen[:, None, None], sure, cov)
        known.append((mean, cov))
    return torch.stack(losses, dim=1), expected, known


def look_back(motion, cov, expected_cov):
    return torch.linalg.solve(expected_cov, motion.matrix() @ cov).transpose(-2, -1)


def smoothed(model, expected, known):
    """Means given all frames, from the last one back."""
    mean = known[-1][0]
    means = [mean]
    for t in range(len(known) - 2, -1, -1):
        back = look_back(model.motion, known[t][1], expected[t + 1][1])
        mean = known[t][0] + (back @ (mean - expected[t + 1][0])[:, :, None]).squeeze(2)
        means.insert(0, mean)
    return torch.stack(means, dim=1)


def drawn_loss(model, means, frames):
    return F.mse_loss(model.draw(means), frames, reduction="sum")


def losses(model, data, state):
    """The sum over frames that are seen, that over all pixels, and the state at the end."""
    surprises, expected, known = filtered(model, data, state)
    drawn = drawn_loss(model, smoothed(model, expected, known), data["frames"])
    return surprises.sum(), drawn, known[-1]


def counts(data):
    return data["seen"].sum(), data["frames"].numel()


def total_loss(surprise_sum, drawn_sum, seen, pixels):
    return surprise_sum / seen + DRAWN_WEIGHT * drawn_sum / pixels


def keep(model, state):
    model.mean.copy_(state[0].detach())
    model.cov.copy_(state[1].detach())


def backward(model, data):
    *sums, state = losses(model, data, begin(model, data["is_new"]))
    total_loss(*sums, *counts(data)).backward()
    keep(model, state)


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Filter()


def optimizer(model, **more):
    motion = list(model.motion.parameters())
    slow = {id(p) for p in motion}
    rest = [p for p in model.parameters() if id(p) not in slow]
    groups = [{"params": rest}, {"params": motion, "lr": MOTION_LR}]
    return torch.optim.Adam(groups, lr=LR, betas=(0.9, 0.98), **more)


def batch(generator):
    seen = torch.rand(STREAMS, FRAMES, generator=generator) < 0.7
    seen[:, 0] = True
    seen[:2, -1] = False
    return {
        "frames": torch.randn(STREAMS, FRAMES, PIXELS, generator=generator),
        "controls": torch.randn(STREAMS, FRAMES, CONTROLS, generator=generator),
        "seen": seen,
        "is_new": torch.rand(STREAMS, generator=generator) < 0.4,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
