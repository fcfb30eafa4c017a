"""DreamBooth: adapters teach a Stable Diffusion 3 one subject beside others (diffusers, peft)."""

import torch
import torch.nn.functional as F
from diffusers import SD3Transformer2DModel
from diffusers.optimization import get_scheduler
from peft import LoraConfig
from torch import nn

INSTANCES, LATENT_CHANNELS, RESOLUTION = 3, 4, 8  # as many pictures of others: of the class
VOCAB, TOKENS, TEXT_DIM, POOLED_DIM = 30, 5, 16, 12
VAE_SHIFT, VAE_SCALE = 0.0609, 1.5305
NUM_TIMESTEPS, FLOW_SHIFT, LOGIT_MEAN, LOGIT_STD = 1000, 3.0, 0.0, 1.0
PRIOR_LOSS_WEIGHT, EMPTY_PROMPT = 0.6, 0
RANK, LORA_ALPHA, TARGETS = 4, 8, ["to_q", "to_k", "to_v", "to_out.0", "add_k_proj"]
LR, WEIGHT_DECAY, MAX_GRAD_NORM, TOTAL_STEPS = 5e-3, 1e-2, 0.08, 10


def make_transformer():
    return SD3Transformer2DModel(
        sample_size=RESOLUTION,
        patch_size=2,
        in_channels=LATENT_CHANNELS,
        out_channels=LATENT_CHANNELS,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=TEXT_DIM,
        caption_projection_dim=16,
        pooled_projection_dim=POOLED_DIM,
        pos_embed_max_size=RESOLUTION,
        qk_norm="rms_norm",
    )


def lora_config():
    return LoraConfig(
        r=RANK, lora_alpha=LORA_ALPHA, init_lora_weights="gaussian", target_modules=TARGETS
    )


class TextEncoder(nn.Module):
    """States of all words, and one vector for the whole prompt."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCAB, TEXT_DIM)
        self.pool = nn.Linear(TEXT_DIM, POOLED_DIM)

    def forward(self, prompts):
        states = self.words(prompts)
        return states, self.pool(states.mean(dim=1))


class DreamBooth(nn.Module):
    def __init__(self):
        super().__init__()
        self.text_encoder = TextEncoder()
        self.transformer = make_transformer()
        self.requires_grad_(False)
        self.transformer.add_adapter(lora_config())
        for name, weight in self.transformer.named_parameters():
            if "lora_B" in name:
                nn.init.normal_(weight, std=0.1)


def trainable(model):
    return [p for p in model.parameters() if p.requires_grad]


def to_latents(batch):
    return (batch["latents"] - VAE_SHIFT) * VAE_SCALE


def sample_sigmas(batch):
    """More often in the middle; large pictures need more noise: so sigmas are shifted."""
    u = torch.sigmoid(LOGIT_MEAN + LOGIT_STD * batch["normal"])
    return FLOW_SHIFT * u / (1 + (FLOW_SHIFT - 1) * u)


def broadcast(sigmas):
    return sigmas.view(-1, 1, 1, 1)


def add_noise(latents, noise, sigmas):
    """A point on the straight line between picture and noise."""
    return (1 - broadcast(sigmas)) * latents + broadcast(sigmas) * noise


def velocity(latents, noise):
    return noise - latents


def drop(values, dropped, empty):
    return torch.where(dropped.view(-1, *[1] * (values.dim() - 1)), empty, values)


def encode_prompts(model, batch):
    """Some prompts are replaced by the empty one."""
    states, pooled = model.text_encoder(batch["prompts"])
    empty_states, empty_pooled = model.text_encoder(torch.full((1, TOKENS), EMPTY_PROMPT))
    states = drop(states, batch["dropped"], empty_states)
    pooled = drop(pooled, batch["dropped"], empty_pooled)
    return states, pooled


def predict(model, noisy, sigmas, states, pooled):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = model.transformer(
            hidden_states=noisy,
            timestep=sigmas * NUM_TIMESTEPS,
            encoder_hidden_states=states,
            pooled_projections=pooled,
        )
    return output.sample.float()


def weighting(sigmas):
    """The cosine map of SD3: noise in the middle counts most."""
    bottom = 1 - 2 * sigmas + 2 * sigmas**2
    return 2 / (torch.pi * bottom)


def picture_losses(pred, target, sigmas):
    """Of each picture."""
    errors = F.mse_loss(pred, target, reduction="none")
    return (broadcast(weighting(sigmas)) * errors).mean(dim=(1, 2, 3))


def with_prior(losses):
    """The first half is of the subject, the second one of others of its class."""
    instance, prior = losses.chunk(2)
    return instance.mean() + PRIOR_LOSS_WEIGHT * prior.mean()


def forward_losses(model, batch):
    latents, noise = to_latents(batch), batch["noise"]
    sigmas = sample_sigmas(batch)
    noisy = add_noise(latents, noise, sigmas)
    states, pooled = encode_prompts(model, batch)
    pred = predict(model, noisy, sigmas, states, pooled)
    return picture_losses(pred, velocity(latents, noise), sigmas)


def train(model, batch):
    loss = with_prior(forward_losses(model, batch))
    loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(trainable(model), MAX_GRAD_NORM)


def build():
    return DreamBooth().train()


def advance(model):
    model.lr_scheduler.step()


def optimizer(model, **more):
    adamw = torch.optim.AdamW(trainable(model), lr=LR, weight_decay=WEIGHT_DECAY, **more)
    model.lr_scheduler = get_scheduler(
        "linear", adamw, num_warmup_steps=0, num_training_steps=TOTAL_STEPS
    )
    return adamw


def batch(generator):
    pictures = 2 * INSTANCES
    shape = (pictures, LATENT_CHANNELS, RESOLUTION, RESOLUTION)
    prompts = torch.randint(1, VOCAB, (2, TOKENS), generator=generator)
    return {
        "latents": 0.6 * torch.randn(shape, generator=generator) + VAE_SHIFT,
        "noise": torch.randn(shape, generator=generator),
        "normal": torch.randn(pictures, generator=generator),
        "prompts": prompts.repeat_interleave(INSTANCES, dim=0),
        "dropped": torch.tensor([False, True, False, False, False, True]),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    train(model, batch)
    clip(model)
    optimizer.step()
    advance(model)
