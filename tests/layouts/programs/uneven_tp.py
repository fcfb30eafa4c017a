"""Tensor parallelism of sizes that the ranks do not divide: one rank has more than the other.

Three heads are on two ranks, 33 hidden numbers are 17 and 16, and a vocabulary of 45 words is
padded to 46 rows, whose last word never occurs; layout "one" has no row for it.
"""

import torch
import torch.distributed as dist
from common import launch, objects
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "tp2": 2}
VARIANTS = ("", "sgd")
BUGS = {
    "pad_takes_part": {"layout": "tp2", "near": ["Scores", "index_fill|exp|sum"]},
    "head_cut_in_halves": {"layout": "tp2", "within": r"tower\.1", "near": [r"tower\.1\.look"]},
    "bias_of_hidden_shifted": {
        "layout": "tp2",
        "rank": 1,
        "within": r"tower\.0",
        "near": [r"tower\.0\.hide"],
    },
    "sum_missing": {"layout": "tp2", "within": r"tower\.0", "near": [r"tower\.0\.look"]},
}
SIZE, HEADS, EACH, HIDDEN, WORDS, LENGTH = 18, 3, 6, 33, 45, 7


def split(full, run, dim=0, unit=1):
    """Parts of whole units; the first ranks have one more where the number does not divide."""
    return full.tensor_split(run.ranks, dim) if unit == 1 else units(full, run, dim, unit)


def units(full, run, dim, unit):
    """As `split`, of blocks of `unit` rows, which are not cut."""
    blocks = full.split(unit, dim)
    places = torch.arange(len(blocks)).tensor_split(run.ranks)
    return [torch.cat([blocks[i] for i in place], dim) for place in places]


def mine(full, run, dim=0, unit=1):
    return nn.Parameter(split(full, run, dim, unit)[run.rank].clone())


class In(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        if dist.is_initialized():
            dist.all_reduce(gradient)
        return gradient


class Out(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        if dist.is_initialized():
            dist.all_reduce(x)  # bug: sum_missing
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Look(nn.Module):
    """Attention; queries, keys and values are three weights."""

    def __init__(self, run, level):
        super().__init__()
        self.level, self.run = level, run
        for name in ("ask", "tell", "give"):
            setattr(self, name, mine(torch.randn(HEADS * EACH, SIZE) * 0.25, run, unit=EACH))
        answer = torch.randn(SIZE, HEADS * EACH) * 0.25
        if level == 1 and run.bug("head_cut_in_halves"):
            rolled = answer.roll(EACH // 2, 1)
            self.answer = mine(rolled, run, 1, EACH)
        else:
            self.answer = mine(answer, run, 1, EACH)

    def forward(self, x):
        x = In.apply(x)
        q, k, v = (
            torch.einsum("btd,hd->bth", x, w).unflatten(-1, (-1, EACH)).transpose(1, 2)
            for w in (self.ask, self.tell, self.give)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        y = torch.einsum("bth,dh->btd", y, self.answer)  # bug: head_cut_in_halves
        if self.level == 0 and self.run.bug("sum_missing"):
            return y  # bug: sum_missing
        return Out.apply(y)  # bug: sum_missing


class Hide(nn.Module):
    def __init__(self, run, level):
        super().__init__()
        self.up, bias = mine(torch.randn(HIDDEN, SIZE) * 0.25, run), torch.randn(HIDDEN) * 0.3
        if level == 0 and run.bug("bias_of_hidden_shifted", 1):
            bias = bias.roll(1)
        self.bias = mine(bias, run)
        self.down = mine(torch.randn(SIZE, HIDDEN) * 0.25, run, 1)

    def forward(self, x):
        y = torch.addmm(self.bias, In.apply(x).flatten(0, 1), self.up.t())
        y = F.hardswish(y)  # bug: bias_of_hidden_shifted
        return Out.apply(y @ self.down.t()).view_as(x)


class Level(nn.Module):
    def __init__(self, run, level):
        super().__init__()
        self.first, self.second = nn.LayerNorm(SIZE, bias=False), nn.LayerNorm(SIZE, bias=False)
        self.look, self.hide = Look(run, level), Hide(run, level)

    def forward(self, x):
        x = x + self.look(self.first(x))
        return x + self.hide(self.second(x))


class Scores(torch.autograd.Function):
    """Logarithm of the sum of exponents over the words of all ranks, the pad left out."""

    @staticmethod
    def forward(ctx, logits, pad):
        if pad:
            logits = logits.index_fill(-1, torch.tensor([logits.shape[-1] - 1]), float("-inf"))
        largest = logits.amax(-1, keepdim=True)
        if dist.is_initialized():
            dist.all_reduce(largest, op=dist.ReduceOp.MAX)
        exponents = (logits - largest).exp()
        total = exponents.sum(-1, keepdim=True)  # bug: pad_takes_part
        if dist.is_initialized():
            dist.all_reduce(total)
        ctx.save_for_backward(exponents / total)
        return (total.log() + largest).squeeze(-1)  # bug: pad_takes_part

    @staticmethod
    def backward(ctx, gradient):
        (share,) = ctx.saved_tensors
        return share * gradient.unsqueeze(-1), None


class Predictor(nn.Module):
    def __init__(self, run):
        super().__init__()
        torch.manual_seed(101)
        self.run = run
        words = torch.randn(WORDS, SIZE) * 0.3
        if run.ranks > 1:  # a row for the pad
            words = torch.cat([words, torch.zeros(1, SIZE)])
        self.words = mine(words, run)
        self.begin = len(self.words) * run.rank
        self.tower = nn.ModuleList([Level(run, level) for level in range(2)])
        self.end = nn.LayerNorm(SIZE, bias=False)

    def own(self, ids):
        local = ids - self.begin
        return local.clamp(0, len(self.words) - 1), (local < 0) | (local >= len(self.words))

    def forward(self, ids, labels):
        local, other = self.own(ids)
        x = Out.apply(F.embedding(local, self.words).masked_fill(other.unsqueeze(-1), 0.0))
        for level in self.tower:
            x = level(x)
        logits = In.apply(self.end(x)) @ self.words.t()
        local, other = self.own(labels)
        hit = logits.gather(-1, local.unsqueeze(-1)).squeeze(-1).masked_fill(other, 0.0)
        pad = self.run.rank == 1 and not self.run.bug("pad_takes_part")
        return (Scores.apply(logits, pad) - Out.apply(hit)).mean()  # bug: pad_takes_part


def whole(run, name, parameter):
    parts = objects(parameter.detach().clone())
    if name == "words":
        return torch.cat(parts)[:WORDS]
    if name.endswith(("answer", "down")):
        return torch.cat(parts, 1)
    return torch.cat(parts) if "look" in name or "hide" in name else parts[run.rank]


def train(run):
    model = Predictor(run)
    if run.variant == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    else:
        optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(300)
    losses = []
    for _ in range(run.steps):
        ids = torch.randint(WORDS, (3, LENGTH + 1), generator=draw)
        with run.step(model):
            loss = model(ids[:, :-1], ids[:, 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(loss.item())
    return losses, {name: whole(run, name, each) for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
