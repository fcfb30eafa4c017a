"""A small Llama (RMSNorm, rotary places, grouped heads) that fully_shard shards over the ranks."""

import torch
from common import average, launch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F

LAYOUTS = {"one": 1, "fsdp2": 2, "fsdp4": 4}
VARIANTS = ("", "clipped", "bf16")
BUGS = {
    "same_rows": {"layout": "fsdp2", "rank": 1, "near": ["embed_tokens"]},
    "mlp_scaled": {
        "layout": "fsdp4",
        "rank": 2,
        "within": r"layers\.1",
        "near": [r"layers\.1\.mlp"],
    },
    "norm_ignored": {"layout": "fsdp2", "near": [r"Module\.norm\.", r"^norm \(", "AdamW"]},
    "rotary_from_one": {
        "layout": "fsdp2",
        "rank": 1,
        "within": r"layers\.0",
        "near": [r"layers\.0\.self_attn"],
    },
    "norm_of_shards": {
        "layout": "fsdp2",
        "variant": "clipped",
        "near": [r"vector_norm|clip|mul_|Tensor\.norm|Tensor\.pow|sqrt", "AdamW"],
    },
    "stale_shard": {
        "layout": "fsdp2",
        "rank": 1,
        "near": [r"layers\.1\.mlp\.up_proj", "AdamW", "update of the weights"],
    },
}
HIDDEN, Q_HEADS, KV_HEADS, HEAD, VOCAB, LENGTH = 32, 4, 2, 8, 50, 9


class LlamaRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(HIDDEN))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def rotated(x, first=0):
    """Each pair of numbers of a head turned by an angle that grows with the place."""
    places = torch.arange(first, first + x.shape[-2], dtype=x.dtype)
    speed = 10000.0 ** (-torch.arange(0, HEAD, 2, dtype=x.dtype) / HEAD)
    angle = torch.cat([torch.outer(places, speed)] * 2, -1)
    left, right = x.chunk(2, -1)
    return x * angle.cos() + torch.cat([-right, left], -1) * angle.sin()


class LlamaAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = nn.Linear(HIDDEN, Q_HEADS * HEAD, bias=False)
        self.k_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.v_proj = nn.Linear(HIDDEN, KV_HEADS * HEAD, bias=False)
        self.o_proj = nn.Linear(Q_HEADS * HEAD, HIDDEN, bias=False)
        self.first_place = 0

    def forward(self, x):
        q = self.q_proj(x).unflatten(-1, (Q_HEADS, HEAD)).transpose(1, 2)
        k = self.k_proj(x).unflatten(-1, (KV_HEADS, HEAD)).transpose(1, 2)
        v = self.v_proj(x).unflatten(-1, (KV_HEADS, HEAD)).transpose(1, 2)
        q, k = rotated(q, self.first_place), rotated(k)  # bug: rotary_from_one
        k, v = (each.repeat_interleave(Q_HEADS // KV_HEADS, 1) for each in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(x.shape))


class LlamaMLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj = nn.Linear(HIDDEN, 48, bias=False)
        self.up_proj = nn.Linear(HIDDEN, 48, bias=False)
        self.down_proj = nn.Linear(48, HIDDEN, bias=False)
        self.wrong_factor = 1.0

    def forward(self, x):
        gated = F.silu(self.gate_proj(x)) * self.up_proj(x)
        if self.wrong_factor != 1.0:
            gated = gated * self.wrong_factor  # bug: mlp_scaled
        return self.down_proj(gated)


class LlamaDecoderLayer(nn.Module):
    def __init__(self):
        super().__init__()
        self.self_attn, self.mlp = LlamaAttention(), LlamaMLP()
        self.input_layernorm, self.post_attention_layernorm = LlamaRMSNorm(), LlamaRMSNorm()

    def forward(self, x):
        x = x + self.self_attn(self.input_layernorm(x))
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaForCausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(LlamaDecoderLayer() for _ in range(2))
        self.norm = LlamaRMSNorm()
        self.lm_head = nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, ids):
        x = self.embed_tokens(ids)
        for layer in self.layers:
            x = layer(x)
        return self.lm_head(self.norm(x))


def shard(run, model):
    mesh = init_device_mesh("cpu", (run.ranks,))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    ignored = {model.norm.weight} if run.bug("norm_ignored") else set()
    fully_shard(model, mesh=mesh, ignored_params=ignored)


def clip(run, model, limit=0.3):
    if run.bug("norm_of_shards"):
        shards = [each.grad.to_local() for each in model.parameters()]
        norm = torch.nn.utils.get_total_norm(shards)  # bug: norm_of_shards
        for each in shards:
            each.mul_((limit / (norm + 1e-6)).clamp(max=1.0))  # bug: norm_of_shards
    else:
        nn.utils.clip_grad_norm_(model.parameters(), limit)


def full(weight):
    return weight.full_tensor() if isinstance(weight, DTensor) else weight.clone()


def train(run):
    torch.manual_seed(31)
    low = torch.bfloat16 if run.variant == "bf16" else torch.float32
    model = LlamaForCausalLM().to(run.dtype(low))
    if run.ranks > 1:
        shard(run, model)
    if run.bug("mlp_scaled", 2):
        model.layers[1].mlp.wrong_factor = 1.1
    if run.bug("rotary_from_one", 1):
        model.layers[0].self_attn.first_place = 1
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.01)
    data = torch.Generator().manual_seed(64)
    losses = []
    for _ in range(run.steps):
        ids = torch.randint(VOCAB, (4, LENGTH + 1), generator=data)
        part = 0 if run.bug("same_rows", 1) else run.rank
        ids = ids.chunk(run.ranks)[part]
        kept = model.layers[1].mlp.up_proj.weight
        kept = kept.to_local().detach().clone() if run.ranks > 1 else None
        with run.step(model):
            logits = model(ids[:, :-1])  # bug: same_rows
            logits = logits.to(run.dtype(torch.float32))
            loss = F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            if run.variant == "clipped":
                clip(run, model)
            optimizer.step()  # bug: stale_shard, norm_ignored
            optimizer.zero_grad(set_to_none=False)
        if run.bug("stale_shard", 1):
            model.layers[1].mlp.up_proj.weight.data.to_local().copy_(kept)
        losses.append(average(loss.item()))
    named = model.named_parameters()
    weights = {name: each.detach() for name, each in named}
    if run.ranks > 1:
        weights = {name: full(each) for name, each in weights.items()}
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
