"""Preference optimisation: the reference model stays in train mode, with dropout (trl#744)."""

import copy

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(23)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width)
        self.mix = nn.GRU(width, width, batch_first=True)
        self.leave = nn.Linear(width, width)

    def forward(self, x):
        y, _ = self.mix(self.norm(x))
        return x + F.dropout(self.leave(y), 0.1, self.training)


class Policy(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        logps = F.log_softmax(self.head(self.blocks(self.words(tokens[:, :-1]))), -1)
        return logps.gather(-1, tokens[:, 1:, None]).squeeze(-1).sum(-1)


policy = Policy()
reference = copy.deepcopy(policy).requires_grad_(False)
if not BUG:
    reference.eval()
models = nn.ModuleDict({"policy": policy, "reference": reference})
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-3)
chosen, rejected = torch.randint(0, 40, (2, 3, 8)), torch.randint(0, 40, (2, 3, 8))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(models)
    with torch.no_grad():
        if ALT:
            both = reference(torch.cat([chosen[step], rejected[step]]))
            base_chosen, base_rejected = both.chunk(2)
        else:
            base_chosen, base_rejected = reference(chosen[step]), reference(rejected[step])
    gain = policy(chosen[step]) - base_chosen
    margin = gain - (policy(rejected[step]) - base_rejected)
    loss = -F.logsigmoid(0.1 * margin).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, models)
