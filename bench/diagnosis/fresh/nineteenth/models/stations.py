"""What stations measure: a Gaussian process with few points that are learned, natural gradients."""

import torch
from torch import nn
from torch.nn import functional as F

STATIONS, SEEN, FEATURES, HIDDEN, PLACES = 160, 18, 5, 12, 3
LATENTS, TASKS, POINTS, JITTER = 2, 3, 7, 1e-3
LR, POWER, TOTAL, MAX_VALUE, NATURAL = 2e-2, 0.9, 10, 0.3, 0.2


class Kernel(nn.Module):
    """A rational quadratic for each latent process, with a length for each direction."""

    def __init__(self):
        super().__init__()
        self.log_lengths = nn.Parameter(0.2 * torch.randn(LATENTS, 1, PLACES))
        self.log_variance = nn.Parameter(0.2 * torch.randn(LATENTS))
        self.log_alpha = nn.Parameter(0.2 * torch.randn(LATENTS))

    def squares(self, a, b):
        """(latents, of a, of b): distances in units of the lengths, squared."""
        lengths = self.log_lengths.exp()
        a, b = a / lengths, b / lengths
        return (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(dim=3)

    def shape(self, squares):
        alpha = self.log_alpha.exp().view(-1, 1, 1)
        return (1 + squares / (2 * alpha)) ** (-alpha)

    def forward(self, a, b):
        return self.log_variance.exp().view(-1, 1, 1) * self.shape(self.squares(a, b))


class Net(nn.Module):
    """Where a station lies, as far as the kernel is concerned."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, PLACES)

    def forward(self, x):
        return self.narrow(F.silu(self.wide(x)))


class Process(nn.Module):
    """Values at the points are normal: whitened, with a mean and a covariance."""

    def __init__(self):
        super().__init__()
        self.net, self.kernel = Net(), Kernel()
        self.points = nn.Parameter(torch.randn(POINTS, PLACES))
        self.mixing = nn.Parameter(torch.randn(TASKS, LATENTS))
        self.offset = nn.Parameter(0.1 * torch.randn(TASKS))
        self.log_noise = nn.Parameter(torch.full((TASKS,), -0.8))  # of standard deviations
        self.mean = nn.Parameter(0.3 * torch.randn(LATENTS, POINTS))
        root = 0.2 * torch.randn(LATENTS, POINTS, POINTS)
        self.covariance = nn.Parameter(0.4 * torch.eye(POINTS) + root @ root.mT)

    def weights(self, places):
        """How much each station follows each point: (latents, points, stations)."""
        points = self.points.unsqueeze(0)
        among = self.kernel(points, points) + JITTER * torch.eye(POINTS)
        root = torch.linalg.cholesky(among)
        return torch.linalg.solve_triangular(root, self.kernel(points, places), upper=False)

    def latents(self, x):
        """Means and variances of the latent processes: (latents, stations) each."""
        weights = self.weights(self.net(x).unsqueeze(0))
        mean = (weights.mT @ self.mean.unsqueeze(2)).squeeze(2)
        known = weights.square().sum(dim=1)
        unsure = (weights * (self.covariance @ weights)).sum(dim=1)
        return mean, self.kernel.log_variance.exp().unsqueeze(1) - known + unsure

    def mixed(self, mean, variance):
        """Of the tasks: variances are mixed by squares."""
        return mean.mT @ self.mixing.T + self.offset, variance.mT @ self.mixing.square().T

    def forward(self, x):
        return self.mixed(*self.latents(x))


def standard(values, model_statistics):
    mean, spread = model_statistics
    return (values - mean) / spread


def expected_of(mean, variance, noise, values):
    """The expected logarithm of the density of each measurement, but for a constant."""
    return -0.5 * (noise.log() + ((values - mean).square() + variance) / noise)


def fit_of(model, inputs):
    """The sum over all measurements that were made."""
    mean, variance = model(inputs["features"])
    values = standard(inputs["values"], inputs["statistics"])
    noise = (2 * model.log_noise).exp()
    expected = expected_of(mean, variance, noise, values)
    return torch.where(inputs["made"], expected, 0.0).sum()


def divergence(model):
    """From the normal distribution that the whitened values had before."""
    trace = model.covariance.diagonal(dim1=1, dim2=2).sum(dim=1)
    root = torch.linalg.cholesky(model.covariance)
    volume = 2 * root.diagonal(dim1=1, dim2=2).log().sum(dim=1)
    return 0.5 * (trace + model.mean.square().sum(dim=1) - POINTS - volume).sum()


def backward(model, inputs):
    """Those stations that are seen stand for all."""
    seen = inputs["made"].any(dim=1).sum()
    (divergence(model) / STATIONS - fit_of(model, inputs) / seen).backward()


def hyperparameters(model):
    of_values = ("mean", "covariance")
    return [p for name, p in model.named_parameters() if name not in of_values]


def clip(model):
    nn.utils.clip_grad_value_(hyperparameters(model), MAX_VALUE)


@torch.no_grad()
def natural_step(model):
    """A step in natural parameters, along the gradient of the expected ones."""
    of_mean, of_covariance = STATIONS * model.mean.grad, STATIONS * model.covariance.grad
    of_covariance = 0.5 * (of_covariance + of_covariance.mT)
    precision = torch.linalg.inv(model.covariance)
    before = model.mean.unsqueeze(2)
    along = of_mean.unsqueeze(2) - 2 * of_covariance @ before
    linear = precision @ before - NATURAL * along
    model.covariance.copy_(torch.linalg.inv(precision + 2 * NATURAL * of_covariance))
    model.mean.copy_((model.covariance @ linear).squeeze(2))


def build():
    return Process().train()


def optimizer(model, **more):
    nadam = torch.optim.NAdam(hyperparameters(model), lr=LR, betas=(0.8, 0.95), **more)
    model.schedule = torch.optim.lr_scheduler.PolynomialLR(nadam, TOTAL, POWER)
    return nadam


def batch(generator):
    """A fifth of all measurements were not made: they are zero."""
    features = torch.randn(SEEN, FEATURES, generator=generator)
    turns = torch.linspace(-1, 1, FEATURES * TASKS).view(FEATURES, TASKS)
    values = (features @ turns).sin() + 0.2 * torch.randn(SEEN, TASKS, generator=generator)
    mean, spread = torch.linspace(-2, 3, TASKS), torch.linspace(0.5, 1.5, TASKS)
    made = torch.rand(SEEN, TASKS, generator=generator) > 0.2
    made[:, 0] |= ~made.any(dim=1)
    return {
        "features": features,
        "values": (values * spread + mean) * made,
        "made": made,
        "statistics": (mean, spread),
    }


def step(model, optimizer, batch):
    model.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    natural_step(model)
    model.schedule.step()
