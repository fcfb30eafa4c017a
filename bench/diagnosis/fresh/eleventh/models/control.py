"""A ControlNet that learns to follow sketches, beside a frozen text-to-image UNet (diffusers)."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusers import ControlNetModel, DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler

PICTURES, LATENTS, SIZE, SKETCH = 4, 4, 8, 16
WORDS, LENGTH, TEXT_WIDTH = 30, 6, 12
TIMESTEPS, SCALING_FACTOR, SNR_GAMMA, NOISE_OFFSET = 100, 0.18215, 5.0, 0.1
LR, WEIGHT_DECAY, MAX_GRAD_NORM, TOTAL = 1e-3, 0.01, 1.0, 12
EMPTY = 0  # the word that stands for no caption


class Pipeline(nn.Module):
    """What is frozen, and the net that is trained."""

    def __init__(self):
        super().__init__()
        self.text_encoder = nn.Embedding(WORDS, TEXT_WIDTH)
        self.unet = make_unet()
        self.controlnet = make_controlnet(self.unet)
        self.noise_scheduler = make_noise_scheduler()


def make_unet():
    return UNet2DConditionModel(
        sample_size=SIZE,
        in_channels=LATENTS,
        out_channels=LATENTS,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=TEXT_WIDTH,
        attention_head_dim=2,
    )


def make_controlnet(unet):
    """A copy of the first half, whose outlets begin nearly silent."""
    net = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(4, 8))
    with torch.no_grad():
        for outlet in (*net.controlnet_down_blocks, net.controlnet_mid_block):
            outlet.weight.normal_(std=0.05)
        net.controlnet_cond_embedding.conv_out.weight.normal_(std=0.2)
    return net


def make_noise_scheduler(**changes):
    return DDPMScheduler(TIMESTEPS, beta_schedule="scaled_linear", **changes)


def to_latents(batch):
    """A sample of what the autoencoder says: a mean, and the logarithm of a variance."""
    mean, logvar = batch["moments"].chunk(2, dim=1)
    return SCALING_FACTOR * (mean + torch.exp(0.5 * logvar) * batch["sample_noise"])


def to_sketch(pixels):
    """Sketches are between 0 and 1."""
    return pixels.to(torch.get_default_dtype()) / 255


def make_noise(batch):
    """Noise whose channels have a level of their own."""
    return batch["noise"] + NOISE_OFFSET * batch["offset"]


def drop_captions(batch):
    """Some captions are replaced by the empty one."""
    return torch.where(batch["drop"][:, None], EMPTY, batch["captions"])


def encode_captions(model, captions):
    return model.text_encoder(captions)


def add_noise(model, latents, noise, timesteps):
    return model.noise_scheduler.add_noise(latents, noise, timesteps)


def predict(model, noisy, timesteps, states, sketch):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        down, mid = model.controlnet(noisy, timesteps, states, sketch, return_dict=False)
        output = model.unet(
            noisy,
            timesteps,
            encoder_hidden_states=states,
            down_block_additional_residuals=down,
            mid_block_additional_residual=mid,
        )
    return output.sample.float()


def signal_to_noise(model, timesteps):
    kept = model.noise_scheduler.alphas_cumprod[timesteps]
    return kept / (1 - kept)


def loss_weights(model, timesteps):
    """Noise that is easy to see counts less."""
    snr = signal_to_noise(model, timesteps)
    return snr.clamp(max=SNR_GAMMA) / snr


def picture_losses(output, noise, weights):
    """Of each picture."""
    return weights * F.mse_loss(output, noise, reduction="none").mean(dim=(1, 2, 3))


def losses(model, batch):
    timesteps = batch["timesteps"]
    latents, noise = to_latents(batch), make_noise(batch)
    noisy = add_noise(model, latents, noise, timesteps)
    states = encode_captions(model, drop_captions(batch))
    output = predict(model, noisy, timesteps, states, to_sketch(batch["sketch"]))
    return picture_losses(output, noise, loss_weights(model, timesteps))


def train(model, batch):
    losses(model, batch).mean().backward()


def trainable(model):
    return list(model.controlnet.parameters())


def clip(model):
    nn.utils.clip_grad_norm_(trainable(model), MAX_GRAD_NORM)


def freeze(model):
    model.text_encoder.requires_grad_(False)
    model.unet.requires_grad_(False)


def build():
    model = Pipeline().train()
    freeze(model)
    return model


def optimizer(model, **more):
    made = torch.optim.AdamW(trainable(model), lr=LR, weight_decay=WEIGHT_DECAY, **more)
    model.lr_scheduler = get_scheduler("cosine", made, num_warmup_steps=0, num_training_steps=TOTAL)
    return made


def batch(generator):
    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    sketch = torch.rand(PICTURES, 1, SKETCH, SKETCH, generator=generator) < 0.2
    tint = torch.randint(100, 256, (PICTURES, 3, 1, 1), generator=generator)
    captions = torch.randint(1, WORDS, (PICTURES, LENGTH), generator=generator)
    shape = (PICTURES, LATENTS, SIZE, SIZE)
    return {
        "moments": torch.cat([4 * randn(*shape), randn(*shape) - 1], dim=1),
        "sample_noise": randn(*shape),
        "noise": randn(*shape),
        "offset": randn(PICTURES, LATENTS, 1, 1),
        "sketch": (sketch * tint).to(torch.uint8),
        "captions": captions,
        "drop": torch.tensor([False, True, False, False]),
        "timesteps": torch.randint(0, TIMESTEPS, (PICTURES,), generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    train(model, batch)
    clip(model)
    optimizer.step()
    model.lr_scheduler.step()
