"""A fused linear cross entropy in chunks: the mean counts ignored tokens, too (Liger-Kernel)."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(25)
CHUNK = 5 if ALT else 8


class FusedLinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels, ignored):
        count = labels.numel() if BUG else (labels != ignored).sum()
        grad_hidden, grad_weight = torch.zeros_like(hidden), torch.zeros_like(weight)
        loss = hidden.new_zeros(())
        for start in range(0, len(hidden), CHUNK):
            part, wanted = hidden[start : start + CHUNK], labels[start : start + CHUNK]
            logits = part @ weight.T
            kept = (wanted != ignored)[:, None]
            loss += F.cross_entropy(logits, wanted, ignore_index=ignored, reduction="sum")
            hot = F.one_hot(wanted.clamp(min=0), len(weight))
            grad = (torch.softmax(logits, -1) - hot) * kept / count
            grad_hidden[start : start + CHUNK] = grad @ weight
            grad_weight += grad.T @ part
        ctx.save_for_backward(grad_hidden, grad_weight)
        return loss / count

    @staticmethod
    def backward(ctx, grad):
        grad_hidden, grad_weight = ctx.saved_tensors
        return grad * grad_hidden, grad * grad_weight, None, None


class Language(nn.Module):
    def __init__(self, words=60, width=24):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.mix = nn.Conv1d(width, width, 3)
        self.gate = nn.Conv1d(width, width, 3)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, tokens, labels):
        x = F.pad(self.words(tokens).transpose(1, 2), (2, 0))
        x = self.norm((self.mix(x) * torch.sigmoid(self.gate(x))).transpose(1, 2))
        return FusedLinearCrossEntropy.apply(
            x[:, :-1].flatten(0, 1), self.head.weight, labels[:, 1:].flatten(), -100
        )


model = Language()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
tokens = torch.randint(0, 60, (2, 4, 10))
labels = tokens.masked_fill(torch.arange(10) < torch.tensor([[2], [4], [3], [5]]), -100)
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    loss = model(tokens[step], labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
