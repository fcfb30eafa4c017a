"""A conditional Wasserstein GAN with a gradient penalty: the critic is trained twice a step."""

import torch
from torch import nn
from torch.nn import functional as F

NOISE, KINDS, SIZE, BATCH, CRITIC_STEPS = 6, 3, 8, 4, 2
PENALTY, DRIFT = 10.0, 1e-3


class ModulatedNorm(nn.Module):
    """Batch norm whose scale and shift are of the kind."""

    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.embed = nn.Embedding(KINDS, 2 * channels)
        nn.init.normal_(self.embed.weight, std=0.2)

    def forward(self, x, kinds):
        gamma, beta = self.embed(kinds)[..., None, None].chunk(2, dim=1)
        return (1 + gamma) * self.norm(x) + beta


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.start = nn.Linear(NOISE, 16 * 4, bias=False)
        self.norm1 = ModulatedNorm(16)
        self.conv1 = nn.Conv2d(16, 8, 3, padding=1, bias=False)
        self.norm2 = ModulatedNorm(8)
        self.conv2 = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, z, kinds):
        x = self.start(z).view(-1, 16, 2, 2)
        x = F.interpolate(F.relu(self.norm1(x, kinds)), scale_factor=2)
        x = self.conv1(x)
        x = F.interpolate(F.relu(self.norm2(x, kinds)), scale_factor=2)
        return torch.tanh(self.conv2(x))


def minibatch_deviation(x):
    """One more channel: the deviation over the batch, as a mean over all places."""
    deviation = (x.var(0, unbiased=False) + 1e-8).sqrt().mean()
    return torch.cat([x, deviation.expand(len(x), 1, *x.shape[2:])], dim=1)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 8, 3, 2, 1)
        self.conv2 = nn.Conv2d(8, 12, 3, 2, 1)
        self.last = nn.Linear(13 * 4, 12)
        self.out = nn.Linear(12, 1)
        self.embed = nn.Embedding(KINDS, 12)

    def features(self, x):
        x = F.leaky_relu(self.conv1(x), 0.2)
        x = F.softplus(self.conv2(x))
        x = minibatch_deviation(x)
        return F.softplus(self.last(x.flatten(1)))

    def forward(self, x, kinds):
        h = self.features(x)
        return self.out(h).squeeze(1) + (self.embed(kinds) * h).sum(1)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.critic = Critic()


def mixed(real, fake, share):
    share = share.view(-1, 1, 1, 1)
    return (share * real + (1 - share) * fake).requires_grad_(True)


def gradient_penalty(critic, real, fake, kinds, share):
    between = mixed(real, fake, share)
    score = critic(between, kinds)
    (gradient,) = torch.autograd.grad(score.sum(), between, create_graph=True)
    norm = gradient.flatten(1).norm(2, dim=1)
    return (norm - 1).square().mean()


def critic_loss(model, real, fake, kinds, share):
    good, bad = model.critic(real, kinds), model.critic(fake, kinds)
    loss = bad.mean() - good.mean()
    loss = loss + PENALTY * gradient_penalty(model.critic, real, fake, kinds, share)
    return loss + DRIFT * good.square().mean()


def train_critic(model, real, kinds, z, share):
    with torch.no_grad():
        fake = model.generator(z, kinds)
    model.critic_optimizer.zero_grad()
    critic_loss(model, real, fake, kinds, share).backward()
    model.critic_optimizer.step()


def train_generator(model, optimizer, kinds, z):
    model.critic.requires_grad_(False)
    optimizer.zero_grad()
    loss = -model.critic(model.generator(z, kinds), kinds).mean()
    loss.backward()
    optimizer.step()
    model.critic.requires_grad_(True)


def build():
    return GAN()


def optimizer(model):
    model.critic_optimizer = torch.optim.Adam(model.critic.parameters(), lr=4e-3, betas=(0.0, 0.9))
    return torch.optim.Adam(model.generator.parameters(), lr=1e-3, betas=(0.0, 0.9))


def batch(generator):
    rounds = []
    for _ in range(CRITIC_STEPS):
        real = torch.randn(BATCH, 2, SIZE, SIZE, generator=generator).tanh()
        kinds = torch.randint(0, KINDS, (BATCH,), generator=generator)
        z = torch.randn(BATCH, NOISE, generator=generator)
        rounds.append((real, kinds, z, torch.rand(BATCH, generator=generator)))
    kinds = torch.randint(0, KINDS, (BATCH,), generator=generator)
    return rounds, kinds, torch.randn(BATCH, NOISE, generator=generator)


def step(model, optimizer, batch):
    rounds, kinds, z = batch
    for each in rounds:
        train_critic(model, *each)
    train_generator(model, optimizer, kinds, z)
