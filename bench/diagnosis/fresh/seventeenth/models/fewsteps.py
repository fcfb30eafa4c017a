"""Pictures in few steps: a UNet learns from a guided one by consistency (diffusers), autocast."""

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from torch import nn

PICTURES, CHANNELS, HEIGHT, WIDTH = 6, 4, 8, 8
WORDS, WORD_DIM, CONDITION = 5, 12, 16
TRAIN_STEPS, SOLVER_STEPS = 1000, 20
STRIDE = TRAIN_STEPS // SOLVER_STEPS
SIGMA_DATA, TIMESTEP_SCALING, HUBER = 0.5, 10.0, 1e-2
LEAST_GUIDANCE, MOST_GUIDANCE = 3.0, 9.0
EMA_DECAY, LR, WEIGHT_DECAY, MAX_GRAD_NORM, WARMUP = 0.9, 1e-3, 1e-2, 1.0, 3


def make_unet(**more):
    return UNet2DConditionModel(
        sample_size=HEIGHT,
        in_channels=CHANNELS,
        out_channels=CHANNELS,
        block_out_channels=(8, 16),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        mid_block_type=None,
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        layers_per_block=1,
        norm_num_groups=4,
        cross_attention_dim=WORD_DIM,
        attention_head_dim=2,
        **more,
    )


class Solver(nn.Module):
    """One step of DDIM, between neighbours of few moments."""

    def __init__(self, alphas):
        super().__init__()
        timesteps = torch.arange(1, SOLVER_STEPS + 1) * STRIDE - 1
        self.register_buffer("timesteps", timesteps)
        self.register_buffer("alphas_before", self.before(alphas, timesteps))

    def before(self, alphas, timesteps):
        """Before the first moment is the begin of the schedule."""
        return torch.cat([alphas[:1], alphas[timesteps[:-1]]])

    def forward(self, origin, noise, index):
        alpha = like_pictures(self.alphas_before.gather(0, index))
        return alpha.sqrt() * origin + (1 - alpha).sqrt() * noise


class Distillation(nn.Module):
    def __init__(self):
        super().__init__()
        self.teacher = make_unet().requires_grad_(False)
        for p in self.teacher.parameters():  # as if it had learned
            p.add_(0.1 * torch.randn_like(p))
        self.student = make_unet(time_cond_proj_dim=CONDITION)
        self.target = make_unet(time_cond_proj_dim=CONDITION).requires_grad_(False)
        self.student.load_state_dict(self.teacher.state_dict(), strict=False)
        self.target.load_state_dict(self.student.state_dict())
        self.schedule = DDPMScheduler(TRAIN_STEPS, beta_schedule="scaled_linear")
        alphas = self.schedule.alphas_cumprod.to(torch.get_default_dtype())
        self.register_buffer("alphas", alphas)
        self.solver = Solver(alphas)


def like_pictures(x):
    return x.view(-1, 1, 1, 1)


def boundary(timesteps):
    """At the time zero, the function is the identity."""
    scaled = timesteps * TIMESTEP_SCALING
    skip = SIGMA_DATA**2 / (scaled**2 + SIGMA_DATA**2)
    out = scaled / (scaled**2 + SIGMA_DATA**2) ** 0.5
    return like_pictures(skip), like_pictures(out)


def guidance_embedding(guidance):
    """The strength of guidance as waves."""
    half = CONDITION // 2
    powers = torch.arange(half, dtype=guidance.dtype) / (half - 1)
    angle = 1000.0 * guidance.unsqueeze(1) * 10000.0**-powers
    return torch.cat([angle.sin(), angle.cos()], dim=1)


def guidance_of(batch):
    return LEAST_GUIDANCE + (MOST_GUIDANCE - LEAST_GUIDANCE) * batch["strength"]


def run(unet, noisy, timesteps, words, condition=None):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        noise = unet(noisy, timesteps, words, timestep_cond=condition).sample
    return noise.float()


def origin_of(model, noisy, noise, timesteps):
    """What is left when the noise is taken away."""
    alpha = like_pictures(model.alphas[timesteps])
    return (noisy - (1 - alpha).sqrt() * noise) / alpha.sqrt()


def moments_of(model, batch):
    """Where the student stands, and the neighbour with less noise."""
    start = model.solver.timesteps[batch["index"]]
    return start, (start - STRIDE).clamp(min=0)


def guided(told, untold, guidance):
    return told + like_pictures(guidance) * (told - untold)


def ask_teacher(model, noisy, timesteps, words):
    """The picture and the noise that the teacher sees."""
    noise = run(model.teacher, noisy, timesteps, words)
    return origin_of(model, noisy, noise, timesteps), noise


@torch.no_grad()
def one_step_back(model, noisy, start, batch):
    origin, noise = ask_teacher(model, noisy, start, batch["words"])
    plain, plain_noise = ask_teacher(model, noisy, start, batch["no_words"])
    guidance = guidance_of(batch)
    origin, noise = guided(origin, plain, guidance), guided(noise, plain_noise, guidance)
    return model.solver(origin, noise, batch["index"])


def consistent(model, unet, noisy, timesteps, batch):
    """The origin as a UNet sees it; where there is no noise, the picture itself."""
    skip, out = boundary(timesteps)
    condition = guidance_embedding(guidance_of(batch))
    noise = run(unet, noisy, timesteps, batch["words"], condition)
    return skip * noisy + out * origin_of(model, noisy, noise, timesteps)


@torch.no_grad()
def target_of(model, noisy, start, end, batch):
    back = one_step_back(model, noisy, start, batch)
    return consistent(model, model.target, back, end, batch)


def huber_sum(made, target):
    """Like a square near zero, and else like an absolute value."""
    return ((made - target).square() + HUBER**2).sqrt().sub(HUBER).sum()


def loss_of(model, batch, count):
    start, end = moments_of(model, batch)
    noisy = model.schedule.add_noise(batch["latents"], batch["noise"], start)
    made = consistent(model, model.student, noisy, start, batch)
    return huber_sum(made, target_of(model, noisy, start, end, batch)) / count


def backward(model, batch):
    loss_of(model, batch, batch["latents"].numel()).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.student.parameters(), MAX_GRAD_NORM)


@torch.no_grad()
def update_target(model):
    for slow, mine in zip(model.target.parameters(), model.student.parameters(), strict=True):
        slow.mul_(EMA_DECAY).add_(mine, alpha=1 - EMA_DECAY)


def build():
    return Distillation().train()


def optimizer(model, **more):
    adamw = torch.optim.AdamW(model.student.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, **more)
    model.rate = get_scheduler("constant_with_warmup", adamw, num_warmup_steps=WARMUP)
    model.rate.step()
    return adamw


def batch(generator):
    """Latents of pictures and words of prompts, encoded before."""

    def randn(*size):
        return torch.randn(*size, generator=generator)

    coarse = randn(PICTURES, CHANNELS, 3, 3)
    order = torch.randperm(SOLVER_STEPS, generator=generator)[:PICTURES]
    order[1] = 0
    return {
        "latents": F.interpolate(coarse, size=(HEIGHT, WIDTH), mode="bilinear"),
        "noise": randn(PICTURES, CHANNELS, HEIGHT, WIDTH),
        "index": order,
        "words": randn(PICTURES, WORDS, WORD_DIM),
        "no_words": randn(1, WORDS, WORD_DIM).repeat(PICTURES, 1, 1),
        "strength": torch.rand(PICTURES, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.rate.step()
    update_target(model)
