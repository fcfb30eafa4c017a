"""A GAN: the generator's step leaves gradients in the discriminator, which are not cleared.

zero_grad of the discriminator stands after its own step instead of before its backward pass.
"""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(11)


class Generator(nn.Module):
    def __init__(self, noise=12, width=16):
        super().__init__()
        self.enter = nn.Linear(noise, 2 * width * 16)
        self.up = nn.ConvTranspose2d(2 * width, width, 4, 2, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.paint = nn.ConvTranspose2d(width, 1, 4, 2, 1)

    def forward(self, z):
        x = F.relu(self.enter(z)).unflatten(1, (-1, 4, 4))
        return torch.tanh(self.paint(F.relu(self.norm(self.up(x)))))


class Discriminator(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, width, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(width, 2 * width, 4, 2, 1),
            nn.LeakyReLU(0.2),
        )
        self.judge = nn.Linear(2 * width * 16, 1)

    def forward(self, images):
        return self.judge(self.features(images).flatten(1)).squeeze(1)


gan = nn.ModuleDict({"generator": Generator(), "discriminator": Discriminator()})
generator, discriminator = gan["generator"], gan["discriminator"]
optimizer_g = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
optimizer_d = torch.optim.Adam(discriminator.parameters(), lr=2e-4, betas=(0.5, 0.999))
images = torch.rand(3, 8, 1, 16, 16) * 2 - 1
dbg = debugger()
losses = []
for step in range(3):
    dbg.start(gan)
    z = torch.randn(8, 12)
    real, fake = discriminator(images[step]), discriminator(generator(z).detach())
    loss_d = F.softplus(-real).mean() + F.softplus(fake).mean()
    if not BUG:
        optimizer_d.zero_grad(set_to_none=not ALT)
    loss_d.backward()
    optimizer_d.step()
    if BUG:
        optimizer_d.zero_grad()

    optimizer_g.zero_grad()
    loss_g = F.softplus(-discriminator(generator(z))).mean()
    loss_g.backward()
    optimizer_g.step()
    dbg.stop()
    dbg.step()
    losses += [loss_d.item(), loss_g.item()]
made = digest(losses, gan)
