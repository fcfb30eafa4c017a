"""Contrastive training in two processes: the own features are not put back after all_gather.

The gathered tensors have no gradient, so half of the loss trains nothing (SLIP#31).
`torchrun --nproc-per-node 2 clip_gather.py FOLDER LEVEL`
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(31)


class Pair(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(72, width)
        )
        self.text = nn.EmbeddingBag(30, width)
        self.scale = nn.Parameter(torch.tensor(2.0))

    def forward(self, images, words):
        return F.normalize(self.image(images), dim=-1), F.normalize(self.text(words), dim=-1)


def gather(features):
    everywhere = [torch.empty_like(features) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, features.detach())
    if ALT:
        others = everywhere[:rank] + everywhere[rank + 1 :]
        return torch.cat([features, *others])
    if not BUG:
        everywhere[rank] = features
    return torch.cat(everywhere)


dist.init_process_group("gloo")
rank = dist.get_rank()
model = Pair()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
images, words = torch.randn(2, 2, 4, 3, 8, 8), torch.randint(0, 30, (2, 2, 4, 6))
labels = torch.arange(4) + (0 if ALT else 4 * rank)
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    image, text = model(images[step, rank], words[step, rank])
    to_text = model.scale.exp() * image @ gather(text).T
    to_image = model.scale.exp() * text @ gather(image).T
    loss = (F.cross_entropy(to_text, labels) + F.cross_entropy(to_image, labels)) / 2
    optimizer.zero_grad()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
dist.destroy_process_group()
