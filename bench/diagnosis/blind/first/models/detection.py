"""A detector: a pyramid of two levels, anchors, a focal loss of classes and a loss of boxes."""

import torch
from torch import nn
from torch.nn import functional as F

EXTENT, WIDTH, CLASSES, BATCH, BOXES = 16, 16, 3, 3, 2
STRIDES, SIDES, RATIOS = (2, 4), (4.0, 8.0), (0.5, 1.0)
ALPHA, GAMMA, BETA = 0.25, 2.0, 0.11
FOREGROUND, BACKGROUND = 0.35, 0.2
PRIOR = 0.05
BOX_WEIGHT = 1.5


def anchors():
    """Boxes as x0, y0, x1, y1 of all places of both levels."""
    parts = []
    for stride, side in zip(STRIDES, SIDES, strict=True):
        places = (torch.arange(EXTENT // stride) + 0.5) * stride
        y, x = torch.meshgrid(places, places, indexing="ij")
        centres = torch.stack([x, y], dim=-1).flatten(0, 1)
        shapes = torch.tensor([[side / r**0.5, side * r**0.5] for r in RATIOS])
        low = centres[:, None] - shapes / 2
        parts.append(torch.cat([low, low + shapes], dim=-1).flatten(0, 1))
    return torch.cat(parts)


def overlap(a, b):
    """Intersection over union of all pairs, (len(a), len(b))."""
    low = torch.maximum(a[:, None, :2], b[None, :, :2])
    high = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    common = (high - low).clamp(min=0).prod(-1)
    area_a, area_b = (a[:, 2:] - a[:, :2]).prod(-1), (b[:, 2:] - b[:, :2]).prod(-1)
    return common / (area_a[:, None] + area_b[None] - common)


def encode(boxes, base):
    """Boxes relative to anchors: shifts of the centre and logarithms of the extents."""
    size, base_size = boxes[:, 2:] - boxes[:, :2], base[:, 2:] - base[:, :2]
    shift = ((boxes[:, :2] + boxes[:, 2:]) - (base[:, :2] + base[:, 2:])) / 2 / base_size
    return torch.cat([shift, torch.log(size / base_size)], dim=-1)


def match(base, boxes):
    """(index of the box of each anchor, whether foreground, whether it counts at all)."""
    best, index = overlap(base, boxes).max(dim=1)
    return index, best >= FOREGROUND, (best >= FOREGROUND) | (best < BACKGROUND)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 3, stride=2, padding=1)
        self.norm1 = nn.GroupNorm(4, WIDTH)
        self.deep = nn.Conv2d(WIDTH, WIDTH, 3, stride=2, padding=1)
        self.norm2 = nn.GroupNorm(4, WIDTH)
        self.lateral = nn.Conv2d(WIDTH, WIDTH, 1)
        self.smooth = nn.Conv2d(WIDTH, WIDTH, 3, padding=1)

    def forward(self, x):
        fine = F.relu(self.norm1(self.stem(x)))
        coarse = F.relu(self.norm2(self.deep(fine)))
        up = F.interpolate(coarse, scale_factor=2, mode="nearest")
        return self.smooth(self.lateral(fine) + up), coarse


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = Backbone()
        self.classes = nn.Conv2d(WIDTH, len(RATIOS) * CLASSES, 3, padding=1)
        self.boxes = nn.Conv2d(WIDTH, len(RATIOS) * 4, 3, padding=1)

    def flat(self, x, size):
        """(batch, ratios * size, height, width) -> (batch, places * ratios, size)."""
        return x.unflatten(1, (len(RATIOS), size)).permute(0, 3, 4, 1, 2).flatten(1, 3)

    def forward(self, pictures):
        levels = self.backbone(pictures)
        classes = torch.cat([self.flat(self.classes(x), CLASSES) for x in levels], dim=1)
        boxes = torch.cat([self.flat(self.boxes(x), 4) for x in levels], dim=1)
        return classes, boxes


def build():
    model = Detector()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter)
    nn.init.constant_(model.classes.bias, -torch.log(torch.tensor((1 - PRIOR) / PRIOR)).item())
    return model


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)


def batch(generator):
    dtype = torch.get_default_dtype()
    pictures = torch.randn(BATCH, 3, EXTENT, EXTENT, generator=generator).to(dtype)
    low = torch.rand(BATCH, BOXES, 2, generator=generator).to(dtype) * 8
    size = torch.rand(BATCH, BOXES, 2, generator=generator).to(dtype) * 5 + 3
    labels = torch.randint(CLASSES, (BATCH, BOXES), generator=generator)
    return pictures, torch.cat([low, low + size], dim=-1), labels


def focal(logits, wanted):
    """The focal loss of each entry."""
    chance = torch.sigmoid(logits)
    right = chance * wanted + (1 - chance) * (1 - wanted)
    weight = ALPHA * wanted + (1 - ALPHA) * (1 - wanted)
    plain = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    return weight * (1 - right) ** GAMMA * plain


def box_loss(predicted, wanted):
    return F.smooth_l1_loss(predicted, wanted, beta=BETA, reduction="sum")


def picture_loss(base, logits, offsets, boxes, labels):
    """(the sum of both losses of a picture, anchors in the foreground)."""
    index, foreground, counts = match(base, boxes)
    wanted = F.one_hot(labels[index], CLASSES).to(logits.dtype) * foreground[:, None]
    classes = (focal(logits, wanted) * counts[:, None]).sum()
    aims = encode(boxes[index], base)[foreground]
    return classes + BOX_WEIGHT * box_loss(offsets[foreground], aims), foreground.sum()


def loss(classes, offsets, boxes, labels):
    base = anchors().to(classes.dtype)
    parts = [
        picture_loss(base, *each) for each in zip(classes, offsets, boxes, labels, strict=True)
    ]
    count = sum(number for _, number in parts)
    return sum(value for value, _ in parts) / count.clamp(min=1)


def step(model, optimizer, batch):
    pictures, boxes, labels = batch
    optimizer.zero_grad()
    classes, offsets = model(pictures)
    loss(classes, offsets, boxes, labels).backward()
    optimizer.step()
