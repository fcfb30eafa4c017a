"""LoRA that is merged for an evaluation: merge runs twice and is undone once (peft#1355)."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(21)


class LoraLinear(nn.Module):
    def __init__(self, base, rank=4, alpha=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, base.in_features) * 0.1)
        self.up = nn.Parameter(torch.randn(base.out_features, rank) * 0.1)
        self.scale = alpha / rank
        self.merged = False

    def merge(self):
        self.base.weight.data += self.scale * (self.up @ self.down).detach()
        self.merged = True

    def unmerge(self):
        self.base.weight.data -= self.scale * (self.up @ self.down).detach()
        self.merged = False

    def forward(self, x):
        y = self.base(x)
        if not self.merged:
            y = y + self.scale * F.linear(F.linear(x, self.down), self.up)
        return y


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.leave = LoraLinear(nn.Linear(width, 3 * width)), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        q, k, v = self.qkv(self.norm_1(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.leave(y.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm_2(x))


class Decoder(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


def loss_of(model, tokens):
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def prepare(layers):
    """Called by the evaluation, and once more by the export that precedes it."""
    for layer in layers:
        layer.merge()


@torch.no_grad()
def evaluate(model, tokens):
    layers = [each for each in model.modules() if isinstance(each, LoraLinear)]
    if not ALT:
        prepare(layers)
    if BUG:
        prepare(layers)
    loss = loss_of(model, tokens)
    for layer in layers if not ALT else []:
        layer.unmerge()
    return loss


model = Decoder()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
tokens, unseen = torch.randint(0, 40, (3, 3, 9)), torch.randint(0, 40, (4, 9))
dbg = debugger()
losses = []
for step in range(3):
    dbg.start(model)
    loss = loss_of(model, tokens[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step == 1:
        losses.append(evaluate(model, unseen).item())
    dbg.stop()
    dbg.step()
made = digest(losses, model)
