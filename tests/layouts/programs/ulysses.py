"""Sequence parallelism of DeepSpeed's Ulysses: parts of the sequence become heads and back."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import average, launch
from torch import nn

LAYOUTS = {"one": 1, "ulysses2": 2, "ulysses4": 4}
BUGS = {
    "heads_in_other_order": {
        "layout": "ulysses2",
        "within": r"encoder\.1",
        "near": [r"encoder\.1\.attention"],
    },
    "positions_of_other_rank": {"layout": "ulysses4", "rank": 1, "near": ["position", "embed"]},
    "wrong_way_back": {
        "layout": "ulysses2",
        "within": r"encoder\.0",
        "near": [r"encoder\.0\.attention"],
    },
    "norm_gradients_local": {"layout": "ulysses2", "near": [r"_norm\..*grad", "SGD"]},
    "query_scaled": {
        "layout": "ulysses4",
        "rank": 2,
        "within": r"encoder\.1",
        "near": [r"encoder\.1\.attention"],
    },
    "gradients_divided": {"layout": "ulysses2", "near": [r"Tensor\.div", "SGD"]},
}
SIZE, HEADS, FRAMES, BATCH, LABELS = 32, 4, 12, 2, 9


class AllToAll(torch.autograd.Function):
    """[batch, time, heads, size]: cuts one dimension, joins the other one."""

    @staticmethod
    def forward(ctx, x, cut, join, order=1):
        ctx.dims = join, cut, order
        ranks = dist.get_world_size()
        given = torch.stack(x.chunk(ranks, cut)[::order])
        taken = torch.empty_like(given)
        dist.all_to_all_single(taken, given)
        return torch.cat(taken.unbind(), join)

    @staticmethod
    def backward(ctx, gradient):
        return AllToAll.apply(gradient, *ctx.dims), None, None, None


class UlyssesAttention(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.qkv, self.output = nn.Linear(SIZE, 3 * SIZE), nn.Linear(SIZE, SIZE)

    def bug(self, name, layer, rank=None):
        return self.layer == layer and self.run.bug(name, rank)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).unbind(2)
        if self.bug("query_scaled", 1, 2):
            q = q * 1.1  # bug: query_scaled
        if self.run.ranks > 1:
            order = -1 if self.bug("heads_in_other_order", 1) else 1
            q = AllToAll.apply(q, 2, 1)  # bug: query_scaled
            k = AllToAll.apply(k, 2, 1, order)  # bug: heads_in_other_order
            v = AllToAll.apply(v, 2, 1)
        q, k, v = (each.transpose(1, 2) for each in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2)  # bug: heads_in_other_order
        if self.run.ranks > 1:
            order = -1 if self.bug("wrong_way_back", 0) else 1
            y = AllToAll.apply(y, 1, 2, order)  # bug: wrong_way_back
        return self.output(y.flatten(2))  # bug: wrong_way_back


class Layer(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.attention = UlyssesAttention(run, layer)
        self.attention_norm, self.ff_norm = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.ff = nn.Sequential(nn.Linear(SIZE, 2 * SIZE), nn.ReLU(), nn.Linear(2 * SIZE, SIZE))

    def forward(self, x):
        x = self.attention_norm(x + self.attention(x))
        return self.ff_norm(x + self.ff(x))


class Recognizer(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.embed = nn.Linear(11, SIZE)
        self.position = nn.Parameter(torch.randn(FRAMES, SIZE) * 0.3)
        self.encoder = nn.ModuleList(Layer(run, layer) for layer in range(2))
        self.classify = nn.Linear(SIZE, LABELS)

    def forward(self, frames):
        part = 0 if self.run.bug("positions_of_other_rank", 1) else self.run.rank
        position = self.position.chunk(self.run.ranks)[part]
        x = self.embed(frames) + position  # bug: positions_of_other_rank
        for layer in self.encoder:
            x = layer(x)
        return self.classify(x)


def add_gradients(run, model):
    for name, parameter in model.named_parameters():
        if run.ranks == 1 or ("norm" in name and run.bug("norm_gradients_local")):
            continue
        dist.all_reduce(parameter.grad)  # bug: norm_gradients_local, gradients_divided
        if run.bug("gradients_divided"):
            parameter.grad.div_(run.ranks)  # bug: gradients_divided


def train(run):
    torch.manual_seed(71)
    model = Recognizer(run)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    source = torch.Generator().manual_seed(61)
    losses = []
    for _ in range(run.steps):
        frames = torch.randn(BATCH, FRAMES, 11, generator=source)
        labels = torch.randint(LABELS, (BATCH, FRAMES), generator=source)
        frames, labels = (each.chunk(run.ranks, 1)[run.rank] for each in (frames, labels))
        model.zero_grad()
        with run.step(model):
            scores = model(frames.contiguous())
            loss = F.cross_entropy(scores.transpose(1, 2), labels, reduction="none").sum()
            loss = loss / (BATCH * FRAMES)
            loss.backward()
            add_gradients(run, model)
            optimizer.step()  # bug: norm_gradients_local, gradients_divided
        losses.append(average(loss.item()) * run.ranks)
    return losses, {name: each.detach().clone() for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
