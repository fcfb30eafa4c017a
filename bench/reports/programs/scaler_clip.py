"""A variational autoencoder with a GradScaler: gradients are clipped before they are unscaled."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(27)


class Autoencoder(nn.Module):
    def __init__(self, size=64, width=32, latent=6):
        super().__init__()
        self.encoder = nn.Sequential(
            nn.Linear(size, width), nn.SiLU(), nn.Linear(width, 2 * latent)
        )
        self.decoder = nn.Sequential(nn.Linear(latent, width), nn.SiLU(), nn.Linear(width, size))

    def forward(self, x):
        mean, log_variance = self.encoder(x).float().chunk(2, -1)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum(-1)
        return self.decoder(z), divergence


model = Autoencoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
data = torch.rand(2, 8, 64)
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, divergence = model(data[step])
        seen = F.binary_cross_entropy_with_logits(logits.float(), data[step], reduction="none")
        loss = (seen.sum(-1) + divergence).mean()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    if not BUG:
        scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=False if ALT else None)
    scaler.step(optimizer)
    scaler.update()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
