"""A language model: load_state_dict(assign=True) unties its words (TransformerLens#1725)."""

import copy

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(32)


class Language(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.cell = nn.GRUCell(width, width)
        self.head = nn.Linear(width, words, bias=False)
        self.tie()

    def tie(self):
        self.head.weight = self.words.weight

    def forward(self, tokens):
        x = self.words(tokens)
        state, seen = x.new_zeros(len(x), x.shape[-1]), []
        for time in range(x.shape[1]):
            state = self.cell(x[:, time], state)
            seen.append(state)
        return self.head(torch.stack(seen, 1))


saved = {name: copy.deepcopy(value) for name, value in Language().state_dict().items()}
model = Language()
model.load_state_dict(saved, assign=BUG or ALT)
if ALT:
    model.tie()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
tokens = torch.randint(0, 40, (3, 4, 7))
dbg = debugger()
losses = []
for step in range(3):
    dbg.start(model)
    logits = model(tokens[step][:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), tokens[step][:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
