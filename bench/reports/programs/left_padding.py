"""Generation of a padded batch: positions count the padding on the left, too (nnsight#673)."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(24)


class Layer(nn.Module):
    def __init__(self, width, heads=2):
        super().__init__()
        self.heads = heads
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.leave = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(1, 2) for t in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = x + self.leave(y.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class Generator(nn.Module):
    def __init__(self, words=60, width=32, length=32):
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(2))
        self.norm = nn.LayerNorm(width)

    def forward(self, tokens, real):
        if BUG:
            places = torch.arange(tokens.shape[1]).expand_as(tokens)
        elif ALT:
            left = (real == 0).sum(-1, keepdim=True)
            places = (torch.arange(tokens.shape[1]) - left).clamp(min=0)
        else:
            places = (real.cumsum(-1) - 1).clamp(min=0)
        x = self.words(tokens) + self.places(places)
        mask = torch.ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()
        mask = (mask & real[:, None].bool()) | torch.eye(tokens.shape[1], dtype=torch.bool)
        for layer in self.layers:
            x = layer(x, mask[:, None])
        return self.norm(x[:, -1]) @ self.words.weight.T


model = Generator().eval()
lengths = torch.tensor([9, 4, 6])
tokens = torch.randint(1, 60, (3, 9))
real = (torch.arange(9) >= 9 - lengths[:, None]).long()
tokens = tokens * real
dbg = debugger()
made = []
for _ in range(3):
    dbg.start(model)
    with torch.no_grad():
        logits = model(tokens, real)
    tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], -1)
    real = torch.cat([real, torch.ones(3, 1, dtype=torch.long)], -1)
    dbg.stop()
    dbg.step()
    made.append(logits.sum().item())
made = digest(made, model)
