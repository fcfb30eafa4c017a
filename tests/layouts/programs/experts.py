"""A mixture of experts: each rank has its experts, and its part of the batch, and sends tokens.

Layout "ep2" sends each token to the rank of its expert (all_to_all); layout "masked2" gives all
tokens to all ranks, computes those of the own experts, and adds up what the ranks have.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import average, launch, objects
from torch import nn

LAYOUTS = {"one": 1, "ep2": 2, "masked2": 2, "masked4": 4}
BUGS = {
    "experts_of_other_rank": {
        "layout": "masked2",
        "within": r"mixture\.1",
        "near": [r"moe\.experts", r"mixture\.1"],
    },
    "mask_of_one_rank": {
        "layout": "masked4",
        "rank": 2,
        "within": r"mixture\.0",
        "near": [r"mixture\.0"],
    },
    "sum_missing": {"layout": "masked2", "within": r"mixture\.0", "near": [r"mixture\.0"]},
    "gate_gradient_not_added": {
        "layout": "masked2",
        "within": r"mixture\.1",
        "near": [r"mixture\.1 \(", r"scales\.1"],
    },
    "returned_in_other_order": {
        "layout": "ep2",
        "within": r"mixture\.1",
        "near": [r"mixture\.1 \("],
    },
    "stale_expert": {
        "layout": "ep2",
        "rank": 1,
        "near": [r"mixture\.0\.experts", "Adam", "update of the weights"],
    },
    "gate_gradient_local": {"layout": "ep2", "near": [r"mixture\.1\.gate", "Adam"]},
    "weight_of_gate_missing": {
        "layout": "masked4",
        "rank": 3,
        "within": r"mixture\.1",
        "near": [r"mixture\.1"],
    },
}
DIM, EXPERTS, WORDS, TIME, BATCH = 16, 4, 30, 6, 4


class Exchange(torch.autograd.Function):
    """Rows to other ranks; the gradients go back the same way."""

    @staticmethod
    def forward(ctx, rows, sent, received):
        ctx.sent, ctx.received = sent, received
        out = rows.new_empty(sum(received), rows.shape[1])
        dist.all_to_all_single(out, rows.contiguous(), received, sent)
        return out

    @staticmethod
    def backward(ctx, gradient):
        back = gradient.new_empty(sum(ctx.sent), gradient.shape[1])
        dist.all_to_all_single(back, gradient.contiguous(), ctx.sent, ctx.received)
        return back, None, None


class Spread(torch.autograd.Function):
    """The same on each rank; each rank's gradient is a part of the sum."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient


class Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.clone()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Expert(nn.Module):
    def __init__(self):
        super().__init__()
        self.rise, self.fall = nn.Linear(DIM, 2 * DIM), nn.Linear(2 * DIM, DIM)

    def forward(self, rows):
        return self.fall(F.relu(self.rise(rows)))


class Mixture(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)
        every = [Expert() for _ in range(EXPERTS)]
        each = EXPERTS // run.ranks
        self.mine = list(range(run.rank * each, (run.rank + 1) * each))
        taken = self.mine
        if layer == 1 and run.bug("experts_of_other_rank"):
            taken = [(i + each) % EXPERTS for i in self.mine]
        self.experts = nn.ModuleDict(
            {str(i): every[j] for i, j in zip(self.mine, taken, strict=True)}
        )

    def at(self, name, rank=None, layer=1):
        return self.layer == layer and self.run.bug(name, rank)

    def own(self, rows, chosen):
        """What the own experts make of the rows that chose them; zero elsewhere."""
        out = torch.zeros_like(rows)
        for i in self.mine:
            place = (chosen == i).nonzero().squeeze(1)
            if self.at("mask_of_one_rank", 2, layer=0):
                place = place[:-1]
            made = self.experts[str(i)](rows[place])  # bug: experts_of_other_rank, stale_expert
            out = out.index_add(0, place, made)  # bug: mask_of_one_rank
        return out

    def sent_around(self, rows, chosen):
        order = chosen.argsort(stable=True)
        per_rank = len(self.mine)
        sent = [int((chosen // per_rank == r).sum()) for r in range(self.run.ranks)]
        counts = objects(sent)
        received = [each[self.run.rank] for each in counts]
        chosen_there = torch.empty(sum(received), dtype=chosen.dtype)
        dist.all_to_all_single(chosen_there, chosen[order], received, sent)
        arrived = Exchange.apply(rows[order], sent, received)
        back = Exchange.apply(self.own(arrived, chosen_there), received, sent)
        if self.at("returned_in_other_order"):
            return back[order]  # bug: returned_in_other_order
        return torch.empty_like(back).index_copy(0, order, back)  # bug: returned_in_other_order

    def forward(self, x):
        rows = x.flatten(0, 1)
        probability, chosen = self.gate(rows).softmax(-1).max(-1)
        if self.run.layout == "ep2":
            out = self.sent_around(rows, chosen)
        elif self.run.ranks > 1:
            spread = rows if self.at("gate_gradient_not_added") else Spread.apply(rows)
            out = self.own(spread, chosen)  # bug: gate_gradient_not_added
            if not self.at("sum_missing", layer=0):
                out = Sum.apply(out)  # bug: sum_missing
        else:
            out = self.own(rows, chosen)
        if self.at("weight_of_gate_missing", 3):
            probability = torch.ones_like(probability)
        out = out * probability.unsqueeze(1)  # bug: weight_of_gate_missing, sum_missing
        return out.view_as(x)


class Model(nn.Module):
    def __init__(self, run):
        super().__init__()
        torch.manual_seed(66)
        self.lookup = nn.Embedding(WORDS, DIM)
        self.mixer = nn.Linear(TIME, TIME)
        self.mixture = nn.ModuleList([Mixture(run, 0), Mixture(run, 1)])
        self.scales = nn.ModuleList([nn.LayerNorm(DIM), nn.LayerNorm(DIM)])
        self.readout = nn.Linear(DIM, WORDS)

    def forward(self, words):
        h = self.lookup(words)
        h = h + self.mixer(h.transpose(1, 2)).transpose(1, 2)
        for scale, mixture in zip(self.scales, self.mixture, strict=True):
            h = h + mixture(scale(h))
        return self.readout(h)


def average_gradients(run, model):
    """Ranks that had a part of the batch each; an expert got the tokens of all of them."""
    if run.layout != "ep2":
        return
    for name, parameter in model.named_parameters():
        if "experts" not in name:
            if not ("mixture.1.gate" in name and run.bug("gate_gradient_local")):
                dist.all_reduce(parameter.grad)  # bug: gate_gradient_local
            parameter.grad /= run.ranks
        elif parameter.grad is not None:
            parameter.grad /= run.ranks


def train(run):
    model = Model(run)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    draw = torch.Generator().manual_seed(12)
    losses = []
    for _ in range(run.steps):
        words = torch.randint(WORDS, (BATCH, TIME + 1), generator=draw)
        if run.layout == "ep2":
            words = words.chunk(run.ranks)[run.rank]
        experts = model.mixture[0].experts
        kept = [each.detach().clone() for each in experts.parameters()]
        with run.step(model):
            logits = model(words[:, 1:])
            loss = F.cross_entropy(logits.flatten(0, 1), words[:, :-1].flatten())
            optimizer.zero_grad()
            loss.backward()
            average_gradients(run, model)
            optimizer.step()  # bug: stale_expert, gate_gradient_local
        if run.bug("stale_expert", 1):
            for parameter, old in zip(experts.parameters(), kept, strict=True):
                parameter.data.copy_(old)
        losses.append(average(loss.item()))
    return losses, {name: each.detach().clone() for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
