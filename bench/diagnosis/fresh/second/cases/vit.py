"""Cases of the vision transformer."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "vit",
    line=[
        "return (pictures - mean) / torch.tensor(DEVIATION)[:, None, None]",
        "mean = torch.tensor(MEAN)[:, None, None]",
    ],
)
def channels_exchanged(vit):
    """Pictures are normalised as if their channels stood in the other order."""
    vit.MEAN, vit.DEVIATION = vit.MEAN[::-1], vit.DEVIATION[::-1]


@fault(
    "vit", line=["return pictures, share[:, None] * soft + (1 - share[:, None]) * soft[partner]"]
)
def labels_not_mixed(vit):
    """The share of the labels belongs to the partner."""

    def mixed(pictures, labels, share, partner):
        off = vit.SMOOTHING / vit.KINDS
        soft = torch.full((len(labels), vit.KINDS), off)
        soft = soft.scatter(1, labels[:, None], 1 - vit.SMOOTHING + off)
        wide = share[:, None, None, None]
        pictures = wide * pictures + (1 - wide) * pictures[partner]
        return pictures, (1 - share[:, None]) * soft + share[:, None] * soft[partner]  # here

    vit.mixed = mixed


@fault(
    "vit",
    line=[
        "soft = soft.scatter(1, labels[:, None], 1 - SMOOTHING + off)",
        "soft = torch.full((len(labels), KINDS), off)",
        "return pictures, share[:, None] * soft",
    ],
)
def smoothing_without_the_right(vit):
    """The right class has no part of the smoothing: targets do not sum to one."""

    def mixed(pictures, labels, share, partner):
        off = vit.SMOOTHING / vit.KINDS
        soft = torch.full((len(labels), vit.KINDS), off)
        soft = soft.scatter(1, labels[:, None], 1 - vit.SMOOTHING)  # here
        wide = share[:, None, None, None]
        pictures = wide * pictures + (1 - wide) * pictures[partner]
        return pictures, share[:, None] * soft + (1 - share[:, None]) * soft[partner]

    vit.mixed = mixed


@fault("vit", line=["(loss_of(model, part, own) / PARTS).backward()"])
def parts_not_divided(vit):
    """The losses of the micro-batches are added up, not averaged."""

    def backward(model, pictures, labels, share, partner):
        pictures, soft = vit.mixed(vit.normalised(pictures), labels, share, partner)
        for part, own in zip(pictures.chunk(vit.PARTS), soft.chunk(vit.PARTS), strict=True):
            vit.loss_of(model, part, own).backward()  # here

    vit.backward = backward


@fault(
    "vit",
    line=[
        "target = 0.8 * soft + 0.2 * teaching(model, pictures)",
        "return logits.float().softmax(dim=-1)",
    ],
)
def teacher_softmax_of_rows(vit):
    """The slow copy's probabilities are taken along the batch."""

    def teaching(model, pictures):
        with torch.no_grad(), vit.precision():
            logits = model.slow.module(pictures)
        return logits.float().softmax(dim=0)  # here

    vit.teaching = teaching


@fault("vit", api="Optimizer.Lamb.step", update=True, line='group["lr"] = RATE * group["lr_scale"]')
def rates_from_the_wrong_end(vit):
    """The first layers have the largest rates."""

    def rates(optimizer):
        groups = optimizer.param_groups
        scales = [group["lr_scale"] for group in groups]
        for group, scale in zip(groups, reversed(scales), strict=True):
            group["lr"] = vit.RATE * scale  # here

    vit.rates = rates


@fault(
    "vit",
    api=r"Functional\.conv2d|Torch\._foreach_lerp_",
    line=["model.slow.update(model.net)", "logits = model.slow.module(pictures)"],
)
def slow_copy_is_fast(vit):
    """The slow copy keeps what it should take over."""
    optimizer = vit.optimizer

    def other(model):
        made = optimizer(model)
        model.slow.decay = 1 - vit.KEPT  # here
        return made

    vit.optimizer = other


@fault(
    "vit",
    module=r"(slow\.)?(module\.)?(net\.)?(norm|pool.*)?",
    api=r"Tensor\.__getitem__|Tensor\.mean",
    line="logits = model(pictures)",
)
def pooled_with_the_mean(vit):
    """The patches are averaged, where the class token was trained."""
    init = vit.Model.__init__

    class Model(vit.Model):
        def __init__(self):
            init(self)
            self.net.pool_include_prefix = False
            self.net.global_pool = "avg"  # here

    vit.Model = Model


@harmless("fused", "vit")
def attention_written_out(vit):
    """The attention of timm is written out."""

    class Model(vit.Model):
        def __init__(self):
            super().__init__()
            for block in self.net.blocks:
                block.attn.fused_attn = False

    vit.Model = Model


@harmless("fused", "vit")
def patches_as_a_product(vit):
    """The patches are unfolded, and multiplied by a matrix."""

    from timm.layers import PatchEmbed

    class Product(PatchEmbed):
        def forward(self, x):
            rows = F.unfold(x, vit.PATCH, stride=vit.PATCH).transpose(1, 2)
            return F.linear(rows, self.proj.weight.flatten(1), self.proj.bias)

    class Model(vit.Model):
        def __init__(self):
            super().__init__()
            self.net.patch_embed.__class__ = Product

    vit.Model = Model


@harmless("loss", "vit")
def soft_entropy_of_pytorch(vit):
    """cross_entropy takes the soft target; the two parts of the target are two losses."""

    def loss_of(model, pictures, soft):
        taught = vit.teaching(model, pictures)
        with vit.precision():
            logits = model(pictures)
        logits = logits.float()
        return 0.8 * F.cross_entropy(logits, soft) + 0.2 * F.cross_entropy(logits, taught)

    vit.loss_of = loss_of


@harmless("reordered", "vit")
def labels_by_one_hot(vit):
    """Labels are mixed first and smoothed later."""

    def mixed(pictures, labels, share, partner):
        hard = F.one_hot(labels, vit.KINDS).to(share.dtype)
        soft = torch.lerp(hard[partner], hard, share[:, None])
        soft = soft * (1 - vit.SMOOTHING) + vit.SMOOTHING / vit.KINDS
        other = pictures.index_select(0, partner)
        return other + share.view(-1, 1, 1, 1) * (pictures - other), soft

    vit.mixed = mixed


@harmless("micro batches", "vit", group="whole step")
def one_batch(vit):
    """One batch for two micro-batches."""

    def backward(model, pictures, labels, share, partner):
        vit.loss_of(model, *vit.mixed(vit.normalised(pictures), labels, share, partner)).backward()

    vit.backward = backward


@harmless("rows", "vit", group="whole step")
def second_part_first(vit):
    """The second half of the batch goes first."""
    backward = vit.backward

    def other(model, pictures, labels, share, partner):
        half = len(labels) // 2
        rolled = (value.roll(half, 0) for value in (pictures, labels, share))
        backward(model, *rolled, (partner.roll(half) + half) % len(labels))

    vit.backward = other


@harmless("scaled", "vit", group="whole step")
def divided_behind_the_passes(vit):
    """Gradients are divided by the micro-batches behind both passes."""

    def backward(model, pictures, labels, share, partner):
        pictures, soft = vit.mixed(vit.normalised(pictures), labels, share, partner)
        for part, own in zip(pictures.chunk(vit.PARTS), soft.chunk(vit.PARTS), strict=True):
            vit.loss_of(model, part, own).backward()
        torch._foreach_div_([w.grad for w in model.parameters()], vit.PARTS)

    vit.backward = backward


@harmless("recomputed", "vit", group="whole step")
def blocks_computed_again(vit):
    """The blocks are computed again in the backward pass."""

    class Model(vit.Model):
        def __init__(self):
            super().__init__()
            self.net.set_grad_checkpointing()

    vit.Model = Model
