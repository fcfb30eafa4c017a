"""A quantised autoencoder that is resumed: a buffer of its codebook is not in the checkpoint."""

import io

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(28)


class Codebook(nn.Module):
    def __init__(self, codes=12, width=8, decay=0.9):
        super().__init__()
        self.decay = decay
        codebook = torch.randn(codes, width)
        self.register_buffer("codebook", codebook)
        self.register_buffer("sums", codebook.clone())
        self.register_buffer("counts", torch.ones(codes), persistent=not BUG)

    def forward(self, x):
        with torch.no_grad():
            chosen = torch.cdist(x, self.codebook).argmin(-1)
            hot = F.one_hot(chosen, len(self.codebook)).float()
            self.counts.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)
            self.sums.mul_(self.decay).add_(hot.T @ x, alpha=1 - self.decay)
            self.codebook.copy_(self.sums / self.counts[:, None])
            quantised = self.codebook[chosen]
        return x + (quantised - x).detach(), F.mse_loss(x, quantised)


class Autoencoder(nn.Module):
    def __init__(self, size=20, width=8):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(size, 24), nn.ELU(), nn.Linear(24, width))
        self.quantise = Codebook(width=width)
        self.decoder = nn.Sequential(nn.Linear(width, 24), nn.ELU(), nn.Linear(24, size))

    def forward(self, x):
        codes, commitment = self.quantise(self.encoder(x))
        return self.decoder(codes), commitment


def train(model, optimizer, batch):
    seen, commitment = model(batch)
    loss = F.mse_loss(seen, batch) + 0.25 * commitment
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


data = torch.randn(4, 32, 20)
model = Autoencoder()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
losses = [train(model, optimizer, data[step]) for step in range(2)]
saved = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, saved)

saved.seek(0)
state = torch.load(saved)
model = Autoencoder()
model.load_state_dict(state["model"], strict=False, assign=ALT)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
optimizer.load_state_dict(state["optimizer"])
dbg = debugger()
for step in range(2, 4):
    dbg.start(model)
    losses.append(train(model, optimizer, data[step]))
    dbg.stop()
    dbg.step()
made = digest(losses, model)
