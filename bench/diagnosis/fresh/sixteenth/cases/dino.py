"""Cases of the vision transformer that learns from its slow copy."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("dino", line="return torch.where(flip.view(-1, 1, 1, 1), pictures.flip(-1), pictures)")
def pictures_upside_down(dino):
    """Crops are turned upside down, where left and right should be exchanged."""

    def flipped(pictures, flip):
        return torch.where(flip.view(-1, 1, 1, 1), pictures.flip(-2), pictures)  # here

    dino.flipped = flipped


@fault(
    "dino",
    # What is made from numbers alone may not be recorded: the difference has it.
    line=[
        "mean, std = (pictures.new_tensor(each).view(3, 1, 1) for each in (MEAN, STD))",
        "return (pictures - mean) / std",
    ],
)
def statistics_of_blue_first(dino):
    """Means and spreads are given for blue, green and red."""
    dino.MEAN, dino.STD = dino.MEAN[::-1], dino.STD[::-1]


@fault(
    "dino",
    line="return F.linear(x, F.normalize(self.last.weight, dim=1))",
    api=r"Functional\.(linear|normalize)|Torch\.linear|Module\.(teacher|student)\.head\.last\..*",
    module=r"(teacher|student)\.head(\.last)?",
    module_only=r"(teacher|student)\.head(\.last)?",
)
def prototypes_of_any_length(dino):
    """The last layer is a plain one: its rows have any length."""

    class Head(dino.Head):
        def prototypes(self, x):
            return self.last(x)  # here

    dino.Head = Head


@fault("dino", line="return torch.softmax((logits - pair.center) / teacher_temp(pair.done), dim=-1)")
def sharpened_before_it_is_centered(dino):
    """The center is taken away after the division by the temperature."""
    def sharpened(pair, logits):
        logits = logits / dino.teacher_temp(pair.done)  # here
        return torch.softmax(logits - pair.center, dim=-1)  # here

    dino.targets_of = sharpened


@fault(
    "dino",
    # There are two more terms: the first one of all is of the same crop.
    line=[
        "loss = -(target * F.log_softmax(score, dim=-1)).sum(dim=-1)",
        "total = total + loss.mean()",
        "return total / terms",
    ],
)
def crops_taught_by_themselves(dino):
    """A large crop is also compared with what the teacher says about the same crop."""

    def dino_loss(student_logits, targets):
        scores = (student_logits / dino.STUDENT_TEMP).chunk(dino.GLOBALS + dino.LOCALS)
        total, terms = 0.0, 0
        for target in targets.chunk(dino.GLOBALS):
            for score in scores:
                loss = -(target * F.log_softmax(score, dim=-1)).sum(dim=-1)  # here
                total = total + loss.mean()  # here
                terms += 1
        return total / terms  # here

    dino.dino_loss = dino_loss


@fault(
    "dino",
    line="pair.center.copy_(pair.center * CENTER_MOMENTUM + mean * (1 - CENTER_MOMENTUM))",
)
def center_of_this_batch(dino):
    """The weights of the old center and of the new mean are exchanged."""

    @torch.no_grad()
    def update_center(pair, taught):
        mean, kept = taught.mean(dim=0, keepdim=True), dino.CENTER_MOMENTUM
        pair.center.copy_(pair.center * (1 - kept) + mean * kept)  # here

    dino.update_center = update_center


@fault(
    "dino",
    line=[
        "mine = list(pair.student.parameters())",
        "torch._foreach_lerp_(list(pair.teacher.parameters()), mine, 1 - EMA_MOMENTUM)",
    ],
)
def only_the_head_is_slow(dino):
    """Only the teacher's head follows the student: its backbone stays as it was."""

    @torch.no_grad()
    def update_teacher(pair):
        mine, slow = (list(net.head.parameters()) for net in (pair.student, pair.teacher))
        torch._foreach_lerp_(slow, mine, 1 - dino.EMA_MOMENTUM)  # here

    dino.update_teacher = update_teacher


@fault(
    "dino",
    api=r"Functional\.layer_norm|Torch\.layer_norm|Module\.(teacher|student)\.backbone\.blocks\.0\.norm1\..*",
    module=r"(teacher|student)\.backbone\.blocks\.0\.norm1",
    module_only=r"(teacher|student)\.backbone\.blocks\.0(\.norm1)?",
)
def eps_of_the_library(dino):
    """The norms of the backbone have the eps that the library chooses."""
    dino.NORM_EPS = 1e-6


@fault("dino", api=r"Optimizer\.AdamW\.step", update=True)
def prototypes_learn_at_once(dino):
    """The last layer is not frozen in the first step: steps are counted from one."""

    def freeze_last_layer(pair):
        if pair.done + 1 < dino.FROZEN_STEPS:
            pair.student.head.last.weight.grad = None

    dino.freeze_last_layer = freeze_last_layer


@fault(
    "dino",
    settings={"float32": True},
    line=[
        "return net.head(torch.cat(features)).float()",
        "return torch.softmax((logits - pair.center) / teacher_temp(pair.done), dim=-1)",
        "scores = (student_logits / STUDENT_TEMP).chunk(GLOBALS + LOCALS)",
    ],
    api=r"Tensor\.(float|to|bfloat16)",
)
def scores_in_bfloat16(dino):
    """What the head gives stays bfloat16: softmax and loss are rounded to eight bits."""

    def run(net, crops):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            groups = dino.itertools.groupby(crops, key=lambda crop: crop.shape[-1])
            features = [net.backbone(torch.cat(list(group))) for _, group in groups]
            return net.head(torch.cat(features)).bfloat16()  # here

    dino.run = run


@harmless("fused", "dino")
def attention_by_products(dino):
    """The attention is two products and a softmax."""
    make_backbone = dino.make_backbone

    def made():
        backbone = make_backbone()
        for block in backbone.blocks:
            block.attn.fused_attn = False
        return backbone

    dino.make_backbone = made


@harmless("loss", "dino")
def loss_by_a_table(dino):
    """The losses of all pairs of crops are one product; those of the same crop are taken away."""

    def dino_loss(student_logits, targets):
        crops = dino.GLOBALS + dino.LOCALS
        log_p = F.log_softmax(student_logits / dino.STUDENT_TEMP, dim=-1).unflatten(0, (crops, -1))
        targets = targets.unflatten(0, (dino.GLOBALS, -1))
        table = -torch.einsum("ibp,jbp->ij", targets, log_p) / targets.shape[1]
        return (table.sum() - table.diagonal().sum()) / (dino.GLOBALS * (crops - 1))

    dino.dino_loss = dino_loss


@harmless("reordered", "dino")
def student_before_teacher(dino):
    """The student sees the crops before the teacher does."""

    def loss_of(pair, crops):
        logits = dino.run(pair.student, crops)
        taught = dino.teach(pair, crops)
        return dino.dino_loss(logits, dino.targets_of(pair, taught)), taught

    dino.loss_of = loss_of


@harmless("split", "dino")
def light_by_scale_and_shift(dino):
    """Crops are multiplied, and then moved."""

    def jittered(pictures, contrast, light):
        mean = pictures.mean(dim=(1, 2, 3))
        shift = (1 - contrast) * mean + light
        return torch.addcmul(shift.view(-1, 1, 1, 1), pictures, contrast.view(-1, 1, 1, 1))

    dino.jittered = jittered


@harmless("inserted", "dino")
def lengths_of_prototypes_by_squares(dino):
    """Prototypes are divided by the roots of sums of squares."""

    class Head(dino.Head):
        def prototypes(self, x):
            weight = self.last.weight
            return F.linear(x, weight / weight.square().sum(dim=1, keepdim=True).sqrt())

    dino.Head = Head


@harmless("rows", "dino", group="whole step")
def pictures_in_another_order(dino):
    """The pictures are in another order."""
    crops_of = dino.crops_of

    def shuffled(batch):
        return crops_of({name: value[[2, 0, 3, 1]] for name, value in batch.items()})

    dino.crops_of = shuffled


@harmless("micro batches", "dino", group="whole step")
def two_pictures_at_a_time(dino):
    """Two pictures go backward at a time; the center sees all of them."""

    def backward(pair, crops):
        taught = []
        for rows in (slice(0, 2), slice(2, 4)):
            loss, found = dino.loss_of(pair, [crop[rows] for crop in crops])
            (loss / 2).backward()
            taught.append(found)
        return torch.cat(taught)

    dino.backward = backward


@harmless("micro batches", "dino", group="whole step")
def each_crop_alone(dino):
    """Each crop goes through the net alone."""
    run = dino.run

    def apart(net, crops):
        return torch.cat([run(net, [crop]) for crop in crops])

    dino.run = apart


@harmless("scaled", "dino", group="whole step")
def loss_is_scaled(dino):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    dino_loss, clip = dino.dino_loss, dino.clip
    dino.dino_loss = lambda logits, targets: 256 * dino_loss(logits, targets)

    def unscaled(pair):
        for p in pair.student.parameters():
            p.grad.mul_(1 / 256)
        clip(pair)

    dino.clip = unscaled


@harmless("precision", "dino", group="whole step")
def casts_of_the_head(dino):
    """The casts of the head are written out, where autocast made them."""

    class Head(dino.Head):
        def forward(self, x):
            with torch.autocast("cpu", enabled=False):
                for layer in (self.fc1, self.fc2):
                    x = F.gelu(x) if layer is self.fc2 else x.bfloat16()
                    x = F.linear(x, layer.weight.bfloat16(), layer.bias.bfloat16())
                weight = F.normalize(self.last.weight, dim=1).bfloat16()
                return F.linear(F.normalize(x, dim=-1), weight)

    dino.Head = Head


@harmless("recomputed", "dino", group="whole step")
def wide_layers_computed_again(dino):
    """The wide layers are computed again in the backward pass."""
    make_backbone = dino.make_backbone

    def made():
        backbone = make_backbone()
        for block in backbone.blocks:
            block.mlp.forward = functools.partial(
                checkpoint, block.mlp.forward, use_reentrant=False
            )
        return backbone

    dino.make_backbone = made
