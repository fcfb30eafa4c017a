"""Cases of the mixture of experts under autocast."""

import contextlib

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

FIRST = r"blocks\.0\.moe"


@fault(
    "moelm",
    settings={"float32": True},
    api=r"Functional\.linear",
    module=rf"{FIRST}\.router",
    line="return F.linear(x.float(), self.weight)",
)
def router_under_autocast(moelm):
    """The router's logits are computed in bfloat16: autocast is not switched off."""

    class Router(moelm.Router):
        def logits(self, x):
            return F.linear(x, self.weight)  # here

    moelm.Router = Router


@fault("moelm", line="share = hot.sum(dim=2).to(probs.dtype).mean(dim=1) / TOP_K")
def balance_of_what_is_kept(moelm):
    """The load counts what the capacity kept: the more is dropped, the more even it looks."""

    def load_balance(probs, hot, keep):
        kept = (hot * keep.unsqueeze(-1)).sum(dim=2)  # here
        share = kept.to(probs.dtype).mean(dim=1) / moelm.TOP_K  # here
        return moelm.EXPERTS * (share * probs.mean(dim=1)).sum(dim=-1).mean()

    moelm.load_balance = load_balance


@fault("moelm", line="place = ((queue.cumsum(dim=1) - 1) * queue).sum(-1)")
def slots_counted_from_one(moelm):
    """The places in a buffer begin with one: the first is never used, one more choice drops."""

    def slots(index, capacity):
        b, s, k = index.shape
        hot = F.one_hot(index, moelm.EXPERTS)
        queue = hot.transpose(1, 2).reshape(b, k * s, moelm.EXPERTS)
        place = (queue.cumsum(dim=1) * queue).sum(-1)  # here
        place = place.view(b, k, s).transpose(1, 2)
        return hot, place, place < capacity

    moelm.slots = slots


@fault("moelm", line="return torch.logsumexp(logits, dim=-1).square().mean()")
def squared_after_the_mean(moelm):
    """The z-loss is the square of the mean, not the mean of squares."""
    moelm.router_z = lambda logits: torch.logsumexp(logits, dim=-1).mean().square()  # here


@fault(
    "moelm",
    line=[
        "return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)",
        "q, k = apply_rope(q, cos, sin), apply_rope(k, cos, sin)",
    ],
)
def rotated_backwards(moelm):
    """Queries and keys are turned the other way: later tokens look like earlier ones."""

    def apply_rope(x, cos, sin):
        x1, x2 = x.float().chunk(2, dim=-1)
        return torch.cat([x1 * cos + x2 * sin, x2 * cos - x1 * sin], dim=-1)  # here

    moelm.apply_rope = apply_rope


@fault(
    "moelm",
    api=r"Optimizer\.Lion\.step",
    update=True,
    steps=3,
    line=[
        "update = (exp_avg * beta1 + grad * (1 - beta1)).sign_()",
        "exp_avg.mul_(beta2).add_(grad, alpha=1 - beta2)",
        'p.add_(self.direction(p.grad, state["exp_avg"], *group["betas"]), alpha=-group["lr"])',
    ],
)
def betas_exchanged(moelm):
    """Each beta stands for the other. The first step has the same signs, but another momentum."""

    class Lion(moelm.Lion):
        def direction(self, grad, exp_avg, beta1, beta2):
            update = (exp_avg * beta2 + grad * (1 - beta2)).sign_()  # here
            exp_avg.mul_(beta1).add_(grad, alpha=1 - beta1)  # here
            return update

    moelm.Lion = Lion


@fault(
    "moelm",
    # Forward, nothing is wrong. Backward, the last layer's router lacks the part of the gates.
    api=r"Tensor\.(__r?mul__|mul|__r?(true)?div__|div)",
    module=r"blocks\.1\.moe(\.router)?",
    line=[
        "return gates * keep",
        "combine = (weights[..., None, None] * table).sum(dim=2)",
        'return einsum("bsec,ebcd->bsd", combine, self.experts(buffers))',
        "return logits, probs, gates / gates.sum(dim=-1, keepdim=True), index",
        "probs = logits.softmax(dim=-1)",
        "return self.mix(x, self.combine_weights(gates, keep), hot, place, keep, capacity)",
    ],
)
def gates_without_gradient(moelm):
    """The weights of the experts are detached: the router learns from its own losses alone."""

    class MoE(moelm.MoE):
        def combine_weights(self, gates, keep):
            return gates.detach() * keep  # here

    moelm.MoE = MoE


@fault(
    "moelm",
    line=[
        "return (ago >= 0) & (ago < WINDOW)",
        "out = self.attend(q, k, v, window_mask(s))",
    ],
)
def window_wider_by_one(moelm):
    """A token sees one more before it than the window holds."""

    def window_mask(length):
        i = torch.arange(length)
        ago = i[:, None] - i[None, :]
        return (ago >= 0) & (ago <= moelm.WINDOW)  # here

    moelm.window_mask = window_mask


@harmless("fused", "moelm")
def attention_of_pytorch(moelm):
    """The attention is that of PyTorch, which groups the heads itself."""

    class Attention(moelm.Attention):
        def attend(self, q, k, v, mask):
            q, k = q.to(v.dtype), k.to(v.dtype)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    moelm.Attention = Attention


@harmless("experts", "moelm")
def tokens_scattered_and_gathered(moelm):
    """Tokens are copied into the buffers of experts and gathered from there, without one-hots."""

    class MoE(moelm.MoE):
        def mix(self, x, weights, hot, place, keep, capacity):
            b, s, d = x.shape
            # what drops goes to a place of its own behind all buffers
            at = hot.argmax(-1) * capacity + place
            at = torch.where(keep, at, moelm.EXPERTS * capacity).flatten(1)
            copies = x.repeat_interleave(moelm.TOP_K, dim=1)
            where = at.unsqueeze(-1).expand(-1, -1, d)
            buffers = x.new_zeros(b, moelm.EXPERTS * capacity + 1, d)
            buffers = buffers.scatter(1, where, copies)[:, :-1]
            made = self.experts(buffers.view(b, moelm.EXPERTS, capacity, d).transpose(0, 1))
            made = F.pad(made.transpose(0, 1).flatten(1, 2), (0, 0, 0, 1))
            own = made.gather(1, where).view(b, s, moelm.TOP_K, d)
            return (own * weights.unsqueeze(-1)).sum(dim=2)

    moelm.MoE = MoE


@harmless("split", "moelm")
def projections_joined(moelm):
    """Queries, keys and values are one product; the turns are products of complex numbers."""

    class Attention(moelm.Attention):
        def forward(self, x, cos, sin):
            b, s, _ = x.shape
            weight = torch.cat([self.wq.weight, self.wk.weight, self.wv.weight])
            heads = F.linear(x, weight).view(b, s, -1, moelm.HEAD_DIM).transpose(1, 2)
            q, k, v = heads.split([moelm.HEADS, moelm.KV_HEADS, moelm.KV_HEADS], dim=1)
            turn = torch.complex(cos, sin)
            q, k = (self.turned(each, turn) for each in (q, k))
            out = self.attend(q, k, v, moelm.window_mask(s))
            return self.wo(out.transpose(1, 2).flatten(2))

        def turned(self, x, turn):
            x = torch.complex(*x.float().chunk(2, dim=-1)) * turn
            return torch.cat([x.real, x.imag], dim=-1)

    moelm.Attention = Attention


@harmless("fused", "moelm")
def lion_of_lists(moelm):
    """Lion changes weights and momentum by operations on lists."""

    class Lion(moelm.Lion):
        def update(self, group, params):
            beta1, beta2 = group["betas"]
            grads = [p.grad for p in params]
            for p in params:
                self.state[p].setdefault("exp_avg", torch.zeros_like(p))
            held = [self.state[p]["exp_avg"] for p in params]
            both = zip(grads, held, strict=True)
            signs = [torch.lerp(grad, each, beta1).sign_() for grad, each in both]
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_add_(params, signs, alpha=-group["lr"])
            torch._foreach_lerp_(held, grads, 1 - beta2)

    moelm.Lion = Lion


@harmless("rows", "moelm", group="whole step")
def texts_rolled(moelm):
    """The texts of the batch are rolled by one."""
    backward = moelm.backward
    moelm.backward = lambda model, tokens, share: backward(model, tokens.roll(1, 0), share)


@harmless("micro batches", "moelm", group="whole step")
def three_texts_and_one(moelm):
    """A micro-batch of three texts, then one of a single text."""
    backward = moelm.backward

    def parts(model, tokens, share):
        for part in tokens.split([3, 1]):
            backward(model, part, share * len(part) / len(tokens))

    moelm.backward = parts


@harmless("recomputed", "moelm", group="whole step", settings={"float32": True})
def blocks_computed_again(moelm):
    """The blocks are computed again in the backward pass."""

    class Block(moelm.Block):
        def __call__(self, *inputs):
            return checkpoint(super().__call__, *inputs, use_reentrant=False)

    moelm.Block = Block


@harmless("precision", "moelm", group="whole step")
def casts_written_out(moelm):
    """The products cast to bfloat16 themselves; there is no autocast."""

    def low(x):
        return x.to(torch.bfloat16) if torch.get_default_dtype() == torch.float32 else x

    class Linear(torch.nn.Linear):
        def forward(self, x):
            return F.linear(low(x), low(self.weight))

    def einsum(form, *operands):
        return torch.einsum(form, *(low(each) for each in operands))

    moelm.Linear, moelm.einsum = Linear, einsum
    moelm.precision = contextlib.nullcontext
