"""A Llama under tensor parallelism by hand; on four ranks two of them share a key head.

Keys and values have two heads and queries four. The logits are gathered, so that the loss is
computed whole on each rank.
"""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import launch, objects
from torch import nn

LAYOUTS = {"one": 1, "tp2": 2, "tp4": 4}
VARIANTS = ("", "deep", "bf16")
PAIRS = [("tp4", "tp2")]
BUGS = {
    "key_heads_swapped": {"layout": "tp2", "within": r"layers\.1", "near": [r"layers\.1\.attn"]},
    "gate_of_other_rank": {
        "layout": "tp2",
        "rank": 1,
        "within": r"layers\.0",
        "near": [r"layers\.0\.ffn"],
    },
    "logits_in_other_order": {"layout": "tp2", "near": ["lm_head", "cross_entropy"]},
    "shared_key_gradient_local": {"layout": "tp4", "near": ["SGD"]},
    "input_gradient_local": {
        "layout": "tp2",
        "within": r"layers\.1",
        "near": [r"layers\.1\.ffn \(", r"layers\.1\.ffn_norm"],
    },
    "value_scaled": {
        "layout": "tp4",
        "rank": 1,
        "within": r"layers\.0",
        "near": [r"layers\.0\.attn"],
    },
    "places_of_one_rank": {
        "layout": "tp2",
        "rank": 0,
        "within": r"layers\.1",
        "near": [r"layers\.1\.attn"],
    },
    "down_reduced_over_one_pair": {
        "layout": "tp4",
        "within": r"layers\.0",
        "near": [r"layers\.0\.ffn"],
    },
    "output_twice": {
        "layout": "tp2",
        "variant": "bf16",
        "within": r"layers\.1",
        "near": [r"layers\.1\.attn"],
    },
    "norm_of_other_seed": {
        "layout": "tp2",
        "variant": "deep",
        "rank": 1,
        "within": r"layers\.3",
        "near": [r"layers\.3\."],
    },
}
DIM, HEAD, Q_HEADS, KV_HEADS, FFN, WORDS, LENGTH = 32, 8, 4, 2, 48, 44, 10


class Enter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, summed):
        ctx.summed = summed
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        if ctx.summed:
            grad = grad.clone()
            dist.all_reduce(grad)
        return grad, None


class Leave(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group, times):
        for _ in range(times):
            dist.all_reduce(x, group=group)  # bug: down_reduced_over_one_pair, output_twice
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad, None, None


class GatherLast(torch.autograd.Function):
    """The columns of all ranks; each rank's loss is the whole loss, so its own part goes back."""

    @staticmethod
    def forward(ctx, x, backwards):
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())  # bug: logits_in_other_order
        parts = parts[::-1] if backwards else parts
        return torch.cat(parts, -1)  # bug: logits_in_other_order

    @staticmethod
    def backward(ctx, grad):
        return grad.chunk(dist.get_world_size(), -1)[dist.get_rank()].contiguous(), None


def rows(full, run, ranks=None):
    """A rank's rows of a weight; with fewer parts than ranks some ranks have the same part."""
    ranks = ranks or run.ranks
    return nn.Parameter(full.chunk(ranks)[run.rank * ranks // run.ranks].clone())


def columns(full, run):
    return nn.Parameter(full.chunk(run.ranks, 1)[run.rank].clone())


def matrix(outputs, inputs):
    return torch.randn(outputs, inputs) * inputs**-0.5


class RMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(1 + 0.1 * torch.randn(DIM))

    def forward(self, x):
        return F.rms_norm(x, (DIM,), eps=1e-5) * self.scale


def turn(x, places):
    """Rotary places: even and odd numbers are the parts of complex numbers."""
    frequency = 100.0 ** -(torch.arange(0, HEAD, 2) / HEAD)
    angle = (places.unsqueeze(1) * frequency).to(x.dtype)
    even, odd = x[..., 0::2], x[..., 1::2]
    cos, sin = angle.cos(), angle.sin()
    return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class Attn(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        kv = min(run.ranks, KV_HEADS)
        self.heads, self.kv_heads = Q_HEADS // run.ranks, KV_HEADS // kv
        self.wq = rows(matrix(Q_HEADS * HEAD, DIM), run)
        key = matrix(KV_HEADS * HEAD, DIM)
        if self.bug("key_heads_swapped", 1):
            key = torch.cat(key.chunk(2)[::-1])
        self.wk, self.wv = rows(key, run, kv), rows(matrix(KV_HEADS * HEAD, DIM), run, kv)
        self.wo = columns(matrix(DIM, Q_HEADS * HEAD), run)

    def bug(self, name, layer, rank=None):
        return self.layer == layer and self.run.bug(name, rank)

    def forward(self, x):
        if self.run.ranks > 1:
            x = Enter.apply(x, True)
        q = F.linear(x, self.wq).unflatten(-1, (self.heads, HEAD)).transpose(1, 2)
        k = F.linear(x, self.wk)  # bug: key_heads_swapped
        k = k.unflatten(-1, (self.kv_heads, HEAD)).transpose(1, 2)
        v = F.linear(x, self.wv).unflatten(-1, (self.kv_heads, HEAD)).transpose(1, 2)
        if self.bug("value_scaled", 0, 1):
            v = v * 1.1  # bug: value_scaled
        places = torch.arange(LENGTH)
        k = turn(k, places)
        if self.bug("places_of_one_rank", 1, 0):
            places = places + 1
        q = turn(q, places)  # bug: places_of_one_rank
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        y = F.linear(y.transpose(1, 2).flatten(2), self.wo)
        if self.run.ranks > 1:
            y = Leave.apply(y, None, 2 if self.bug("output_twice", 1) else 1)  # bug: output_twice
        return y


class SwiGlu(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.run, self.layer = run, layer
        gate = matrix(FFN, DIM)
        self.gate = rows(gate, run)
        if layer == 0 and run.bug("gate_of_other_rank", 1):
            self.gate = nn.Parameter(gate.chunk(2)[0].clone())
        self.up, self.down = rows(matrix(FFN, DIM), run), columns(matrix(DIM, FFN), run)
        self.group = None

    def forward(self, x):
        if self.run.ranks > 1:
            summed = not (self.layer == 1 and self.run.bug("input_gradient_local"))
            x = Enter.apply(x, summed)  # bug: input_gradient_local
        y = F.silu(x @ self.gate.T) * (x @ self.up.T)  # bug: gate_of_other_rank
        y = y @ self.down.T
        if self.run.ranks > 1:
            y = Leave.apply(y, self.group, 1)  # bug: down_reduced_over_one_pair
        return y


class Layer(nn.Module):
    def __init__(self, run, layer):
        super().__init__()
        self.attn_norm, self.attn = RMSNorm(), Attn(run, layer)
        self.ffn_norm, self.ffn = RMSNorm(), SwiGlu(run, layer)

    def forward(self, x):
        x = x + self.attn(self.attn_norm(x))
        return x + self.ffn(self.ffn_norm(x))  # bug: norm_of_other_seed


class LmHead(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run, self.weight = run, rows(matrix(WORDS, DIM), run)

    def forward(self, x):
        if self.run.ranks == 1:
            return F.linear(x, self.weight)
        logits = F.linear(Enter.apply(x, True), self.weight)
        return GatherLast.apply(logits, self.run.bug("logits_in_other_order"))


class Llama(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.embed = nn.Embedding(WORDS, DIM)
        count = 4 if run.variant == "deep" else 2
        self.layers = nn.ModuleList(Layer(run, layer) for layer in range(count))
        self.final = RMSNorm()
        self.lm_head = LmHead(run)

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.final(x))


def pair_of(run):
    """The ranks that have the same key head."""
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return groups[run.rank // 2]


def whole_weight(run, name, parameter):
    parts = objects(parameter.detach().clone())
    if name.endswith(("wk", "wv")):
        parts = parts[:: max(run.ranks // KV_HEADS, 1)]
    if name.endswith(("wq", "wk", "wv", "gate", "up", "lm_head.weight")):
        return torch.cat(parts)
    return torch.cat(parts, 1) if name.endswith(("wo", "down")) else parts[run.rank]


def train(run):
    torch.manual_seed(53)
    low = torch.bfloat16 if run.variant == "bf16" else torch.float32
    model = Llama(run).to(run.dtype(low))
    pair = pair_of(run) if run.ranks == 4 else None
    if run.bug("down_reduced_over_one_pair"):
        model.layers[0].ffn.group = pair
    if run.bug("norm_of_other_seed", 1):
        model.layers[3].ffn_norm.scale.data.add_(0.05 * torch.randn(DIM))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    words = torch.Generator().manual_seed(34)
    losses = []
    for _ in range(run.steps):
        text = torch.randint(WORDS, (3, LENGTH + 1), generator=words)
        with run.step(model):
            logits = model(text[:, :-1]).to(run.dtype(torch.float32))
            loss = F.cross_entropy(logits.reshape(-1, WORDS), text[:, 1:].reshape(-1))
            loss.backward()
            if pair is not None and not run.bug("shared_key_gradient_local"):
                attns = [layer.attn for layer in model.layers]
                for shared in [each for attn in attns for each in (attn.wk, attn.wv)]:
                    dist.all_reduce(shared.grad, group=pair)  # bug: shared_key_gradient_local
            optimizer.step()  # bug: shared_key_gradient_local
            optimizer.zero_grad()
        losses.append(loss.item())
    named = model.named_parameters()
    return losses, {name: whole_weight(run, name, each) for name, each in named}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
