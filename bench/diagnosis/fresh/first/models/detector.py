"""A detector of one stage: a small pyramid, anchors, matching by overlap, focal loss."""

import math

import torch
from torch import nn
from torch.nn import functional as F

CLASSES, SIZE, BATCH = 3, 32, 3
STRIDES = (4, 8)
RATIOS = (0.5, 1.0, 2.0)
SCALE = 3.0
FOREGROUND, BACKGROUND = 0.5, 0.4
ALPHA, GAMMA, BETA = 0.25, 2.0, 1.0 / 9
IGNORED = -2
WARM_UP = 3


class FrozenBatchNorm(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.register_buffer("weight", torch.rand(channels) + 0.5)
        self.register_buffer("bias", torch.randn(channels) * 0.1)
        self.register_buffer("mean", torch.randn(channels) * 0.1)
        self.register_buffer("var", torch.rand(channels) + 0.5)

    def forward(self, x):
        scale = self.weight * (self.var + self.eps).rsqrt()
        shift = self.bias - self.mean * scale
        return x * scale[:, None, None] + shift[:, None, None]


def conv_bn(inside, outside, stride):
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
        FrozenBatchNorm(outside),
        nn.ReLU(inplace=True),
    )


class Pyramid(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = conv_bn(3, 8, 2)
        self.c2 = conv_bn(8, 12, 2)
        self.c3 = conv_bn(12, 16, 2)
        self.lateral2 = nn.Conv2d(12, width, 1)
        self.lateral3 = nn.Conv2d(16, width, 1)
        self.out2 = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        c2 = self.c2(self.stem(x))
        c3 = self.c3(c2)
        p3 = self.lateral3(c3)
        top = F.interpolate(p3, scale_factor=2, mode="nearest")
        p2 = self.lateral2(c2) + top
        return [self.out2(p2), p3]


class Head(nn.Module):
    def __init__(self, width, outputs, prior=None):
        super().__init__()
        self.outputs = outputs
        self.tower = nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.ReLU())
        self.last = nn.Conv2d(width, len(RATIOS) * outputs, 3, padding=1)
        if prior is not None:
            nn.init.constant_(self.last.bias, -math.log((1 - prior) / prior))

    def flat(self, y):
        n, _, h, w = y.shape
        y = y.view(n, len(RATIOS), self.outputs, h, w)
        y = y.permute(0, 3, 4, 1, 2)
        return y.reshape(n, -1, self.outputs)

    def forward(self, levels):
        return torch.cat([self.flat(self.last(self.tower(x))) for x in levels], dim=1)


def cell_anchors(stride):
    ratios = torch.tensor(RATIOS)
    area = (SCALE * stride) ** 2
    widths = (area / ratios).sqrt()
    heights = widths * ratios
    return torch.stack([-widths, -heights, widths, heights], dim=1) / 2


def grid_anchors(levels):
    made = []
    for x, stride in zip(levels, STRIDES, strict=True):
        h, w = x.shape[-2:]
        ys = (torch.arange(h) + 0.5) * stride
        xs = (torch.arange(w) + 0.5) * stride
        y, x = torch.meshgrid(ys, xs, indexing="ij")
        shifts = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4)
        made.append((shifts + cell_anchors(stride)).reshape(-1, 4))
    return torch.cat(made)


def area_of(boxes):
    return (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])


def overlaps(boxes, anchors):
    low = torch.max(boxes[:, None, :2], anchors[None, :, :2])
    high = torch.min(boxes[:, None, 2:], anchors[None, :, 2:])
    size = (high - low).clamp(min=0)
    inner = size[..., 0] * size[..., 1]
    return inner / (area_of(boxes)[:, None] + area_of(anchors)[None] - inner)


def match(boxes, anchors):
    """The index of the box of each anchor; -1 for background, -2 between."""
    iou = overlaps(boxes, anchors)
    best, index = iou.max(dim=0)
    index = index.masked_fill(best < FOREGROUND, IGNORED)
    index = index.masked_fill(best < BACKGROUND, -1)
    return keep_best(iou, index)


def keep_best(iou, index):
    """Each box keeps the anchor that overlaps most."""
    index = index.clone()
    index[iou.argmax(dim=1)] = torch.arange(iou.shape[0])
    return index


def encode(boxes, anchors):
    size = anchors[:, 2:] - anchors[:, :2]
    centre = anchors[:, :2] + size / 2
    wanted = boxes[:, 2:] - boxes[:, :2]
    shift = (boxes[:, :2] + wanted / 2 - centre) / size
    return torch.cat([shift, (wanted / size).log()], dim=1)


def focal(logits, target):
    p = logits.sigmoid()
    ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p_t = p * target + (1 - p) * (1 - target)
    alpha_t = ALPHA * target + (1 - ALPHA) * (1 - target)
    return alpha_t * (1 - p_t) ** GAMMA * ce


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.pyramid = Pyramid(width)
        self.classes = Head(width, CLASSES, prior=0.1)
        self.boxes = Head(width, 4)

    def forward(self, pictures):
        levels = self.pyramid(pictures)
        return self.classes(levels), self.boxes(levels), grid_anchors(levels)


def picture_loss(logits, deltas, anchors, boxes, labels):
    index = match(boxes, anchors)
    known = index != IGNORED
    positive = index >= 0
    target = torch.zeros_like(logits)
    target[positive, labels[index[positive]]] = 1
    loss = focal(logits[known], target[known]).sum()
    wanted = encode(boxes[index[positive]], anchors[positive])
    regression = F.smooth_l1_loss(deltas[positive], wanted, beta=BETA, reduction="sum")
    return loss + regression, positive.sum()


def detection_loss(model, pictures, boxes, labels):
    logits, deltas, anchors = model(pictures)
    total, count = 0.0, 0
    for each in zip(logits, deltas, boxes, labels, strict=True):
        value, positive = picture_loss(each[0], each[1], anchors, each[2], each[3])
        total = total + value
        count = count + positive
    return total / count.clamp(min=1)


def build():
    return Detector()


def optimizer(model):
    bias = [p for name, p in model.named_parameters() if name.endswith("bias")]
    rest = [p for name, p in model.named_parameters() if not name.endswith("bias")]
    made = torch.optim.SGD(
        [{"params": rest}, {"params": bias, "lr": 0.02, "weight_decay": 0}],
        lr=0.01,
        momentum=0.9,
        weight_decay=1e-3,
    )
    model.schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda t: min(1, (t + 1) / WARM_UP))
    return made


def batch(generator):
    pictures = torch.randn(BATCH, 3, SIZE, SIZE, generator=generator)
    low = torch.rand(BATCH, 2, 2, generator=generator) * 16
    size = torch.rand(BATCH, 2, 2, generator=generator) * 12 + 5
    labels = torch.randint(0, CLASSES, (BATCH, 2), generator=generator)
    return pictures, torch.cat([low, low + size], dim=-1), labels


def step(model, optimizer, batch):
    optimizer.zero_grad()
    loss = detection_loss(model, *batch)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 10.0)
    optimizer.step()
    model.schedule.step()
