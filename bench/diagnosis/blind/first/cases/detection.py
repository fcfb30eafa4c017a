"""Cases of the detector."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def pictures_in_another_order(detection):
    """The pictures are in another order, and the boxes of each as well."""
    step = detection.step

    def reordered(model, optimizer, batch):
        pictures, boxes, labels = (each.roll(1, 0) for each in batch)
        return step(model, optimizer, (pictures, boxes.flip(1), labels.flip(1)))

    detection.step = reordered


def picture_by_picture(detection):
    """Each picture goes through the model and backward on its own; the count is made before."""

    def step(model, optimizer, batch):
        base = detection.anchors().to(batch[1].dtype)
        count = sum(detection.match(base, boxes)[1].sum() for boxes in batch[1])
        optimizer.zero_grad()
        for pictures, boxes, labels in zip(*(each.split(1) for each in batch), strict=True):
            classes, offsets = model(pictures)
            value, _ = detection.picture_loss(base, classes[0], offsets[0], boxes[0], labels[0])
            (value / count.clamp(min=1)).backward()
        optimizer.step()

    detection.step = step


@fault("detection", line="places = (torch.arange(EXTENT // stride) + 0.5) * stride")
def anchors_at_corners(detection):
    """The centres of the anchors are the corners of the places: half a stride too low."""

    def anchors():
        parts = []
        for stride, side in zip(detection.STRIDES, detection.SIDES, strict=True):
            places = torch.arange(detection.EXTENT // stride) * float(stride)  # here
            y, x = torch.meshgrid(places, places, indexing="ij")
            centres = torch.stack([x, y], dim=-1).flatten(0, 1)
            shapes = torch.tensor([[side / r**0.5, side * r**0.5] for r in detection.RATIOS])
            low = centres[:, None] - shapes / 2
            parts.append(torch.cat([low, low + shapes], dim=-1).flatten(0, 1))
        return torch.cat(parts)

    detection.anchors = anchors


@fault("detection", line="y, x = torch.meshgrid(places, places", api="Torch.meshgrid")
def rows_and_columns_exchanged(detection):
    """The grid of the anchors has x and y exchanged: the same boxes in another order."""

    def anchors():
        parts = []
        for stride, side in zip(detection.STRIDES, detection.SIDES, strict=True):
            places = (torch.arange(detection.EXTENT // stride) + 0.5) * stride
            x, y = torch.meshgrid(places, places, indexing="ij")  # here
            centres = torch.stack([x, y], dim=-1).flatten(0, 1)  # here
            shapes = torch.tensor([[side / r**0.5, side * r**0.5] for r in detection.RATIOS])
            low = centres[:, None] - shapes / 2
            parts.append(torch.cat([low, low + shapes], dim=-1).flatten(0, 1))
        return torch.cat(parts)

    detection.anchors = anchors


@fault("detection", line="weight = ALPHA * wanted + (1 - ALPHA)")
def weight_of_the_background(detection):
    """The focal loss weighs foreground and background the other way round."""

    def focal(logits, wanted):
        chance = torch.sigmoid(logits)
        right = chance * wanted + (1 - chance) * (1 - wanted)
        weight = detection.ALPHA * (1 - wanted) + (1 - detection.ALPHA) * wanted  # here
        plain = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
        return weight * (1 - right) ** detection.GAMMA * plain

    detection.focal = focal


@fault("detection", line="return torch.cat([shift, torch.log(size / base_size)]", api="Torch.log")
def extents_without_logarithm(detection):
    """Extents are quotients, without the logarithm."""

    def encode(boxes, base):
        size, base_size = boxes[:, 2:] - boxes[:, :2], base[:, 2:] - base[:, :2]
        shift = ((boxes[:, :2] + boxes[:, 2:]) - (base[:, :2] + base[:, 2:])) / 2 / base_size
        return torch.cat([shift, size / base_size], dim=-1)  # here

    detection.encode = encode


@fault(
    "detection",
    beside=pictures_in_another_order,
    api="Functional.smooth_l1_loss",
    line="return F.smooth_l1_loss(predicted, wanted, beta=BETA",
)
def beta_of_the_box_loss(detection):
    """The loss of boxes has the default beta of 1."""
    detection.BETA = 1.0


@fault(
    "detection",
    beside=picture_by_picture,
    line="return x.unflatten(1, (len(RATIOS), size)).permute(0, 3, 4, 1, 2)",
    module="",
    module_only="|backbone.*|classes|boxes",
    api="Tensor.permute|Tensor.unflatten",
)
def ratios_before_places(detection):
    """Predictions are flattened with the ratios before the places, unlike the anchors."""

    class Detector(detection.Detector):
        def flat(self, x, size):
            x = x.unflatten(1, (len(detection.RATIOS), size))
            return x.permute(0, 1, 3, 4, 2).flatten(1, 3)  # here

    detection.Detector = Detector


harmless("rows", "detection")(pictures_in_another_order)
harmless("micro batches", "detection")(picture_by_picture)


@harmless("loss", "detection")
def focal_of_logarithms(detection):
    """The focal loss by logsigmoid of both signs, and the box loss written out."""

    def focal(logits, wanted):
        yes = -F.logsigmoid(logits) * torch.sigmoid(-logits) ** detection.GAMMA
        no = -F.logsigmoid(-logits) * torch.sigmoid(logits) ** detection.GAMMA
        return detection.ALPHA * wanted * yes + (1 - detection.ALPHA) * (1 - wanted) * no

    def box_loss(predicted, wanted):
        apart = (predicted - wanted).abs()
        small = 0.5 * apart.square() / detection.BETA
        return torch.where(apart < detection.BETA, small, apart - 0.5 * detection.BETA).sum()

    detection.focal = focal
    detection.box_loss = box_loss


@harmless("split", "detection")
def both_heads_in_one_convolution(detection):
    """Classes and boxes by one convolution with joined kernels."""

    class Detector(detection.Detector):
        def forward(self, pictures):
            kernel = torch.cat([self.classes.weight, self.boxes.weight])
            bias = torch.cat([self.classes.bias, self.boxes.bias])
            parts = [[], []]
            ratios = len(detection.RATIOS)
            for x in self.backbone(pictures):
                joined = F.conv2d(x, kernel, bias, padding=1)
                split = joined.split([ratios * detection.CLASSES, ratios * 4], dim=1)
                parts[0].append(self.flat(split[0], detection.CLASSES))
                parts[1].append(self.flat(split[1], 4))
            return torch.cat(parts[0], dim=1), torch.cat(parts[1], dim=1)

    detection.Detector = Detector
