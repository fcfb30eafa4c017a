"""Cases of the Fourier neural operator."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

FIRST = r"net\.blocks\.0\.conv"


@fault(
    "fno",
    api=r".*einsum",
    module=FIRST,
    line="out_ft[:, :, -m1:, :m2] = self.compl_mul2d(x_ft[:, :, -m1:, :m2], self.weights2)",
)
def low_modes_twice(fno):
    """The second weights are multiplied with the low modes, too: the slice was copied."""

    class SpectralConv2d(fno.SpectralConv2d):
        def forward(self, x):
            m1, m2 = self.modes1, self.modes2
            x_ft = self.to_modes(x)
            size = (x.size(0), self.out_channels, x.size(-2), x.size(-1) // 2 + 1)
            out_ft = torch.zeros(size, dtype=x_ft.dtype, device=x.device)
            out_ft[:, :, :m1, :m2] = self.compl_mul2d(x_ft[:, :, :m1, :m2], self.weights1)
            low = x_ft[:, :, :m1, :m2]  # here
            out_ft[:, :, -m1:, :m2] = self.compl_mul2d(low, self.weights2)  # here
            return self.to_grid(out_ft, x.shape[-2:])

    fno.SpectralConv2d = SpectralConv2d


@fault("fno", api=r".*irfft2?n?", module=FIRST, line="return torch.fft.irfft2(out_ft, s=size)")
def inverse_of_another_norm(fno):
    """The inverse transform is orthonormal, the transform is not."""

    class SpectralConv2d(fno.SpectralConv2d):
        def to_grid(self, out_ft, size):
            return torch.fft.irfft2(out_ft, s=size, norm="ortho")  # here

    fno.SpectralConv2d = SpectralConv2d


@fault(
    "fno",
    line=[
        "diff = torch.norm(x.reshape(num, -1) - y.reshape(num, -1), p, 1)",
        "return (diff / torch.norm(y.reshape(num, -1), p, 1)).sum()",
    ],
)
def error_of_each_column(fno):
    """The norms are those along y alone: a mean of the errors of columns, not of the sample's."""

    def lp_loss(x, y, p=2):
        diff = torch.norm(x - y, p, -1)  # here
        return (diff / torch.norm(y, p, -1)).mean(-1).sum()  # here

    fno.lp_loss = lp_loss


@fault(
    "fno",
    api=r"Torch\.(functional\.)?meshgrid",
    line=[
        'gridx, gridy = torch.meshgrid(gridx, gridy.square(), indexing="ij")',
        "return torch.stack((gridx, gridy), dim=-1).expand(batch, -1, -1, -1)",
        "x = torch.cat((x, grid), dim=-1)",
    ],
)
def grid_of_columns(fno):
    """The grid is indexed as pictures are: x goes along the second axis."""

    def get_grid(batch, size_x, size_y, like):
        gridx = torch.linspace(0, 1, size_x + 1, dtype=like.dtype)[:-1]
        gridy = torch.linspace(0, 1, size_y + 1, dtype=like.dtype)[:-1]
        gridx, gridy = torch.meshgrid(gridx, gridy.square(), indexing="xy")  # here
        return torch.stack((gridx, gridy), dim=-1).expand(batch, -1, -1, -1)  # here

    fno.get_grid = get_grid


@fault("fno", line="return x * (self.std + self.eps) + self.mean")
def mean_before_the_deviation(fno):
    """The mean is added before the deviation is multiplied."""

    class Normalizer(fno.UnitGaussianNormalizer):
        def decode(self, x):
            return (x + self.mean) * (self.std + self.eps)  # here

    fno.UnitGaussianNormalizer = Normalizer


@fault(
    "fno",
    # Forward, nothing is wrong. Backward, the first frame's own gradient has a second part: it
    # reaches what made the frame, the last product of the net or the normalizer behind it.
    line=[
        "xx = torch.cat((xx[..., 1:], im.detach()), dim=-1)",
        "return x * (self.std + self.eps) + self.mean",
        "loss = loss + lp_loss(im[..., 0], yy[..., t])",
        "physics = physics + residual_loss(xx[..., -1], im[..., 0])",
        "im = model(xx)",
    ],
)
def pushed_with_a_gradient(fno):
    """The frame that begins the next one is not detached."""

    def rollout(model, xx, yy):
        loss, physics = 0.0, 0.0
        for t in range(fno.ROLL):
            im = model(xx)  # here
            loss = loss + fno.lp_loss(im[..., 0], yy[..., t])  # here
            physics = physics + fno.residual_loss(xx[..., -1], im[..., 0])  # here
            xx = torch.cat((xx[..., 1:], im), dim=-1)  # here
        return loss, physics

    fno.rollout = rollout


@fault(
    "fno",
    line=[
        "return torch.fft.irfft2(-(kx**2 + ky**2) * u_hat, s=u.shape[-2:])",
        "k = torch.fft.fftfreq(n, d=1.0 / n) * 2 * math.pi",
        "kx, ky = wavenumbers(u.shape[-1])",
    ],
)
def frequencies_never_negative(fno):
    """Frequencies of the residual are counted up to the end: the upper half should be negative."""

    def laplacian(u):
        n = u.shape[-1]
        k = torch.arange(n, dtype=u.dtype) * 2 * torch.pi  # here
        kx, ky = k[:, None], k[None, : n // 2 + 1]  # here
        u_hat = torch.fft.rfft2(u)
        return torch.fft.irfft2(-(kx**2 + ky**2) * u_hat, s=u.shape[-2:])  # here

    fno.laplacian = laplacian


@fault(
    "fno",
    api=r".*clip_grad.*|Optimizer\.Adam\.step",
    update=True,
    line=["torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)", "    clip(model)"],
)
def each_weight_clipped_apart(fno):
    """The gradient of each weight is clipped by its own norm, not by that of all."""

    def clip(model):
        for p in model.parameters():
            torch.nn.utils.clip_grad_norm_([p], fno.MAX_NORM)  # here

    fno.clip = clip


@harmless("split", "fno")
def modes_of_real_numbers(fno):
    """The complex product is four real ones; weights are never viewed as complex."""

    class SpectralConv2d(fno.SpectralConv2d):
        def compl_mul2d(self, x, weights):
            form = "bixy,ioxy->boxy"
            wr, wi = weights.unbind(-1)
            real = torch.einsum(form, x.real, wr) - torch.einsum(form, x.imag, wi)
            imag = torch.einsum(form, x.real, wi) + torch.einsum(form, x.imag, wr)
            return torch.complex(real, imag)

    fno.SpectralConv2d = SpectralConv2d


@harmless("split", "fno")
def axis_after_axis(fno):
    """The transforms go along one axis after the other."""

    class SpectralConv2d(fno.SpectralConv2d):
        def to_modes(self, x):
            return torch.fft.fft(torch.fft.rfft(x, dim=-1), dim=-2)

        def to_grid(self, out_ft, size):
            return torch.fft.irfft(torch.fft.ifft(out_ft, dim=-2), n=size[-1], dim=-1)

    fno.SpectralConv2d = SpectralConv2d


@harmless("fused", "fno")
def pointwise_as_a_product(fno):
    """The convolution of one pixel is a product with its matrix, pixels last."""

    class Block(fno.Block):
        def skip(self, x):
            w = self.w.weight[:, :, 0, 0]
            return torch.baddbmm(
                self.w.bias[None, :, None], w.expand(len(x), -1, -1), x.flatten(2)
            ).view_as(x)

    fno.Block = Block


@harmless("loss", "fno")
def error_by_sums(fno):
    """The relative error is the root of a ratio of sums of squares."""

    def lp_loss(x, y, p=2):
        over = torch.einsum("bxy,bxy->b", x - y, x - y)
        return torch.sqrt(over / (y * y).flatten(1).sum(1)).sum()

    fno.lp_loss = lp_loss


@harmless("rows", "fno", group="whole step")
def fields_turned(fno):
    """The fields stand in another order."""
    backward = fno.backward
    order = [2, 0, 3, 1]
    fno.backward = lambda model, xx, yy, total: backward(model, xx[order], yy[order], total)


@harmless("micro batches", "fno", group="whole step")
def one_field_and_three(fno):
    """A micro-batch of three fields and one of a single field."""
    backward = fno.backward

    def parts(model, xx, yy, total):
        for own in (slice(0, 3), slice(3, None)):
            backward(model, xx[own], yy[own], total)

    fno.backward = parts


@harmless("recomputed", "fno", group="whole step")
def blocks_computed_again(fno):
    """The blocks are computed again in the backward pass."""

    class Block(fno.Block):
        def __call__(self, x):
            return checkpoint(super().__call__, x, use_reentrant=False)

    fno.Block = Block


@harmless("scaled", "fno", group="whole step")
def frame_after_frame(fno):
    """Each frame goes backward at once, undivided; gradients are divided at the end."""

    def backward(model, xx, yy, total):
        for t in range(fno.ROLL):
            im = model(xx)
            physics = fno.residual_loss(xx[..., -1], im[..., 0])
            (fno.lp_loss(im[..., 0], yy[..., t]) + fno.RESIDUAL * physics).backward()
            xx = F.pad(xx[..., 1:], (0, 1))
            xx[..., -1:] = im.detach()
        for p in model.parameters():
            p.grad /= total

    fno.backward = backward
