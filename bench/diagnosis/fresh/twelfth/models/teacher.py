"""Street scenes with few labels: a SegFormer of transformers and its slow copy, the teacher."""

import torch
import torch.nn.functional as F
from torch import nn
from transformers import SegformerConfig, SegformerForSemanticSegmentation

PICTURES, SIZE, CLASSES, IGNORED = 3, 32, 5, 255
MEAN, STD = (0.45, 0.42, 0.40), (0.24, 0.23, 0.25)
CLASS_WEIGHTS = (0.6, 1.0, 1.4, 2.0, 0.8)
SURE, EMA_DECAY, UNLABELLED_WEIGHT = 0.24, 0.9, 1.0
LR, HEAD_FACTOR, MOMENTUM, WEIGHT_DECAY = 0.02, 10.0, 0.9, 1e-3
TOTAL, POWER = 16, 0.9


def make_config(**changes):
    given = {
        "num_encoder_blocks": 3,
        "depths": [1, 1, 1],
        "sr_ratios": [4, 2, 1],
        "hidden_sizes": [8, 12, 16],
        "patch_sizes": [7, 3, 3],
        "strides": [4, 2, 2],
        "num_attention_heads": [1, 2, 2],
        "mlp_ratios": [2, 2, 2],
        "decoder_hidden_size": 12,
        "num_labels": CLASSES,
        "drop_path_rate": 0.0,
        "classifier_dropout_prob": 0.0,
        "initializer_range": 0.15,
        "semantic_loss_ignore_index": IGNORED,
    }
    return SegformerConfig(**(given | changes))


class Classroom(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = SegformerForSemanticSegmentation(make_config())
        self.teacher = SegformerForSemanticSegmentation(make_config())
        self.teacher.load_state_dict(self.student.state_dict())
        self.teacher.requires_grad_(False)
        self.register_buffer("class_weights", torch.tensor(CLASS_WEIGHTS))
        self.steps_done = 0


def normalize(images):
    mean = torch.tensor(MEAN).view(3, 1, 1)
    std = torch.tensor(STD).view(3, 1, 1)
    return (images - mean) / std


def upsample(logits, size):
    return F.interpolate(logits, size=size, mode="bilinear", align_corners=False)


def predict(net, images):
    """Scores of classes for each pixel of the picture."""
    logits = net(pixel_values=normalize(images)).logits
    return upsample(logits, images.shape[-2:])


def set_modes(model):
    model.student.train()
    model.teacher.eval()


@torch.no_grad()
def pseudo_labels(model, images):
    """What the teacher sees, and in how much of each picture it is sure."""
    chance = predict(model.teacher, images).softmax(dim=1)
    confidence, labels = chance.max(dim=1)
    sure = (confidence > SURE).to(chance.dtype)
    quality = sure.mean(dim=(1, 2), keepdim=True)
    return labels, quality.expand_as(confidence)


def mix(box, labelled, other):
    return torch.where(box, labelled, other)


def jitter(images, light, contrast):
    """The light and the contrast of each picture are changed."""
    middle = images.mean(dim=(1, 2, 3), keepdim=True)
    return ((images - middle) * contrast + middle * light).clamp(0, 1)


def mixed_batch(model, batch):
    """A part of a labelled picture is laid on one without labels."""
    box = batch["box"]
    labels, weights = pseudo_labels(model, batch["unlabelled"])
    images = mix(box.unsqueeze(1), batch["images"], batch["unlabelled"])
    images = jitter(images, batch["light"], batch["contrast"])
    labels = mix(box, batch["labels"], labels)
    weights = mix(box, torch.ones_like(weights), weights)
    return images, labels, weights


def pixel_losses(logits, labels, class_weights=None):
    return F.cross_entropy(
        logits, labels, weight=class_weights, ignore_index=IGNORED, reduction="none"
    )


def supervised_loss(model, batch):
    """A mean that is weighted by classes."""
    logits, labels = predict(model.student, batch["images"]), batch["labels"]
    losses = pixel_losses(logits, labels, model.class_weights)
    known = labels != IGNORED
    weights = model.class_weights[labels.where(known, 0)] * known
    return losses.sum() / weights.sum()


def weighted_mean(losses, weights, labels):
    """Over the pixels that have a label."""
    known = labels != IGNORED
    return (losses * weights).sum() / known.sum()


def mixed_loss(model, images, labels, weights):
    losses = pixel_losses(predict(model.student, images), labels)
    return weighted_mean(losses, weights, labels)


def train(model, batch):
    mixed = mixed_batch(model, batch)
    loss = supervised_loss(model, batch)
    loss = loss + UNLABELLED_WEIGHT * mixed_loss(model, *mixed)
    loss.backward()


def ema_decay(model):
    """The teacher follows quickly at first."""
    return min(1 - 1 / (model.steps_done + 2), EMA_DECAY)


@torch.no_grad()
def follow_weights(model, decay):
    for slow, fast in zip(model.teacher.parameters(), model.student.parameters(), strict=True):
        slow.mul_(decay).add_(fast, alpha=1 - decay)


@torch.no_grad()
def follow_statistics(model):
    for slow, fast in zip(model.teacher.buffers(), model.student.buffers(), strict=True):
        slow.copy_(fast)


def update_teacher(model):
    follow_weights(model, ema_decay(model))
    follow_statistics(model)
    model.steps_done += 1


def build():
    return Classroom()


def in_head(name):
    return name.startswith("decode_head.")


def param_groups(model):
    groups = {}
    for name, p in model.student.named_parameters():
        rate = LR * HEAD_FACTOR if in_head(name) else LR
        decay = 0.0 if p.ndim == 1 else WEIGHT_DECAY
        groups.setdefault((rate, decay), []).append(p)
    return [{"params": ps, "lr": rate, "weight_decay": d} for (rate, d), ps in groups.items()]


def optimizer(model, **more):
    made = torch.optim.SGD(param_groups(model), momentum=MOMENTUM, **more)
    model.scheduler = torch.optim.lr_scheduler.PolynomialLR(made, TOTAL, power=POWER)
    return made


def scenes(generator):
    """Pictures of a few squares; where two classes meet nobody has labelled them."""
    coarse = torch.randint(0, CLASSES, (PICTURES, 4, 4), generator=generator)
    labels = coarse.repeat_interleave(8, 1).repeat_interleave(8, 2)
    colours = torch.linspace(0.1, 0.9, 3 * CLASSES).view(CLASSES, 3)
    noise = 0.1 * torch.rand(PICTURES, 3, SIZE, SIZE, generator=generator)
    images = (colours[labels].permute(0, 3, 1, 2) + noise).clamp(0, 1)
    hidden = torch.rand(PICTURES, SIZE, SIZE, generator=generator) < 0.15
    return images, labels.masked_fill(hidden, IGNORED)


def batch(generator):
    images, labels = scenes(generator)
    unlabelled, _ = scenes(generator)
    box = torch.zeros(PICTURES, SIZE, SIZE, dtype=torch.bool)
    for row in range(PICTURES):
        top, left = torch.randint(0, SIZE // 2, (2,), generator=generator).tolist()
        box[row, top : top + 16, left : left + 12] = True
    changes = torch.rand(2, PICTURES, 1, 1, 1, generator=generator)
    return {
        "images": images,
        "labels": labels,
        "unlabelled": unlabelled,
        "box": box,
        "light": 0.8 + 0.4 * changes[0],
        "contrast": 0.7 + 0.6 * changes[1],
    }


def step(model, optimizer, batch):
    set_modes(model)
    optimizer.zero_grad()
    train(model, batch)
    optimizer.step()
    model.scheduler.step()
    update_teacher(model)
