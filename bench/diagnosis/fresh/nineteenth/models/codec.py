"""Pictures in few bits: an autoencoder with a hyperprior learns the chances of its codes, too."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F

PICTURES, SIDE, CHANNELS, CODES, HYPER = 4, 16, 10, 6, 4
# How much of each picture is there: the rest is padding up to a multiple of the strides.
SIZES = ((16, 16), (12, 16), (16, 9), (11, 13))
BETA_MIN, PEDESTAL, SCALE_MIN, CHANCE_MIN = 1e-3, 1e-5, 0.2, 1e-4
FILTERS, TAIL = (1, 3, 3, 1), 0.05
RANGE, LAMBDA, GAIN = 255.0, 1e-4, 6.0
LR, LR_AUX, MAX_NORM, TOTAL = 4e-3, 2e-2, 2.0, 8


class Bounded(torch.autograd.Function):
    """A value below the bound is the bound, but its gradient may lead it up again."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.save_for_backward(x)
        ctx.bound = bound
        return x.clamp(min=bound)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        passes = (x >= ctx.bound) | (gradient < 0)
        return gradient * passes, None


def bounded(x, bound):
    return Bounded.apply(x, bound)


def rounded(x):
    """Rounded on the way forward, as it is on the way back."""
    return x + (x.round() - x).detach()


class Divisive(nn.Module):
    """Each channel is divided by what all channels are at its place, or multiplied with it."""

    def __init__(self, inverse=False):
        super().__init__()
        self.inverse = inverse
        self.beta = nn.Parameter((torch.ones(CHANNELS) + PEDESTAL).sqrt())
        gamma = 0.1 * torch.eye(CHANNELS) + 0.03 * torch.rand(CHANNELS, CHANNELS)
        self.gamma = nn.Parameter((gamma + PEDESTAL).sqrt())

    def energy(self, x):
        beta = bounded(self.beta, (BETA_MIN + PEDESTAL) ** 0.5).square() - PEDESTAL
        gamma = bounded(self.gamma, PEDESTAL**0.5).square() - PEDESTAL
        return F.conv2d(x.square(), gamma[:, :, None, None], beta)

    def forward(self, x):
        energy = self.energy(x)
        return x * energy.sqrt() if self.inverse else x * energy.rsqrt()


def narrower(inputs, outputs):
    return nn.Conv2d(inputs, outputs, 5, stride=2, padding=2)


@torch.no_grad()
def spreading(layer):
    """Codes begin with several steps between them."""
    layer.weight.mul_(GAIN)
    return layer


def wider(inputs, outputs):
    return nn.ConvTranspose2d(inputs, outputs, 5, stride=2, padding=2, output_padding=1)


class Density(nn.Module):
    """How likely the codes of each channel are: a cumulative function by small networks."""

    def __init__(self):
        super().__init__()
        sizes = list(itertools.pairwise(FILTERS))
        self.matrices = nn.ParameterList(torch.randn(HYPER, b, a) for a, b in sizes)
        self.biases = nn.ParameterList(torch.rand(HYPER, b, 1) - 0.5 for _, b in sizes)
        self.factors = nn.ParameterList(0.5 * torch.randn(HYPER, b, 1) for _, b in sizes[:-1])
        ends = torch.tensor([-4.0, 0.0, 4.0]).expand(HYPER, 1, 3)
        self.quantiles = nn.Parameter(ends + 0.3 * torch.randn(HYPER, 1, 3))

    def medians(self):
        return self.quantiles[:, :, 1:2].detach()

    def logits(self, x, learn=True):
        """(channels, 1, values) -> logits of the cumulative function."""
        for k, (matrix, bias) in enumerate(zip(self.matrices, self.biases, strict=True)):
            matrix, bias = (matrix, bias) if learn else (matrix.detach(), bias.detach())
            x = F.softplus(matrix) @ x + bias
            if k < len(self.factors):
                factor = self.factors[k] if learn else self.factors[k].detach()
                x = x + factor.tanh() * x.tanh()
        return x

    def chances(self, x):
        """On the side where differences of sigmoids are exact."""
        lower, upper = self.logits(x - 0.5), self.logits(x + 0.5)
        sign = -(lower + upper).detach().sign()
        return ((sign * upper).sigmoid() - (sign * lower).sigmoid()).abs()

    def misplaced(self):
        """How far the quantiles are from where the tails begin: only they learn from it."""
        tail = torch.logit(torch.tensor(TAIL / 2))
        wanted = torch.stack([tail, torch.zeros_like(tail), -tail])
        return (self.logits(self.quantiles, learn=False) - wanted).abs().sum()

    def forward(self, z, noise):
        """What the decoder gets, and the chances of codes with noise."""
        columns = z.transpose(0, 1).flatten(1).unsqueeze(1)
        spread = noise.transpose(0, 1).flatten(1).unsqueeze(1)
        chances = self.chances(columns + spread)
        columns = rounded(columns - self.medians()) + self.medians()
        back = columns.squeeze(1).unflatten(1, (len(z), *z.shape[2:])).transpose(0, 1)
        return back, bounded(chances, CHANCE_MIN)


class Analysis(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = narrower(3, CHANNELS), Divisive()
        self.last = spreading(narrower(CHANNELS, CODES))

    def forward(self, x):
        return self.last(self.norm(self.first(x)))


class Synthesis(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = wider(CODES, CHANNELS), Divisive(inverse=True)
        self.last = wider(CHANNELS, 3)

    def forward(self, y):
        return self.last(self.norm(self.first(y)))


class HyperAnalysis(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(CODES, CHANNELS, 3, padding=1)
        self.last = spreading(narrower(CHANNELS, HYPER))

    def forward(self, y):
        return self.last(F.leaky_relu(self.first(y.abs())))


class HyperSynthesis(nn.Module):
    """Means and scales of codes."""

    def __init__(self):
        super().__init__()
        self.first = wider(HYPER, CHANNELS)
        self.last = nn.Conv2d(CHANNELS, 2 * CODES, 3, padding=1)

    def forward(self, z):
        mean, scale = self.last(F.leaky_relu(self.first(z))).chunk(2, dim=1)
        return mean, bounded(scale, SCALE_MIN)


def chances_of(y, mean, scale):
    """What a Gaussian has between half a step below a code and half a step above it."""
    away = (y - mean).abs()
    upper = torch.special.ndtr((0.5 - away) / scale)
    lower = torch.special.ndtr((-0.5 - away) / scale)
    return bounded(upper - lower, CHANCE_MIN)


class Codec(nn.Module):
    def __init__(self):
        super().__init__()
        self.analysis, self.synthesis = Analysis(), Synthesis()
        self.hyper_analysis, self.hyper_synthesis = HyperAnalysis(), HyperSynthesis()
        self.density = Density()

    def forward(self, x, noise_y, noise_z):
        y = self.analysis(x)
        z, chances_z = self.density(self.hyper_analysis(y), noise_z)
        mean, scale = self.hyper_synthesis(z)
        chances_y = chances_of(y + noise_y, mean, scale)
        return self.synthesis(rounded(y - mean) + mean), chances_y, chances_z


def bits(chances):
    return -chances.log2().sum()


def distortion(made, inputs):
    """The sum over the pixels that are there, of means over colours."""
    errors = (RANGE * (made - inputs["pictures"])).square().mean(dim=1)
    return (errors * inputs["real"]).sum()


def centred(noise):
    return noise - 0.5


def loss_of(model, inputs, pixels):
    noise = centred(inputs["noise_y"]), centred(inputs["noise_z"])
    made, chances_y, chances_z = model(inputs["pictures"], *noise)
    rate = (bits(chances_y) + bits(chances_z)) / pixels
    return rate + LAMBDA * distortion(made, inputs) / pixels


def backward(model, inputs):
    loss_of(model, inputs, inputs["real"].sum()).backward()


def backward_aux(model):
    model.density.misplaced().backward()


def main_parameters(model):
    return [p for name, p in model.named_parameters() if not name.endswith("quantiles")]


def clip(model):
    nn.utils.clip_grad_norm_(main_parameters(model), MAX_NORM)


def build():
    return Codec().train()


def optimizer(model, **more):
    """The quantiles have an optimizer of their own."""
    adam = torch.optim.Adam(main_parameters(model), lr=LR, **more)
    model.aux = torch.optim.Adam([model.density.quantiles], lr=LR_AUX, **more)
    model.schedule = torch.optim.lr_scheduler.OneCycleLR(adam, LR, total_steps=TOTAL, div_factor=3)
    return adam


def batch(generator):
    """Smooth pictures with values from zero to one."""

    def rand(*size):
        return torch.rand(*size, generator=generator)

    pictures = F.interpolate(rand(PICTURES, 3, 5, 5), size=(SIDE, SIDE), mode="bilinear")
    rows, columns = torch.arange(SIDE).view(-1, 1), torch.arange(SIDE)
    real = torch.stack([(rows < high) & (columns < wide) for high, wide in SIZES])
    return {
        "pictures": pictures * real.unsqueeze(1),
        "real": real,
        "noise_y": rand(PICTURES, CODES, SIDE // 4, SIDE // 4),
        "noise_z": rand(PICTURES, HYPER, SIDE // 8, SIDE // 8),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    model.aux.zero_grad()
    backward(model, batch)
    backward_aux(model)
    clip(model)
    optimizer.step()
    model.aux.step()
    model.schedule.step()
