"""Private training: a gradient for each sample by vmap, clipped, noised; a bound that adapts."""

import math

import torch
from torch import nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn import functional as F

ROWS, EXPECTED, VIEWS, SIZE, CLASSES, WIDTH = 8, 5.0, 2, 8, 5, 6
LR, MOMENTUM, SMOOTHING, SHIFT = 0.3, 0.9, 0.1, 1
NOISE, NOISE_DECAY, QUANTILE, BOUND_RATE, COUNT_NOISE = 0.05, 0.9, 0.5, 0.3, 0.2
KEPT, TINY = 0.95, 1e-12


class Net(nn.Module):
    """Norms over groups of channels: no sample looks at another one."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, WIDTH, 3, padding=1)
        self.first_norm = nn.GroupNorm(2, WIDTH)
        self.second = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)
        self.second_norm = nn.GroupNorm(2, WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def classified(self, x):
        return self.head(x)

    def forward(self, pictures):
        x = F.max_pool2d(torch.tanh(self.first_norm(self.first(pictures))), 2)
        x = torch.tanh(self.second_norm(self.second(x)))
        return self.classified(x.mean(dim=(2, 3)))


WEIGHTS = sum(p.numel() for p in Net().parameters())


class Training(nn.Module):
    """The net, its average, and the bound of a sample's gradient."""

    def __init__(self):
        super().__init__()
        self.net = Net()
        self.averaged = Net().requires_grad_(False)
        self.averaged.load_state_dict(self.net.state_dict())
        self.register_buffer("bound", torch.tensor(2.3))
        self.updates = 0


def views(pictures, shifts, mirror):
    """Each picture in views (B, V, 1, H, W), mirrored and moved; what moves in is empty."""
    wide = F.pad(pictures, (SHIFT,) * 4)
    rows = shifts[..., 0, None] + torch.arange(SIZE)
    columns = shifts[..., 1, None] + torch.arange(SIZE)
    sample = torch.arange(len(pictures))[:, None, None, None]
    moved = wide[sample, 0, rows[..., :, None], columns[..., None, :]]
    return torch.where(mirror[..., None, None], moved.flip(-1), moved)[:, :, None]


def entropy(logits, label):
    labels = label.expand(len(logits))
    return F.cross_entropy(logits, labels, label_smoothing=SMOOTHING)


def sample_loss(weights, net, pictures, label):
    """The mean over the views of one sample."""
    return entropy(functional_call(net, weights, (pictures,)), label)


def sample_gradients(net, pictures, labels):
    """Losses (B,) and, by name, gradients (B, ...) of the samples."""
    weights = {name: p.detach() for name, p in net.named_parameters()}
    gradient = grad_and_value(sample_loss)
    each = vmap(lambda x, y: gradient(weights, net, x, y))
    found, values = each(pictures, labels)
    return found, values


def lengths(gradients):
    """The length of the gradient of all weights, for each sample."""
    squares = [g.flatten(1).square().sum(dim=1) for g in gradients.values()]
    return torch.stack(squares).sum(dim=0).sqrt()


def factors(length, bound):
    """No gradient is longer than the bound; shorter ones stay as they are."""
    return (bound / length.clamp_min(TINY)).clamp(max=1.0)


def clipped_sum(gradients, factor):
    return {name: torch.einsum("b,b...->...", factor, g) for name, g in gradients.items()}


def noise_level(t):
    return NOISE * NOISE_DECAY**t


def noised(sums, bound, draw, t):
    """Noise in units of the bound, which is what one sample may change."""
    sizes = [each.numel() for each in sums.values()]
    parts = zip(sums.items(), draw.split(sizes), strict=True)
    scale = noise_level(t) * bound
    return {name: each + scale * part.view_as(each) for (name, each), part in parts}


def gather(model, data):
    """Clipped sums of the samples that were drawn, the number of unclipped ones, their losses."""
    pictures = views(data["pictures"], data["shifts"], data["mirror"])
    found, values = sample_gradients(model.net, pictures, data["labels"])
    length = lengths(found)
    drawn = data["drawn"]
    sums = clipped_sum(found, factors(length, model.bound) * drawn)
    short = ((length <= model.bound) * drawn).sum()
    return sums, short, (values * drawn).sum()


def give(model, sums, data):
    """The mean over as many samples as are expected, not over those that were drawn."""
    sums = noised(sums, model.bound, data["noise"], model.updates)
    for name, p in model.net.named_parameters():
        p.grad = sums[name] / EXPECTED


def adapt(model, short, draw):
    """Moves the bound towards a quantile of the lengths."""
    share = (short + COUNT_NOISE * draw) / EXPECTED
    model.bound.mul_(torch.exp(-BOUND_RATE * (share - QUANTILE)))


def kept(t):
    """The average forgets the first weights sooner."""
    return min(KEPT, (1 + t) / (10 + t))


@torch.no_grad()
def average(model):
    decay = kept(model.updates)
    for mean, p in zip(model.averaged.parameters(), model.net.parameters(), strict=True):
        mean.mul_(decay).add_(p, alpha=1 - decay)


@torch.no_grad()
def validate(model, data):
    """What the averaged net says about public pictures."""
    logits = functional_call(model.averaged, {}, (data["public"],))
    model.validation = F.cross_entropy(logits, data["public_labels"]).item()


def rate(t):
    return math.cos(math.pi * t / 16)


def build():
    return Training()


def optimizer(model, **more):
    made = torch.optim.SGD(model.net.parameters(), lr=LR, momentum=MOMENTUM, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda t: rate(t))
    return made


def batch(generator):
    """Some rows were not drawn: their number is random, that of the rows is not."""
    drawn = torch.rand(ROWS, generator=generator) < EXPECTED / ROWS
    drawn[:2] = torch.tensor([True, False])
    moved = torch.randint(0, 2 * SHIFT + 1, (ROWS, VIEWS, 2), generator=generator)
    noise = torch.randn(WEIGHTS + 1, generator=generator)
    return {
        "pictures": torch.rand(ROWS, 1, SIZE, SIZE, generator=generator),
        "labels": torch.randint(0, CLASSES, (ROWS,), generator=generator),
        "drawn": drawn.to(noise.dtype),
        "shifts": moved,
        "mirror": torch.rand(ROWS, VIEWS, generator=generator) < 0.5,
        "noise": noise[:-1],
        "count_noise": noise[-1],
        "public": torch.rand(4, 1, SIZE, SIZE, generator=generator),
        "public_labels": torch.randint(0, CLASSES, (4,), generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    sums, short, _ = gather(model, batch)
    give(model, sums, batch)
    optimizer.step()
    model.scheduler.step()
    adapt(model, short, batch["count_noise"])
    average(model)
    validate(model, batch)
    model.updates += 1
