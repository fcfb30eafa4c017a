"""Training aware of quantisation: weights and features of four bits, and a teacher of floats."""

import torch
from torch import nn
from torch.nn import functional as F

CHANNELS, EXTENT, WIDTH, KINDS, BATCH = 2, 8, 8, 5, 8
BITS, SHARE, OUTSIDE = 4, 0.5, 0.02  # OUTSIDE: of the values, at each end of a range
LEVELS = 2**BITS - 1
HEAT, TAUGHT, RATE, MOMENTUM = 3.0, 0.6, 0.05, 0.9


def rounded(x):
    """The next whole number; the gradient is that of x."""
    return x + (x.round() - x).detach()


def quantised(x, scale, zero, low, high):
    """x on a grid of whole numbers; where it is cut off, there is no gradient."""
    whole = (rounded(x / scale) + zero).clamp(low, high)
    return (whole - zero) * scale


def coarse_weight(weight):
    """A weight with a scale for each output channel, symmetric."""
    most = 2 ** (BITS - 1) - 1
    scale = weight.detach().abs().amax(dim=tuple(range(1, weight.dim())), keepdim=True) / most
    return quantised(weight, scale, 0, -most, most)


class Observer(nn.Module):
    """Features on a grid between ends that follow those of the batches."""

    def __init__(self):
        super().__init__()
        self.register_buffer("low", torch.tensor(-1.0))
        self.register_buffer("high", torch.tensor(1.0))

    def follow(self, x):
        ends = torch.quantile(x.detach().flatten(), torch.tensor([OUTSIDE, 1 - OUTSIDE]))
        self.low.lerp_(ends[0].clamp(max=0), SHARE)
        self.high.lerp_(ends[1].clamp(min=0), SHARE)

    def grid(self):
        scale = (self.high - self.low) / LEVELS
        return scale, (-self.low / scale).round()

    def forward(self, x):
        self.follow(x)
        return quantised(x, *self.grid(), 0, LEVELS)


class Layer(nn.Module):
    """Convolution, norm and activation; with an observer, weight and result are quantised."""

    def __init__(self, inside, outside, stride, coarse):
        super().__init__()
        self.filters = nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outside)
        self.observer = Observer() if coarse else None
        self.stride = stride

    def convolve(self, x):
        weight = coarse_weight(self.filters.weight)
        return F.conv2d(x, weight, stride=self.stride, padding=1)

    def forward(self, x):
        if self.observer is None:
            return F.relu6(self.norm(self.filters(x)))
        return self.observer(F.relu6(self.norm(self.convolve(x))))


class Network(nn.Module):
    def __init__(self, coarse):
        super().__init__()
        self.enter = Observer() if coarse else nn.Identity()
        sizes = ((CHANNELS, WIDTH, 1), (WIDTH, 2 * WIDTH, 2), (2 * WIDTH, 2 * WIDTH, 1))
        self.layers = nn.ModuleList(Layer(*size, coarse) for size in sizes)
        self.head = nn.Linear(2 * WIDTH, KINDS)

    def forward(self, x):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x.mean(dim=(2, 3)))


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.student, self.teacher = Network(True), Network(False)
        with torch.no_grad():  # means and variances of an earlier training
            for name, buffer in self.teacher.named_buffers():
                if buffer.is_floating_point():
                    buffer.add_(torch.rand_like(buffer) * (0.5 if "var" in name else 0.1))
        self.teacher.requires_grad_(False)
        self.settle()

    def settle(self):
        self.teacher.eval()


def build():
    return Pair()


def optimizer(model):
    return torch.optim.SGD(model.student.parameters(), RATE, MOMENTUM, nesterov=True)


def batch(generator):
    pictures = torch.randn(BATCH, CHANNELS, EXTENT, EXTENT, generator=generator)
    labels = torch.randint(KINDS, (BATCH,), generator=generator)
    return pictures.to(torch.get_default_dtype()), labels


def taught(logits, teacher):
    """The divergence of softened probabilities, times the square of the heat."""
    wanted, own = (teacher / HEAT).softmax(dim=-1), (logits / HEAT).log_softmax(dim=-1)
    return (wanted * (wanted.log() - own)).sum(dim=-1).mean() * HEAT**2


def loss_of(logits, teacher, labels):
    return TAUGHT * taught(logits, teacher) + (1 - TAUGHT) * F.cross_entropy(logits, labels)


def descend(model, pictures, labels):
    with torch.no_grad():
        teacher = model.teacher(pictures)
    loss_of(model.student(pictures), teacher, labels).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    descend(model, *batch)
    optimizer.step()
