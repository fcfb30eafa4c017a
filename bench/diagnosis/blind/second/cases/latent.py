"""Cases of the UNet of latents."""

import torch
from case import fault, harmless

LAST = r"net(\.conv_out)?|"


def one_batch(latent):
    """One batch, in the order of its times, for two micro-batches."""

    def backward(model, batch):
        order = batch[2].argsort()
        latent.pass_of(model, *(each[order] for each in batch))

    latent.backward = backward


def blocks_computed_again(latent):
    """The blocks are computed again in the backward pass."""
    net = latent.net

    def checkpointed():
        model = net()
        model.enable_gradient_checkpointing()
        return model

    latent.net = checkpointed


@fault(
    "latent",
    module_only=LAST,
    line=["return scheduler.get_velocity(latents, noise, times)"],
    api=r"Functional\.mse_loss",
)
def noise_is_the_target(latent):
    """The target is the noise, though the net predicts velocities."""
    latent.wanted = lambda scheduler, latents, noise, times: noise  # here


@fault(
    "latent",
    module_only=r"net(\.(conv_in|time_embedding))?|",
    line=[
        "return pictures * SCALING",
        "noisy = model.scheduler.add_noise(latents, noise, times)",
    ],
)
def latents_not_scaled(latent):
    """Latents are not multiplied by their scaling factor."""
    latent.latents_of = lambda pictures: pictures.clone()  # here


@fault(
    "latent",
    module=r"net|net\.down_blocks\.0\.attentions\.0.*|",
    line=[
        "states, seen = self.captions(words, dropped), known | dropped",
        "return self.net(noisy, times, states, encoder_attention_mask",
    ],
    api=r"Functional\.scaled_dot_product_attention|Tensor\.(to|unsqueeze|__rsub__|__mul__)",
)
def padding_of_captions_seen(latent):
    """The net sees the padding of the captions: it gets no mask."""

    class Model(latent.Model):
        def forward(self, noisy, times, words, known, dropped):
            return self.net(noisy, times, self.captions(words, dropped)).sample  # here

    latent.Model = Model


@fault("latent", api="Optimizer.AdamW.step", update=True)
def schedule_counts_micro_batches(latent):
    """The schedule goes on after each micro-batch, in place of each step: it is twice as fast."""

    def step(model, optimizer, batch):
        for part in zip(*(each.split(latent.PART) for each in batch), strict=True):
            latent.pass_of(model, *part)
            model.schedule.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), latent.LARGEST)
        optimizer.step()
        optimizer.zero_grad()

    latent.step = step


@fault(
    "latent",
    beside=one_batch,
    module_only=r"net(\.down_blocks\.0\.attentions\.0.*)?|",
    line=["return torch.where(dropped[:, None, None], self.nothing"],
)
def captions_dropped_the_other_way(latent):
    """The captions that are not dropped are replaced."""

    class Model(latent.Model):
        def captions(self, words, dropped):
            return torch.where(dropped[:, None, None], self.words(words), self.nothing)  # here

    latent.Model = Model


@fault(
    "latent",
    beside=blocks_computed_again,
    module_only=LAST,
    line=["return ratio.clamp(max=GAMMA) / (ratio + 1)", "return (weight * each).sum() / BATCH"],
)
def weight_of_noises(latent):
    """The weight is that of a net that predicts the noise."""

    def weight_of(scheduler, times):
        kept = scheduler.alphas_cumprod[times].to(torch.get_default_dtype())
        ratio = kept / (1 - kept)
        return ratio.clamp(max=latent.GAMMA) / ratio  # here

    latent.weight_of = weight_of


harmless("micro batches", "latent")(one_batch)
harmless("recomputed", "latent")(blocks_computed_again)


@harmless("fused", "latent")
def attention_of_diffusers(latent):
    """The attention of diffusers is written out by baddbmm, not that of PyTorch."""
    from diffusers.models.attention_processor import AttnProcessor

    net = latent.net

    def written_out():
        model = net()
        model.set_attn_processor(AttnProcessor())
        return model

    latent.net = written_out


@harmless("loss", "latent")
def velocity_by_angles(latent):
    """The velocity by roots of the kept share; the loss is one weighted sum."""

    def wanted(scheduler, latents, noise, times):
        kept = scheduler.alphas_cumprod[times].to(latents.dtype).view(-1, 1, 1, 1)
        return torch.addcmul((1 - kept).sqrt() * -latents, kept.sqrt(), noise)

    def loss_of(predicted, target, weight):
        squares = (target - predicted).flatten(1).square().sum(dim=1)
        return torch.dot(weight, squares) / (latent.BATCH * target[0].numel())

    latent.wanted = wanted
    latent.loss_of = loss_of
