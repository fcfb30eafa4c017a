"""A UNet2DModel of diffusers: v-prediction, min-SNR weights, accumulated micro-batches, EMA."""

import torch
from diffusers import DDPMScheduler, UNet2DModel
from diffusers.optimization import get_scheduler
from diffusers.training_utils import EMAModel, compute_snr
from torch import nn
from torch.nn import functional as F

RESOLUTION, BATCH, ACCUMULATION, CLASSES, TRAIN_TIMESTEPS = 8, 6, 2, 5, 50
SNR_GAMMA, NOISE_OFFSET, INPUT_PERTURBATION = 5.0, 0.1, 0.2
LEARNING_RATE, MAX_GRAD_NORM, MAX_TRAIN_STEPS, EMA_DECAY = 3e-3, 0.5, 6, 0.7


def unet_config(**changes):
    return {
        "sample_size": RESOLUTION,
        "in_channels": 3,
        "out_channels": 3,
        "layers_per_block": 1,
        "block_out_channels": (8, 16),
        "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
        "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        "norm_num_groups": 4,
        "attention_head_dim": 8,
        "num_class_embeds": CLASSES + 1,
        "resnet_time_scale_shift": "scale_shift",
    } | changes


def make_noise_scheduler(**changes):
    return DDPMScheduler(
        num_train_timesteps=TRAIN_TIMESTEPS,
        **{
            "beta_schedule": "scaled_linear",
            "prediction_type": "v_prediction",
            "rescale_betas_zero_snr": True,
        }
        | changes,
    )


class Trainer(nn.Module):
    """The net that learns, and the one that is saved."""

    def __init__(self):
        super().__init__()
        self.unet = UNet2DModel(**unet_config())
        self.ema_unet = UNet2DModel(**unet_config())
        self.ema_unet.load_state_dict(self.unet.state_dict())
        self.ema_unet.requires_grad_(False).eval()
        self.noise_scheduler = make_noise_scheduler()


def make_ema(unet, foreach=True):
    return EMAModel(
        unet.parameters(), EMA_DECAY, use_ema_warmup=True, inv_gamma=1.0, power=1, foreach=foreach
    )


def build():
    model = Trainer()
    model.ema = make_ema(model.unet)
    return model.train()


def make_lr_scheduler(optimizer):
    return get_scheduler(
        "cosine", optimizer=optimizer, num_warmup_steps=0, num_training_steps=MAX_TRAIN_STEPS
    )


def optimizer(model, **more):
    made = torch.optim.AdamW(
        model.unet.parameters(), lr=LEARNING_RATE, betas=(0.95, 0.999), weight_decay=1e-2, **more
    )
    model.lr_scheduler = make_lr_scheduler(made)
    return made


def batch(generator):
    image = (BATCH, 3, RESOLUTION, RESOLUTION)
    return {
        "images": torch.rand(image, generator=generator) * 2 - 1,
        "noise": torch.randn(image, generator=generator),
        "offset": torch.randn(BATCH, 3, generator=generator),
        "perturbation": torch.randn(image, generator=generator),
        "timesteps": torch.randint(0, TRAIN_TIMESTEPS, (BATCH,), generator=generator),
        "labels": torch.randint(0, CLASSES + 1, (BATCH,), generator=generator),
    }


def noises(batch):
    """The noise of the target, and what is added to the pictures."""
    noise = batch["noise"] + NOISE_OFFSET * batch["offset"][:, :, None, None]
    return noise, noise + INPUT_PERTURBATION * batch["perturbation"]


def inputs_and_target(noise_scheduler, batch):
    noise, new_noise = noises(batch)
    noisy_images = noise_scheduler.add_noise(batch["images"], new_noise, batch["timesteps"])
    target = noise_scheduler.get_velocity(batch["images"], noise, batch["timesteps"])
    return noisy_images, target


def snr_weights(noise_scheduler, timesteps):
    snr = compute_snr(noise_scheduler, timesteps)
    weights = torch.stack([snr, SNR_GAMMA * torch.ones_like(timesteps)], dim=1).min(dim=1)[0]
    return weights / (snr + 1)  # velocities


def compute_loss(unet, noise_scheduler, batch):
    noisy_images, target = inputs_and_target(noise_scheduler, batch)
    model_pred = unet(noisy_images, batch["timesteps"], class_labels=batch["labels"]).sample
    loss = F.mse_loss(model_pred.float(), target.float(), reduction="none")
    loss = loss.mean(dim=list(range(1, len(loss.shape))))
    return (loss * snr_weights(noise_scheduler, batch["timesteps"])).mean()


def micro_batches(batch):
    for values in zip(*(value.chunk(ACCUMULATION) for value in batch.values()), strict=True):
        yield dict(zip(batch, values, strict=True))


def backward(loss):
    loss = loss / ACCUMULATION
    loss.backward()


def accumulate_gradients(model, batch):
    for micro_batch in micro_batches(batch):
        backward(compute_loss(model.unet, model.noise_scheduler, micro_batch))


def update_ema(model):
    model.ema.step(model.unet.parameters())
    model.ema.copy_to(model.ema_unet.parameters())


@torch.no_grad()
def log_validation(model, batch):
    """The loss of the averaged weights, for the first pictures."""
    few = {name: value[:2] for name, value in batch.items()}
    model.validation_loss = compute_loss(model.ema_unet, model.noise_scheduler, few).item()


def step(model, optimizer, batch):
    accumulate_gradients(model, batch)
    nn.utils.clip_grad_norm_(model.unet.parameters(), MAX_GRAD_NORM)
    optimizer.step()
    model.lr_scheduler.step()
    optimizer.zero_grad()
    update_ema(model)
    log_validation(model, batch)
