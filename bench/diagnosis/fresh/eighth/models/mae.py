"""A ViTMAE of transformers: masked patches, normalised targets, a probe, micro-batches."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import ViTMAEConfig, ViTMAEForPreTraining

SIZE, PATCH, BATCH, ACCUMULATION, CLASSES = 12, 3, 6, 2, 4
MASK_RATIO, EPS, MEAN, DEVIATION = 0.5, 1e-6, (0.4, 0.5, 0.6), (0.3, 0.25, 0.2)
LR, DECAY, WARMUP, STEPS, PROBE_WEIGHT = 5e-3, 0.3, 2, 6, 0.5


def make_config(**changes):
    return ViTMAEConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        image_size=SIZE,
        patch_size=PATCH,
        decoder_hidden_size=12,
        decoder_num_hidden_layers=1,
        decoder_num_attention_heads=3,
        decoder_intermediate_size=24,
        mask_ratio=MASK_RATIO,
        initializer_range=0.2,
        **changes,
    )


class Pretraining(nn.Module):
    """The autoencoder, and a classifier that looks at its states without teaching them."""

    def __init__(self):
        super().__init__()
        self.mae = ViTMAEForPreTraining(make_config())
        self.probe = nn.Linear(16, CLASSES)


def flipped(pictures, flip):
    mirrored = pictures.flip(3)
    return torch.where(flip[:, None, None, None], mirrored, pictures)


def normalized(pictures):
    mean, deviation = torch.tensor(MEAN), torch.tensor(DEVIATION)
    return (pictures - mean[:, None, None]) / deviation[:, None, None]


def patches_of(net, pixels):
    return net.patchify(pixels)


def targets(net, pixels):
    """The pixels of each patch, with a mean of 0 and a variance of 1."""
    patches = patches_of(net, pixels)
    mean = patches.mean(dim=-1, keepdim=True)
    variance = patches.var(dim=-1, keepdim=True)
    return (patches - mean) / (variance + EPS).sqrt()


def decoded(net, states):
    return net.decoder(states.last_hidden_state, states.ids_restore).logits


def patch_loss(predicted, target, mask):
    error = (predicted - target).square().mean(dim=-1)
    return (error * mask).sum()


def probe_loss(model, states, labels):
    features = states.last_hidden_state[:, 1:].mean(dim=1).detach()
    return F.cross_entropy(model.probe(features), labels, reduction="sum")


def losses(model, data):
    """The sum over masked patches, and that over pictures."""
    pixels = normalized(flipped(data["pictures"], data["flip"]))
    states = model.mae.vit(pixels, noise=data["noise"])
    target = targets(model.mae, pixels)
    drawn = patch_loss(decoded(model.mae, states), target, states.mask)
    return drawn, probe_loss(model, states, data["labels"])


def counts(data):
    patches = data["noise"].shape[1]
    return len(data["labels"]) * (patches - int(patches * (1 - MASK_RATIO))), len(data["labels"])


def total_loss(drawn, probed, masked, pictures):
    return drawn / masked + PROBE_WEIGHT * probed / pictures


def micro_batches(data):
    parts = [value.chunk(ACCUMULATION) for value in data.values()]
    return [dict(zip(data, part, strict=True)) for part in zip(*parts, strict=True)]


def backward(model, data):
    for part in micro_batches(data):
        (total_loss(*losses(model, part), *counts(part)) / ACCUMULATION).backward()


def rate(t):
    """Warm-up, and half a cosine."""
    if t < WARMUP:
        return (t + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (t - WARMUP) / (STEPS - WARMUP)))


def advance(model, optimizer):
    optimizer.step()
    model.scheduler.step()
    optimizer.zero_grad()


def param_groups(model):
    learned = [p for p in model.parameters() if p.requires_grad]
    return [
        {"params": [p for p in learned if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in learned if p.dim() < 2], "weight_decay": 0.0},
    ]


def build():
    return Pretraining().train()


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), lr=LR, betas=(0.9, 0.95), **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda t: rate(t))
    return made


def batch(generator):
    return {
        "pictures": torch.rand(BATCH, 3, SIZE, SIZE, generator=generator),
        "noise": torch.rand(BATCH, (SIZE // PATCH) ** 2, generator=generator),
        "flip": torch.arange(BATCH) % 2 == 0,
        "labels": torch.randint(0, CLASSES, (BATCH,), generator=generator),
    }


def step(model, optimizer, batch):
    backward(model, batch)
    advance(model, optimizer)
