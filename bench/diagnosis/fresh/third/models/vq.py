"""A VQ autoencoder of signals: codes that follow moving averages, and dead ones revived."""

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, WIDTH, SIZE, CODES, LENGTH, BATCH = 3, 8, 4, 12, 16, 5
DECAY, SMOOTH, COMMITMENT, DEAD, SPECTRUM = 0.8, 1e-3, 0.25, 0.85, 0.3


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1d(CHANNELS, WIDTH, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(2, WIDTH)
        self.inside = nn.Conv1d(WIDTH, WIDTH, 3, padding=2, dilation=2)
        self.leave = nn.Conv1d(WIDTH, SIZE, 1)

    def forward(self, x):
        h = F.silu(self.norm(self.enter(x)))
        return self.leave(F.silu(h + self.inside(h)))


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.enter = nn.Conv1d(SIZE, WIDTH, 3, padding=1)
        self.norm = nn.GroupNorm(4, WIDTH)
        self.leave = nn.ConvTranspose1d(WIDTH, CHANNELS, 4, stride=2, padding=1)

    def forward(self, z):
        return self.leave(F.silu(self.norm(self.enter(z))))


class Codebook(nn.Module):
    """The nearest code for each vector. The codes are no weights: follow() moves them."""

    def __init__(self):
        super().__init__()
        self.register_buffer("codes", torch.randn(CODES, SIZE) * 0.6)
        self.register_buffer("counts", torch.ones(CODES))
        self.register_buffer("sums", self.codes.clone())

    def distances(self, rows):
        crossed = rows @ self.codes.T
        return rows.square().sum(1, keepdim=True) - 2 * crossed + self.codes.square().sum(1)

    def choose(self, rows):
        return self.distances(rows).argmin(dim=1)

    def look_up(self, choice):
        return self.codes[choice]

    def forward(self, z):
        rows = z.transpose(1, 2).reshape(-1, SIZE)
        with torch.no_grad():
            choice = self.choose(rows)
            found = self.look_up(choice)
        return found.view(len(z), -1, SIZE).transpose(1, 2), rows.detach(), choice

    @torch.no_grad()
    def follow(self, rows, choice):
        """The codes go to the averages of what chose them."""
        chosen = F.one_hot(choice, CODES).to(rows.dtype)
        self.counts.mul_(DECAY).add_(chosen.sum(dim=0), alpha=1 - DECAY)
        self.sums.mul_(DECAY).add_(chosen.T @ rows, alpha=1 - DECAY)
        self.codes.copy_(self.sums / self.smoothed()[:, None])

    def smoothed(self):
        total = self.counts.sum()
        return (self.counts + SMOOTH) / (total + CODES * SMOOTH) * total

    @torch.no_grad()
    def revive(self, rows):
        """Codes that are hardly chosen take the vectors which are farthest from all codes."""
        dead = torch.nonzero(self.counts < DEAD).squeeze(1)
        far = self.distances(rows).min(dim=1).values.topk(len(dead)).indices
        self.codes[dead] = rows[far]
        self.sums[dead] = rows[far]
        self.counts[dead] = 1.0


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.codebook = Codebook()
        self.decoder = Decoder()

    def forward(self, x):
        z = self.encoder(x)
        found, rows, choice = self.codebook(z)
        return self.decoder(straight_through(z, found)), z, found, rows, choice


def straight_through(z, found):
    """The codes, with the gradient of what they stand for."""
    return z + (found - z).detach()


def commitment_of(z, found):
    return F.mse_loss(z, found.detach())


def spectrum_loss(made, x):
    """The distance of the logarithms of the spectra."""
    sides = (torch.fft.rfft(each, dim=-1).abs() for each in (made, x))
    ours, wanted = (torch.log(each + 1e-2) for each in sides)
    return (ours - wanted).abs().mean()


def losses_of(made, x, z, found):
    rebuilt = F.smooth_l1_loss(made, x) + SPECTRUM * spectrum_loss(made, x)
    return rebuilt, COMMITMENT * commitment_of(z, found)


def backward(model, x):
    """The loss; gives the vectors and their choices, which the codes follow later."""
    made, z, found, rows, choice = model(x)
    sum(losses_of(made, x, z, found)).backward()
    return rows, choice


def build():
    return Model()


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=4e-3, betas=(0.8, 0.95))


def batch(generator):
    steps = torch.arange(LENGTH)
    speeds = torch.rand(BATCH, CHANNELS, 1, generator=generator) * 2 + 0.3
    noise = torch.randn(BATCH, CHANNELS, LENGTH, generator=generator)
    return torch.sin(speeds * steps) + 0.3 * noise


def follow(model, rows, choice):
    model.codebook.follow(rows, choice)
    model.codebook.revive(rows)


def step(model, optimizer, batch):
    optimizer.zero_grad()
    rows, choice = backward(model, batch)
    optimizer.step()
    follow(model, rows, choice)
