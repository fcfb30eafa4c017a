"""A language model cut into stages that send and receive micro-batches; no library for it."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import launch
from torch import nn

LAYOUTS = {"one": 1, "pp2": 2, "pp4": 4}
VARIANTS = ("", "untied")
BUGS = {
    "loss_not_divided": {"layout": "pp2", "near": ["cross_entropy"]},
    "stale_activation": {"layout": "pp2", "rank": 0, "near": [r"decoder\.2\.att"]},
    "gradient_of_first": {"layout": "pp2", "near": [r"decoder\.1.*backward"]},
    "tied_gradient_not_added": {"layout": "pp2", "near": ["Adam", "(words|unembed).*grad"]},
    "labels_swapped": {"layout": "pp4", "rank": 3, "near": ["cross_entropy"]},
    "layer_of_other_seed": {
        "layout": "pp4",
        "rank": 2,
        "within": r"decoder\.2",
        "near": [r"decoder\.2\."],
    },
    "sent_scaled": {"layout": "pp4", "rank": 1, "near": [r"decoder\.2\.att"]},
}
DIM, WORDS, DEPTH, MICRO_BATCHES, MICRO_SIZE, TIME = 24, 40, 4, 2, 2, 10


class DecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.att = nn.MultiheadAttention(DIM, 3, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(DIM), nn.LayerNorm(DIM)
        self.lin1, self.lin2 = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, h):
        causal = torch.ones(TIME, TIME, dtype=torch.bool).triu(1)
        a, _ = self.att(h, h, h, attn_mask=causal, need_weights=False)
        h = self.n1(h + a)
        return self.n2(h + self.lin2(F.silu(self.lin1(h))))


class Unembed(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, h):
        return h @ self.weight.t()


class Stage(nn.Module):
    """The layers of one process; the first has the embedding, the last has its copy."""

    def __init__(self, run):
        super().__init__()
        torch.manual_seed(41)
        self.first, self.last = run.rank == 0, run.rank == run.ranks - 1
        words = nn.Embedding(WORDS, DIM)
        layers = [DecoderLayer() for _ in range(DEPTH)]
        copy = words.weight.detach().clone()
        if run.variant == "untied":
            copy = torch.randn(WORDS, DIM)
        each = DEPTH // run.ranks
        mine = range(run.rank * each, (run.rank + 1) * each)
        self.words = words if self.first else None
        self.decoder = nn.ModuleDict({str(i): layers[i] for i in mine})
        self.unembed = Unembed(copy) if self.last else None
        if self.first and self.last and run.variant != "untied":
            self.unembed.weight = self.words.weight
        if run.bug("layer_of_other_seed", 2):
            torch.manual_seed(42)
            self.decoder["2"] = DecoderLayer()

    def forward(self, h):
        if self.first:
            h = self.words(h)
        for layer in self.decoder.values():
            h = layer(h)  # bug: layer_of_other_seed
        return self.unembed(h) if self.last else h


def one_step(run, stage, tokens, labels):
    """All micro-batches forward, then all backward, as GPipe does. Returns the loss or None."""
    shape = (MICRO_SIZE, TIME, DIM)
    kept, total = [], 0.0
    for micro in range(MICRO_BATCHES):
        if stage.first:
            given = tokens[micro]
        else:
            given = torch.zeros(shape, dtype=torch.get_default_dtype())
            dist.recv(given, src=run.rank - 1)  # bug: stale_activation, sent_scaled
            given.requires_grad_()
        out = stage(given)
        if stage.last:
            wanted = labels[1 - micro if run.bug("labels_swapped") else micro]
            out = F.cross_entropy(out.flatten(0, 1), wanted.flatten())  # bug: labels_swapped
            if not run.bug("loss_not_divided"):
                out = out / MICRO_BATCHES  # bug: loss_not_divided
            total += out.item()
        else:
            message = kept[0][1] if kept and run.bug("stale_activation", 0) else out
            if run.bug("sent_scaled", 1):
                message = out * 1.1  # bug: sent_scaled
            dist.send(message.detach().contiguous(), dst=run.rank + 1)  # bug: stale_activation
        kept.append((given, out))
    for given, out in kept:
        if stage.last:
            out.backward()  # bug: loss_not_divided
        else:
            gradient = torch.zeros(shape, dtype=torch.get_default_dtype())
            dist.recv(gradient, src=run.rank + 1)  # bug: gradient_of_first
            out.backward(gradient)
        if not stage.first:
            source = kept[0][0] if run.bug("gradient_of_first") else given
            dist.send(source.grad, dst=run.rank - 1)  # bug: gradient_of_first
    return total


def add_tied_gradients(run, stage, group):
    if run.variant == "untied" or run.ranks == 1 or run.bug("tied_gradient_not_added"):
        return
    if stage.first:
        dist.all_reduce(stage.words.weight.grad, group=group)  # bug: tied_gradient_not_added
    elif stage.last:
        dist.all_reduce(stage.unembed.weight.grad, group=group)  # bug: tied_gradient_not_added


def train(run):
    stage = Stage(run)
    ends = dist.new_group([0, run.ranks - 1]) if run.ranks > 1 else None
    optimizer = torch.optim.Adam(stage.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(6)
    losses = []
    for _ in range(run.steps):
        text = torch.randint(WORDS, (MICRO_BATCHES, MICRO_SIZE, TIME + 1), generator=generator)
        with run.step(stage):
            loss = one_step(run, stage, text[..., :-1], text[..., 1:])
            add_tied_gradients(run, stage, ends)
            optimizer.step()  # bug: tied_gradient_not_added
            optimizer.zero_grad()
        losses.append(loss)
    weights = {name: each.detach().clone() for name, each in stage.named_parameters()}
    if run.variant != "untied" and run.ranks > 1:
        weights.pop("unembed.weight", None)
    return (losses if stage.last else []), weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
