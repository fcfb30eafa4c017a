"""A mixture of experts under autocast: grouped queries, a window, capacity, z-loss, Lion."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import einsum
from torch.nn import Linear

VOCAB, DIM, HEADS, KV_HEADS, HEAD_DIM, LAYERS, BATCH, LENGTH = 43, 24, 4, 2, 8, 2, 4, 12
EXPERTS, TOP_K, HIDDEN, CAPACITY_FACTOR, WINDOW, THETA = 4, 2, 16, 1.0, 5, 1000.0
BALANCE_COEF, Z_COEF = 0.05, 0.02


def precision():
    """Autocast; none where float64 is the default, which checks what is harmless."""
    return torch.autocast("cpu", torch.bfloat16, torch.get_default_dtype() == torch.float32)


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x * self.weight


def rope_cache():
    freqs = 1.0 / (THETA ** (torch.arange(0, HEAD_DIM, 2) / HEAD_DIM))
    angles = torch.outer(torch.arange(LENGTH).to(freqs.dtype), freqs)
    return angles.cos(), angles.sin()


def apply_rope(x, cos, sin):
    """x: (batch, heads, length, head_dim); pairs are the halves."""
    x1, x2 = x.float().chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


def window_mask(length):
    """What a token sees: itself and the WINDOW - 1 before it."""
    i = torch.arange(length)
    ago = i[:, None] - i[None, :]
    return (ago >= 0) & (ago < WINDOW)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.wq = Linear(DIM, HEADS * HEAD_DIM, bias=False)
        self.wk = Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.wv = Linear(DIM, KV_HEADS * HEAD_DIM, bias=False)
        self.wo = Linear(HEADS * HEAD_DIM, DIM, bias=False)

    def attend(self, q, k, v, mask):
        b, _, s, d = q.shape
        q = q.view(b, KV_HEADS, HEADS // KV_HEADS, s, d)
        scores = einsum("bgrqd,bgkd->bgrqk", q, k) * d**-0.5
        scores = scores.float().masked_fill(~mask, float("-inf"))
        out = einsum("bgrqk,bgkd->bgrqd", scores.softmax(dim=-1), v)
        return out.reshape(b, HEADS, s, d)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        q = self.wq(x).view(b, s, HEADS, HEAD_DIM).transpose(1, 2)
        k = self.wk(x).view(b, s, KV_HEADS, HEAD_DIM).transpose(1, 2)
        v = self.wv(x).view(b, s, KV_HEADS, HEAD_DIM).transpose(1, 2)
        q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)
        out = self.attend(q, k, v, window_mask(s))
        return self.wo(out.transpose(1, 2).reshape(b, s, -1))


class Router(nn.Module):
    """In float32, also under autocast."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(EXPERTS, DIM))

    def logits(self, x):
        with torch.autocast("cpu", enabled=False):
            return F.linear(x.float(), self.weight)

    def forward(self, x):
        logits = self.logits(x)
        probs = logits.softmax(dim=-1)
        gates, index = probs.topk(TOP_K, dim=-1)
        return logits, probs, gates / gates.sum(dim=-1, keepdim=True), index


def slots(index, capacity):
    """The place of each choice in its expert's buffer: first choices go first, late ones drop."""
    b, s, k = index.shape
    hot = F.one_hot(index, EXPERTS)
    queue = hot.transpose(1, 2).reshape(b, k * s, EXPERTS)
    place = ((queue.cumsum(dim=1) - 1) * queue).sum(-1)
    place = place.view(b, k, s).transpose(1, 2)
    return hot, place, place < capacity


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(EXPERTS, DIM, HIDDEN))
        self.w3 = nn.Parameter(torch.empty(EXPERTS, DIM, HIDDEN))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, DIM))

    def forward(self, x):  # (expert, batch, slot, dim)
        gate = einsum("ebcd,edh->ebch", x, self.w1)
        up = einsum("ebcd,edh->ebch", x, self.w3)
        return einsum("ebch,ehd->ebcd", F.silu(gate) * up, self.w2)


def load_balance(probs, hot, keep):
    """The share of the choices times the mean probability, dropped or not, of each sequence."""
    share = hot.sum(dim=2).to(probs.dtype).mean(dim=1) / TOP_K
    return EXPERTS * (share * probs.mean(dim=1)).sum(dim=-1).mean()


def router_z(logits):
    return torch.logsumexp(logits, dim=-1).square().mean()


class MoE(nn.Module):
    """Each sequence is a group with a capacity of its own."""

    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = Experts()

    def combine_weights(self, gates, keep):
        return gates * keep

    def mix(self, x, weights, hot, place, keep, capacity):
        slot = F.one_hot(place.clamp(max=capacity - 1), capacity)
        table = (hot.unsqueeze(-1) * slot.unsqueeze(-2)) * keep[..., None, None]
        table = table.to(weights.dtype)  # (batch, token, choice, expert, slot)
        combine = (weights[..., None, None] * table).sum(dim=2)
        buffers = einsum("bsec,bsd->ebcd", table.sum(dim=2), x)
        return einsum("bsec,ebcd->bsd", combine, self.experts(buffers))

    def forward(self, x):
        capacity = int(CAPACITY_FACTOR * TOP_K * x.shape[1] / EXPERTS)
        logits, probs, gates, index = self.router(x)
        hot, place, keep = slots(index, capacity)
        self.aux = BALANCE_COEF * load_balance(probs, hot, keep) + Z_COEF * router_z(logits)
        return self.mix(x, self.combine_weights(gates, keep), hot, place, keep, capacity)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attn_norm, self.attn = RMSNorm(DIM), Attention()
        self.moe_norm, self.moe = RMSNorm(DIM), MoE()

    def forward(self, x, cos, sin):
        x = x + self.attn(self.attn_norm(x), cos, sin)
        x = x + self.moe(self.moe_norm(x))
        return x, self.moe.aux


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = RMSNorm(DIM)
        self.head = Linear(DIM, VOCAB, bias=False)
        cos, sin = rope_cache()
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens):
        x, aux = self.embed(tokens), 0.0
        cos, sin = self.cos[: tokens.size(1)], self.sin[: tokens.size(1)]
        for block in self.blocks:
            x, extra = block(x, cos, sin)
            aux = aux + extra
        return self.head(self.norm(x)), aux


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    def direction(self, grad, exp_avg, beta1, beta2):
        """The sign of a mixture with the momentum, which follows afterwards."""
        update = (exp_avg * beta1 + grad * (1 - beta1)).sign_()
        exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)
        return update

    def update(self, group, params):
        for p in params:
            state = self.state[p]
            if not state:
                state["exp_avg"] = torch.zeros_like(p)
            p.mul_(1 - group["lr"] * group["weight_decay"])
            p.add_(self.direction(p.grad, state["exp_avg"], *group["betas"]), alpha=-group["lr"])

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            self.update(group, [p for p in group["params"] if p.grad is not None])


def loss_of(model, tokens):
    with precision():
        logits, aux = model(tokens[:, :-1])
    logits = logits.float().flatten(0, 1)
    return F.cross_entropy(logits, tokens[:, 1:].flatten()), aux


def backward(model, tokens, share):
    loss, aux = loss_of(model, tokens)
    ((loss + aux) * share).backward()


def build():
    model = Transformer()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.25)
    return model


def optimizer(model):
    decay = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    groups = [{"params": decay, "weight_decay": 0.1}, {"params": others}]
    return Lion(groups, lr=1e-3)


def batch(generator):
    """Texts in which a few words are frequent."""
    size = (BATCH, LENGTH + 1)
    rare = torch.randint(VOCAB, size, generator=generator)
    return torch.where(torch.rand(size, generator=generator) < 0.4, rare % 5, rare)


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    backward(model, batch, 1.0)
    optimizer.step()
