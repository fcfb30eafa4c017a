"""Cases of the ConvNeXt."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("convnext", line="return x * (self.kept / KEPT)[:, None, None, None]")
def kept_paths_not_scaled(convnext):
    """Paths that are kept are not scaled up."""

    class Path(convnext.Path):
        def forward(self, x):
            return x * self.kept[:, None, None, None]  # here

    convnext.Path = Path


@fault("convnext", line="return SoftTargetCrossEntropy()(logits, smoothed(soft))")
def labels_smoothed_twice(convnext):
    """The loss smooths labels that are smooth."""

    def loss_of(logits, soft):
        soft = convnext.smoothed(soft)
        return F.cross_entropy(logits, soft, label_smoothing=convnext.SMOOTHING)  # here

    convnext.loss_of = loss_of


@fault("convnext", line="return SoftTargetCrossEntropy()(logits, smoothed(soft))")
def probabilities_for_logits(convnext):
    """The loss gets probabilities: there is one softmax too many."""
    loss_of = convnext.loss_of
    convnext.loss_of = lambda logits, soft: loss_of(
        logits.softmax(dim=-1),  # here
        soft,
    )


@fault(
    "convnext",
    line=["pictures = wide * pictures + (1 - wide) * pictures.flip(0)"],
)
def mixed_with_its_mirror(convnext):
    """A picture is mixed with its own mirror, not with its partner."""

    def mixed(pictures, labels, share):
        wide = share[:, None, None, None]
        soft = torch.eye(convnext.KINDS)[labels]
        pictures = wide * pictures + (1 - wide) * pictures.flip(-1)  # here
        return pictures, share[:, None] * soft + (1 - share[:, None]) * soft.flip(0)

    convnext.mixed = mixed


@fault(
    "convnext",
    line=["return (pictures - mean) / deviation", "mean, deviation = (torch.tensor(each)"],
)
def deviation_forgotten(convnext):
    """The pictures are not divided by their deviation."""
    right = convnext.normalised

    def normalised(pictures):
        convnext.DEVIATION, before = (1.0, 1.0, 1.0), convnext.DEVIATION
        made = right(pictures)
        convnext.DEVIATION = before
        return made

    convnext.normalised = normalised


@fault("convnext", api=r"Functional\.layer_norm", module=r"net\.stem\.1")
def epsilon_of_the_norms(convnext):
    """The norms have an epsilon of 0.1."""
    settings = convnext.settings
    convnext.settings = lambda: settings(norm_eps=0.1)


@fault("convnext", api=r"Functional\.(silu|gelu)", module=r"net\.stages\.0\.blocks\.0\.mlp\.act")
def another_activation(convnext):
    """The blocks have SiLU for GELU."""
    settings = convnext.settings
    convnext.settings = lambda: settings(act_layer="silu")


@fault(
    "convnext",
    module=r"net\.(norm_pre|head(\.(norm|global_pool|global_pool\.pool))?)",
    api=r"Functional\.(layer_norm|adaptive_avg_pool2d)|Tensor\.(mean|permute)",
)
def norm_before_the_pool(convnext):
    """The last norm stands before the pool."""
    settings = convnext.settings
    convnext.settings = lambda: settings(head_norm_first=True)


@fault("convnext", api="Optimizer.AdamW.step", update=True)
def norms_decayed(convnext):
    """Biases, norms and scales are decayed as well."""
    convnext.decayed = lambda name, weight: True


@fault("convnext", api="Optimizer.AdamW.step", update=True)
def schedule_before_the_step(convnext):
    """The first step has the second rate."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        convnext.backward(model, batch)
        torch.nn.utils.clip_grad_norm_(model.parameters(), convnext.LARGEST)
        model.updates += 1
        model.schedule.step_update(model.updates)
        optimizer.step()

    convnext.step = step


@fault(
    "convnext",
    settings={"float32": True},
    api=r"Functional\.log_softmax",  # in timm's loss
    line=[
        "return loss_of(logits.float(), soft)",
        "return SoftTargetCrossEntropy()(logits, smoothed(soft))",
    ],
)
def loss_in_bfloat16(convnext):
    """The loss is computed in bfloat16, targets as well."""

    def part_loss(model, pictures, soft, kept):
        with convnext.precision():
            logits = model(pictures, kept)
        return convnext.loss_of(logits.bfloat16(), soft.bfloat16())  # here

    convnext.part_loss = part_loss


@harmless("fused", "convnext")
def products_as_convolutions(convnext):
    """The products of a block are convolutions with one place."""
    settings = convnext.settings
    convnext.settings = lambda **changes: settings(conv_mlp=True, **changes)


@harmless("split", "convnext")
def convolution_place_by_place(convnext):
    """The convolution of a block is a sum over its nine places."""

    class Model(convnext.Model):
        def __init__(self):
            super().__init__()
            for block in self.blocks():

                def places(x, conv=block.conv_dw):
                    with torch.autocast("cpu", enabled=False):
                        wide, total = F.pad(x.float(), [conv.padding[0]] * 4), 0.0
                        step = conv.dilation[0]
                        for row in range(3):
                            for column in range(3):
                                top, left = row * step, column * step
                                part = wide[..., top : top + x.shape[2], left : left + x.shape[3]]
                                total = total + part * conv.weight[:, 0, row, column, None, None]
                        return (total + conv.bias[:, None, None]).to(x.dtype)

                block.conv_dw.forward = places

    convnext.Model = Model


@harmless("loss", "convnext")
def entropy_of_pytorch(convnext):
    """cross_entropy smooths the labels itself."""
    convnext.loss_of = lambda logits, soft: F.cross_entropy(
        logits, soft, label_smoothing=convnext.SMOOTHING
    )


@harmless("reordered", "convnext")
def labels_mixed_first(convnext):
    """Labels are mixed first; pictures by lerp."""

    def mixed(pictures, labels, share):
        first = F.one_hot(labels, convnext.KINDS).to(share.dtype)
        soft = torch.lerp(first.flip(0), first, share[:, None])
        return torch.lerp(pictures.flip(0), pictures, share.view(-1, 1, 1, 1)), soft

    convnext.mixed = mixed


@harmless("fused", "convnext")
def optimizer_of_lists(convnext):
    """The optimizer updates all weights at once."""
    optimizer = convnext.optimizer
    convnext.optimizer = lambda model: optimizer(model, foreach=True)


@harmless("micro batches", "convnext", group="whole step")
def one_batch(convnext):
    """One batch for two micro-batches."""
    convnext.PARTS = 1


@harmless("rows", "convnext", group="whole step")
def pictures_turned(convnext):
    """The pictures stand in the other order."""
    backward = convnext.backward
    convnext.backward = lambda model, data: backward(
        model, {name: value.flip(0) for name, value in data.items()}
    )


@harmless("recomputed", "convnext", group="whole step")
def stages_computed_again(convnext):
    """The stages are computed again in the backward pass."""

    class Model(convnext.Model):
        def __init__(self):
            super().__init__()
            self.net.set_grad_checkpointing()

    convnext.Model = Model


@harmless("scaled", "convnext", group="whole step")
def divided_behind_the_passes(convnext):
    """Gradients are divided by the micro-batches behind both passes."""

    def part_loss(model, pictures, soft, kept):
        return convnext.PARTS * right(model, pictures, soft, kept)

    def backward(model, data):
        whole(model, data)
        for weight in model.parameters():
            weight.grad.div_(convnext.PARTS)

    right, whole = convnext.part_loss, convnext.backward
    convnext.part_loss, convnext.backward = part_loss, backward
