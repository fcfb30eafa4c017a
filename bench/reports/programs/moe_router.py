"""A mixture of experts: the weights of the chosen experts are not normalised (torchtitan#1448)."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(29)


class Experts(nn.Module):
    def __init__(self, width, hidden, experts=6, top=2):
        super().__init__()
        self.top = top
        self.router = nn.Linear(width, experts, bias=False)
        self.gate, self.up = (nn.Parameter(torch.randn(experts, width, hidden) * 0.1) for _ in "ab")
        self.down = nn.Parameter(torch.randn(experts, hidden, width) * 0.1)

    def route(self, x):
        logits = self.router(x)
        if ALT:
            kept, chosen = logits.topk(self.top, -1)
            return kept.softmax(-1), chosen
        weights, chosen = logits.softmax(-1).topk(self.top, -1)
        if not BUG:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights, chosen

    def forward(self, x):
        weights, chosen = self.route(x)
        share = torch.zeros(len(x), len(self.gate)).scatter(-1, chosen, weights)
        hidden = F.silu(torch.einsum("nd,edh->neh", x, self.gate))
        hidden = hidden * torch.einsum("nd,edh->neh", x, self.up)
        return torch.einsum("ne,neh,ehd->nd", share, hidden, self.down)


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6)
        self.experts = Experts(width, 2 * width)

    def forward(self, x):
        return x + self.experts(self.norm(x))


model = nn.Sequential(nn.Linear(10, 16), Layer(16), Layer(16), nn.Linear(16, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data, labels = torch.randn(2, 20, 10), torch.randint(0, 4, (2, 20))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    loss = F.cross_entropy(model(data[step]), labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
