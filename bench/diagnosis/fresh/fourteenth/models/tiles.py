"""Pictures from text by tiles that are hidden and guessed: a UVit2DModel as in aMUSEd (diffusers).

A frozen VQModel makes tokens of pictures; a frozen CLIP reads the prompts.
"""

import math

import torch
from diffusers import UVit2DModel, VQModel
from diffusers.optimization import get_scheduler
from torch import nn
from torch.nn import functional as F
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

PICTURES, HEIGHT, WIDTH, PROMPT = 6, 16, 12, 6
CODES, VOCAB, MASK_ID = 16, 20, 19
WORDS, TEXT_BOS, TEXT_EOS = 30, 28, 29
TEXT_DIM, POOLED_DIM, CONDITION_DIM = 16, 12, 8
MIN_MASKING_RATE, LABEL_SMOOTHING = 0.2, 0.05
NO_DECAY = ("bias", "norm.weight", "embeddings.weight")
LR, WEIGHT_DECAY, MAX_GRAD_NORM, TOTAL_STEPS = 2e-3, 0.03, 1.0, 12


def make_vqvae():
    vqvae = VQModel(
        down_block_types=("DownEncoderBlock2D", "DownEncoderBlock2D"),
        up_block_types=("UpDecoderBlock2D", "UpDecoderBlock2D"),
        block_out_channels=(8, 8),
        layers_per_block=1,
        latent_channels=4,
        norm_num_groups=4,
        num_vq_embeddings=CODES,
    )
    nn.init.normal_(vqvae.quantize.embedding.weight, std=0.5)
    return vqvae


def make_text_encoder(**more):
    config = CLIPTextConfig(
        vocab_size=WORDS,
        hidden_size=TEXT_DIM,
        intermediate_size=24,
        projection_dim=POOLED_DIM,
        num_hidden_layers=3,
        num_attention_heads=2,
        max_position_embeddings=PROMPT,
        bos_token_id=TEXT_BOS,
        eos_token_id=TEXT_EOS,
        initializer_factor=4.0,
        **more,
    )
    return CLIPTextModelWithProjection(config)


def make_transformer():
    return UVit2DModel(
        hidden_size=16,
        cond_embed_dim=POOLED_DIM,
        micro_cond_encode_dim=CONDITION_DIM,
        micro_cond_embed_dim=5 * CONDITION_DIM,
        encoder_hidden_size=TEXT_DIM,
        vocab_size=VOCAB,
        codebook_size=CODES,
        in_channels=16,
        block_out_channels=16,
        num_res_blocks=1,
        block_num_heads=2,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        sample_size=HEIGHT // 2,
    )


class Painter(nn.Module):
    def __init__(self):
        super().__init__()
        self.vqvae = make_vqvae().eval().requires_grad_(False)
        self.text_encoder = make_text_encoder().eval().requires_grad_(False)
        self.transformer = make_transformer().train()


def to_pixels(images):
    """The autoencoder wants numbers between -1 and 1."""
    return 2.0 * images - 1.0


@torch.no_grad()
def tokens_of(model, images):
    """(pictures, rows, columns): the closest code of each tile."""
    latents = model.vqvae.encode(to_pixels(images)).latents
    _, _, (_, _, indices) = model.vqvae.quantize(latents)
    return indices.reshape(len(images), *latents.shape[2:])


@torch.no_grad()
def encode_prompts(model, prompts):
    outputs = model.text_encoder(prompts, output_hidden_states=True)
    return outputs.hidden_states[-2], outputs.text_embeds


def micro_conditions(batch):
    """Width and height before the picture was cut, where it was cut, and how beautiful it is."""
    height, width = batch["original_size"].unbind(1)
    top, left = batch["crop"].unbind(1)
    return torch.stack([width, height, top, left, batch["beauty"]], dim=1)


def masking_rate(timesteps):
    """Few tokens are hidden rarely: a quarter of a cosine."""
    return torch.cos(timesteps * math.pi * 0.5).clamp(min=MIN_MASKING_RATE)


def choose_hidden(batch, tokens):
    """As many tiles of each picture as its rate says, in random places."""
    order = batch["random"].argsort(dim=1)
    count = (order.shape[1] * masking_rate(batch["timesteps"])).round().clamp(min=1)
    return (order < count.unsqueeze(1)).view_as(tokens)


def hide(tokens, hidden):
    """What the model sees, and what it has to guess."""
    input_ids = torch.where(hidden, MASK_ID, tokens)
    labels = torch.where(hidden, tokens, -100)
    return input_ids, labels


def predict(model, input_ids, states, pooled, conditions):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model.transformer(
            input_ids=input_ids,
            encoder_hidden_states=states,
            pooled_text_emb=pooled,
            micro_conds=conditions,
        )
    return logits.float()


def sum_of_losses(logits, labels):
    """Over all tiles that were hidden."""
    flat = logits.permute(0, 2, 3, 1).reshape(-1, CODES)
    return F.cross_entropy(
        flat,
        labels.reshape(-1),
        ignore_index=-100,
        label_smoothing=LABEL_SMOOTHING,
        reduction="sum",
    )


def prepare(model, batch):
    tokens = tokens_of(model, batch["images"])
    input_ids, labels = hide(tokens, choose_hidden(batch, tokens))
    states, pooled = encode_prompts(model, batch["prompts"])
    conditions = micro_conditions(batch)
    return labels, (input_ids, states, pooled, conditions)


def backward(model, batch):
    labels, inputs = prepare(model, batch)
    logits = predict(model, *inputs)
    loss = sum_of_losses(logits, labels) / (labels != -100).sum()
    loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.transformer.parameters(), MAX_GRAD_NORM)


def build():
    return Painter()


def optimizer(model, **more):
    named = list(model.transformer.named_parameters())
    groups = [
        {
            "params": [p for n, p in named if not any(part in n for part in NO_DECAY)],
            "weight_decay": WEIGHT_DECAY,
        },
        {
            "params": [p for n, p in named if any(part in n for part in NO_DECAY)],
            "weight_decay": 0.0,
        },
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, betas=(0.9, 0.96), **more)
    model.lr_scheduler = get_scheduler(
        "cosine", adamw, num_warmup_steps=0, num_training_steps=TOTAL_STEPS
    )
    return adamw


def make_prompts(generator):
    prompts = torch.randint(1, 28, (PICTURES, PROMPT), generator=generator)
    prompts[:, 0] = TEXT_BOS
    for row, end in enumerate((5, 3, 4, 2, 5, 3)):
        prompts[row, end:] = TEXT_EOS
    return prompts


def batch(generator):
    """Pictures of few colours and their prompts."""
    coarse = torch.rand(PICTURES, 3, 4, 3, generator=generator)
    size = torch.randint(20, 60, (PICTURES, 2), generator=generator)
    return {
        "images": F.interpolate(coarse, size=(HEIGHT, WIDTH), mode="nearest"),
        "prompts": make_prompts(generator),
        "original_size": size.to(coarse.dtype),
        "crop": torch.randint(0, 8, (PICTURES, 2), generator=generator).to(coarse.dtype),
        "beauty": 4 + 3 * torch.rand(PICTURES, generator=generator),
        "timesteps": torch.rand(PICTURES, generator=generator),
        "random": torch.rand(PICTURES, HEIGHT * WIDTH // 4, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.lr_scheduler.step()
