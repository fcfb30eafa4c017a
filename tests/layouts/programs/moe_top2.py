"""Two experts for each token, on other ranks, and a loss that balances them."""

import torch
import torch.distributed as dist
from common import average, launch, objects
from torch import nn
from torch.nn import functional as F

LAYOUTS = {"one": 1, "ep2": 2, "ep4": 4}
VARIANTS = ("", "sgd")
BUGS = {
    "second_choice_weight": {"layout": "ep2", "near": ["moe", "gate", "topk", "mul"]},
    "expert_of_one_rank": {
        "layout": "ep4",
        "rank": 2,
        "near": ["experts", "moe", "bmm", "gelu", "Expert"],
    },
    "balance_of_local_tokens": {"layout": "ep2", "near": ["all_reduce", "mean", "balance", "moe"]},
    "returned_in_other_order": {"layout": "ep4", "near": ["all_to_all", "moe", "cat", "index"]},
    "gate_not_averaged": {"layout": "ep2", "near": ["all_reduce", "gate", "AdamW", "update"]},
}
EXPERTS, WIDTH, BATCH, LENGTH = 4, 12, 8, 4


class Trade(torch.autograd.Function):
    """[experts, ...] of each rank -> [experts here, ...] of all ranks; or back."""

    @staticmethod
    def forward(ctx, x, run, back):
        ctx.run, ctx.back = run, back
        return trade(x, run, back)

    @staticmethod
    def backward(ctx, g):
        return trade(g.contiguous(), ctx.run, not ctx.back), None, None


def trade(x, run, back):
    if run.ranks == 1:
        return x.clone()
    if not back:  # [E, c, w] -> [ranks, E/ranks, c, w] -> [E/ranks, ranks*c, w]
        x = x.view(run.ranks, EXPERTS // run.ranks, -1, WIDTH).contiguous()
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x)
        return out.transpose(0, 1).reshape(EXPERTS // run.ranks, -1, WIDTH)
    x = x.view(EXPERTS // run.ranks, run.ranks, -1, WIDTH).transpose(0, 1).contiguous()
    out = torch.empty_like(x)
    dist.all_to_all_single(out, x)
    if run.bug("returned_in_other_order"):
        out = out.flip(0)  # bug: returned_in_other_order
    return out.reshape(EXPERTS, -1, WIDTH)


class Moe(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        up, down = torch.randn(EXPERTS, WIDTH, 20) * 0.2, torch.randn(EXPERTS, 20, WIDTH) * 0.2
        here = EXPERTS // run.ranks
        at = slice(run.rank * here, (run.rank + 1) * here)
        self.up, self.down = nn.Parameter(up[at].clone()), nn.Parameter(down[at].clone())

    def forward(self, x):
        tokens = x.reshape(-1, WIDTH)
        chances = self.gate(tokens).softmax(-1)
        top, which = chances.topk(2, -1)
        top = top / top.sum(-1, keepdim=True)
        if self.run.bug("second_choice_weight"):
            top = top.flip(-1)  # bug: second_choice_weight
        capacity = len(tokens)  # of each expert on this rank: nobody is dropped
        space = tokens.new_zeros(EXPERTS, capacity, WIDTH)
        rows = torch.arange(len(tokens))
        for choice in (0, 1):
            space = space.index_put((which[:, choice], rows), tokens)
        mine = Trade.apply(space, self.run, False)
        h = F.gelu(torch.bmm(mine, self.up))
        if self.run.bug("expert_of_one_rank", 2):
            h = h * 1.5  # bug: expert_of_one_rank
        back = Trade.apply(torch.bmm(h, self.down), self.run, True)
        out = 0
        for choice in (0, 1):
            out = out + top[:, choice, None] * back[which[:, choice], rows]
        share = F.one_hot(which[:, 0], EXPERTS).to(x.dtype).mean(0)
        if self.run.ranks > 1 and not self.run.bug("balance_of_local_tokens"):
            dist.all_reduce(share)  # bug: balance_of_local_tokens
            share = share / self.run.ranks
        balance = EXPERTS * (share * chances.mean(0)).sum()
        return out.view_as(x), balance


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.embed = nn.Embedding(30, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.moe = Moe(run)
        self.head = nn.Linear(WIDTH, 30)

    def forward(self, tokens):
        x = self.embed(tokens)
        y, balance = self.moe(self.norm(x))
        return self.head(x + y), balance


def train(run):
    torch.manual_seed(47)
    net = Net(run)
    optimizer = (
        torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.8)
        if run.variant == "sgd"
        else torch.optim.AdamW(net.parameters(), lr=0.01)
    )
    generator = torch.Generator().manual_seed(6)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(0, 30, (BATCH, LENGTH + 1), generator=generator)
        mine = tokens.chunk(run.ranks)[run.rank]
        with run.step(net):
            scores, balance = net(mine[:, :-1])
            loss = F.cross_entropy(scores.flatten(0, 1), mine[:, 1:].flatten()) + 0.1 * balance
            loss.backward()
            if run.ranks > 1:
                for name, p in net.named_parameters():
                    if name in ("moe.up", "moe.down"):
                        p.grad /= run.ranks
                        continue
                    if run.bug("gate_not_averaged") and "gate" in name:
                        continue
                    dist.all_reduce(p.grad)  # bug: gate_not_averaged
                    p.grad /= run.ranks
            optimizer.step()  # bug: gate_not_averaged
            optimizer.zero_grad()
        losses.append(average(loss))
    weights = {
        n: p.detach().clone() for n, p in net.named_parameters() if n not in ("moe.up", "moe.down")
    }
    for name in ("up", "down"):
        weights[f"moe.{name}"] = torch.cat(objects(getattr(net.moe, name).detach().clone()), 0)
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
