"""Low-rank adapters of a frozen decoder under fully_shard: fewer rows than ranks."""

import torch
from common import average, launch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LAYOUTS = {"one": 1, "fsdp2": 2, "fsdp4": 4}
VARIANTS = ("", "checkpointed", "bf16")
BUGS = {
    "alpha_of_one_rank": {"layout": "fsdp2", "rank": 1, "near": ["layers.0.mix", "layers.0"]},
    "mask_of_one_rank": {
        "layout": "fsdp4",
        "rank": 3,
        "near": ["layers.0", "scaled_dot", "masked"],
    },
    "loss_summed": {"layout": "fsdp2", "near": ["cross_entropy", "nll", "sum"]},
    "data_of_rank_0": {"layout": "fsdp4", "near": ["embed", "embedding"]},
}
WORDS, WIDTH, HEADS, BATCH, LENGTH, RANK = 48, 16, 4, 8, 6, 2


class LoRA(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.base = nn.Linear(WIDTH, WIDTH)
        self.base.requires_grad_(False)
        self.down = nn.Linear(WIDTH, RANK, bias=False)
        self.up = nn.Linear(RANK, WIDTH, bias=False)
        self.first = False

    def forward(self, x):
        alpha = 2.0
        if self.first and self.run.bug("alpha_of_one_rank", 1):
            alpha = 2.5  # bug: alpha_of_one_rank
        return self.base(x) + alpha * self.up(self.down(x))


class Layer(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        self.norm = nn.RMSNorm(WIDTH)
        self.norm.requires_grad_(False)
        self.q, self.k, self.v = LoRA(run), nn.Linear(WIDTH, WIDTH), LoRA(run)
        self.k.requires_grad_(False)
        self.mix = LoRA(run)
        self.mix.first = layer == 0

    def forward(self, x):
        h = self.norm(x)
        b, n, _ = h.shape
        q, k, v = (
            each(h).view(b, n, HEADS, -1).transpose(1, 2) for each in (self.q, self.k, self.v)
        )
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        if self.layer == 0 and self.run.bug("mask_of_one_rank", 3):
            mask = mask.roll(1, 1)  # bug: mask_of_one_rank
            mask[0, 0] = True
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # bug: mask_of_one_rank
        return x + self.mix(y.transpose(1, 2).reshape(b, n, -1))


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.embed = nn.Embedding(WORDS, WIDTH)
        self.embed.requires_grad_(False)
        self.layers = nn.ModuleList(Layer(run, i) for i in range(3))
        self.head = nn.Linear(WIDTH, WORDS)
        self.checkpointed = run.variant == "checkpointed"

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.checkpointed else layer(x)
        return self.head(x)


def train(run):
    torch.manual_seed(31)
    net = Net(run)
    if run.variant == "bf16":
        net = net.to(run.dtype(torch.bfloat16))
    names = [n for n, _ in net.named_parameters()]
    if run.ranks > 1:
        for layer in net.layers:
            fully_shard(layer)
        fully_shard(net)
    optimizer = torch.optim.AdamW([p for p in net.parameters() if p.requires_grad], lr=0.01)
    generator = torch.Generator().manual_seed(9)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=generator)
        each = BATCH // run.ranks
        at = 0 if run.bug("data_of_rank_0") else run.rank * each
        mine = tokens[at : at + each]
        with run.step(net):
            scores = (
                net(mine[:, :-1]).float()
                if run.variant == "bf16" and not run.precise
                else net(mine[:, :-1])
            )  # bug: data_of_rank_0
            kind = "sum" if run.bug("loss_summed") else "mean"
            loss = F.cross_entropy(
                scores.flatten(0, 1), mine[:, 1:].flatten(), reduction=kind
            )  # bug: loss_summed
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        losses.append(average(loss))
    weights = {}
    for name, p in zip(names, net.parameters(), strict=True):
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        weights[name] = p.detach().clone()
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
