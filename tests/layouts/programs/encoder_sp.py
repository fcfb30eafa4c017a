"""An encoder with sequence parallelism around its tensor-parallel blocks, written by hand.

Between the blocks each rank has its part of the sequence (dimension 0, as in Megatron); the blocks
gather it, and scatter the sums of their results. Labels are spread over the ranks, too.
"""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from common import launch, whole

LAYOUTS = {"one": 1, "sp2": 2, "sp4": 4}
VARIANTS = ("", "clipped", "momentum")
BUGS = {
    "norm_gradients_local": {"layout": "sp2", "near": ["AdamW", "norm_in", "norm_mid"]},
    "norm_gradients_twice": {"layout": "sp2", "variant": "momentum", "near": ["SGD"]},
    "gathered_in_other_order": {
        "layout": "sp2",
        "within": "layers_1",
        "near": [r"layers_1\.attend\.wide"],
    },
    "scatter_without_sum": {
        "layout": "sp2",
        "within": "layers_0",
        "near": [r"layers_0\.think\.narrow"],
    },
    "gather_gradient_not_summed": {
        "layout": "sp4",
        "within": "layers_1",
        "near": [r"layers_1\.think\.wide", r"layers_1\.norm_mid"],
    },
    "local_norm": {"layout": "sp2", "variant": "clipped", "near": ["clip_grad_norm_", "mul_"]},
    "embedding_part_of_other": {"layout": "sp4", "rank": 2, "near": [r"Tensor\.chunk\.0\."]},
    "noise_seed": {"layout": "sp2", "rank": 0, "near": [r"Tensor\.chunk\.2\."]},
}
D, HEADS, TIME, B, KINDS = 24, 4, 16, 3, 6


def spread(x):
    return x.chunk(dist.get_world_size(), 0)[dist.get_rank()]


class Gather(torch.autograd.Function):
    """Parts of the sequence -> the sequence; the ranks' gradients are summed and spread again."""

    @staticmethod
    def forward(ctx, x, reverse=False, summed=True):
        ctx.summed = summed
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts[::-1] if reverse else parts)  # bug: gathered_in_other_order

    @staticmethod
    def backward(ctx, gradient):
        if not ctx.summed:
            return spread(gradient), None, None  # bug: gather_gradient_not_summed
        out = torch.empty_like(spread(gradient))
        dist.reduce_scatter(out, [c.contiguous() for c in gradient.chunk(dist.get_world_size())])
        return out, None, None


class Scatter(torch.autograd.Function):
    """Partial results of the whole sequence -> this rank's part of their sum."""

    @staticmethod
    def forward(ctx, x, summed=True):
        if not summed:
            return spread(x).clone()  # bug: scatter_without_sum
        out = torch.empty_like(spread(x))
        dist.reduce_scatter_tensor(out, x.contiguous())  # bug: scatter_without_sum
        return out

    @staticmethod
    def backward(ctx, gradient):
        out = gradient.new_empty(gradient.shape[0] * dist.get_world_size(), *gradient.shape[1:])
        dist.all_gather_into_tensor(out, gradient.contiguous())
        return out, None


class Wide(nn.Module):
    """Its outputs are spread over the ranks."""

    def __init__(self, run, inputs, outputs):
        super().__init__()
        weight, bias = torch.randn(outputs, inputs) / inputs**0.5, torch.randn(outputs) / 9
        self.weight = nn.Parameter(weight.chunk(run.ranks)[run.rank].clone())
        self.bias = nn.Parameter(bias.chunk(run.ranks)[run.rank].clone())
        self.parallel, self.reverse, self.summed = run.ranks > 1, False, True

    def forward(self, x):
        if self.parallel:
            x = Gather.apply(x, self.reverse, self.summed)  # bug: gather_gradient_not_summed
        return F.linear(x, self.weight, self.bias)  # bug: gathered_in_other_order


class Narrow(nn.Module):
    """Its inputs are spread over the ranks."""

    def __init__(self, run, inputs, outputs):
        super().__init__()
        weight = torch.randn(outputs, inputs) / inputs**0.5
        self.weight = nn.Parameter(weight.chunk(run.ranks, 1)[run.rank].clone())
        self.bias = nn.Parameter(torch.zeros(outputs))
        self.parallel, self.summed = run.ranks > 1, True

    def forward(self, x):
        y = torch.matmul(x, self.weight.t())
        if self.parallel:
            y = Scatter.apply(y, self.summed)  # bug: scatter_without_sum
        return y + self.bias


class Attend(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.mine = HEADS // run.ranks
        self.wide, self.narrow = Wide(run, D, 3 * D), Narrow(run, D, D)

    def forward(self, x):
        mixed = self.wide(x)
        t, b, _ = mixed.shape
        q, k, v = mixed.view(t, b, self.mine, 3, -1).permute(3, 1, 2, 0, 4)
        probability = torch.softmax(torch.matmul(q, k.mT) * (D // HEADS) ** -0.5, dim=-1)
        return self.narrow(torch.matmul(probability, v).permute(2, 0, 1, 3).flatten(2))


class Think(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.wide, self.narrow = Wide(run, D, 2 * D), Narrow(run, 2 * D, D)

    def forward(self, x):
        return self.narrow(F.gelu(self.wide(x)))


class Layer(nn.Module):
    """Norms after the sums, as in BERT."""

    def __init__(self, run):
        super().__init__()
        self.attend, self.think = Attend(run), Think(run)
        self.norm_in, self.norm_mid = nn.LayerNorm(D), nn.LayerNorm(D)

    def forward(self, x):
        x = self.norm_in(x + self.attend(x))
        y = self.norm_mid(x)
        return x + self.think(y)


class TokenClassifier(nn.Module):
    def __init__(self, run):
        super().__init__()
        torch.manual_seed(88)
        self.run = run
        self.enter = nn.Linear(10, D)
        self.place = nn.Parameter(torch.randn(TIME, 1, D) / 5)
        self.layers_0, self.layers_1 = Layer(run), Layer(run)
        self.answer = nn.Linear(D, KINDS)
        self.layers_1.attend.wide.reverse = run.bug("gathered_in_other_order")
        self.layers_0.think.narrow.summed = not run.bug("scatter_without_sum")
        self.layers_1.think.wide.summed = not run.bug("gather_gradient_not_summed")

    def forward(self, x, noise):
        if self.run.ranks > 1:
            part = 0 if self.run.bug("embedding_part_of_other", 2) else self.run.rank
            place = self.place.chunk(self.run.ranks)[part]  # bug: embedding_part_of_other
            x = spread(x)
            x = self.enter(x) + place  # bug: embedding_part_of_other
            x = x + spread(noise)  # bug: noise_seed
        else:
            x = self.enter(x) + self.place + noise
        return self.answer(self.layers_1(self.layers_0(x)))


def spread_weights(model):
    names = [name for name, _ in model.named_parameters()]
    return {name for name in names if "wide" in name or "narrow.weight" in name}


def add_gradients_of_parts(run, model):
    """Weights outside of the blocks saw this rank's part of the sequence only."""
    for name, parameter in model.named_parameters():
        if run.ranks == 1 or name in spread_weights(model):
            continue
        if "norm" in name and run.bug("norm_gradients_local"):
            continue
        for _ in range(2 if "norm" in name and run.bug("norm_gradients_twice") else 1):
            dist.all_reduce(parameter.grad)  # bug: norm_gradients_local, norm_gradients_twice


def clip(run, model, limit=1.0):
    if run.ranks == 1 or run.bug("local_norm"):
        nn.utils.clip_grad_norm_(model.parameters(), limit)  # bug: local_norm
        return
    square = torch.zeros(())
    for name, parameter in model.named_parameters():
        count = 1 if name in spread_weights(model) else run.ranks
        square += parameter.grad.square().sum() / count
    dist.all_reduce(square)
    nn.utils.clip_grads_with_norm_(model.parameters(), limit, square.sqrt())


def train(run):
    model = TokenClassifier(run)
    if run.variant == "momentum":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.8)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(21)
    losses = []
    for number in range(run.steps):
        x = torch.randn(TIME, B, 10, generator=generator)
        y = torch.randint(KINDS, (TIME, B), generator=generator)
        seed = 70 + number + (1000 if run.bug("noise_seed", 0) else 0)
        noise = 0.1 * torch.randn(TIME, B, D, generator=torch.Generator().manual_seed(seed))
        if run.ranks > 1:
            y = spread(y)
        with run.step(model):
            answer = model(x, noise)
            loss = F.cross_entropy(answer.flatten(0, 1), y.flatten(), reduction="sum") / (TIME * B)
            loss.backward()
            add_gradients_of_parts(run, model)
            if run.variant == "clipped":
                clip(run, model)
            optimizer.step()  # bug: norm_gradients_local
            optimizer.zero_grad()
        total = loss.detach().clone()
        if run.ranks > 1:
            dist.all_reduce(total)
        losses.append(total.item())
    cut = spread_weights(model)
    weights = {}
    for name, each in model.named_parameters():
        dim = (1 if "narrow" in name else 0) if name in cut else None
        weights[name] = whole(each, dim)
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
