"""Context parallelism: each rank has a part of the sequence, keys and values are gathered.

Layout "cp2" gives contiguous parts; "zigzag2" gives each rank a part of the beginning and one of
the end, so that the causal mask leaves them the same work.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import average, launch
from torch import nn

LAYOUTS = {"one": 1, "cp2": 2, "cp4": 4, "zigzag2": 2}
VARIANTS = ("", "momentum")
BUGS = {
    "positions_from_zero": {"layout": "cp2", "rank": 1, "near": ["place"]},
    "mask_of_first_part": {"layout": "cp4", "rank": 3, "within": r"stack\.1", "near": ["__ge__"]},
    "values_in_other_order": {
        "layout": "cp2",
        "within": r"stack\.0",
        "near": [r"stack\.0\.mix\.value"],
    },
    "key_gradient_local": {"layout": "cp2", "within": r"stack\.1", "near": [r"stack\.1\.mix\.key"]},
    "gradients_not_added": {"layout": "cp2", "near": ["parameters_grad", "AdamW"]},
    "loss_by_local_count": {"layout": "cp4", "near": ["truediv", "cross_entropy", "sum"]},
    "stale_keys": {
        "layout": "zigzag2",
        "rank": 1,
        "within": r"stack\.1",
        "near": [r"stack\.1\.mix\.key"],
    },
}
WIDTH, HEADS, LENGTH, WORDS, BATCH = 24, 3, 16, 36, 2


def parts_of(layout, rank, ranks):
    """The positions of the sequence that a rank has, in its order."""
    if layout == "zigzag2":
        pieces = torch.arange(LENGTH).chunk(2 * ranks)
        return torch.cat([pieces[rank], pieces[2 * ranks - 1 - rank]])
    return torch.arange(LENGTH).chunk(ranks)[rank]


class Whole(torch.autograd.Function):
    """The parts of all ranks in the order of the ranks; gradients are summed for their owner."""

    @staticmethod
    def forward(ctx, part, swapped=False, local=False):
        ctx.local = local
        parts = [torch.empty_like(part) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, part.contiguous())
        return torch.cat(parts[::-1] if swapped else parts, 2)

    @staticmethod
    def backward(ctx, gradient):
        if not ctx.local:
            gradient = gradient.clone()
            dist.all_reduce(gradient)  # bug: key_gradient_local
        size = gradient.shape[2] // dist.get_world_size()
        return gradient.narrow(2, size * dist.get_rank(), size), None, None


class Mix(nn.Module):
    def __init__(self, run, number):
        super().__init__()
        self.run, self.number = run, number
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.merge = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.kept = None

    def whole(self, part, name):
        if self.run.ranks == 1:
            return part
        if name == "key" and self.number == 1 and self.run.bug("stale_keys", 1):
            self.kept = part.detach() if self.kept is None else self.kept
            part = part * 0 + self.kept
        swapped = name == "value" and self.number == 0 and self.run.bug("values_in_other_order")
        local = name == "key" and self.number == 1 and self.run.bug("key_gradient_local")
        # bug: values_in_other_order, key_gradient_local, stale_keys
        return Whole.apply(part, swapped, local)

    def forward(self, x, mine, everywhere):
        b, t, _ = x.shape
        q, k, v = (
            layer(x).view(b, t, HEADS, -1).permute(0, 2, 1, 3)
            for layer in (self.query, self.key, self.value)
        )
        k, v = self.whole(k, "key"), self.whole(v, "value")
        if self.number == 1 and self.run.bug("mask_of_first_part", 3):
            mine = mine - mine[0]
        allowed = mine.unsqueeze(1) >= everywhere.unsqueeze(0)  # bug: mask_of_first_part
        score = torch.matmul(q, k.transpose(2, 3))  # bug: key_gradient_local
        score = score / (WIDTH // HEADS) ** 0.5
        score = torch.where(allowed, score, torch.finfo(score.dtype).min)
        y = torch.matmul(F.softmax(score, -1), v)  # bug: values_in_other_order
        return self.merge(y.permute(0, 2, 1, 3).flatten(2))


class Layer(nn.Module):
    def __init__(self, run, number):
        super().__init__()
        self.mix = Mix(run, number)
        self.norms = nn.ModuleList([nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)])
        self.feed = nn.Sequential(nn.Linear(WIDTH, 60), nn.GELU(), nn.Linear(60, WIDTH))

    def forward(self, x, mine, everywhere):
        x = x + self.mix(self.norms[0](x), mine, everywhere)
        return x + self.feed(self.norms[1](x))


class Decoder(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.emb, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.stack = nn.ModuleList([Layer(run, number) for number in range(2)])
        self.norm, self.out = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)
        self.run = run

    def forward(self, words, mine, everywhere):
        places = mine
        if self.run.bug("positions_from_zero", 1):
            places = mine - mine[0]
        x = self.emb(words) + self.place(places)  # bug: positions_from_zero
        for layer in self.stack:
            x = layer(x, mine, everywhere)
        return self.out(self.norm(x))


def train(run):
    torch.manual_seed(37)
    model = Decoder(run)
    everywhere = torch.cat([parts_of(run.layout, rank, run.ranks) for rank in range(run.ranks)])
    mine = parts_of(run.layout, run.rank, run.ranks)
    if run.variant == "momentum":
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    text = torch.Generator().manual_seed(10)
    losses = []
    for _ in range(run.steps):
        words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=text)
        inputs, labels = words[:, :-1][:, mine], words[:, 1:][:, mine]
        with run.step(model):
            logits = model(inputs, mine, everywhere)
            total = F.cross_entropy(logits.transpose(1, 2), labels, reduction="sum")
            count = labels.numel() if run.bug("loss_by_local_count") else BATCH * LENGTH
            loss = total / count  # bug: loss_by_local_count
            loss.backward()
            if run.ranks > 1 and not run.bug("gradients_not_added"):
                for parameter in model.parameters():
                    dist.all_reduce(parameter.grad)  # bug: gradients_not_added
            optimizer.step()  # bug: gradients_not_added
            optimizer.zero_grad()
        losses.append(average(loss.item()) * run.ranks)
    return losses, {name: each.detach().clone() for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
