"""Cases of the detector."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault("detector", line=["ys = (torch.arange(h) + 0.5)", "xs = (torch.arange(w) + 0.5)"])
def anchors_at_the_corner(detector):
    """Anchors stand at the corner of a cell, not at its centre."""

    def grid_anchors(levels):
        made = []
        for x, stride in zip(levels, detector.STRIDES, strict=True):
            h, w = x.shape[-2:]
            ys = torch.arange(h) * stride  # here
            xs = torch.arange(w) * stride  # here
            y, x = torch.meshgrid(ys, xs, indexing="ij")  # here
            shifts = torch.stack([x, y, x, y], dim=-1).reshape(-1, 1, 4)
            made.append((shifts + detector.cell_anchors(stride)).reshape(-1, 4))
        return torch.cat(made)

    detector.grid_anchors = grid_anchors


@fault("detector", line="size = (high - low).clamp(min=0)")
def overlap_not_clamped(detector):
    """The size of the intersection is not clamped: two negative sides make a positive area."""

    def overlaps(boxes, anchors):
        low = torch.max(boxes[:, None, :2], anchors[None, :, :2])
        high = torch.min(boxes[:, None, 2:], anchors[None, :, 2:])
        size = high - low  # here
        inner = size[..., 0] * size[..., 1]  # here
        rest = detector.area_of(boxes)[:, None] + detector.area_of(anchors)[None] - inner
        return inner / rest

    detector.overlaps = overlaps


@fault("detector", module="classes|boxes", line=["y = y.view(n, len(RATIOS)", "y = y.permute(0, 3"])
def heads_without_permute(detector):
    """The head's channels are flattened as they lie: places and outputs are mixed up."""

    class Head(detector.Head):
        def flat(self, y):
            return y.reshape(y.shape[0], -1, self.outputs)  # here

        def forward(self, levels):
            return torch.cat([self.flat(self.last(self.tower(x))) for x in levels], dim=1)  # here

    detector.Head = Head


@fault("detector", line="alpha_t = ALPHA * target")
def alpha_of_the_other_class(detector):
    """Focal loss weighs the background with alpha and objects with the rest."""

    def focal(logits, target):
        p = logits.sigmoid()
        ce = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        p_t = p * target + (1 - p) * (1 - target)
        alpha_t = (1 - detector.ALPHA) * target + detector.ALPHA * (1 - target)  # here
        return alpha_t * (1 - p_t) ** detector.GAMMA * ce

    detector.focal = focal


@fault(
    "detector",
    line=["index = index.masked_fill(best < FOREGROUND", "index.masked_fill(best < BACK"],
)
def anchors_between_are_background(detector):
    """Anchors between both thresholds are not ignored: they count as background."""

    def match(boxes, anchors):
        iou = detector.overlaps(boxes, anchors)
        best, index = iou.max(dim=0)
        index = index.masked_fill(best < detector.FOREGROUND, -1)  # here
        return detector.keep_best(iou, index)  # here

    detector.match = match


@fault("detector", line="return torch.cat([shift, (wanted / size).log()]")
def sizes_without_logarithm(detector):
    """The regression's target of the size is the ratio less one, not its logarithm."""

    def encode(boxes, anchors):
        size = anchors[:, 2:] - anchors[:, :2]
        centre = anchors[:, :2] + size / 2
        wanted = boxes[:, 2:] - boxes[:, :2]
        shift = (boxes[:, :2] + wanted / 2 - centre) / size
        return torch.cat([shift, wanted / size - 1], dim=1)  # here

    detector.encode = encode


@fault("detector", module="pyramid", line="top = F.interpolate(p3, scale_factor=2")
def top_of_the_smoothed_level(detector):
    """The pyramid adds the top level bilinearly with aligned corners."""

    class Pyramid(detector.Pyramid):
        def forward(self, x):
            c2 = self.c2(self.stem(x))
            c3 = self.c3(c2)
            p3 = self.lateral3(c3)
            top = F.interpolate(p3, scale_factor=2, mode="bilinear", align_corners=True)  # here
            p2 = self.lateral2(c2) + top
            return [self.out2(p2), p3]

    detector.Pyramid = Pyramid


@harmless("split", "detector")
def overlaps_box_by_box(detector):
    """Overlaps are computed for one box at a time and stacked."""

    def overlaps(boxes, anchors):
        rows = []
        for box in boxes:
            width = torch.min(box[2], anchors[:, 2]) - torch.max(box[0], anchors[:, 0])
            height = torch.min(box[3], anchors[:, 3]) - torch.max(box[1], anchors[:, 1])
            inner = F.relu(width) * F.relu(height)
            own = (box[2] - box[0]) * (box[3] - box[1])
            rows.append(inner / (own + detector.area_of(anchors) - inner))
        return torch.stack(rows)

    detector.overlaps = overlaps


@harmless("loss", "detector")
def focal_by_logsigmoid(detector):
    """Focal loss as two terms with logsigmoid."""

    def focal(logits, target):
        p = logits.sigmoid()
        positive = -detector.ALPHA * (1 - p).pow(detector.GAMMA) * F.logsigmoid(logits)
        negative = -(1 - detector.ALPHA) * p.pow(detector.GAMMA) * F.logsigmoid(-logits)
        return torch.where(target > 0, positive, negative)

    detector.focal = focal


@harmless("rows", "detector", group="whole step")
def pictures_turned(detector):
    """The pictures are in another order."""
    step = detector.step
    detector.step = lambda model, optimizer, batch: step(
        model, optimizer, tuple(each[[2, 0, 1]] for each in batch)
    )


@harmless("micro batches", "detector", group="whole step")
def picture_after_picture(detector):
    """Each picture goes forward and backward alone; all gradients are divided by the positives."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        count = 0
        for pictures, boxes, labels in zip(*batch, strict=True):
            logits, deltas, anchors = model(pictures[None])
            value, positive = detector.picture_loss(logits[0], deltas[0], anchors, boxes, labels)
            value.backward()
            count += int(positive)
        for parameter in model.parameters():
            parameter.grad /= max(count, 1)
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        optimizer.step()
        model.schedule.step()

    detector.step = step


@harmless("fused", "detector")
def frozen_norm_by_batch_norm(detector):
    """The frozen norm by F.batch_norm with its running statistics."""

    class FrozenBatchNorm(detector.FrozenBatchNorm):
        def forward(self, x):
            return F.batch_norm(
                x, self.mean, self.var, self.weight, self.bias, training=False, eps=self.eps
            )

    detector.FrozenBatchNorm = FrozenBatchNorm
