"""Pictures without labels: a vision transformer of timm learns from its slow copy, as in DINO."""

import copy
import itertools
import math
from functools import partial

import libraries

libraries.add_timm()
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from timm.models.vision_transformer import VisionTransformer  # noqa: E402
from torch import nn  # noqa: E402

PICTURES, WHOLE, SIZE, SMALL, PATCH = 4, 24, 16, 8, 4
WIDTH, BOTTLENECK, PROTOTYPES, NORM_EPS = 24, 12, 20, 1e-5
GLOBALS, LOCALS = 2, 3
# How large the part of a picture is that a crop shows.
PARTS = (20,) * GLOBALS + (10,) * LOCALS
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STUDENT_TEMP, TEACHER_TEMP, WARM_TEMP, WARM_STEPS = 0.1, 0.07, 0.04, 4
CENTER_MOMENTUM, EMA_MOMENTUM, FROZEN_STEPS, CLIP = 0.9, 0.9, 1, 0.3
LR, WEIGHT_DECAY, LAST_DECAY, STEPS = 3e-3, 0.04, 0.4, 12


class Head(nn.Module):
    """Prototypes have the length one."""

    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(WIDTH, 32)
        self.fc2 = nn.Linear(32, BOTTLENECK)
        self.last = nn.Linear(BOTTLENECK, PROTOTYPES, bias=False)

    def prototypes(self, x):
        return F.linear(x, F.normalize(self.last.weight, dim=1))

    def forward(self, x):
        x = self.fc2(F.gelu(self.fc1(x)))
        return self.prototypes(F.normalize(x, dim=-1))


def make_backbone(**more):
    return VisionTransformer(
        img_size=SIZE,
        patch_size=PATCH,
        num_classes=0,
        embed_dim=WIDTH,
        depth=2,
        num_heads=2,
        mlp_ratio=2.0,
        norm_layer=partial(nn.LayerNorm, eps=NORM_EPS),
        dynamic_img_size=True,
        **more,
    )


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = make_backbone()
        self.head = Head()
        for weight in self.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.2)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = Net()
        self.teacher = copy.deepcopy(self.student).requires_grad_(False)
        self.register_buffer("center", torch.zeros(1, PROTOTYPES))
        self.done = 0


def normalised(pictures):
    mean, std = (pictures.new_tensor(each).view(3, 1, 1) for each in (MEAN, STD))
    return (pictures - mean) / std


def cut(pictures, corners, part, size):
    """A part of each picture, in the size that the model gets."""
    corners = corners.tolist()
    parts = [p[:, y : y + part, x : x + part] for p, (y, x) in zip(pictures, corners, strict=True)]
    return F.interpolate(torch.stack(parts), size=(size, size), mode="bilinear")


def flipped(pictures, flip):
    return torch.where(flip.view(-1, 1, 1, 1), pictures.flip(-1), pictures)


def jittered(pictures, contrast, light):
    """Contrast is about the mean of a picture."""
    mean = pictures.mean(dim=(1, 2, 3), keepdim=True)
    return mean + contrast.view(-1, 1, 1, 1) * (pictures - mean) + light.view(-1, 1, 1, 1)


def crops_of(batch):
    """Large crops first, then small ones."""
    crops = []
    for k, part in enumerate(PARTS):
        size = SIZE if k < GLOBALS else SMALL
        crop = cut(batch["pictures"], batch["corners"][:, k], part, size)
        crop = flipped(crop, batch["flip"][:, k])
        crops.append(normalised(jittered(crop, batch["contrast"][:, k], batch["light"][:, k])))
    return crops


def run(net, crops):
    """Crops of one size go through the backbone together; all of them through the head."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        groups = itertools.groupby(crops, key=lambda crop: crop.shape[-1])
        features = [net.backbone(torch.cat(list(group))) for _, group in groups]
        return net.head(torch.cat(features)).float()


def teacher_temp(step):
    """Goes up in the first steps."""
    return WARM_TEMP + (TEACHER_TEMP - WARM_TEMP) * min(step / WARM_STEPS, 1.0)


def targets_of(pair, logits):
    return torch.softmax((logits - pair.center) / teacher_temp(pair.done), dim=-1)


def dino_loss(student_logits, targets):
    """The mean over pairs of different crops."""
    scores = (student_logits / STUDENT_TEMP).chunk(GLOBALS + LOCALS)
    total, terms = 0.0, 0
    for i, target in enumerate(targets.chunk(GLOBALS)):
        for j, score in enumerate(scores):
            if i == j:
                continue
            loss = -(target * F.log_softmax(score, dim=-1)).sum(dim=-1)
            total = total + loss.mean()
            terms += 1
    return total / terms


@torch.no_grad()
def teach(pair, crops):
    """The teacher sees the large crops alone."""
    return run(pair.teacher, crops[:GLOBALS])


def loss_of(pair, crops):
    taught = teach(pair, crops)
    loss = dino_loss(run(pair.student, crops), targets_of(pair, taught))
    return loss, taught


def backward(pair, crops):
    loss, taught = loss_of(pair, crops)
    loss.backward()
    return taught


def clip(pair):
    """The gradient of each weight has a length of its own that is not surpassed."""
    for p in pair.student.parameters():
        length = p.grad.norm()
        p.grad.mul_((CLIP / (length + 1e-6)).clamp(max=1.0))


def freeze_last_layer(pair):
    """The prototypes do not learn in the beginning."""
    if pair.done < FROZEN_STEPS:
        pair.student.head.last.weight.grad = None


@torch.no_grad()
def update_center(pair, taught):
    mean = taught.mean(dim=0, keepdim=True)
    pair.center.copy_(pair.center * CENTER_MOMENTUM + mean * (1 - CENTER_MOMENTUM))


@torch.no_grad()
def update_teacher(pair):
    mine = list(pair.student.parameters())
    torch._foreach_lerp_(list(pair.teacher.parameters()), mine, 1 - EMA_MOMENTUM)


def cosine(first, last, step):
    return last + 0.5 * (first - last) * (1 + math.cos(math.pi * step / STEPS))


def set_rates(pair, optimizer):
    """Rates go down while the decay goes up; biases and norms do not decay."""
    for group in optimizer.param_groups:
        group["lr"] = cosine(LR, 1e-5, pair.done)
        if group["decays"]:
            group["weight_decay"] = cosine(WEIGHT_DECAY, LAST_DECAY, pair.done)


def build():
    return Pair().train()


def optimizer(pair, **more):
    weights = list(pair.student.parameters())
    matrices = {"params": [p for p in weights if p.ndim > 1], "decays": True}
    others = {"params": [p for p in weights if p.ndim <= 1], "decays": False, "weight_decay": 0.0}
    return torch.optim.AdamW([matrices, others], lr=LR, **more)


def batch(generator):
    """Pictures of few colours, and what is done with each crop."""

    def rand(*size):
        return torch.rand(*size, generator=generator)

    count = len(PARTS)
    room = torch.tensor([WHOLE - part for part in PARTS]).view(1, -1, 1)
    return {
        "pictures": F.interpolate(rand(PICTURES, 3, 6, 6), size=(WHOLE, WHOLE), mode="bicubic"),
        "corners": (rand(PICTURES, count, 2) * (room + 1)).long(),
        "flip": rand(PICTURES, count) < 0.5,
        "contrast": 0.7 + 0.6 * rand(PICTURES, count),
        "light": 0.2 * rand(PICTURES, count) - 0.1,
    }


def step(pair, optimizer, batch):
    set_rates(pair, optimizer)
    optimizer.zero_grad()
    taught = backward(pair, crops_of(batch))
    clip(pair)
    freeze_last_layer(pair)
    optimizer.step()
    update_center(pair, taught)
    update_teacher(pair)
    pair.done += 1
