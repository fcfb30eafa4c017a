"""Cases of the decoder."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("gpt", api=r"Tensor.__getitem__|Tensor.chunk", module="blocks.0.attention")
def rotary_interleaved(gpt):
    """Rotary positions take neighbours as a pair, while the angles are those of halves: the first
    wrong value is the half that rotate_half takes."""

    def rotate_half(x):
        left, right = x[..., ::2], x[..., 1::2]  # here
        return torch.cat([-right, left], dim=-1)  # here

    gpt.rotate_half = rotate_half


@fault("gpt", line="(valid.long().cumsum(-1) - 1)")
def left_padding_without_position_ids(gpt):
    """Positions count the padding at the left: the positions are the first wrong value."""

    def positions_of(valid):
        return torch.arange(valid.shape[1]).expand(valid.shape)  # here

    gpt.positions_of = positions_of


@fault("gpt", api=r"Tensor.repeat", module="blocks.0.attention", line="x.repeat_interleave(")
def repeat_for_repeat_interleave(gpt):
    """Heads of grouped attention read the keys of another group: repeat orders the copies in
    another way than repeat_interleave."""

    def repeat_heads(x):
        return x.repeat(1, gpt.HEADS // gpt.KV_HEADS, 1, 1)  # here

    gpt.repeat_heads = repeat_heads


@fault("gpt", module="blocks.0.attention")
def scale_of_the_whole_width(gpt):
    """Scores are divided by the root of the width, not of a head's size."""

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            scores = q @ k.transpose(-2, -1) / math.sqrt(gpt.WIDTH)  # here
            scores = scores + mask
            weights = F.softmax(scores, dim=-1)
            return weights @ v

    gpt.Attention = Attention


@fault("gpt", module="blocks.0.attention", line="scores = scores + mask")
def missing_mask(gpt):
    """The mask is not added: the call that adds it is missing, the softmax is the next."""

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            scores = q @ k.transpose(-2, -1) / math.sqrt(gpt.SIZE)
            weights = F.softmax(scores, dim=-1)  # here
            return weights @ v

    gpt.Attention = Attention


@fault("gpt", api=r"Tensor.triu")
def mask_hides_the_present(gpt):
    """The diagonal of the mask is off by one: a token does not see itself."""

    def causal_mask(length, valid):
        future = torch.ones(length, length, dtype=torch.bool).triu(0)  # here
        hidden = future[None, None] | ~valid[:, None, None, :]
        return torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)

    gpt.causal_mask = causal_mask


@fault("gpt", api=r"Tensor.__add__", module="blocks.0.norm1")
def rms_epsilon(gpt):
    """The epsilon of the norms is 1e-3 for 1e-6, as of a converted checkpoint."""
    gpt.RMSNorm.eps = 1e-3


@fault("gpt", module="blocks.0.mlp", line="F.silu(self.gate(x))")
def gate_and_up_swapped(gpt):
    """The activation is applied to the other projection."""

    class MLP(gpt.MLP):
        def forward(self, x):
            return self.down(self.gate(x) * F.silu(self.up(x)))  # here

    gpt.MLP = MLP


@fault("gpt", api=r"Functional.gelu|Functional.silu", module="blocks.0.mlp")
def gelu_for_silu(gpt):
    """Another activation."""

    class MLP(gpt.MLP):
        def forward(self, x):
            return self.down(F.gelu(self.gate(x)) * self.up(x))  # here

    gpt.MLP = MLP


@fault("gpt", module="blocks.1")
def residual_after_the_norm(gpt):
    """In block 1 the second residual connection adds the normalised value."""

    class Block(gpt.Block):
        def forward(self, x, mask, cos, sin):
            if self.index == 0:
                return super().forward(x, mask, cos, sin)
            x = x + self.attention(self.norm1(x), mask, cos, sin)
            x = self.norm2(x)
            return x + self.mlp(x)  # here

    gpt.Block = Block


@fault("gpt", api=r"Tensor.__getitem__|Functional.cross_entropy")
def labels_shifted_twice(gpt):
    """The labels are shifted by the data loader and by the loss once more."""

    def token_loss(logits, labels):
        logits, labels = logits[:, :-2], labels[:, 2:]  # here
        logits = logits.flatten(0, 1)  # here
        return F.cross_entropy(logits, labels.flatten(), ignore_index=gpt.PAD, reduction="sum")

    gpt.token_loss = token_loss


@fault("gpt", api=r"Tensor.__truediv__")
def accumulated_loss_averaged_by_micro_batch(gpt):
    """The loss of each micro batch is the mean over its own tokens: texts of micro batches with
    fewer tokens weigh more."""

    def loss(model, tokens, count):
        count = int((tokens[:, 1:] != gpt.PAD).sum()) * gpt.ACCUMULATE
        return gpt.token_loss(model(tokens), tokens) / count  # here

    gpt.loss = loss


@fault("gpt", api=r"Functional.cross_entropy")
def padding_counted_in_the_loss(gpt):
    """The labels of the padding are not ignored."""

    def token_loss(logits, labels):
        logits, labels = logits[:, :-1], labels[:, 1:]
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")  # here

    gpt.token_loss = token_loss


@fault("gpt", api=r"Optimizer.AdamW.step", update=True)
def weight_decay_on_norms(gpt):
    """The weights of the norms are decayed."""

    def groups(model):
        decayed = [p for p in model.parameters() if p.dim() > 1]
        others = [p for p in model.parameters() if p.dim() <= 1]
        return [
            {"params": decayed, "weight_decay": 0.1, "lr": 3e-3},
            {"params": others, "weight_decay": 0.1, "lr": 3e-3},
        ]

    gpt.groups = groups


@fault("gpt", api=r"Optimizer.clip_grad_norm_", update=True)
def clipped_to_a_tenth(gpt):
    """Gradients are clipped to the norm 0.1."""
    gpt.CLIP = 0.1


@fault("gpt", api=r"Optimizer.AdamW.step", update=True)
def learning_rate_of_a_group(gpt):
    """The norms have a tenth of the learning rate."""
    right = gpt.groups

    def groups(model):
        decayed, others = right(model)
        return [decayed, others | {"lr": 3e-4}]

    gpt.groups = groups


def tokens_see_themselves(gpt):
    """No token has everything hidden: there the forms of attention have other gradients."""

    def causal_mask(length, valid):
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        hidden = future[None, None] | ~valid[:, None, None, :]
        hidden = hidden & ~torch.eye(length, dtype=torch.bool)
        return torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)

    gpt.causal_mask = causal_mask


@harmless("fused", "gpt", both=tokens_see_themselves)
def fused_attention(gpt):
    """scaled_dot_product_attention with the same mask."""

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    gpt.Attention = Attention


@fault("gpt", api="Functional.scaled_dot_product_attention", module=r"blocks.\d.attention")
def fused_attention_of_hidden_rows(gpt):
    """The padding at the left sees nothing but padding. The result of the fused attention agrees
    there, its gradient does not."""

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # here

    gpt.Attention = Attention


@harmless("split", "gpt")
def joined_projections(gpt):
    """Queries, keys and values by one product with the joined weights."""

    class Attention(gpt.Attention):
        def heads(self, x):
            batch, length, _ = x.shape
            joined = F.linear(x, torch.cat([self.q.weight, self.k.weight, self.v.weight]))
            joined = joined.view(batch, length, -1, gpt.SIZE).transpose(1, 2)
            return joined.split([gpt.HEADS, gpt.KV_HEADS, gpt.KV_HEADS], dim=1)

    gpt.Attention = Attention


@harmless("reordered", "gpt")
def values_before_queries(gpt):
    """The independent projections run in another order."""

    class Attention(gpt.Attention):
        def heads(self, x):
            batch, length, _ = x.shape
            v = self.v(x).view(batch, length, gpt.KV_HEADS, gpt.SIZE).transpose(1, 2)
            k = self.k(x).view(batch, length, gpt.KV_HEADS, gpt.SIZE).transpose(1, 2)
            q = self.q(x).view(batch, length, gpt.HEADS, gpt.SIZE).transpose(1, 2)
            return q, k, v

    gpt.Attention = Attention


@harmless("loss", "gpt")
def loss_of_log_softmax(gpt):
    """The cross entropy as log_softmax, gather and a masked sum."""

    def token_loss(logits, labels):
        logits, labels = logits[:, :-1], labels[:, 1:]
        chosen = logits.log_softmax(-1).gather(-1, labels[..., None])[..., 0]
        return -(chosen * (labels != gpt.PAD)).sum()

    gpt.token_loss = token_loss


@harmless("recomputed", "gpt")
def checkpointed_blocks(gpt):
    """Each block is computed again in the backward pass."""

    class GPT(gpt.GPT):
        def run_blocks(self, x, mask, cos, sin):
            for block in self.blocks:
                x = checkpoint(block, x, mask, cos, sin, use_reentrant=False)
            return x

    gpt.GPT = GPT


@harmless("mask", "gpt", both=tokens_see_themselves)
def mask_of_booleans(gpt):
    """The mask is boolean, and scores are filled instead of added."""
    added = gpt.causal_mask

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            scores = q @ k.transpose(-2, -1) / math.sqrt(gpt.SIZE)
            scores = scores.masked_fill(mask, torch.finfo(torch.float32).min)
            return F.softmax(scores, dim=-1) @ v

    gpt.causal_mask, gpt.Attention = lambda *given: added(*given) < 0, Attention


@fault("gpt", api="Tensor.masked_fill", module=r"blocks.\d.attention")
def gradient_of_hidden_rows_stopped(gpt):
    """Scores are filled instead of added to a mask. The padding at the left sees nothing but
    padding: its weights agree, and the gradient of its scores is zero."""

    def causal_mask(length, valid):
        future = torch.ones(length, length, dtype=torch.bool).triu(1)
        return future[None, None] | ~valid[:, None, None, :]

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            scores = q @ k.transpose(-2, -1) / math.sqrt(gpt.SIZE)
            scores = scores.masked_fill(mask, torch.finfo(torch.float32).min)  # here
            return F.softmax(scores, dim=-1) @ v

    gpt.causal_mask, gpt.Attention = causal_mask, Attention


@harmless("inserted", "gpt")
def copies_and_casts(gpt):
    """The softmax is computed in float32, which it is already, and values are copied."""

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            scores = q @ k.transpose(-2, -1).contiguous() / math.sqrt(gpt.SIZE)
            scores = scores.float() + mask
            weights = F.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
            return weights @ v.clone()

    gpt.Attention = Attention


@harmless("micro batches", "gpt")
def one_micro_batch(gpt):
    """The whole batch at once; its gradient is the same sum."""
    gpt.ACCUMULATE = 1


@harmless("environment", "gpt", settings={"threads": 2})
def two_threads(gpt):
    """Kernels run on two threads."""


@harmless("compiled", "gpt", needs="compile")
def compiled_blocks(gpt):
    """The gated layers are compiled."""
    right = gpt.build

    def build():
        model = right()
        for block in model.blocks:
            block.mlp = torch.compile(block.mlp, backend="aot_eager")
        return model

    gpt.build = build


@harmless("micro batches", "gpt")
def four_micro_batches(gpt):
    """Each text is a micro batch of its own."""
    gpt.ACCUMULATE = 4


@harmless("zero in theory", "gpt")
def scores_divided_before(gpt):
    """Queries are divided by the root of the size before the product."""

    class Attention(gpt.Attention):
        def attend(self, q, k, v, mask):
            scores = (q * gpt.SIZE**-0.5) @ k.transpose(-2, -1) + mask
            return F.softmax(scores, dim=-1) @ v

    gpt.Attention = Attention


@harmless("split", "gpt")
def gate_and_up_joined(gpt):
    """Gate and up projection are one product."""

    class MLP(gpt.MLP):
        def forward(self, x):
            gate, up = F.linear(x, torch.cat([self.gate.weight, self.up.weight])).chunk(2, dim=-1)
            return self.down(F.silu(gate) * up)

    gpt.MLP = MLP


@harmless("fused", "gpt")
def fused_norm(gpt):
    """torch.rms_norm."""

    class RMSNorm(gpt.RMSNorm):
        def forward(self, x):
            return F.rms_norm(x, (gpt.WIDTH,), self.weight, self.eps)

    gpt.RMSNorm = RMSNorm
