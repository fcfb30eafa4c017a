"""Speech: the lengths for CTC do not follow the convolutions, and count frames of padding."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(16)


class Recognizer(nn.Module):
    def __init__(self, mels=16, width=24, symbols=9):
        super().__init__()
        self.subsample = nn.ModuleList(
            [nn.Conv1d(mels, width, 3, stride=2), nn.Conv1d(width, width, 3, stride=2)]
        )
        self.depthwise = nn.Conv1d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.symbols = nn.Linear(width, symbols)

    def forward(self, mels, lengths):
        x = mels.transpose(1, 2)
        for convolution in self.subsample:
            x = F.silu(convolution(x))
        x = (x + self.depthwise(x)).transpose(1, 2)
        if BUG:
            frames = torch.div(lengths, 4, rounding_mode="floor").clamp(max=x.shape[1])
        else:
            frames = ((lengths - 1) // 2 - 1) // 2
        return self.symbols(self.norm(x)), frames


model = Recognizer()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
lengths = torch.tensor([[60, 56, 44, 36], [64, 52, 48, 32]])
mels = torch.randn(2, 4, 64, 16)
letters, counts = torch.randint(1, 9, (2, 4, 5)), torch.tensor([[5, 4, 3, 3], [5, 5, 4, 2]])
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    logits, frames = model(mels[step], lengths[step])
    logps = F.log_softmax(logits, -1).transpose(0, 1)
    target = letters[step]
    if ALT:
        target = torch.cat([row[:count] for row, count in zip(target, counts[step], strict=True)])
    loss = F.ctc_loss(logps, target, frames, counts[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
