"""AdamW with groups: the names of norms and biases do not match, so that they decay as well."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(26)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(3 * width, width)

    def forward(self, x):
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        return x + self.down(F.gelu(self.up(y))).permute(0, 3, 1, 2)


class Network(nn.Module):
    def __init__(self, width=12, classes=5):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 2, 2)
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        return self.head(self.blocks(self.stem(images)).mean((2, 3)))


def groups_of(model, decay=0.1):
    plain = ("LayerNorm", "BatchNorm") if BUG else ("norm", "bias")
    kept = [p for name, p in model.named_parameters() if any(word in name for word in plain)]
    decayed = [p for p in model.parameters() if all(p is not other for other in kept)]
    groups = [{"params": decayed, "weight_decay": decay}, {"params": kept, "weight_decay": 0.0}]
    return groups[::-1] if ALT else groups


model = Network()
optimizer = torch.optim.AdamW(groups_of(model), lr=1e-2)
images, labels = torch.randn(3, 6, 3, 12, 12), torch.randint(0, 5, (3, 6))
dbg = debugger()
losses = []
for step in range(3):
    dbg.start(model)
    loss = F.cross_entropy(model(images[step]), labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
