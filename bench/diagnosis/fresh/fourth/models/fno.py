"""A Fourier neural operator for a periodic flow: spectral convolutions, rollouts, a residual."""

import math

import torch
from torch import nn
from torch.nn import functional as F

SIZE, T_IN, ROLL, WIDTH, MODES, LAYERS, BATCH = 16, 3, 2, 8, 4, 2, 4
VISCOSITY, DT, RESIDUAL, MAX_NORM = 1e-2, 0.1, 0.05, 0.5


class UnitGaussianNormalizer(nn.Module):
    """Pointwise statistics of the training set."""

    def __init__(self, eps=1e-5):
        super().__init__()
        gen = torch.Generator().manual_seed(7)
        self.register_buffer("mean", torch.randn(SIZE, SIZE, 1, generator=gen) * 0.3)
        self.register_buffer("std", torch.rand(SIZE, SIZE, 1, generator=gen) + 0.7)
        self.eps = eps

    def encode(self, x):
        return (x - self.mean) / (self.std + self.eps)

    def decode(self, x):
        return x * (self.std + self.eps) + self.mean


class SpectralConv2d(nn.Module):
    def __init__(self, in_channels, out_channels, modes1, modes2):
        super().__init__()
        self.out_channels, self.modes1, self.modes2 = out_channels, modes1, modes2
        scale = 1 / (in_channels * out_channels)
        shape = (in_channels, out_channels, modes1, modes2, 2)
        self.weights1 = nn.Parameter(scale * torch.rand(shape))
        self.weights2 = nn.Parameter(scale * torch.rand(shape))

    def compl_mul2d(self, x, weights):
        # (batch, in, x, y), (in, out, x, y) -> (batch, out, x, y)
        return torch.einsum("bixy,ioxy->boxy", x, torch.view_as_complex(weights))

    def to_modes(self, x):
        return torch.fft.rfft2(x)

    def to_grid(self, out_ft, size):
        return torch.fft.irfft2(out_ft, s=size)

    def forward(self, x):
        m1, m2 = self.modes1, self.modes2
        x_ft = self.to_modes(x)
        size = (x.size(0), self.out_channels, x.size(-2), x.size(-1) // 2 + 1)
        out_ft = torch.zeros(size, dtype=x_ft.dtype, device=x.device)
        out_ft[:, :, :m1, :m2] = self.compl_mul2d(x_ft[:, :, :m1, :m2], self.weights1)
        out_ft[:, :, -m1:, :m2] = self.compl_mul2d(x_ft[:, :, -m1:, :m2], self.weights2)
        return self.to_grid(out_ft, x.shape[-2:])


class Block(nn.Module):
    def __init__(self, last):
        super().__init__()
        self.conv = SpectralConv2d(WIDTH, WIDTH, MODES, MODES)
        self.w = nn.Conv2d(WIDTH, WIDTH, 1)
        self.norm = nn.InstanceNorm2d(WIDTH, affine=True)
        self.last = last

    def skip(self, x):
        return self.w(x)

    def forward(self, x):
        x = self.norm(self.conv(x)) + self.skip(x)
        return x if self.last else F.gelu(x)


def get_grid(batch, size_x, size_y, like):
    gridx = torch.linspace(0, 1, size_x + 1, dtype=like.dtype)[:-1]
    gridy = torch.linspace(0, 1, size_y + 1, dtype=like.dtype)[:-1]
    gridx, gridy = torch.meshgrid(gridx, gridy.square(), indexing="ij")
    return torch.stack((gridx, gridy), dim=-1).expand(batch, -1, -1, -1)


class FNO2d(nn.Module):
    """Maps the last frames (batch, x, y, t) to the next one (batch, x, y, 1)."""

    def __init__(self):
        super().__init__()
        self.fc0 = nn.Linear(T_IN + 2, WIDTH)
        self.blocks = nn.ModuleList(Block(last=i == LAYERS - 1) for i in range(LAYERS))
        self.fc1 = nn.Linear(WIDTH, 2 * WIDTH)
        self.fc2 = nn.Linear(2 * WIDTH, 1)

    def forward(self, x):
        grid = get_grid(x.shape[0], x.shape[1], x.shape[2], x)
        x = torch.cat((x, grid), dim=-1)
        x = self.fc0(x).permute(0, 3, 1, 2)
        for block in self.blocks:
            x = block(x)
        x = x.permute(0, 2, 3, 1)
        return self.fc2(F.gelu(self.fc1(x)))


class Solver(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = FNO2d()
        self.norm = UnitGaussianNormalizer()

    def forward(self, frames):
        return self.norm.decode(self.net(self.norm.encode(frames)))


def wavenumbers(n):
    k = torch.fft.fftfreq(n, d=1.0 / n) * 2 * math.pi
    return k[:, None], k[None, : n // 2 + 1].abs()


def laplacian(u):
    """Of periodic fields (batch, x, y)."""
    kx, ky = wavenumbers(u.shape[-1])
    u_hat = torch.fft.rfft2(u)
    return torch.fft.irfft2(-(kx**2 + ky**2) * u_hat, s=u.shape[-2:])


def lp_loss(x, y, p=2):
    """The relative error of each sample, added up over the batch."""
    num = x.shape[0]
    diff = torch.norm(x.reshape(num, -1) - y.reshape(num, -1), p, 1)
    return (diff / torch.norm(y.reshape(num, -1), p, 1)).sum()


def residual_loss(now, ahead):
    """How far an implicit step of the heat equation is from being solved."""
    rate = (ahead - now) / DT
    r = rate - VISCOSITY * laplacian(ahead)
    return r.pow(2).mean(dim=(1, 2)).sqrt().sum()


def rollout(model, xx, yy):
    """Losses of the data and of the equation; no gradient goes through a frame (pushforward)."""
    loss, physics = 0.0, 0.0
    for t in range(ROLL):
        im = model(xx)
        loss = loss + lp_loss(im[..., 0], yy[..., t])
        physics = physics + residual_loss(xx[..., -1], im[..., 0])
        xx = torch.cat((xx[..., 1:], im.detach()), dim=-1)
    return loss, physics


def backward(model, xx, yy, total):
    loss, physics = rollout(model, xx, yy)
    ((loss + RESIDUAL * physics) / total).backward()


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Solver()


def optimizer(model):
    optim = torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=1e-4)
    model.sched = torch.optim.lr_scheduler.CosineAnnealingLR(optim, T_max=10)
    return optim


def batch(generator):
    """Smooth random fields that decay."""
    spectrum = torch.randn(BATCH, SIZE, SIZE // 2 + 1, 2, generator=generator)
    kx, ky = wavenumbers(SIZE)
    k2 = (kx**2 + ky**2) / (2 * math.pi) ** 2
    u_hat = torch.view_as_complex(spectrum) * SIZE * 3 / (1 + k2)
    times = torch.arange(T_IN + ROLL) * DT
    decay = torch.exp(-VISCOSITY * 4 * math.pi**2 * k2[..., None] * times)
    u = torch.fft.irfft2(u_hat[..., None] * decay, s=(SIZE, SIZE), dim=(1, 2))
    return u[..., :T_IN], u[..., T_IN:]


def step(model, optimizer, batch):
    xx, yy = batch
    model.train()
    optimizer.zero_grad()
    backward(model, xx, yy, len(xx))
    clip(model)
    optimizer.step()
    model.sched.step()
