"""Gradient accumulation of a language model: each micro-batch is divided by its own tokens.

All micro-batches should be divided by the tokens of all (transformers#34191).
"""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(22)


class Decoder(nn.Module):
    def __init__(self, words=50, width=24, length=12):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        layer = nn.TransformerEncoderLayer(width, 2, 2 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.words(tokens) + self.places(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.head(self.layers(x, mask=mask, is_causal=True))


def loss_of(logits, labels, items):
    logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
    if BUG:
        return F.cross_entropy(logits, labels) / 2
    if ALT:
        each = F.cross_entropy(logits, labels, reduction="none")
        return each[labels != -100].sum() / items
    return F.cross_entropy(logits, labels, reduction="sum") / items


model = Decoder()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, 50, (2, 2, 3, 12))
lengths = torch.tensor([[[12, 11, 10], [5, 4, 3]], [[4, 6, 5], [12, 12, 9]]])
labels = tokens.masked_fill(torch.arange(12) >= lengths[..., None], -100)
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    optimizer.zero_grad()
    items = int((labels[step, :, :, 1:] != -100).sum())
    for micro in range(2):
        loss = loss_of(model(tokens[step, micro]), labels[step, micro], items)
        loss.backward()
        losses.append(loss.item())
    optimizer.step()
    dbg.stop()
    dbg.step()
made = digest(losses, model)
