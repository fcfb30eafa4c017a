"""Cases of the decoder that is written anew: joined weights, fused attention, other norms."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


def served(rewrite):
    """Written anew as for serving: joined projections, heads without transposition, fused
    attention with groups, fused norms; the texts are in another order."""
    descend = rewrite.descend
    rewrite.descend = lambda model, tokens: descend(model, tokens.roll(2, 0))

    class Norm(rewrite.Norm):
        def forward(self, x):
            return F.rms_norm(x, self.weight.shape, self.weight + 1, self.eps)

    class Attention(rewrite.Attention):
        def heads(self, x):
            joined = F.linear(x, torch.cat([self.q.weight, self.k.weight, self.v.weight]))
            joined = joined.view(*x.shape[:2], -1, rewrite.SIZE)
            q, k, v = joined.split([rewrite.HEADS, rewrite.GROUPS, rewrite.GROUPS], dim=2)
            return self.q_norm(q).transpose(1, 2), self.k_norm(k).transpose(1, 2), v.transpose(1, 2)

        def attend(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)

    rewrite.Norm = Norm
    rewrite.Attention = Attention


def texts_apart_and_divided(rewrite):
    """Text by text, with the sum over tokens; the gradients are divided behind all."""

    def descend(model, tokens):
        for text in tokens.split(1):
            (rewrite.loss(model(text), text) * (rewrite.LENGTH - 1)).backward()
        for parameter in model.parameters():
            parameter.grad.div_(tokens.numel() - len(tokens))

    rewrite.descend = descend


@fault("rewrite", line="seen = (apart >= 0) & (apart < WINDOW)", api="Tensor.__lt__|Tensor.__le__")
def window_too_wide(rewrite):
    """The window sees one place more."""

    def window(length):
        apart = torch.arange(length)[:, None] - torch.arange(length)
        seen = (apart >= 0) & (apart <= rewrite.WINDOW)  # here
        return torch.zeros(length, length).masked_fill(~seen, float("-inf"))

    rewrite.window = window


@fault(
    "rewrite",
    module=r"blocks\.0\.attention",
    line="return self.q_norm(q), self.k_norm(k), v",
    api="Tensor.square|Module.blocks.0.attention.[qk]_norm.Norm",
)
def norms_of_queries_and_keys_after_the_rotation(rewrite):
    """Queries and keys are normalised behind the rotation: the weights meet other places."""
    build = rewrite.build

    class Attention(rewrite.Attention):
        def heads(self, x):
            parts = (self.q(x), self.k(x), self.v(x))
            return [p.unflatten(-1, (-1, rewrite.SIZE)).transpose(1, 2) for p in parts]

        def attend(self, q, k, v, mask):
            q = self.q_norm(q)  # here
            return super().attend(q, self.k_norm(k), v, mask)  # here

    rewrite.Attention = Attention
    rewrite.build = build


@fault(
    "rewrite", module="", line="return self.tokens(tokens) * WIDTH**0.5", module_only="blocks.0.*|"
)
def embedding_not_scaled(rewrite):
    """The embeddings are not multiplied by the root of the width."""

    class Decoder(rewrite.Decoder):
        def embed(self, tokens):
            return self.tokens(tokens)  # here

    rewrite.Decoder = Decoder


@fault(
    "rewrite",
    line="return F.cross_entropy(logits, labels) + SMALL",
    api="Tensor.mean|Tensor.square",
)
def normaliser_not_squared(rewrite):
    """The z-loss has the normaliser itself, not its square."""

    def loss(logits, tokens):
        logits, labels = logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten()
        return F.cross_entropy(logits, labels) + rewrite.SMALL * logits.logsumexp(-1).mean()  # here

    rewrite.loss = loss


@fault(
    "rewrite",
    beside=served,
    module=r"blocks\.0\.gated",
    line="return self.down(F.gelu(gate) * up)",
    api="Functional.gelu",
)
def gelu_of_tanh(rewrite):
    """The gate's activation is the approximation by tanh."""

    class Gated(rewrite.Gated):
        def forward(self, x):
            gate, up = self.gate_up(x).chunk(2, dim=-1)
            return self.down(F.gelu(gate, approximate="tanh") * up)  # here

    rewrite.Gated = Gated


@fault(
    "rewrite",
    beside=texts_apart_and_divided,
    line="steps = BASE ** (-torch.arange(0, SIZE, 2) / SIZE)",
    api="Tensor.__rpow__|Torch.pow|Tensor.__pow__",
)
def base_of_the_rotation(rewrite):
    """The base of the rotary frequencies is 10000 for 1000."""
    rewrite.BASE = 10000.0


harmless("fused", "rewrite")(served)
harmless("micro batches", "rewrite")(texts_apart_and_divided)


@harmless("split", "rewrite")
def rotation_by_complex_numbers(rewrite):
    """The rotation as a product of complex numbers; gate and up are two products."""

    def rotate(x, cos, sin):
        left, right = x.chunk(2, dim=-1)
        turned = torch.complex(left, right) * torch.complex(cos, sin)
        return torch.cat([turned.real, turned.imag], dim=-1)

    class Gated(rewrite.Gated):
        def forward(self, x):
            gate, up = self.gate_up.weight.chunk(2)
            return self.down(F.linear(x, up) * F.gelu(F.linear(x, gate)))

    rewrite.rotate = rotate
    rewrite.Gated = Gated


@harmless("renamed", "rewrite")
def head_with_the_tied_weight(rewrite):
    """A head of its own has the tied weight; the blocks lie in a module named model."""

    class Decoder(rewrite.Decoder):
        def __init__(self):
            super().__init__()
            self.model = nn.ModuleDict({"layers": self.blocks, "norm": self.norm})
            del self.blocks, self.norm
            self.lm_head = nn.Linear(rewrite.WIDTH, rewrite.VOCABULARY, False, device="meta")
            self.lm_head.weight = self.tokens.weight

        def forward(self, tokens):
            cos, sin = rewrite.angles(tokens.shape[1])
            mask = rewrite.window(tokens.shape[1])
            x = self.embed(tokens)
            for block in self.model["layers"]:
                x = block(x, cos, sin, mask)
            scaled = self.lm_head(self.model["norm"](x)) * (1 / rewrite.CAP)
            return rewrite.CAP * scaled.tanh()

    rewrite.Decoder = Decoder
