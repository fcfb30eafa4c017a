"""A UNet and a scheduler of diffusers: velocities of latents, captions, some of them dropped."""

import torch
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from torch import nn
from torch.nn import functional as F

CHANNELS, EXTENT, WORDS, VOCABULARY, WIDTH, BATCH, PART = 4, 8, 5, 23, 8, 4, 2
TIMES, SCALING, GAMMA, RATE, LARGEST = 100, 0.18215, 5.0, 2e-3, 1.0


def net():
    return UNet2DConditionModel(
        sample_size=EXTENT,
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        block_out_channels=(8, 16),
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
        layers_per_block=1,
        cross_attention_dim=WIDTH,
        attention_head_dim=4,
        norm_num_groups=4,
    )


class Model(nn.Module):
    """The UNet, and the captions' words; a dropped caption is a learned one."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, WIDTH)
        self.nothing = nn.Parameter(torch.randn(1, WORDS, WIDTH) * 0.5)
        self.net = net()
        self.scheduler = DDPMScheduler(
            num_train_timesteps=TIMES,
            beta_start=0.00085,
            beta_end=0.012,
            beta_schedule="scaled_linear",
            prediction_type="v_prediction",
        )

    def captions(self, words, dropped):
        return torch.where(dropped[:, None, None], self.nothing, self.words(words))

    def forward(self, noisy, times, words, known, dropped):
        states, seen = self.captions(words, dropped), known | dropped[:, None]
        return self.net(noisy, times, states, encoder_attention_mask=seen).sample


def build():
    model = Model()
    for parameter in model.net.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_normal_(parameter)
    return model


def optimizer(model):
    made = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-2)
    model.__dict__["schedule"] = get_cosine_schedule_with_warmup(made, 3, 20)
    return made


def batch(generator):
    dtype = torch.get_default_dtype()
    pictures = torch.randn(BATCH, CHANNELS, EXTENT, EXTENT, generator=generator).to(dtype) * 5
    noise = torch.randn(BATCH, CHANNELS, EXTENT, EXTENT, generator=generator).to(dtype)
    times = torch.randint(5, TIMES, (BATCH,), generator=generator)
    words = torch.randint(VOCABULARY, (BATCH, WORDS), generator=generator)
    known = torch.arange(WORDS) < torch.tensor([5, 3, 4, 2])[:, None]
    return pictures, noise, times, words, known, torch.tensor([False, False, True, False])


def weight_of(scheduler, times):
    """The ratio of signal to noise, at most GAMMA, for velocities (min-SNR)."""
    kept = scheduler.alphas_cumprod[times].to(torch.get_default_dtype())
    ratio = kept / (1 - kept)
    return ratio.clamp(max=GAMMA) / (ratio + 1)


def wanted(scheduler, latents, noise, times):
    return scheduler.get_velocity(latents, noise, times)


def loss_of(predicted, target, weight):
    each = F.mse_loss(predicted, target, reduction="none").mean(dim=(1, 2, 3))
    return (weight * each).sum() / BATCH


def latents_of(pictures):
    return pictures * SCALING


def pass_of(model, pictures, noise, times, words, known, dropped):
    latents = latents_of(pictures)
    noisy = model.scheduler.add_noise(latents, noise, times)
    predicted = model(noisy, times, words, known, dropped)
    target = wanted(model.scheduler, latents, noise, times)
    loss_of(predicted, target, weight_of(model.scheduler, times)).backward()


def backward(model, batch):
    for part in zip(*(each.split(PART) for each in batch), strict=True):
        pass_of(model, *part)


def step(model, optimizer, batch):
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad()
