"""A generator against a critic: two optimizers, spectral norms, a penalty of the gradient, R1."""

import torch
from torch import nn
from torch.nn import functional as F

NOISE, WIDTH, EXTENT, CLASSES, BATCH = 8, 16, 8, 3, 6
PENALTY, LR = 0.5, 2e-3
SLOPE = 0.2


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.classes = nn.Embedding(CLASSES, NOISE)
        self.enter = nn.Linear(2 * NOISE, WIDTH * 4)
        self.norm = nn.InstanceNorm2d(WIDTH, affine=True)
        self.grow = nn.ConvTranspose2d(WIDTH, WIDTH, 4, stride=2, padding=1)
        self.grow2 = nn.ConvTranspose2d(WIDTH, 2, 4, stride=2, padding=1)

    def forward(self, noise, classes):
        x = self.enter(torch.cat([noise, self.classes(classes)], dim=1)).view(-1, WIDTH, 2, 2)
        x = F.relu(self.norm(self.grow(x)))
        return torch.tanh(self.grow2(x))


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, WIDTH, 3, stride=2, padding=1)
        self.conv2 = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.score = nn.Linear(WIDTH * 4, 1)
        self.classes = nn.Embedding(CLASSES, WIDTH * 4)

    def features(self, pictures):
        x = F.leaky_relu(self.conv1(pictures), SLOPE)
        return F.leaky_relu(self.conv2(x), SLOPE).flatten(1)

    def forward(self, pictures, classes):
        """A projection critic: what it thinks, and how well the class fits."""
        x = self.features(pictures)
        return self.score(x)[:, 0] + (x * self.classes(classes)).sum(1) / x.shape[1]


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = Generator()
        self.critic = Critic()


class Both:
    """The optimizers of both sides."""

    def __init__(self, model):
        self.critic = torch.optim.Adam(model.critic.parameters(), lr=LR, betas=(0.0, 0.99))
        self.generator = torch.optim.Adam(model.generator.parameters(), lr=LR, betas=(0.5, 0.99))


def build():
    model = Pair()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, std=0.2)
    return model


def optimizer(model):
    return Both(model)


def batch(generator):
    dtype = torch.get_default_dtype()
    real = torch.rand(BATCH, 2, EXTENT, EXTENT, generator=generator).to(dtype) * 2 - 1
    noise = torch.randn(BATCH, NOISE, generator=generator).to(dtype)
    return real, noise, torch.randint(CLASSES, (BATCH,), generator=generator)


def penalty(critic, real, classes):
    """R1: the squared gradient of the score of real pictures."""
    real = real.detach().requires_grad_()
    [gradient] = torch.autograd.grad(critic(real, classes).sum(), real, create_graph=True)
    return gradient.square().sum(dim=(1, 2, 3)).mean()


def critic_loss(real_scores, fake_scores):
    return F.softplus(-real_scores).mean() + F.softplus(fake_scores).mean()


def generator_loss(scores):
    return F.softplus(-scores).mean()


def train_critic(model, optimizer, real, noise, classes):
    optimizer.critic.zero_grad()
    fake = model.generator(noise, classes).detach()
    value = critic_loss(model.critic(real, classes), model.critic(fake, classes))
    (value + PENALTY * penalty(model.critic, real, classes)).backward()
    optimizer.critic.step()


def train_generator(model, optimizer, noise, classes):
    optimizer.generator.zero_grad()
    generator_loss(model.critic(model.generator(noise, classes), classes)).backward()
    optimizer.generator.step()


def step(model, optimizer, batch):
    real, noise, classes = batch
    train_critic(model, optimizer, real, noise, classes)
    train_generator(model, optimizer, noise, classes)
