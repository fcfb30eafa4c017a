"""Pictures of few lines of a spectrum, seen by several coils: unrolled rounds with momentum."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

PICTURES, COILS, HEIGHT, WIDTH = 3, 3, 9, 11
ROUNDS, FILTERS, CENTRE, WINDOW, TINY = 3, 6, 3, 5, 1e-24
LR, FAST_LR, GROWTH, HELD_WEIGHT, SSIM_1, SSIM_2 = 2e-3, 1e-2, 0.7, 0.5, 1e-4, 9e-4
SPACE = (-2, -1)


def spectrum(x):
    """The origin is in the middle, of the picture and of the spectrum."""
    x = torch.fft.ifftshift(x, dim=SPACE)
    return torch.fft.fftshift(torch.fft.fft2(x, norm="ortho"), dim=SPACE)


def picture(k):
    k = torch.fft.ifftshift(k, dim=SPACE)
    return torch.fft.fftshift(torch.fft.ifft2(k, norm="ortho"), dim=SPACE)


def seen(x, maps):
    """What each coil sees of a picture."""
    return maps * x[:, None]


def joined(coils, maps):
    """The adjoint of `seen`."""
    return (maps.conj() * coils).sum(dim=1)


class Shrink(torch.autograd.Function):
    """Makes complex numbers shorter by a bound, and zero if they are shorter than that."""

    @staticmethod
    def forward(ctx, x, bound):
        length = x.abs().clamp_min(TINY)
        keep = (1 - bound / length).clamp_min(0)
        ctx.save_for_backward(x, length, keep)
        return x * keep

    @staticmethod
    def backward(ctx, grad):
        x, length, keep = ctx.saved_tensors
        direction = x / length
        along = (grad * direction.conj()).real * (keep > 0)
        return keep * grad + (1 - keep) * along * direction, -along.sum()


class Denoiser(nn.Module):
    """A correction of complex pictures, computed with a mean of 0 and a deviation of 1."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(2, FILTERS, 3, padding=1)
        self.last = nn.Conv2d(FILTERS, 2, 3, padding=1)

    def moments(self, x):
        mean = x.mean(dim=SPACE, keepdim=True)
        return mean, (x.var(dim=SPACE, keepdim=True) + TINY).sqrt()

    def forward(self, x):
        x = torch.view_as_real(x).movedim(-1, 1)
        mean, deviation = self.moments(x)
        y = self.last(F.silu(self.first((x - mean) / deviation)))
        y = y * deviation + mean
        return torch.view_as_complex(y.movedim(1, -1).contiguous())


class Maps(nn.Module):
    """What the coils are sensitive to, from the middle of the spectrum."""

    def __init__(self):
        super().__init__()
        self.net = Denoiser()

    def forward(self, measured):
        side = (WIDTH - CENTRE) // 2
        low = F.pad(measured[..., side : side + CENTRE], (side, WIDTH - CENTRE - side))
        coils = picture(low)
        maps = self.net(coils.flatten(0, 1)).view_as(coils)
        return maps / (maps.abs().square().sum(dim=1, keepdim=True) + TINY).sqrt()


class Round(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Denoiser()
        self.rate = nn.Parameter(torch.tensor(0.8))
        self.bound = nn.Parameter(torch.tensor(0.1))

    def forward(self, x, before, momentum, measured, mask, maps):
        ahead = x + momentum * (x - before)
        missing = mask * (spectrum(seen(ahead, maps)) - measured)
        moved = ahead - self.rate * joined(picture(missing), maps)
        return Shrink.apply(moved, self.bound) - 0.1 * self.net(ahead)


class Unrolled(nn.Module):
    def __init__(self):
        super().__init__()
        self.maps = Maps()
        self.rounds = nn.ModuleList([Round() for _ in range(ROUNDS)])


def momenta():
    """Those of Nesterov: zero in the first round."""
    found, t = [], 1.0
    for _ in range(ROUNDS):
        later = (1 + math.sqrt(1 + 4 * t * t)) / 2
        found.append((t - 1) / later)
        t = later
    return found


def run(layer, *inputs):
    """A round, which is computed again in the backward pass."""
    return checkpoint(layer, *inputs, use_reentrant=False)


def solved(model, data):
    """The pictures behind all rounds, and the maps."""
    maps = model.maps(data["measured"])
    x = before = joined(picture(data["measured"]), maps)
    found = []
    for layer, momentum in zip(model.rounds, momenta(), strict=True):
        x, before = run(layer, x, before, momentum, data["measured"], data["mask"], maps), x
        found.append(x)
    return found, maps


def local_mean(x):
    return F.avg_pool2d(x[:, None], WINDOW, stride=1)[:, 0]


def likeness(a, b, span):
    """The structural similarity of windows, with unbiased variances."""
    pixels = WINDOW**2
    mean_a, mean_b = local_mean(a), local_mean(b)
    unbiased = pixels / (pixels - 1)
    var_a = unbiased * (local_mean(a * a) - mean_a * mean_a)
    var_b = unbiased * (local_mean(b * b) - mean_b * mean_b)
    shared = unbiased * (local_mean(a * b) - mean_a * mean_b)
    c1, c2 = SSIM_1 * span**2, SSIM_2 * span**2
    top = (2 * mean_a * mean_b + c1) * (2 * shared + c2)
    return top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))


def picture_loss(x, target):
    span = target.amax(dim=SPACE, keepdim=True)
    unlike = (1 - likeness(x.abs(), target, span)).mean(dim=SPACE)
    return (unlike + (x.abs() - target).abs().mean(dim=SPACE)).sum()


def round_weights():
    """Later rounds count more; the sum is 1."""
    raw = [math.exp(GROWTH * t) for t in range(ROUNDS)]
    return [each / sum(raw) for each in raw]


def held_loss(x, maps, data):
    """Of the lines that were kept from the network."""
    error = spectrum(seen(x, maps)) - data["full"]
    return (error.abs() * data["held"]).sum()


def losses(model, data):
    """The sum over pictures, and that over values that were held out."""
    found, maps = solved(model, data)
    of_rounds = [picture_loss(x, data["target"]) for x in found]
    weighted = sum(w * each for w, each in zip(round_weights(), of_rounds, strict=True))
    return weighted, held_loss(found[-1], maps, data)


def counts(data):
    return len(data["target"]), data["held"].sum() * COILS * HEIGHT


def total_loss(picture_sum, held_sum, pictures, values):
    return picture_sum / pictures + HELD_WEIGHT * held_sum / values


def backward(model, data):
    total_loss(*losses(model, data), *counts(data)).backward()


def project(model):
    """Bounds stay positive."""
    with torch.no_grad():
        for layer in model.rounds:
            layer.bound.clamp_(min=0.0)


def build():
    return Unrolled()


def optimizer(model, **more):
    scalars = [p for p in model.parameters() if p.dim() == 0]
    rest = [p for p in model.parameters() if p.dim() > 0]
    groups = [{"params": rest}, {"params": scalars, "lr": FAST_LR}]
    return torch.optim.RMSprop(groups, lr=LR, alpha=0.9, momentum=0.5, **more)


def batch(generator):
    shape = (PICTURES, HEIGHT, WIDTH)
    rough = torch.rand(shape, generator=generator)
    target = 0.3 + F.avg_pool2d(rough, 3, stride=1, padding=1) + 0.3 * rough
    phase = F.avg_pool2d(torch.randn(shape, generator=generator), 3, stride=1, padding=1)
    down, across = torch.linspace(-1, 1, HEIGHT)[:, None], torch.linspace(-1, 1, WIDTH)
    slope = torch.randn(2, PICTURES, COILS, 1, 1, generator=generator)
    size = torch.exp(slope[0] * down + slope[1] * across)
    maps = torch.polar(size, slope[1] * down - slope[0] * across)
    full = spectrum(seen(torch.polar(target, phase), maps)) / COILS**0.5
    draw = torch.rand(PICTURES, 1, 1, WIDTH, generator=generator)
    middle = (torch.arange(WIDTH) - WIDTH // 2).abs() <= CENTRE // 2
    mask = (draw < 0.4) | middle
    held = (draw > 0.75) & ~middle
    held[..., 0] |= ~held.any(dim=-1)
    mask = (mask & ~held).to(target.dtype)
    return {
        "measured": full * mask,
        "full": full,
        "mask": mask,
        "held": held.to(target.dtype),
        "target": target,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    optimizer.step()
    project(model)
