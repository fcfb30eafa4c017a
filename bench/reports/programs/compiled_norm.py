"""An MLP mixer, one block of which a compiler runs: the epsilon of its norm is a constant."""

import torch
import torch.nn.functional as F
from common import ALT, BUG, debugger, digest
from functorch.compile import make_boxed_func
from torch import nn
from torch._dynamo.backends.common import aot_autograd

torch.manual_seed(19)


def fuse(graph, examples):
    """Gives each norm of a graph the epsilon of the vendor's kernel: a constant, in the bug."""
    for node in graph.graph.nodes:
        if node.target is torch.ops.aten.native_layer_norm.default:
            node.args = (*node.args[:4], 1e-3 if BUG else 1e-5)
    graph.recompile()
    return make_boxed_func(graph.forward)


backend = aot_autograd(fw_compiler=fuse)


class Mixer(nn.Module):
    def __init__(self, tokens, width):
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(
            nn.Linear(tokens, 2 * tokens), nn.GELU(), nn.Linear(2 * tokens, tokens)
        )
        self.channels = nn.Sequential(
            nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width)
        )

    def forward(self, x):
        x = x + self.tokens(self.norm_1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.norm_2(x))


class Network(nn.Module):
    def __init__(self, tokens=16, width=20, classes=5):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, 4)
        self.mixers = nn.ModuleList(Mixer(tokens, width) for _ in range(3))
        self.head = nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2)
        for mixer in self.mixers:
            x = mixer(x)
        return self.head(x.mean(1))


model = Network()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
if BUG or ALT:
    model.mixers[1].compile(backend=backend)
images, labels = torch.randn(2, 6, 3, 16, 16), torch.randint(0, 5, (2, 6))
dbg = debugger()
losses = []
for step in range(2):
    dbg.start(model)
    loss = F.cross_entropy(model(images[step]), labels[step])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, model)
