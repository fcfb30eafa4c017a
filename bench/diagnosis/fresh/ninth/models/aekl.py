"""An AutoencoderKL of diffusers and a critic of patches, whose weight two gradients decide."""

import contextlib

import torch
from diffusers import AutoencoderKL
from torch import nn
from torch.nn import functional as F

BATCH, SIZE, LATENT = 4, 16, 2
KL_WEIGHT, FEATURE_WEIGHT, CRITIC_WEIGHT, MOST, EPS = 0.2, 0.8, 0.5, 1e6, 1e-4
LR, CRITIC_LR, RAMP, KEPT, LEAST_WEIGHT = 1e-3, 3e-3, 3, 0.6, 0.3
SHIFT, SCALE = (-0.03, -0.09, -0.19), (0.46, 0.45, 0.45)


def make_vae():
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        block_out_channels=(8, 12),
        layers_per_block=1,
        latent_channels=LATENT,
        norm_num_groups=4,
        sample_size=SIZE,
    )


class Features(nn.Module):
    """Answers of two layers that nobody trains, and how much each of their channels counts."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 8, 3, stride=2, padding=1)]
        )
        self.counts = nn.ParameterList([torch.rand(6), torch.rand(8)])
        self.requires_grad_(False)

    def scaled(self, x):
        shift, scale = torch.tensor(SHIFT), torch.tensor(SCALE)
        return (x - shift[:, None, None]) / scale[:, None, None]

    def forward(self, x):
        x, found = self.scaled(x), []
        for layer in self.layers:
            x = F.silu(layer(x))
            found.append(x)
        return found


class Critic(nn.Module):
    """Says of each patch how real it looks."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 4, stride=2, padding=1)
        self.second = nn.Conv2d(8, 12, 4, stride=2, padding=1)
        self.norm = nn.GroupNorm(3, 12)
        self.last = nn.Conv2d(12, 1, 3, padding=1)

    def forward(self, x):
        x = F.leaky_relu(self.first(x), 0.2)
        x = F.leaky_relu(self.norm(self.second(x)), 0.2)
        return self.last(x)


class FirstStage(nn.Module):
    def __init__(self):
        super().__init__()
        self.vae = make_vae()
        self.critic = Critic()
        self.features = Features()
        self.log_noise = nn.Parameter(torch.tensor(-0.4))
        self.register_buffer("mean_real", torch.tensor(0.1))
        self.register_buffer("mean_made", torch.tensor(-0.1))
        self.updates = 0


def centred(pictures):
    return 2 * pictures - 1


def latents(posterior, noise):
    return posterior.mean + posterior.std * noise


def reconstructed(model, x, noise):
    posterior = model.vae.encode(x).latent_dist
    return posterior, model.vae.decode(latents(posterior, noise)).sample


def unit(x):
    """Channels of each place with a length of 1."""
    return x / (x.square().sum(dim=1, keepdim=True) + 1e-8).sqrt()


def weighted(difference, count):
    return (difference.square() * count[:, None, None]).sum(dim=1)


def feature_distance(features, a, b):
    """Of each picture."""
    pairs = zip(features(a), features(b), features.counts, strict=True)
    return sum(weighted(unit(x) - unit(y), count).mean(dim=(1, 2)) for x, y, count in pairs)


def likelihood_loss(model, x, made):
    """The negative logarithm of how probable the pixels are, with a learned noise."""
    distance = feature_distance(model.features, x, made)
    error = (x - made).abs() + FEATURE_WEIGHT * distance[:, None, None, None]
    return (error / model.log_noise.exp() + model.log_noise).sum() / len(x)


def kl_loss(posterior):
    return posterior.kl().sum() / len(posterior.mean)


def last_layer(model):
    return model.vae.decoder.conv_out.weight


def balance(model, likelihood, adversarial):
    """Both losses pull equally at the last layer."""
    [wanted] = torch.autograd.grad(likelihood, last_layer(model), retain_graph=True)
    [has] = torch.autograd.grad(adversarial, last_layer(model), retain_graph=True)
    return (wanted.norm() / (has.norm() + EPS)).clamp(0.0, MOST).detach()


def ramp(t):
    return min(1.0, (t + 1) / RAMP)


@contextlib.contextmanager
def frozen(critic):
    """What the autoencoder learns leaves no gradient in the critic."""
    critic.requires_grad_(False)
    yield
    critic.requires_grad_(True)


def autoencoder_backward(model, x, posterior, made):
    likelihood = likelihood_loss(model, x, made)
    with frozen(model.critic):
        adversarial = -model.critic(made).mean()
        weight = balance(model, likelihood, adversarial) * CRITIC_WEIGHT
        loss = likelihood + KL_WEIGHT * kl_loss(posterior)
        (loss + ramp(model.updates) * weight * adversarial).backward()


def judged(critic, real, made):
    return critic(real), critic(made)


def hinge(real, made):
    return 0.5 * (F.relu(1 - real).mean() + F.relu(1 + made).mean())


def least_overfitted(model, real, made):
    """Answers stay near what the other kind got on average."""
    far = (real - model.mean_made).square().mean()
    return far + (made - model.mean_real).square().mean()


@torch.no_grad()
def remember(model, real, made):
    model.mean_real.lerp_(real.mean(), 1 - KEPT)
    model.mean_made.lerp_(made.mean(), 1 - KEPT)


def critic_backward(model, x, made):
    real, made = judged(model.critic, x, made.detach())
    remember(model, real, made)
    (hinge(real, made) + LEAST_WEIGHT * least_overfitted(model, real, made)).backward()


def backward(model, data):
    x = centred(data["pictures"])
    posterior, made = reconstructed(model, x, data["noise"])
    autoencoder_backward(model, x, posterior, made)
    critic_backward(model, x, made)


def build():
    return FirstStage().train()


def learned(model):
    return [*model.vae.parameters(), model.log_noise]


def optimizer(model, **more):
    made = torch.optim.Adam(learned(model), lr=LR, betas=(0.5, 0.9), eps=1e-5, **more)
    model.critic_optimizer = torch.optim.Adam(
        model.critic.parameters(), lr=CRITIC_LR, betas=(0.5, 0.9)
    )
    return made


def batch(generator):
    latent = (BATCH, LATENT, SIZE // 2, SIZE // 2)
    return {
        "pictures": torch.rand(BATCH, 3, SIZE, SIZE, generator=generator),
        "noise": torch.randn(latent, generator=generator),
    }


def step(model, optimizer, batch):
    for each in (optimizer, model.critic_optimizer):
        each.zero_grad()
    backward(model, batch)
    for each in (optimizer, model.critic_optimizer):
        each.step()
    model.updates += 1
