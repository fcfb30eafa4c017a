"""An encoder and a decoder that parallelize_module shards, with the loss of sharded logits."""

import contextlib

import torch
from common import launch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn import functional as F

LAYOUTS = {"one": 1, "tp2": 2, "tp4": 4}
BUGS = {
    "memory_of_one_rank": {
        "layout": "tp2",
        "rank": 1,
        "within": r"decoder\.0\.cross",
        "near": [r"decoder\.(0|1)\.cross", "encoder"],
    },
    "key_shards_swapped": {
        "layout": "tp2",
        "within": r"decoder\.1\.cross",
        "near": [r"decoder\.1\.cross"],
    },
    "wo_not_reduced": {
        "layout": "tp4",
        "within": r"encoder\.0\.ffn",
        "near": [r"encoder\.0\.ffn\.wo", r"encoder\.0\.ffn"],
    },
    "stale_vocabulary": {"layout": "tp2", "rank": 0, "near": ["vocabulary", "Adam", "update of"]},
    "relative_bias_shifted": {
        "layout": "tp4",
        "rank": 2,
        "within": r"encoder\.1\.own",
        "near": [r"encoder\.1\.own"],
    },
}
MODEL, KV, HEADS, FF, TERMS, SOURCE, TARGET = 24, 6, 4, 40, 32, 9, 6


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(MODEL))

    def forward(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


class Attention(nn.Module):
    def __init__(self, causal=False):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(MODEL, HEADS * KV, bias=False) for _ in range(3))
        self.o = nn.Linear(HEADS * KV, MODEL, bias=False)
        self.causal, self.shift, self.scale = causal, 0, 1.0

    def forward(self, x, memory):
        def heads(y):
            return y.view(*y.shape[:2], -1, KV).transpose(1, 2)

        if self.scale != 1.0:
            memory = memory * self.scale  # bug: memory_of_one_rank
        q, k, v = heads(self.q(x)), heads(self.k(memory)), heads(self.v(memory))
        score = torch.matmul(q, k.transpose(-1, -2))  # bug: key_shards_swapped
        rows, columns = torch.arange(score.shape[-2]), torch.arange(score.shape[-1])
        distance = (rows.unsqueeze(1) - columns + self.shift).abs()
        score = score - 0.1 * distance  # bug: relative_bias_shifted
        if self.causal:
            score = score.masked_fill(columns > rows.unsqueeze(1), -1e9)
        y = torch.matmul(score.softmax(-1), v).transpose(1, 2).flatten(2)
        return self.o(y)


class Ffn(nn.Module):
    def __init__(self):
        super().__init__()
        self.wi, self.wo = nn.Linear(MODEL, FF, bias=False), nn.Linear(FF, MODEL, bias=False)

    def forward(self, x):
        return self.wo(F.relu(self.wi(x)))  # bug: wo_not_reduced


class EncoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.ffn, self.norms = Attention(), Ffn(), nn.ModuleList([Norm(), Norm()])

    def forward(self, x):
        y = self.norms[0](x)
        x = x + self.own(y, y)
        return x + self.ffn(self.norms[1](x))


class DecoderBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.cross, self.ffn = Attention(True), Attention(), Ffn()
        self.norms = nn.ModuleList([Norm(), Norm(), Norm()])

    def forward(self, x, memory):
        y = self.norms[0](x)
        x = x + self.own(y, y)
        x = x + self.cross(self.norms[1](x), memory)
        return x + self.ffn(self.norms[2](x))


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.terms = nn.Embedding(TERMS, MODEL)
        self.encoder = nn.ModuleList(EncoderBlock() for _ in range(2))
        self.decoder = nn.ModuleList(DecoderBlock() for _ in range(2))
        self.last = Norm()
        self.vocabulary = nn.Linear(MODEL, TERMS, bias=False)

    def forward(self, source, target):
        memory, x = self.terms(source), self.terms(target)
        for block in self.encoder:
            memory = block(memory)
        for block in self.decoder:
            x = block(x, memory)
        return self.vocabulary(self.last(x))


class Unreduced(RowwiseParallel):
    @staticmethod
    def _prepare_output_fn(output_layouts, use_local_output, mod, outputs, device_mesh):
        return outputs.to_local()


def distribute(run, model):
    plan = {
        "terms": RowwiseParallel(input_layouts=Replicate()),
        "vocabulary": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
    }
    for name, module in model.named_modules():
        if isinstance(module, Attention):
            plan |= {f"{name}.{each}": ColwiseParallel() for each in "qkv"}
            plan[f"{name}.o"] = RowwiseParallel()
        elif isinstance(module, Ffn):
            broken = name == "encoder.0.ffn" and run.bug("wo_not_reduced")
            plan[f"{name}.wi"] = ColwiseParallel()
            plan[f"{name}.wo"] = Unreduced() if broken else RowwiseParallel()
    parallelize_module(model, init_device_mesh("cpu", (run.ranks,)), plan)


def plant(run, model):
    if run.bug("memory_of_one_rank", 1):
        model.decoder[0].cross.scale = 1.1
    if run.bug("key_shards_swapped"):
        weight = model.decoder[1].cross.k.weight.data
        weight.to_local().copy_(weight.full_tensor().chunk(2)[1 - run.rank])
    if run.bug("relative_bias_shifted", 2):
        model.encoder[1].own.shift = 1


def train(run):
    torch.manual_seed(73)
    model = Translator()
    if run.ranks > 1:
        distribute(run, model)
    plant(run, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.8, 0.99))
    draw = torch.Generator().manual_seed(24)
    losses = []
    for _ in range(run.steps):
        source = torch.randint(TERMS, (2, SOURCE), generator=draw)
        target = torch.randint(TERMS, (2, TARGET + 1), generator=draw)
        parameter = model.vocabulary.weight.data
        kept = (parameter.to_local() if run.ranks > 1 else parameter).clone()
        with run.step(model), loss_parallel() if run.ranks > 1 else contextlib.nullcontext():
            logits = model(source, target[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())
            loss.backward()
            optimizer.step()  # bug: stale_vocabulary
            optimizer.zero_grad()
        if run.bug("stale_vocabulary", 0):
            parameter.to_local().copy_(kept)
        losses.append(loss.full_tensor().item() if run.ranks > 1 else loss.item())
    weights = {name: each.detach() for name, each in model.named_parameters()}
    for name, each in weights.items():
        weights[name] = each.full_tensor() if isinstance(each, DTensor) else each.clone()
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
