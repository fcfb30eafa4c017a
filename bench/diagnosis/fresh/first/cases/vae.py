"""Cases of the VAE."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault("vae", line="std = torch.exp(0.5 * logvar)")
def variance_for_deviation(vae):
    """The noise is multiplied by the variance."""

    def reparametrise(mean, logvar, noise):
        std = torch.exp(logvar)  # here
        return mean + std * noise

    vae.reparametrise = reparametrise


@fault(
    "vae", line=["losses = F.binary_cross_entropy_with_logits", "return reconstruction(logits, x)"]
)
def sigmoid_twice(vae):
    """The decoder's logits go through a sigmoid, and the loss applies one once more."""

    def reconstruction(logits, x):
        logits = logits.sigmoid()  # here
        losses = F.binary_cross_entropy_with_logits(logits, x, reduction="none")  # here
        return losses.flatten(1).sum(1).mean()

    vae.reconstruction = reconstruction


@fault("vae", line="return BETA * (self.updates / WARM_UP)")
def annealed_by_micro_batches(vae):
    """The annealing counts micro-batches: the second one has a larger weight already."""

    class VAE(vae.VAE):
        def beta(self):
            value = super().beta()
            self.updates.add_(1 / vae.ACCUMULATE)  # here
            return value

    vae.VAE = VAE


@fault("vae", line="return kl.mean(0).clamp(min=FREE_BITS).sum()")
def free_bits_of_the_sum(vae):
    """The floor is that of the whole KL, not of each latent number."""

    def free_bits(kl):
        return kl.mean(0).sum().clamp(min=vae.FREE_BITS)  # here

    vae.free_bits = free_bits


@fault(
    "vae",
    module="encoder",
    line=["mean, logvar = self.head(h).chunk(2, dim=1)", "return mean, logvar.clamp"],
)
def mean_and_variance_exchanged(vae):
    """The halves of the head are exchanged: the logarithm of the variance stands first."""

    class Encoder(vae.Encoder):
        def forward(self, x):
            h = self.net(x).flatten(1)
            logvar, mean = self.head(h).chunk(2, dim=1)  # here
            return mean, logvar.clamp(vae.LOW, vae.HIGH)  # here

    vae.Encoder = Encoder


@fault("vae", module=r"encoder.net.1", line="return x + self.conv2(h)")
def residual_of_the_activation(vae):
    """The first residual block of the encoder adds its normalised activation: an in-place ELU."""

    class Residual(vae.Residual):
        def forward(self, x):
            if x.shape[1] != 8 or x.requires_grad is False:
                return super().forward(x)
            normed = F.elu(self.norm(x), inplace=True)
            h = F.elu(self.conv1(normed))
            return normed + self.conv2(h)  # here

    plain = vae.Residual

    class Encoder(vae.Encoder):
        def __init__(self):
            super().__init__()
            self.net[1].__class__ = Residual

    Residual.__name__ = plain.__name__
    vae.Encoder = Encoder


@fault("vae", line=["return reconstruction(logits, x) + model.beta()", "return kl.mean(0).clamp"])
def posterior_detached_in_the_kl(vae):
    """The KL is computed of a detached posterior: its value is right, its gradient is missing."""

    def elbo(model, x, noise):
        logits, mean, logvar = model(x, noise)
        kl = vae.kl_of(mean.detach(), logvar.detach())  # here
        return vae.reconstruction(logits, x) + model.beta() * vae.free_bits(kl)  # here

    vae.elbo = elbo


@harmless("fused", "vae")
def kl_of_distributions(vae):
    """The KL by torch.distributions."""

    def kl_of(mean, logvar):
        posterior = torch.distributions.Normal(mean, (0.5 * logvar).exp())
        prior = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
        return torch.distributions.kl_divergence(posterior, prior)

    vae.kl_of = kl_of


@harmless("fused", "vae")
def noise_by_addcmul(vae):
    """Mean, deviation and noise by addcmul; the root for half of the exponent."""

    def reparametrise(mean, logvar, noise):
        return torch.addcmul(mean, logvar.exp().sqrt(), noise)

    vae.reparametrise = reparametrise


@harmless("split", "vae")
def two_heads(vae):
    """The encoder's head is two layers."""

    class Encoder(vae.Encoder):
        def __init__(self):
            super().__init__()
            self.mean = nn.Linear(192, vae.LATENT)
            self.logvar = nn.Linear(192, vae.LATENT)
            with torch.no_grad():
                for own, rows in ((self.mean, slice(0, 6)), (self.logvar, slice(6, 12))):
                    own.weight.copy_(self.head.weight[rows])
                    own.bias.copy_(self.head.bias[rows])
            del self.head

        def forward(self, x):
            h = self.net(x).flatten(1)
            return self.mean(h), self.logvar(h).clamp(vae.LOW, vae.HIGH)

    encoder = Encoder

    class VAE(vae.VAE):
        def __init__(self):
            super().__init__()
            state = torch.get_rng_state()
            plain = self.encoder
            self.encoder = encoder()
            torch.set_rng_state(state)
            own = plain.state_dict()
            for name in ("weight", "bias"):
                both = own.pop(f"head.{name}")
                own[f"mean.{name}"], own[f"logvar.{name}"] = both[:6], both[6:]
            self.encoder.load_state_dict(own)

    vae.VAE = VAE


@harmless("loss", "vae")
def losses_backward_apart(vae):
    """Reconstruction and KL go backward one after the other."""

    def accumulate(model, x, noise):
        for part, own in zip(x.chunk(vae.ACCUMULATE), noise.chunk(vae.ACCUMULATE), strict=True):
            logits, mean, logvar = model(part, own)
            (vae.reconstruction(logits, part) / vae.ACCUMULATE).backward(retain_graph=True)
            kl = vae.free_bits(vae.kl_of(mean, logvar))
            (model.beta() * kl / vae.ACCUMULATE).backward()

    vae.accumulate = accumulate


@harmless("rows", "vae", group="whole step")
def rows_within_micro_batches(vae):
    """The pictures of each micro-batch are in another order."""
    step = vae.step
    vae.step = lambda model, optimizer, batch: step(
        model, optimizer, tuple(each[[2, 0, 1, 4, 5, 3]] for each in batch)
    )


@harmless("recomputed", "vae", group="whole step")
def decoder_computed_again(vae):
    """The decoder is computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class VAE(vae.VAE):
        def forward(self, x, noise):
            mean, logvar = self.encoder(x)
            z = vae.reparametrise(mean, logvar, noise)
            return checkpoint(self.decoder, z, use_reentrant=False), mean, logvar

    vae.VAE = VAE
