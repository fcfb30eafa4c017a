"""An encoder under fully_shard on a mesh of replicas and shards, with clipped gradients."""

import torch
from common import average, launch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

LAYOUTS = {"one": 1, "hsdp4": 4, "fsdp3": 3}
VARIANTS = ("", "reshard")
BUGS = {
    "decay_of_norms": {"layout": "hsdp4", "near": ["AdamW", "update"]},
    "mean_over_local_tokens": {
        "layout": "fsdp3",
        "rank": 1,
        "near": ["mean", "sum", "div", "head", "__truediv__"],
    },
    "padding_attended": {"layout": "hsdp4", "near": ["layers.0", "masked", "softmax", "attention"]},
    "dropout_left_on": {"layout": "fsdp3", "near": ["dropout"]},
}
WORDS, WIDTH, HEADS, BATCH, LENGTH, LAYERS = 40, 24, 3, 12, 6, 2


class Layer(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.qkv, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 40), nn.Linear(40, WIDTH)
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def forward(self, x, padding):
        b, n, _ = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, n, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        scores = q @ k.mT / 8**0.5
        if not self.run.bug("padding_attended"):
            scores = scores.masked_fill(
                padding[:, None, None], float("-inf")
            )  # bug: padding_attended
        y = scores.softmax(-1) @ v
        x = x + self.mix(y.transpose(1, 2).reshape(b, n, -1))
        h = F.gelu(self.up(self.norm2(x)), approximate="tanh")
        h = F.dropout(h, 0.3, self.run.bug("dropout_left_on"))  # bug: dropout_left_on
        return x + self.down(h)


class Net(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.embed = nn.Embedding(WORDS, WIDTH, padding_idx=0)
        self.layers = nn.ModuleList(Layer(run) for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3)

    def forward(self, tokens):
        padding = tokens == 0
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, padding)
        x = self.norm(x).masked_fill(padding.unsqueeze(-1), 0.0)
        count = (~padding).sum(1, keepdim=True)
        if self.run.bug("mean_over_local_tokens", 1):
            count = count * 0 + LENGTH  # bug: mean_over_local_tokens
        return self.head(x.sum(1) / count)


def train(run):
    torch.manual_seed(29)
    net = Net(run)
    names = [n for n, _ in net.named_parameters()]
    if run.ranks > 1:
        shape, dims = (
            ((2, 2), ("replicate", "shard"))
            if run.layout == "hsdp4"
            else ((run.ranks,), ("shard",))
        )
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=dims)
        again = {"reshard_after_forward": run.variant == "reshard"}
        for layer in net.layers:
            fully_shard(layer, mesh=mesh, **again)
        fully_shard(net, mesh=mesh, **again)
    norms = [
        p for n, p in zip(names, net.parameters(), strict=True) if "norm" in n or n.endswith("bias")
    ]
    other = [
        p
        for n, p in zip(names, net.parameters(), strict=True)
        if not ("norm" in n or n.endswith("bias"))
    ]
    decay = 0.3 if run.bug("decay_of_norms") else 0.0
    groups = [{"params": norms, "weight_decay": decay}, {"params": other, "weight_decay": 0.3}]
    optimizer = torch.optim.AdamW(groups, lr=0.01)  # bug: decay_of_norms
    generator = torch.Generator().manual_seed(13)
    losses = []
    for _ in range(run.steps):
        tokens = torch.randint(1, WORDS, (BATCH, LENGTH), generator=generator)
        ends = torch.randint(2, LENGTH + 1, (BATCH, 1), generator=generator)
        tokens = tokens.masked_fill(torch.arange(LENGTH) >= ends, 0)
        labels = torch.randint(0, 3, (BATCH,), generator=generator)
        tokens, labels = tokens.chunk(run.ranks)[run.rank], labels.chunk(run.ranks)[run.rank]
        with run.step(net):
            loss = F.cross_entropy(net(tokens), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.5)
            optimizer.step()  # bug: decay_of_norms
            optimizer.zero_grad()
        losses.append(average(loss))
    weights = {}
    for name, p in zip(names, net.parameters(), strict=True):
        p = p.full_tensor() if hasattr(p, "full_tensor") else p
        weights[name] = p.detach().clone()
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
