"""A GPT under tensor parallelism as Megatron writes it, by hand, down to the vocabulary."""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import launch, whole
from torch import nn

LAYOUTS = {"one": 1, "tp2": 2, "tp4": 4}
PAIRS = [("tp4", "tp2")]
BUGS = {
    "proj_not_reduced": {
        "layout": "tp2",
        "within": r"blocks\.1",
        "near": [r"blocks\.1\.attention\.proj"],
    },
    "fc2_reduced_twice": {
        "layout": "tp2",
        "within": r"blocks\.0",
        "near": [r"blocks\.0\.mlp\.fc2"],
    },
    "qkv_gradient_not_reduced": {
        "layout": "tp2",
        "within": r"blocks\.1",
        "near": [r"blocks\.1\.attention\.qkv", r"blocks\.1\.norm1"],
    },
    "vocabulary_maximum": {"layout": "tp2", "near": ["VocabularyLoss"]},
    "vocabulary_order": {"layout": "tp2", "near": [r"Module\.embedding\.", r"^embedding \("]},
    "vocabulary_mask": {
        "layout": "tp4",
        "rank": 1,
        "near": [r"Module\.embedding\.", r"^embedding \("],
    },
    "stale_shard": {
        "layout": "tp2",
        "rank": 1,
        "near": [r"blocks\.0\.mlp\.fc1", "AdamW", "update of the weights"],
    },
    "dropout_seed": {"layout": "tp2", "rank": 1, "near": [r"Module\.drop\.", r"^drop \("]},
    "fc1_scaled": {
        "layout": "tp4",
        "rank": 3,
        "within": r"blocks\.1",
        "near": [r"blocks\.1\.mlp\.fc1"],
    },
}
HIDDEN, HEADS, LENGTH, VOCABULARY, LAYERS = 32, 4, 12, 64, 2
STATE = {"run": None}


def world():
    return STATE["run"].ranks


def rank():
    return STATE["run"].rank


def bug(name, at=None):
    return STATE["run"].bug(name, at)


def all_reduce(tensor):
    if world() > 1:
        dist.all_reduce(tensor)
    return tensor


class Copy(torch.autograd.Function):
    """The same input on each rank; its gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx, x, reduce=True):
        ctx.reduce = reduce
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        if not ctx.reduce:
            return gradient, None
        return all_reduce(gradient.contiguous()), None


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return all_reduce(x.contiguous())

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def part(full, dim):
    return full.chunk(world(), dim)[rank()].clone()


class ColumnLinear(nn.Module):
    dims = (("weight", 0), ("bias", 0))

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(part(torch.randn(outputs, inputs) * 0.1, 0))
        self.bias = nn.Parameter(part(torch.randn(outputs) * 0.1, 0))
        self.reduces = True

    def forward(self, x):
        x = Copy.apply(x, self.reduces)  # bug: qkv_gradient_not_reduced
        return F.linear(x, self.weight, self.bias)


class RowLinear(nn.Module):
    dims = (("weight", 1),)

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(part(torch.randn(outputs, inputs) * 0.1, 1))
        self.bias = nn.Parameter(torch.randn(outputs) * 0.1)
        self.times = 1

    def forward(self, x):
        x = F.linear(x, self.weight)
        for _ in range(self.times):
            x = Reduce.apply(x)  # bug: proj_not_reduced, fc2_reduced_twice
        return x + self.bias


class VocabularyEmbedding(nn.Module):
    dims = (("weight", 0),)

    def __init__(self, size, width):
        super().__init__()
        full = torch.randn(size, width) * 0.1
        self.begin = size // world() * rank()
        self.end = self.begin + size // world()
        self.weight = nn.Parameter(part(full, 0))
        if bug("vocabulary_order"):
            self.weight = nn.Parameter(full.chunk(world(), 0)[1 - rank()].clone())

    def forward(self, tokens):
        outside = (tokens < self.begin) | (tokens >= self.end)
        if bug("vocabulary_mask", 1):
            outside = tokens < self.begin  # bug: vocabulary_mask
        local = (tokens - self.begin).masked_fill(outside, 0).clamp(max=len(self.weight) - 1)
        out = F.embedding(local, self.weight)  # bug: vocabulary_order
        out = out.masked_fill(outside.unsqueeze(-1), 0.0)
        return Reduce.apply(out)


class VocabularyLoss(torch.autograd.Function):
    """Cross entropy of logits of which each rank has the columns of its words."""

    @staticmethod
    def forward(ctx, logits, tokens):
        largest = logits.max(-1).values
        if world() > 1 and not bug("vocabulary_maximum"):
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)  # bug: vocabulary_maximum
        logits = logits - largest.unsqueeze(-1)
        size = logits.shape[-1]
        local = tokens - size * rank()
        outside = (local < 0) | (local >= size)
        local = local.masked_fill(outside, 0)
        predicted = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(outside, 0.0)
        all_reduce(predicted)
        exponents = logits.exp()
        total = all_reduce(exponents.sum(-1))
        ctx.save_for_backward(exponents / total.unsqueeze(-1), local, outside)
        return total.log() - predicted

    @staticmethod
    def backward(ctx, gradient):
        softmax, local, outside = ctx.saved_tensors
        hit = torch.zeros_like(softmax).scatter_(-1, local.unsqueeze(-1), 1.0)
        hit = hit.masked_fill(outside.unsqueeze(-1), 0.0)
        return (softmax - hit) * gradient.unsqueeze(-1), None


class Attention(nn.Module):
    """Its fused weight has the rows of a head side by side, as Megatron's: [head, q k v, size]."""

    def __init__(self):
        super().__init__()
        self.qkv = ColumnLinear(HIDDEN, 3 * HIDDEN)
        self.proj = RowLinear(HIDDEN, HIDDEN)

    def forward(self, x):
        batch, length, _ = x.shape
        mixed = self.qkv(x).view(batch, length, HEADS // world(), -1)
        q, k, v = (each.transpose(1, 2) for each in mixed.chunk(3, -1))
        scores = q @ k.transpose(-1, -2) / math.sqrt(HIDDEN // HEADS)
        hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, float("-inf"))
        out = scores.softmax(-1) @ v
        return self.proj(out.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        self.fc1 = ColumnLinear(HIDDEN, 4 * HIDDEN)
        self.fc2 = RowLinear(4 * HIDDEN, HIDDEN)

    def forward(self, x):
        x = self.fc1(x)
        if self.layer == 1 and bug("fc1_scaled", 3):
            x = x * 1.1  # bug: fc1_scaled
        return self.fc2(F.gelu(x))


class Block(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention, self.mlp = Attention(), Mlp(layer)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))  # bug: proj_not_reduced
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = VocabularyEmbedding(VOCABULARY, HIDDEN)
        self.position = nn.Parameter(torch.randn(LENGTH, HIDDEN) * 0.1)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(Block(layer) for layer in range(LAYERS))
        self.norm = nn.LayerNorm(HIDDEN)
        self.head = ColumnLinear(HIDDEN, VOCABULARY)
        self.blocks[1].attention.qkv.reduces = not bug("qkv_gradient_not_reduced")
        self.blocks[1].attention.proj.times = 0 if bug("proj_not_reduced") else 1
        self.blocks[0].mlp.fc2.times = 2 if bug("fc2_reduced_twice") else 1

    def forward(self, tokens, labels):
        x = self.drop(self.embedding(tokens) + self.position)  # bug: dropout_seed
        for block in self.blocks:
            x = block(x)
        return VocabularyLoss.apply(self.head(self.norm(x)), labels).mean()


def whole_weights(model):
    weights = {}
    for name, parameter in model.named_parameters():
        owner, _, own = name.rpartition(".")
        dims = dict(getattr(model.get_submodule(owner), "dims", ()))
        weights[name] = whole(parameter, dims.get(own))
    return weights


def train(run):
    STATE["run"] = run
    torch.manual_seed(11)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    torch.manual_seed(200 + rank() if bug("dropout_seed") else 200)
    words = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(VOCABULARY, (2, LENGTH + 1), generator=words)
        kept = model.blocks[0].mlp.fc1.weight.detach().clone()
        with run.step(model):
            loss = model(tokens[:, :-1], tokens[:, 1:])
            loss.backward()
            optimizer.step()  # bug: stale_shard
            optimizer.zero_grad()
        if bug("stale_shard", 1):
            model.blocks[0].mlp.fc1.weight.data.copy_(kept)
        losses.append(loss.item())
    return losses, whole_weights(model)


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
