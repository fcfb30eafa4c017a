"""Cases of the distillation."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "distil",
    line=['return F.kl_div(log_p, log_q, reduction="batchmean"', "return HARD * hard + (1 - HARD)"],
)
def heat_not_squared(distil):
    """The soft loss is not multiplied by the square of the heat."""

    def soft_loss(student, teacher):
        log_p = F.log_softmax(student / distil.HEAT, dim=-1)
        log_q = F.log_softmax(teacher / distil.HEAT, dim=-1)
        return F.kl_div(log_p, log_q, reduction="batchmean", log_target=True)  # here

    distil.soft_loss = soft_loss


@fault("distil", line=['return F.kl_div(log_p, log_q, reduction="batchmean"'])
def divergence_a_mean_over_classes(distil):
    """The divergence is a mean over classes, too: reduction "mean"."""

    def soft_loss(student, teacher):
        log_p = F.log_softmax(student / distil.HEAT, dim=-1)
        log_q = F.log_softmax(teacher / distil.HEAT, dim=-1)
        divergence = F.kl_div(log_p, log_q, reduction="mean", log_target=True)  # here
        return divergence * distil.HEAT**2

    distil.soft_loss = soft_loss


@fault(
    "distil",
    module=r"student.blocks.0.attention.qkv",
    line=["return self.base(x) + self.scale * self.up"],
)
def adapter_scaled_by_the_root(distil):
    """Adapters are scaled by alpha over the root of the rank."""

    class LowRank(distil.LowRank):
        def __init__(self, base):
            super().__init__(base)
            self.scale = distil.ALPHA / distil.RANK**0.5

    distil.LowRank = LowRank


@fault("distil", module="student.blocks.0", line=["return x + self.gain2 * self.down(F.gelu"])
def gain_of_the_other_branch(distil):
    """The second branch of the block has the first one's gain, which begins with the same value:
    the first wrong numbers are gradients."""

    class Block(distil.Block):
        def forward(self, x):
            x = x + self.gain1 * self.attention(self.norm1(x))
            return x + self.gain1 * self.down(F.gelu(self.up(self.norm2(x))))  # here

    distil.Block = Block


@fault(
    "distil",
    module=r"student.blocks.0.norm1|student.blocks.0.*",
    settings={"float32": True},
    line=[
        "wide = x.float() if x.dtype",
        "wide = wide * torch.rsqrt",
        "return (self.weight * wide)",
    ],
)
def norm_in_bfloat16(distil):
    """Norms compute in the dtype of their input; those of q and k get bfloat16."""

    class RMSNorm(distil.RMSNorm):
        def forward(self, x):
            x = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)  # here
            return (self.weight * x).to(x.dtype)  # here

    distil.RMSNorm = RMSNorm


@fault(
    "distil",
    module="student.blocks.0.attention",
    line=[
        "q, k = self.q_norm(q), self.k_norm(k)",
        "mixed = F.scaled_dot",
        "wide = x.float() if x.dtype",
    ],
    api=r"Functional.scaled_dot_product_attention",
)
def key_not_normalised(distil):
    """Queries are normalised, keys are not."""

    class Attention(distil.Attention):
        def forward(self, x):
            n, length, width = x.shape
            q, k, v = self.qkv(x).view(n, length, 3, distil.HEADS, -1).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(self.q_norm(q), k, v)  # here
            return self.out(mixed.transpose(1, 2).reshape(n, length, width))

    distil.Attention = Attention


@fault(
    "distil",
    line=["return self.head(self.norm(x)[:, 0])"],
    module=r"student(\.norm|\.head)?",
    api="Functional.linear|Tensor.(mean|square|__getitem__)",
)
def pooled_for_the_first(distil):
    """The head reads the mean of the patches instead of the first token."""

    class ViT(distil.ViT):
        def forward(self, pictures):
            x = self.patches(pictures).flatten(2).transpose(1, 2)
            x = torch.cat([self.first.expand(len(x), -1, -1).to(x.dtype), x], dim=1)
            x = x + self.places
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)[:, 1:].mean(1))  # here

    distil.ViT = ViT


@fault("distil", api="Optimizer.AdamW.step", update=True)
def rates_from_the_wrong_end(distil):
    """The rate falls upwards."""
    layer_of = distil.layer_of
    distil.layer_of = lambda name: 3 - layer_of(name)


@harmless("split", "distil")
def three_projections(distil):
    """Queries, keys and values by three products with parts of the weight."""

    class LowRank(distil.LowRank):
        def forward(self, x):
            if self.base.out_features != 3 * distil.WIDTH:
                return super().forward(x)
            low = self.down(x)
            parts = []
            for rows in range(0, 3 * distil.WIDTH, distil.WIDTH):
                part = slice(rows, rows + distil.WIDTH)
                base = F.linear(x, self.base.weight[part], self.base.bias[part])
                parts.append(base + self.scale * F.linear(low, self.up.weight[part]))
            return torch.cat(parts, dim=-1)

    distil.LowRank = LowRank


@harmless("micro batches", "distil", group="whole step")
def one_batch(distil):
    """All pictures at once."""
    distil.ACCUMULATE = 1


@harmless("loss", "distil")
def soft_loss_written_out(distil):
    """The divergence as a sum of probabilities and differences."""

    def soft_loss(student, teacher):
        log_p = (student / distil.HEAT).log_softmax(-1)
        log_q = (teacher / distil.HEAT).log_softmax(-1)
        return (log_q.exp() * (log_q - log_p)).sum(-1).mean() * distil.HEAT * distil.HEAT

    distil.soft_loss = soft_loss


@harmless("precision", "distil", group="whole step")
def teacher_first_in_its_own_autocast(distil):
    """The teacher runs before the student, each in an autocast of its own."""

    def logits_of(model, pictures):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            teacher = distil.widened(model.teacher(pictures))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            student = model.student(pictures)
        return distil.widened(student), teacher

    distil.logits_of = logits_of


@harmless("recomputed", "distil", group="whole step")
def blocks_computed_again(distil):
    """The student's blocks are computed again in the backward pass, within autocast."""
    from torch.utils.checkpoint import checkpoint

    class Block(distil.Block):
        def forward(self, x):
            if not torch.is_grad_enabled():
                return super().forward(x)
            return checkpoint(super().forward, x, use_reentrant=False)

    distil.Block = Block


@harmless("split", "distil")
def patches_as_a_product(distil):
    """Patches by unfolding and a linear map."""

    class ViT(distil.ViT):
        def forward(self, pictures):
            parts = F.unfold(pictures, distil.PATCH, stride=distil.PATCH).transpose(1, 2)
            x = F.linear(parts, self.patches.weight.flatten(1), self.patches.bias)
            x = torch.cat([self.first.expand(len(x), -1, -1).to(x.dtype), x], dim=1)
            x = x + self.places
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x)[:, 0])

    distil.ViT = ViT
