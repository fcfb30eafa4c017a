"""A convolutional VAE: reparametrised noise, an annealed KL with free bits, accumulated steps."""

import torch
from torch import nn
from torch.nn import functional as F

LATENT, SIZE, BATCH, ACCUMULATE = 6, 16, 6, 2
WARM_UP, BETA = 10, 0.5
FREE_BITS = 0.02
LOW, HIGH = -8.0, 4.0


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.GroupNorm(2, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 1)

    def forward(self, x):
        h = F.elu(self.conv1(F.elu(self.norm(x))))
        return x + self.conv2(h)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 8, 4, 2, 1), Residual(8), nn.Conv2d(8, 12, 4, 2, 1), Residual(12), nn.ELU()
        )
        self.head = nn.Linear(12 * 16, 2 * LATENT)

    def forward(self, x):
        h = self.net(x).flatten(1)
        mean, logvar = self.head(h).chunk(2, dim=1)
        return mean, logvar.clamp(LOW, HIGH)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(LATENT, 12 * 16)
        self.up1 = nn.ConvTranspose2d(12, 8, 4, 2, 1)
        self.mid = Residual(8)
        self.up2 = nn.ConvTranspose2d(8, 1, 4, 2, 1)

    def forward(self, z):
        h = self.start(z).view(-1, 12, 4, 4)
        h = self.mid(F.elu(self.up1(h)))
        return self.up2(h)


def reparametrise(mean, logvar, noise):
    std = torch.exp(0.5 * logvar)
    return mean + std * noise


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.register_buffer("updates", torch.zeros(()))

    def beta(self):
        return BETA * (self.updates / WARM_UP).clamp(max=1.0)

    def forward(self, x, noise):
        mean, logvar = self.encoder(x)
        z = reparametrise(mean, logvar, noise)
        return self.decoder(z), mean, logvar


def kl_of(mean, logvar):
    """For each latent number, (batch, latent)."""
    return -0.5 * (1 + logvar - mean.pow(2) - logvar.exp())


def free_bits(kl):
    """The mean over the batch of each latent number is at least FREE_BITS."""
    return kl.mean(0).clamp(min=FREE_BITS).sum()


def reconstruction(logits, x):
    losses = F.binary_cross_entropy_with_logits(logits, x, reduction="none")
    return losses.flatten(1).sum(1).mean()


def elbo(model, x, noise):
    logits, mean, logvar = model(x, noise)
    return reconstruction(logits, x) + model.beta() * free_bits(kl_of(mean, logvar))


def build():
    model = VAE()
    model.updates += 3
    return model


def optimizer(model):
    made = torch.optim.Adamax(model.parameters(), lr=2e-3)
    model.schedule = torch.optim.lr_scheduler.ExponentialLR(made, 0.9)
    return made


def batch(generator):
    x = (torch.rand(BATCH, 1, SIZE, SIZE, generator=generator) > 0.6).to(torch.get_default_dtype())
    return x, torch.randn(BATCH, LATENT, generator=generator)


def accumulate(model, x, noise):
    for part, own in zip(x.chunk(ACCUMULATE), noise.chunk(ACCUMULATE), strict=True):
        loss = elbo(model, part, own) / ACCUMULATE
        loss.backward()


def step(model, optimizer, batch):
    x, noise = batch
    optimizer.zero_grad(set_to_none=True)
    accumulate(model, x, noise)
    nn.utils.clip_grad_norm_(model.parameters(), 20.0)
    optimizer.step()
    model.schedule.step()
    model.updates.add_(1)
