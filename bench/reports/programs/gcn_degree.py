"""A graph network: degrees for the normalisation are counted at the wrong end of the edges."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from torch import nn

torch.manual_seed(30)


def normalised(edges, nodes):
    source, target = edges
    loops = torch.arange(nodes)
    source, target = torch.cat([source, loops]), torch.cat([target, loops])
    ones = torch.ones(len(target))
    if BUG:
        degree = torch.zeros(nodes).index_add(0, source, ones)
    else:
        degree = torch.zeros(nodes).index_add(0, target, ones)
    scale = degree.pow(-0.5)
    return source, target, scale[source] * scale[target]


class Convolution(nn.Module):
    def __init__(self, enter, leave):
        super().__init__()
        self.linear = nn.Linear(enter, leave, bias=False)
        self.bias = nn.Parameter(torch.zeros(leave))

    def forward(self, x, edges):
        source, target, weight = normalised(edges, len(x))
        x = self.linear(x)
        messages = x[source] * weight[:, None]
        if ALT:
            place = target[:, None].expand_as(messages)
            return torch.zeros_like(x).scatter_add(0, place, messages) + self.bias
        return torch.zeros_like(x).index_add(0, target, messages) + self.bias


class Network(nn.Module):
    def __init__(self, features=8, width=16, classes=3):
        super().__init__()
        self.first, self.second = Convolution(features, width), Convolution(width, classes)

    def forward(self, x, edges):
        return self.second(F.relu(self.first(x, edges)), edges)


model = Network()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=5e-4)
edges = torch.stack([torch.randint(0, 25, (80,)), torch.randint(0, 12, (80,))])
features, labels = torch.randn(25, 8), torch.randint(0, 3, (25,))
dbg = debugger()
losses = []
for _ in range(2):
    dbg.start(model)
    loss = F.cross_entropy(model(features, edges)[:15], labels[:15])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
