"""Cases of the street scenes with a teacher."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "teacher",
    api=r"Functional\.interpolate|Torch\.upsample.*",
    module="",
    line=[
        'return F.interpolate(logits, size=size, mode="bilinear", align_corners=False)',
        "return upsample(logits, images.shape[-2:])",
    ],
)
def corners_are_aligned(teacher):
    """Scores are enlarged from corner to corner, as older code did."""

    def upsample(logits, size):
        return F.interpolate(logits, size=size, mode="bilinear", align_corners=True)  # here

    teacher.upsample = upsample


@fault("teacher", line="return (losses * weights).sum() / known.sum()")
def pixels_without_label_count(teacher):
    """The mean is taken over all pixels, though some have no label."""

    def weighted_mean(losses, weights, labels):
        return (losses * weights).mean()  # here

    teacher.weighted_mean = weighted_mean


@fault(
    "teacher",
    line=[
        'labels = mix(box, batch["labels"], labels)',
        "return torch.where(box, labelled, other)",
    ],
)
def labels_mixed_the_other_way(teacher):
    """Inside the box are labels of the teacher, where the pixels are those of the other picture."""

    def mixed_batch(model, batch):
        box = batch["box"]
        labels, weights = teacher.pseudo_labels(model, batch["unlabelled"])
        images = teacher.mix(box.unsqueeze(1), batch["images"], batch["unlabelled"])
        images = teacher.jitter(images, batch["light"], batch["contrast"])
        labels = teacher.mix(box, labels, batch["labels"])  # here
        weights = teacher.mix(box, torch.ones_like(weights), weights)
        return images, labels, weights

    teacher.mixed_batch = mixed_batch


@fault(
    "teacher",
    # They are not copied after the first step; the norm is the first to use them in the second.
    line=["slow.copy_(fast)", "    follow_statistics(model)"],
    api=r"Module\.teacher\.decode_head\.batch_norm\..*|Functional\.batch_norm|Torch\.batch_norm",
    module=r"teacher\.decode_head(\.batch_norm)?",
    module_only=r"teacher\.decode_head\.batch_norm",
)
def statistics_do_not_follow(teacher):
    """The teacher follows the weights, but keeps the statistics that it began with."""

    def follow_statistics(model):
        return None

    teacher.follow_statistics = follow_statistics


@fault(
    "teacher",
    line="model.teacher.eval()",
    api=r"Module\.teacher\.decode_head\.batch_norm\..*|Functional\.batch_norm|Torch\.batch_norm"
    r"|Tensor\.(add_|__iadd__)",
    module=r"teacher\.decode_head(\.batch_norm)?",
    module_only=r"teacher\.decode_head\.batch_norm",
)
def teacher_is_trained(teacher):
    """The teacher is in the mode of training: it uses the statistics of the batch."""

    def set_modes(model):
        model.train()  # here

    teacher.set_modes = set_modes


@fault(
    "teacher",
    line=[
        "return min(1 - 1 / (model.steps_done + 2), EMA_DECAY)",
        "follow_weights(model, ema_decay(model))",
        "slow.mul_(decay).add_(fast, alpha=1 - decay)",
    ],
)
def teacher_is_slow_at_first(teacher):
    """Of the two decays the larger one is taken."""

    def ema_decay(model):
        return max(1 - 1 / (model.steps_done + 2), teacher.EMA_DECAY)  # here

    teacher.ema_decay = ema_decay


@fault(
    "teacher",
    line=[
        "quality = sure.mean(dim=(1, 2), keepdim=True)",
        "return labels, quality.expand_as(confidence)",
    ],
)
def one_quality_for_all(teacher):
    """How sure the teacher is, is averaged over all pictures, not in each."""

    @torch.no_grad()
    def pseudo_labels(model, images):
        chance = teacher.predict(model.teacher, images).softmax(dim=1)
        confidence, labels = chance.max(dim=1)
        sure = (confidence > teacher.SURE).to(chance.dtype)
        return labels, sure.mean().expand_as(confidence)  # here

    teacher.pseudo_labels = pseudo_labels


@fault(
    "teacher",
    # The norm is missing; the first convolution is the first that lacks it.
    line=[
        "return (images - mean) / std",
        "logits = net(pixel_values=normalize(images)).logits",
        "chance = predict(model.teacher, images).softmax(dim=1)",
    ],
    api=r"Module\.teacher\.segformer\.stages\.0\.patch_embeddings\..*|Functional\.conv2d"
    r"|Torch\.conv2d|Module\.teacher\.(segformer\.)?Segformer.*",
    module=r"teacher(\.segformer(\.stages\.0(\.patch_embeddings(\.proj)?)?)?)?",
    module_only=r"teacher\.segformer\.stages\.0\.patch_embeddings\.proj",
)
def teacher_sees_raw_pictures(teacher):
    """Pictures for the teacher are not normalised."""

    @torch.no_grad()
    def pseudo_labels(model, images):
        logits = model.teacher(pixel_values=images).logits  # here
        chance = teacher.upsample(logits, images.shape[-2:]).softmax(dim=1)
        confidence, labels = chance.max(dim=1)
        sure = (confidence > teacher.SURE).to(chance.dtype)
        quality = sure.mean(dim=(1, 2), keepdim=True)
        return labels, quality.expand_as(confidence)

    teacher.pseudo_labels = pseudo_labels


@fault("teacher", api=r"Optimizer\.SGD\.step", update=True)
def head_learns_slowly(teacher):
    """The new head has the rate of the layers that were trained before."""

    def in_head(name):
        return name.startswith("decoder_head.")

    teacher.in_head = in_head


@harmless("split", "teacher")
def enlarged_by_products(teacher):
    """Enlarging is a product with one matrix for rows and another for columns."""

    def weights(small, large, like):
        unit = torch.eye(small, dtype=like.dtype).unsqueeze(0)
        return F.interpolate(unit, size=large, mode="linear", align_corners=False)[0]

    def upsample(logits, size):
        rows = weights(logits.shape[-2], size[0], logits)
        columns = weights(logits.shape[-1], size[1], logits)
        return rows.t() @ logits @ columns

    teacher.upsample = upsample


@harmless("loss", "teacher")
def entropy_written_out(teacher):
    """The entropy is a softmax, a choice and a weight."""

    def pixel_losses(logits, labels, class_weights=None):
        known = labels != teacher.IGNORED
        safe = labels.where(known, 0)
        losses = -logits.log_softmax(dim=1).gather(1, safe.unsqueeze(1)).squeeze(1)
        if class_weights is not None:
            losses = losses * class_weights[safe]
        return losses * known

    teacher.pixel_losses = pixel_losses


@harmless("mask", "teacher")
def mixed_by_products(teacher):
    """Pictures are multiplied with ones and zeros, and added."""
    teacher.mix = lambda box, labelled, other: labelled * box + other * ~box


@harmless("split", "teacher")
def normalized_by_a_product(teacher):
    """Pictures are multiplied, and then a constant is taken off."""

    def normalize(images):
        mean = torch.tensor(teacher.MEAN).view(3, 1, 1)
        factor = 1 / torch.tensor(teacher.STD).view(3, 1, 1)
        return images * factor - mean * factor

    teacher.normalize = normalize


@harmless("reordered", "teacher")
def labelled_pictures_first(teacher):
    """The student sees the labelled pictures before the teacher sees the others."""

    def train(model, batch):
        loss = teacher.supervised_loss(model, batch)
        mixed = teacher.mixed_batch(model, batch)
        loss = loss + teacher.UNLABELLED_WEIGHT * teacher.mixed_loss(model, *mixed)
        loss.backward()

    teacher.train = train


@harmless("rows", "teacher", group="whole step")
def scenes_in_another_order(teacher):
    """The scenes are in another order."""
    train = teacher.train

    def shuffled(model, batch):
        train(model, {name: value[[2, 0, 1]] for name, value in batch.items()})

    teacher.train = shuffled


@harmless("micro batches", "teacher", group="whole step")
def losses_go_backward_alone(teacher):
    """Each of the two losses goes backward before the next one is computed."""

    def train(model, batch):
        mixed = teacher.mixed_batch(model, batch)
        teacher.supervised_loss(model, batch).backward()
        (teacher.UNLABELLED_WEIGHT * teacher.mixed_loss(model, *mixed)).backward()

    teacher.train = train


@harmless("micro batches", "teacher", group="whole step")
def teacher_sees_one_at_a_time(teacher):
    """The teacher is shown one picture after the other."""
    pseudo_labels = teacher.pseudo_labels

    def one_by_one(model, images):
        answers = [pseudo_labels(model, image) for image in images.split(1)]
        labels, weights = zip(*answers, strict=True)
        return torch.cat(labels), torch.cat(weights)

    teacher.pseudo_labels = one_by_one


@harmless("scaled", "teacher", group="whole step")
def losses_are_scaled(teacher):
    """Both losses are scaled, and their gradients are unscaled before the update."""
    supervised_loss, mixed_loss, train = teacher.supervised_loss, teacher.mixed_loss, teacher.train
    teacher.supervised_loss = lambda *inputs: 1024 * supervised_loss(*inputs)
    teacher.mixed_loss = lambda *inputs: 1024 * mixed_loss(*inputs)

    def unscaled(model, batch):
        train(model, batch)
        for p in model.student.parameters():
            p.grad.div_(1024)

    teacher.train = unscaled


@harmless("recomputed", "teacher", group="whole step")
def blocks_computed_again(teacher):
    """The blocks of the student are computed again in the backward pass."""
    build = teacher.build

    def built():
        model = build()
        model.student.gradient_checkpointing_enable()
        return model

    teacher.build = built
