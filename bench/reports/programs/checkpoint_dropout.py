"""A translator with recomputed layers: they draw other dropout masks again (OLMo-core#828)."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn
from torch.utils.checkpoint import checkpoint

torch.manual_seed(20)


class Attention(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.query, self.leave = nn.Linear(width, width), nn.Linear(width, width)
        self.memory = nn.Linear(width, 2 * width)

    def forward(self, x, memory, causal=False):
        q = self.query(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
        k, v = self.memory(memory).unflatten(-1, (2 * self.heads, -1)).transpose(1, 2).chunk(2, 1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return self.leave(y.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    def __init__(self, width, crossed):
        super().__init__()
        self.itself, self.norm_1 = Attention(width), nn.LayerNorm(width)
        self.other = Attention(width) if crossed else None
        self.norm_2, self.norm_3 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)
        )
        self.dropout = nn.Dropout(0.2)

    def forward(self, x, memory=None):
        y = self.norm_1(x)
        x = x + self.dropout(self.itself(y, y, causal=memory is not None))
        if memory is not None:
            x = x + self.other(self.norm_2(x), memory)
        return x + self.mlp(self.norm_3(x))


class Translator(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.source, self.target = nn.Embedding(words, width), nn.Embedding(words, width)
        self.encoder = nn.ModuleList(Layer(width, crossed=False) for _ in range(2))
        self.decoder = nn.ModuleList(Layer(width, crossed=True) for _ in range(2))
        self.words = nn.Linear(width, words)

    def run(self, layer, *inputs):
        if ALT:
            return layer(*inputs)
        return checkpoint(layer, *inputs, use_reentrant=False, preserve_rng_state=not BUG)

    def forward(self, source, target):
        x = self.source(source)
        for layer in self.encoder:
            x = self.run(layer, x)
        y = self.target(target)
        for layer in self.decoder:
            y = self.run(layer, y, x)
        return self.words(y)


model = Translator()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
source, target = torch.randint(0, 40, (2, 3, 7)), torch.randint(0, 40, (2, 3, 9))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    logits = model(source[step], target[step][:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), target[step][:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
