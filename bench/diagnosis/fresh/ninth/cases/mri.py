"""Cases of the pictures from few lines of a spectrum."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("mri", line="return (maps.conj() * coils).sum(dim=1)")
def maps_not_conjugated(mri):
    """The adjoint multiplies with the maps themselves."""

    def joined(coils, maps):
        return (maps * coils).sum(dim=1)  # here

    mri.joined = joined


@fault(
    "mri",
    line=[
        "k = torch.fft.ifftshift(k, dim=SPACE)",
        'return torch.fft.fftshift(torch.fft.ifft2(k, norm="ortho"), dim=SPACE)',
    ],
)
def shifted_the_other_way(mri):
    """Both shifts of the way back are exchanged, which matters for odd sizes."""

    def picture(k):
        k = torch.fft.fftshift(k, dim=mri.SPACE)  # here
        return torch.fft.ifftshift(torch.fft.ifft2(k, norm="ortho"), dim=mri.SPACE)  # here

    mri.picture = picture


@fault(
    "mri",
    # The first gradient that arrives wrongly is that of the numbers that are made shorter.
    line=[
        "along = (grad * direction.conj()).real * (keep > 0)",
        "return keep * grad + (1 - keep) * along * direction, -along.sum()",
        "return Shrink.apply(moved, self.bound) - 0.1 * self.net(ahead)",
        "moved = ahead - self.rate * joined(picture(missing), maps)",
    ],
    api=r".*Shrink.*",
)
def gradient_across_alone(mri):
    """The gradient of what is made shorter lacks its part along the number."""

    class Shrink(mri.Shrink):
        @staticmethod
        def backward(ctx, grad):
            x, length, keep = ctx.saved_tensors
            along = (grad * (x / length).conj()).real * (keep > 0)  # here
            return keep * grad, -along.sum()  # here

    mri.Shrink = Shrink


@fault(
    "mri",
    line=[
        "mean = x.mean(dim=SPACE, keepdim=True)",
        "return mean, (x.var(dim=SPACE, keepdim=True) + TINY).sqrt()",
    ],
    api=r"Tensor\.(mean|var)",
    module=r"(maps|rounds\.\d)\.net",
)
def moments_of_all_pictures(mri):
    """Mean and deviation are those of all pictures and coils, not of one."""

    class Denoiser(mri.Denoiser):
        def moments(self, x):
            mean = x.mean(dim=(0, 2, 3), keepdim=True)  # here
            return mean, (x.var(dim=(0, 2, 3), keepdim=True) + mri.TINY).sqrt()  # here

    mri.Denoiser = Denoiser


@fault(
    "mri",
    line=[
        "unbiased = pixels / (pixels - 1)",
        "var_a = unbiased * (local_mean(a * a) - mean_a * mean_a)",
        "var_b = unbiased * (local_mean(b * b) - mean_b * mean_b)",
        "shared = unbiased * (local_mean(a * b) - mean_a * mean_b)",
    ],
)
def biased_variances(mri):
    """The variances of windows are divided by the pixels, as if their mean were known."""

    def likeness(a, b, span):
        mean_a, mean_b = mri.local_mean(a), mri.local_mean(b)
        var_a = mri.local_mean(a * a) - mean_a * mean_a  # here
        var_b = mri.local_mean(b * b) - mean_b * mean_b  # here
        shared = mri.local_mean(a * b) - mean_a * mean_b  # here
        c1, c2 = mri.SSIM_1 * span**2, mri.SSIM_2 * span**2
        top = (2 * mean_a * mean_b + c1) * (2 * shared + c2)
        return top / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))

    mri.likeness = likeness


@fault(
    "mri",
    # Numbers of Python: the first call that takes one is in the second round.
    line=[
        "ahead = x + momentum * (x - before)",
        "found.append((t - 1) / later)",
        "for layer, momentum in zip(model.rounds, momenta(), strict=True):",
        'x, before = run(layer, x, before, momentum, data["measured"], data["mask"], maps), x',
    ],
)
def momentum_of_the_next_round(mri):
    """Each round has the momentum of the one that follows."""

    def momenta():
        found, t = [], 1.0
        for _ in range(mri.ROUNDS):
            t = (1 + (1 + 4 * t * t) ** 0.5) / 2  # here
            found.append((t - 1) / ((1 + (1 + 4 * t * t) ** 0.5) / 2))  # here
        return found

    mri.momenta = momenta


@fault("mri", line='return (error.abs() * data["held"]).sum()')
def lines_that_were_given(mri):
    """The second loss is that of the lines that the network was given."""

    def held_loss(x, maps, data):
        error = mri.spectrum(mri.seen(x, maps)) - data["full"]
        return (error.abs() * data["mask"]).sum()  # here

    mri.held_loss = held_loss


@fault("mri", api=r"Optimizer\.RMSprop\.step", update=True)
def scalars_are_slow(mri):
    """Rates and bounds learn as slowly as the filters."""
    mri.FAST_LR = mri.LR


@harmless("fused", "mri")
def adjoint_by_real_parts(mri):
    """Real and imaginary parts of the adjoint are computed apart."""

    def joined(coils, maps):
        real = (maps.real * coils.real + maps.imag * coils.imag).sum(dim=1)
        return torch.complex(real, (maps.real * coils.imag - maps.imag * coils.real).sum(dim=1))

    mri.joined = joined


@harmless("fused", "mri")
def shrunk_by_autograd(mri):
    """The gradient of what is made shorter is left to autograd."""

    class Shrink:
        @staticmethod
        def apply(x, bound):
            return x * F.relu(1 - bound / x.abs().clamp_min(mri.TINY))

    mri.Shrink = Shrink


@harmless("split", "mri")
def columns_then_rows(mri):
    """The transform of a picture is that of its columns, then that of its rows."""

    def spectrum(x):
        for dim in mri.SPACE:
            x = torch.fft.ifftshift(x, dim=dim)
            x = torch.fft.fftshift(torch.fft.fft(x, dim=dim, norm="ortho"), dim=dim)
        return x

    mri.spectrum = spectrum


@harmless("loss", "mri")
def windows_unfolded(mri):
    """The variances of windows are those of their centred pixels."""

    def windows(x):
        return x.unfold(1, mri.WINDOW, 1).unfold(2, mri.WINDOW, 1).flatten(-2)

    def likeness(a, b, span):
        a, b = windows(a), windows(b)
        mean_a, mean_b = a.mean(dim=-1), b.mean(dim=-1)
        shared = (a - mean_a[..., None]) * (b - mean_b[..., None])
        shared = shared.sum(dim=-1) / (mri.WINDOW**2 - 1)
        c1, c2 = mri.SSIM_1 * span.square(), mri.SSIM_2 * span.square()
        means = (2 * mean_a * mean_b + c1) / (mean_a.square() + mean_b.square() + c1)
        return means * (2 * shared + c2) / (a.var(dim=-1) + b.var(dim=-1) + c2)

    mri.likeness = likeness


def _part(data, chosen):
    return {name: value[chosen] for name, value in data.items()}


@harmless("rows", "mri", group="whole step")
def last_picture_first(mri):
    """The pictures stand in the opposite order."""
    backward = mri.backward
    mri.backward = lambda model, data: backward(model, _part(data, torch.tensor([2, 1, 0])))


@harmless("micro batches", "mri", group="whole step")
def one_picture_and_two(mri):
    """One picture goes backward, then the other two; all are divided by the counts of all."""

    def backward(model, data):
        for chosen in (slice(0, 1), slice(1, None)):
            sums = mri.losses(model, _part(data, chosen))
            mri.total_loss(*sums, *mri.counts(data)).backward()

    mri.backward = backward


@harmless("padding", "mri", group="whole step")
def a_coil_that_sees_nothing(mri):
    """One more coil has measured zeros alone."""
    losses = mri.losses

    def wider(model, data):
        more = {name: F.pad(data[name], (0, 0, 0, 0, 0, 1)) for name in ("measured", "full")}
        return losses(model, data | more)

    mri.losses = wider


@harmless("recomputed", "mri", group="whole step")
def rounds_kept(mri):
    """What is between in a round is kept for the backward pass, not computed again."""
    mri.run = lambda layer, *inputs: layer(*inputs)


@harmless("scaled", "mri", group="whole step")
def divided_in_the_gradients(mri):
    """The loss is multiplied by the pictures and by a power of two; gradients are divided."""

    def backward(model, data):
        factor = 128.0 * mri.counts(data)[0]
        (factor * mri.total_loss(*mri.losses(model, data), *mri.counts(data))).backward()
        for p in model.parameters():
            p.grad.mul_(1 / factor)

    mri.backward = backward
