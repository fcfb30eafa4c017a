"""A masked autoencoder: few patches of a picture are seen, a small decoder restores the others."""

import math

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, NARROW, HEADS, PATCH, EXTENT, CHANNELS, BATCH = 32, 24, 4, 4, 16, 3, 4
SIDE = EXTENT // PATCH
PLACES, SEEN, PIXELS = SIDE**2, 6, CHANNELS * PATCH**2
EPS, RATE, DECAY, WARM, TOTAL, CLIP = 1e-6, 3e-3, 0.1, 2, 12, 1.0


def patches(pictures):
    """(rows, places, pixels): the pixels of a patch by line, column and channel."""
    x = pictures.view(-1, CHANNELS, SIDE, PATCH, SIDE, PATCH)
    return x.permute(0, 2, 4, 3, 5, 1).reshape(-1, PLACES, PIXELS)


def waves(width):
    """Sines and cosines of the line, then of the column of each place."""
    steps = 1 / 100 ** (torch.arange(width // 4) / (width // 4))
    lines, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    angles = [each.flatten()[:, None] * steps for each in (lines, columns)]
    return torch.cat([f(each) for each in angles for f in (torch.sin, torch.cos)], dim=-1)


def chosen(noise):
    """The places that are seen, and where each place stands among the seen and the hidden."""
    order = noise.argsort(dim=1)
    return order[:, :SEEN], order.argsort(dim=1)


def pick(x, places):
    return x.gather(1, places[..., None].expand(-1, -1, x.shape[-1]))


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def project(self, x):
        parts = self.qkv(x).unflatten(-1, (3, HEADS, -1))
        return parts.permute(2, 0, 3, 1, 4).unbind(0)

    def attend(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return scores.softmax(dim=-1) @ v

    def forward(self, x):
        return self.out(self.attend(*self.project(x)).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width, EPS), nn.LayerNorm(width, EPS)
        self.attention = Attention(width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Autoencoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(PIXELS, WIDTH)
        self.class_token = nn.Parameter(torch.randn(1, 1, WIDTH) * 0.2)
        self.encoder = nn.ModuleList(Block(WIDTH) for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH, EPS)
        self.narrow = nn.Linear(WIDTH, NARROW)
        self.mask_token = nn.Parameter(torch.randn(1, 1, NARROW) * 0.2)
        self.decoder = nn.ModuleList(Block(NARROW) for _ in range(1))
        self.last_norm = nn.LayerNorm(NARROW, EPS)
        self.predict = nn.Linear(NARROW, PIXELS)

    def encode(self, x, seen):
        x = self.embed(x) + waves(WIDTH)
        x = pick(x, seen)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
        for block in self.encoder:
            x = block(x)
        return self.norm(x)

    def restored(self, x, restore):
        """The seen places and the mask's token, each where it stood."""
        hidden = self.mask_token.expand(len(x), PLACES - x.shape[1], -1)
        return pick(torch.cat([x, hidden], dim=1), restore)

    def decode(self, x, restore):
        x = self.narrow(x)
        first, x = x[:, :1], self.restored(x[:, 1:], restore)
        x = torch.cat([first, x + waves(NARROW)], dim=1)
        for block in self.decoder:
            x = block(x)
        return self.predict(self.last_norm(x))[:, 1:]

    def forward(self, pixels, seen, restore):
        return self.decode(self.encode(pixels, seen), restore)


def build():
    model = Autoencoder()
    for parameter in model.parameters():
        if parameter.dim() == 2:
            nn.init.xavier_uniform_(parameter)
    return model


def is_decayed(name, parameter):
    return parameter.dim() > 1 and "token" not in name


def rate_of(step):
    """Linear warm-up, then half a cosine."""
    if step < WARM:
        return (step + 1) / WARM
    return 0.5 * (1 + math.cos(math.pi * (step - WARM) / (TOTAL - WARM)))


def optimizer(model):
    decayed = [p for n, p in model.named_parameters() if is_decayed(n, p)]
    others = [p for n, p in model.named_parameters() if not is_decayed(n, p)]
    groups = [{"params": decayed, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}]
    made = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95))
    model.schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda step: rate_of(step))
    return made


def batch(generator):
    dtype = torch.get_default_dtype()
    pictures = torch.rand(BATCH, CHANNELS, EXTENT, EXTENT, generator=generator).to(dtype)
    return pictures, torch.rand(BATCH, PLACES, generator=generator)


def wanted(pixels):
    """Each patch, normalised by its own mean and variance."""
    mean, variance = pixels.mean(dim=-1, keepdim=True), pixels.var(dim=-1, keepdim=True)
    return (pixels - mean) / (variance + EPS).sqrt()


def loss_of(predicted, pixels, restore):
    """The mean square of the hidden patches."""
    each = (predicted - wanted(pixels)).square().mean(dim=-1)
    hidden = (restore >= SEEN).to(each.dtype)
    return (each * hidden).sum() / hidden.sum()


def descend(model, pictures, noise):
    seen, restore = chosen(noise)
    pixels = patches(pictures)
    loss_of(model(pixels, seen, restore), pixels, restore).backward()


def step(model, optimizer, batch):
    descend(model, *batch)
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad()
