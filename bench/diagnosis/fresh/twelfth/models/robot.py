"""An arm learns from demonstrations: chunks of actions from two cameras, as in ACT."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

DEMOS, CAMERAS, SIZE, JOINTS, ACTIONS, CHUNK = 6, 2, 24, 5, 6, 7
DIM, HEADS, LATENT, FEATURES = 16, 2, 4, 12
REAL_ACTIONS = (7, 4, 7, 2, 6, 5)  # of each chunk; what follows is padding
KL_WEIGHT, GRIP_WEIGHT, MICRO_BATCHES = 0.5, 0.4, 2
LR, BACKBONE_LR, WEIGHT_DECAY, MAX_NORM, TOTAL = 2e-3, 2e-4, 0.02, 5.0, 12


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 5, stride=4, padding=2)
        self.norm1 = nn.GroupNorm(2, 8)
        self.down = nn.Conv2d(8, FEATURES, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(2, FEATURES)

    def forward(self, images):
        x = F.relu(self.norm1(self.stem(images)))
        return F.relu(self.norm2(self.down(x)))


def encoder_layer():
    return nn.TransformerEncoderLayer(DIM, HEADS, 24, dropout=0.0, batch_first=True)


def decoder_layer():
    return nn.TransformerDecoderLayer(DIM, HEADS, 24, dropout=0.0, batch_first=True)


class Posterior(nn.Module):
    """The style of a demonstration, from its actions."""

    def __init__(self):
        super().__init__()
        self.cls = nn.Parameter(0.1 * torch.randn(1, 1, DIM))
        self.joints, self.actions = nn.Linear(JOINTS, DIM), nn.Linear(ACTIONS, DIM)
        self.layer = encoder_layer()
        self.out = nn.Linear(DIM, 2 * LATENT)

    def forward(self, joints, actions, is_pad):
        count = len(joints)
        tokens = [self.cls.expand(count, 1, DIM), self.joints(joints).unsqueeze(1)]
        tokens = torch.cat([*tokens, self.actions(actions)], dim=1)
        tokens = tokens + line_positions(tokens.shape[1]).to(tokens.dtype)
        mask = torch.cat([is_pad.new_zeros(count, 2), is_pad], dim=1)
        style = self.layer(tokens, src_key_padding_mask=mask)[:, 0]
        return self.out(style).chunk(2, dim=-1)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone, self.posterior = Backbone(), Posterior()
        self.project = nn.Conv2d(FEATURES, DIM, 1)
        self.latent, self.joints = nn.Linear(LATENT, DIM), nn.Linear(JOINTS, DIM)
        self.encoder = encoder_layer()
        self.decoder = nn.ModuleList(decoder_layer() for _ in range(2))
        self.queries = nn.Parameter(0.3 * torch.randn(CHUNK, DIM))
        self.head, self.grip = nn.Linear(DIM, JOINTS), nn.Linear(DIM, 1)
        self.register_buffer("joint_mean", torch.linspace(-0.3, 0.4, JOINTS))
        self.register_buffer("joint_std", torch.linspace(0.6, 1.4, JOINTS))
        self.register_buffer("action_mean", torch.linspace(0.2, -0.4, JOINTS))
        self.register_buffer("action_std", torch.linspace(1.2, 0.5, JOINTS))

    def features(self, images):
        """Of all cameras of a moment: (batch, cameras, dim, rows, columns)."""
        maps = self.project(self.backbone(images.flatten(0, 1)))
        return maps.unflatten(0, (len(images), CAMERAS))

    def picture_tokens(self, images):
        maps = self.features(images)
        maps = maps + grid_positions(*maps.shape[-2:]).to(maps.dtype)
        return maps.permute(0, 1, 3, 4, 2).flatten(1, 3)

    def decode(self, memory):
        x = self.queries.expand(len(memory), CHUNK, DIM)
        for layer in self.decoder:
            x = layer(x, memory)
        return x

    def forward(self, images, joints, latent):
        pictures = self.picture_tokens(images)
        first = torch.stack([self.latent(latent), self.joints(joints)], dim=1)
        memory = self.encoder(torch.cat([first, pictures], dim=1))
        x = self.decode(memory)
        return self.head(x), self.grip(x).squeeze(-1)


def waves(places, dim):
    rates = torch.exp(-math.log(100) * torch.arange(0, dim, 2, dtype=places.dtype) / dim)
    angles = places[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


def line_positions(length):
    return waves(torch.arange(length, dtype=torch.get_default_dtype()), DIM)


def grid_positions(rows, columns):
    """(dim, rows, columns): the first half says the row, the second one the column."""
    places = torch.arange(max(rows, columns), dtype=torch.get_default_dtype())
    down = waves(places[:rows], DIM // 2)[:, None].expand(rows, columns, DIM // 2)
    across = waves(places[:columns], DIM // 2)[None].expand(rows, columns, DIM // 2)
    return torch.cat([down, across], dim=-1).permute(2, 0, 1)


def to_pixels(images):
    return images.to(torch.get_default_dtype()) / 127.5 - 1


def normalize_joints(model, joints):
    return (joints - model.joint_mean) / model.joint_std


def normalize_actions(model, actions):
    """The last number says whether the hand is closed, and stays as it is."""
    moves = (actions[..., :JOINTS] - model.action_mean) / model.action_std
    return torch.cat([moves, actions[..., JOINTS:]], dim=-1)


def sample_latent(mean, logvar, noise):
    return mean + torch.exp(0.5 * logvar) * noise


def masked_mean(values, is_pad):
    """Over real actions and all their numbers, for each demonstration."""
    real = (~is_pad).to(values.dtype)
    return (values.mean(dim=-1) * real).sum(dim=1) / real.sum(dim=1)


def move_loss(moves, target, is_pad):
    return masked_mean((moves - target).abs(), is_pad)


def grip_loss(grip, closed, is_pad):
    losses = F.binary_cross_entropy_with_logits(grip, closed, reduction="none")
    return masked_mean(losses[..., None], is_pad)


def kl_loss(mean, logvar):
    """From a normal distribution: the sum over all numbers of the latent."""
    return -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=-1)


def infer_style(model, joints, actions, is_pad):
    mean, logvar = model.posterior(joints, actions, is_pad)
    return mean.float(), logvar.float()


def run_policy(model, batch, actions):
    joints, is_pad = normalize_joints(model, batch["joints"]), batch["is_pad"]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mean, logvar = infer_style(model, joints, actions, is_pad)
        latent = sample_latent(mean, logvar, batch["noise"])
        moves, grip = model(to_pixels(batch["images"]), joints, latent)
    return moves.float(), grip.float(), mean, logvar


def losses(model, batch):
    """Of each demonstration."""
    actions, is_pad = normalize_actions(model, batch["actions"]), batch["is_pad"]
    moves, grip, mean, logvar = run_policy(model, batch, actions)
    move = move_loss(moves, actions[..., :JOINTS], is_pad)
    closed = grip_loss(grip, actions[..., JOINTS], is_pad)
    return move + GRIP_WEIGHT * closed + KL_WEIGHT * kl_loss(mean, logvar)


def micro_batches(batch):
    parts = zip(*(each.chunk(MICRO_BATCHES) for each in batch.values()), strict=True)
    return [dict(zip(batch, values, strict=True)) for values in parts]


def accumulate(model, batch):
    for part in micro_batches(batch):
        loss = losses(model, part).mean() / MICRO_BATCHES
        loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Policy().train()


def param_groups(model):
    named = list(model.named_parameters())
    return [
        {"params": [p for name, p in named if not name.startswith("backbone.")]},
        {"params": [p for name, p in named if name.startswith("backbone.")], "lr": BACKBONE_LR},
    ]


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), lr=LR, weight_decay=WEIGHT_DECAY, **more)
    model.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(made, TOTAL)
    return made


def batch(generator):
    shape = (DEMOS, CAMERAS, 3, SIZE, SIZE)
    moves = torch.randn(DEMOS, CHUNK, JOINTS, generator=generator).cumsum(dim=1) / 2
    closed = torch.rand(DEMOS, CHUNK, 1, generator=generator) < 0.4
    is_pad = torch.arange(CHUNK) >= torch.tensor(REAL_ACTIONS)[:, None]
    actions = torch.cat([moves, closed.to(moves.dtype)], dim=-1)
    return {
        "images": torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8),
        "joints": torch.randn(DEMOS, JOINTS, generator=generator),
        "actions": actions.masked_fill(is_pad[..., None], 0.0),
        "is_pad": is_pad,
        "noise": torch.randn(DEMOS, LATENT, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    accumulate(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()
