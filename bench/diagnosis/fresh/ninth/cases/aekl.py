"""Cases of the AutoencoderKL."""

import contextlib

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("aekl", line="return posterior.mean + posterior.std * noise")
def variance_for_the_deviation(aekl):
    """The noise of the latents is multiplied by their variance."""

    def latents(posterior, noise):
        return posterior.mean + posterior.var * noise  # here

    aekl.latents = latents


@fault(
    "aekl",
    line=[
        "return posterior.kl().sum() / len(posterior.mean)",
        "loss = likelihood + KL_WEIGHT * kl_loss(posterior)",
    ],
)
def divergence_of_one_value(aekl):
    """The divergence is averaged over the values of the latents, the other losses are sums."""

    def kl_loss(posterior):
        return posterior.kl().sum() / posterior.mean.numel()  # here

    aekl.kl_loss = kl_loss


@fault("aekl", line="return (wanted.norm() / (has.norm() + EPS)).clamp(0.0, MOST).detach()")
def balance_turned_over(aekl):
    """The weight of the critic is the inverse one."""

    def balance(model, likelihood, adversarial):
        last = aekl.last_layer(model)
        [wanted] = torch.autograd.grad(likelihood, last, retain_graph=True)
        [has] = torch.autograd.grad(adversarial, last, retain_graph=True)
        return (has.norm() / (wanted.norm() + aekl.EPS)).clamp(0.0, aekl.MOST).detach()  # here

    aekl.balance = balance


@fault(
    "aekl",
    # Forward nothing is wrong; backward the critic gets gradients that are to be none.
    line=[
        "critic.requires_grad_(False)",
        "with frozen(model.critic):",
        "adversarial = -model.critic(made).mean()",
        "(loss + ramp(model.updates) * weight * adversarial).backward()",
    ],
    api=r"Module\.critic(\..*)?|Functional\.(conv2d|group_norm)|Torch\.(conv2d|group_norm)",
    module=r"critic(\..*)?",
)
def critic_learns_from_the_other_loss(aekl):
    """The critic is not frozen: it gets the gradient of the autoencoder's loss as well."""
    aekl.frozen = lambda critic: contextlib.nullcontext()  # here


@fault(
    "aekl",
    line=[
        "pairs = zip(features(a), features(b), features.counts, strict=True)",
        "x, found = self.scaled(x), []",
        "return (x - shift[:, None, None]) / scale[:, None, None]",
    ],
)
def pictures_of_another_range(aekl):
    """The features of the right picture are those of values between 0 and 1."""

    def feature_distance(features, a, b):
        of_a = features((a + 1) / 2)  # here
        pairs = zip(of_a, features(b), features.counts, strict=True)  # here
        squares = ((aekl.unit(x) - aekl.unit(y), count) for x, y, count in pairs)
        return sum(aekl.weighted(*each).mean(dim=(1, 2)) for each in squares)

    aekl.feature_distance = feature_distance


@fault(
    "aekl",
    line="return x / (x.square().sum(dim=1, keepdim=True) + 1e-8).sqrt()",
)
def length_over_the_places(aekl):
    """Features have a length of 1 over the places of a channel, not over the channels."""

    def unit(x):
        return x / (x.square().sum(dim=(2, 3), keepdim=True) + 1e-8).sqrt()  # here

    aekl.unit = unit


@fault(
    "aekl",
    line=[
        "far = (real - model.mean_made).square().mean()",
        "return far + (made - model.mean_real).square().mean()",
    ],
)
def averages_of_their_own_kind(aekl):
    """Answers are held near the average of their own kind."""

    def least_overfitted(model, real, made):
        far = (real - model.mean_real).square().mean()  # here
        return far + (made - model.mean_made).square().mean()  # here

    aekl.least_overfitted = least_overfitted


@fault("aekl", api=r"Optimizer\.Adam\.step", update=True)
def noise_is_not_learned(aekl):
    """The logarithm of the noise is not among the weights of the optimizer."""
    aekl.learned = lambda model: list(model.vae.parameters())


@fault(
    "aekl",
    line=[
        "return min(1.0, (t + 1) / RAMP)",
        "(loss + ramp(model.updates) * weight * adversarial).backward()",
    ],
)
def critic_begins_a_step_late(aekl):
    """The weight of the critic grows from zero, one step too late."""
    aekl.ramp = lambda t: min(1.0, t / aekl.RAMP)  # here


@harmless("fused", "aekl")
def attention_of_products(aekl):
    """The attention in the middle is composed of products."""
    make_vae = aekl.make_vae

    def made():
        from diffusers.models.attention_processor import AttnProcessor

        vae = make_vae()
        vae.set_attn_processor(AttnProcessor())
        return vae

    aekl.make_vae = made


@harmless("loss", "aekl")
def divergence_of_distributions(aekl):
    """The divergence is that of PyTorch's distributions."""

    def kl_loss(posterior):
        from torch.distributions import Normal, kl_divergence

        mine = Normal(posterior.mean, posterior.std)
        return kl_divergence(mine, Normal(0.0, 1.0)).sum() / len(posterior.mean)

    aekl.kl_loss = kl_loss


@harmless("split", "aekl")
def critic_sees_both_at_once(aekl):
    """Real and made pictures are one batch of the critic."""
    aekl.judged = lambda critic, real, made: critic(torch.cat([real, made])).chunk(2)


@harmless("fused", "aekl")
def features_weighted_by_a_convolution(aekl):
    """Squares of differences are weighted by a convolution of one pixel."""

    def weighted(difference, count):
        return F.conv2d(difference * difference, count[None, :, None, None])[:, 0]

    aekl.weighted = weighted


@harmless("reordered", "aekl")
def critic_goes_backward_first(aekl):
    """The critic's loss is computed before that of the autoencoder."""

    def backward(model, data):
        x = aekl.centred(data["pictures"])
        posterior, made = aekl.reconstructed(model, x, data["noise"])
        aekl.critic_backward(model, x, made)
        aekl.autoencoder_backward(model, x, posterior, made)

    aekl.backward = backward


@harmless("rows", "aekl", group="whole step")
def last_picture_first(aekl):
    """The pictures stand in the opposite order."""
    backward = aekl.backward

    def turned(model, data):
        backward(model, {name: value.flip(0) for name, value in data.items()})

    aekl.backward = turned


@harmless("micro batches", "aekl", group="whole step")
def one_picture_at_a_time(aekl):
    """The autoencoder encodes and decodes one picture after the other."""
    make_vae = aekl.make_vae

    def sliced():
        vae = make_vae()
        vae.enable_slicing()
        return vae

    aekl.make_vae = sliced


@harmless("recomputed", "aekl", group="whole step")
def blocks_computed_again(aekl):
    """The blocks of the autoencoder are computed again in the backward pass."""
    make_vae = aekl.make_vae

    def again():
        vae = make_vae()
        vae.enable_gradient_checkpointing()
        return vae

    aekl.make_vae = again


@harmless("scaled", "aekl", group="whole step")
def likelihood_of_a_sum(aekl):
    """The losses of the autoencoder are sums over pictures; its gradients are divided."""
    likelihood_loss, kl_loss = aekl.likelihood_loss, aekl.kl_loss
    autoencoder_backward = aekl.autoencoder_backward
    aekl.likelihood_loss = lambda *inputs: likelihood_loss(*inputs) * aekl.BATCH
    aekl.kl_loss = lambda posterior: kl_loss(posterior) * aekl.BATCH

    def divided(model, x, posterior, made):
        autoencoder_backward(model, x, posterior, made)
        torch._foreach_div_([p.grad for p in aekl.learned(model)], float(aekl.BATCH))

    aekl.autoencoder_backward = divided
