"""A decoder with grouped queries, rotary phases and a gated MLP under plans of DTensor."""

import torch
from common import average, launch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F

LAYOUTS = {"one": 1, "tp2": 2, "sp2": 2}
BUGS = {
    "phases_of_one_rank": {"layout": "tp2", "rank": 1, "near": ["layers.0.attention", "rotate"]},
    "down_scaled": {"layout": "tp2", "near": ["layers.1.mlp"], "rank": 0},
    "gate_without_silu": {"layout": "sp2", "rank": 1, "near": ["layers.0.mlp"]},
    "eps_of_one_rank": {"layout": "sp2", "rank": 0, "near": ["layers.1.norm1", "layers.1"]},
}
WORDS, WIDTH, HEADS, KV, BATCH, LENGTH = 64, 32, 4, 2, 4, 8


class Norm(nn.Module):
    def __init__(self, run, layer=None):
        super().__init__()
        self.weight, self.run, self.layer = nn.Parameter(torch.ones(WIDTH)), run, layer

    def forward(self, x):
        eps = 1e-5
        if self.layer == 1 and self.run.bug("eps_of_one_rank", 0):
            eps = 0.05  # bug: eps_of_one_rank
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * self.weight


class Attention(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer, size = run, layer, WIDTH // HEADS
        self.wq = nn.Linear(WIDTH, WIDTH, bias=False)
        self.wk = nn.Linear(WIDTH, KV * size, bias=False)
        self.wv = nn.Linear(WIDTH, KV * size, bias=False)
        self.wo = nn.Linear(WIDTH, WIDTH, bias=False)

    def rotate(self, x, phases):
        a, b = x.chunk(2, -1)
        return torch.cat(
            [a * phases.cos() - b * phases.sin(), a * phases.sin() + b * phases.cos()], -1
        )

    def forward(self, x, phases):
        b, n, _ = x.shape
        size = WIDTH // HEADS
        q, k, v = (w(x).view(b, n, -1, size).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        if self.layer == 0 and self.run.bug("phases_of_one_rank", 1):
            phases = phases * 1.5  # bug: phases_of_one_rank
        q, k = self.rotate(q, phases), self.rotate(k, phases)
        k, v = (each.repeat_interleave(HEADS // KV, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.wo(y.transpose(1, 2).reshape(b, n, -1))


class Mlp(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.w1 = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.w3 = nn.Linear(WIDTH, 3 * WIDTH, bias=False)
        self.w2 = nn.Linear(3 * WIDTH, WIDTH, bias=False)

    def forward(self, x):
        if self.layer == 0 and self.run.bug("gate_without_silu", 1):
            return self.w2(self.w1(x) * self.w3(x))  # bug: gate_without_silu
        h = F.silu(self.w1(x)) * self.w3(x)
        if self.layer == 1 and self.run.bug("down_scaled", 0):
            h = h * 1.2  # bug: down_scaled
        return self.w2(h)


class Layer(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.attention, self.mlp = Attention(run, layer), Mlp(run, layer)
        self.norm1, self.norm2 = Norm(run, layer), Norm(run)

    def forward(self, x, phases):
        x = x + self.attention(self.norm1(x), phases)
        return x + self.mlp(self.norm2(x))


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(Layer(run, i) for i in range(2))
        self.norm, self.head = Norm(run), nn.Linear(WIDTH, WORDS, bias=False)
        self.register_buffer(
            "phases", torch.outer(torch.arange(LENGTH), 0.3 ** torch.arange(WIDTH // HEADS // 2))
        )

    def forward(self, tokens):
        x = self.embed(tokens)
        phases = self.phases.to(x.dtype) if not hasattr(x, "placements") else self.phases
        for layer in self.layers:
            x = layer(x, phases)
        return self.head(self.norm(x))


def parallelize(net, run):
    mesh = init_device_mesh("cpu", (run.ranks,), mesh_dim_names=("tp",))
    sequence = run.layout.startswith("sp")
    if sequence:
        parallelize_module(
            net,
            mesh,
            {
                "embed": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
                "norm": SequenceParallel(),
                "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
            },
        )
        plan = {
            "norm1": SequenceParallel(),
            "norm2": SequenceParallel(),
            "attention": PrepareModuleInput(
                input_layouts=(Shard(1), None), desired_input_layouts=(Replicate(), None)
            ),
            "mlp": PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            ),
            "attention.wo": RowwiseParallel(output_layouts=Shard(1)),
            "mlp.w2": RowwiseParallel(output_layouts=Shard(1)),
        }
    else:
        parallelize_module(
            net,
            mesh,
            {
                "embed": RowwiseParallel(input_layouts=Replicate()),
                "head": ColwiseParallel(output_layouts=Replicate()),
            },
        )
        plan = {"attention.wo": RowwiseParallel(), "mlp.w2": RowwiseParallel()}
    plan |= {f"attention.{w}": ColwiseParallel() for w in ("wq", "wk", "wv")}
    plan |= {f"mlp.{w}": ColwiseParallel() for w in ("w1", "w3")}
    for layer in net.layers:
        parallelize_module(layer, mesh, plan)


def train(run):
    torch.manual_seed(41)
    net = Net(run)
    if run.ranks > 1:
        parallelize(net, run)
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003, foreach=run.ranks == 1)
    generator = torch.Generator().manual_seed(10)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
        with run.step(net):
            scores = net(tokens[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(average(loss))
    weights = {}
    for name, p in net.named_parameters():
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        weights[name] = p.detach().clone()
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
