"""Cases of the segmentation."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault(
    "segment",
    line=[
        "either = share.sum(dim=(2, 3)) + truth.sum",
        "both = (share * truth).sum",
        "return (1 - (2 * both + SMOOTH) / (either + SMOOTH)).mean()",
    ],
)
def overlap_of_the_batch(segment):
    """The overlap is that of a class in the whole batch, not in each picture."""

    def dice_loss(logits, labels):
        known = (labels != segment.IGNORED)[:, None]
        share = torch.softmax(logits, dim=1) * known
        truth = F.one_hot(labels.masked_fill(labels == segment.IGNORED, 0), segment.KINDS)
        truth = truth.permute(0, 3, 1, 2) * known
        both = (share * truth).sum(dim=(0, 2, 3))  # here
        either = share.sum(dim=(0, 2, 3)) + truth.sum(dim=(0, 2, 3))  # here
        return (1 - (2 * both + segment.SMOOTH) / (either + segment.SMOOTH)).mean()  # here

    segment.dice_loss = dice_loss


@fault(
    "segment",
    line=[
        "share = torch.softmax(logits, dim=1) * known",
        "both = (share * truth).sum",
        "either = share.sum(dim=(2, 3)) + truth",
    ],
)
def unknown_pixels_in_the_overlap(segment):
    """Pixels without a label count in the sum of the shares."""

    def dice_loss(logits, labels):
        known = (labels != segment.IGNORED)[:, None]
        share = torch.softmax(logits, dim=1)  # here
        truth = F.one_hot(labels.masked_fill(labels == segment.IGNORED, 0), segment.KINDS)
        truth = truth.permute(0, 3, 1, 2) * known
        both = (share * truth).sum(dim=(2, 3))
        either = share.sum(dim=(2, 3)) + truth.sum(dim=(2, 3))  # here
        return (1 - (2 * both + segment.SMOOTH) / (either + segment.SMOOTH)).mean()

    segment.dice_loss = dice_loss


@fault("segment", line="return (value * known).sum() / known.sum()")
def mean_over_all_pixels(segment):
    """The focal loss is divided by all pixels, known or not."""

    def focal_loss(logits, labels, weights):
        known = labels != segment.IGNORED
        log_p = F.log_softmax(logits, dim=1)
        chosen = labels.masked_fill(~known, 0)[:, None]
        log_p = log_p.gather(1, chosen)[:, 0]
        value = -((1 - log_p.exp()) ** segment.FOCUS) * log_p * weights[chosen[:, 0]]
        return (value * known).mean()  # here

    segment.focal_loss = focal_loss


@fault(
    "segment",
    line=[
        "value = -((1 - log_p.exp()) ** FOCUS) * log_p * weights",
        "log_p = log_p.gather(1, chosen)[:, 0]",
    ],
)
def focus_without_gradient(segment):
    """The weight of the focus is detached: the value is right, its gradient is not."""

    def focal_loss(logits, labels, weights):
        known = labels != segment.IGNORED
        log_p = F.log_softmax(logits, dim=1)
        chosen = labels.masked_fill(~known, 0)[:, None]
        log_p = log_p.gather(1, chosen)[:, 0]
        focus = ((1 - log_p.exp()) ** segment.FOCUS).detach()  # here
        value = -focus * log_p * weights[chosen[:, 0]]  # here
        return (value * known).sum() / known.sum()

    segment.focal_loss = focal_loss


@fault("segment", line=["return labels[:, ::2, ::2]"])
def coarse_labels_of_the_corner(segment):
    """The coarse labels are those of the first quarter of the picture."""
    segment.coarse = lambda labels: labels[:, : segment.SIZE // 2, : segment.SIZE // 2]  # here


@fault("segment", api="Functional.interpolate", line="wide = F.interpolate(self.narrow(low)")
def corners_aligned(segment):
    """The corners are aligned when the picture is made larger."""

    class Net(segment.Net):
        def forward(self, x):
            high = self.down1(x)
            low = self.gate(self.down2(high))
            wide = F.interpolate(  # here
                self.narrow(low), scale_factor=2, mode="bilinear", align_corners=True
            )
            fine = self.up(torch.cat([high, wide], dim=1))
            return self.head(fine), self.second(low)

    segment.Net = Net


@fault(
    "segment",
    line=[
        "nn.utils.clip_grad_norm_(model.parameters(), LARGEST)",
        "weight.grad.div_(SCALE)",
        "    unscale(model)",
    ],
)
def clipped_before_the_scale_is_out(segment):
    """Gradients are clipped while they are still scaled."""

    def update(model, optimizer):
        nn.utils.clip_grad_norm_(model.parameters(), segment.LARGEST)  # here
        segment.unscale(model)  # here
        model.muon.step()
        optimizer.step()

    segment.update = update


@fault(
    "segment",
    line=[
        'ahead = weight.grad + group["momentum"] * held',
        "matrix = ahead.flatten(1)",
        "x = matrix / (matrix.norm() + 1e-7)",
    ],
    api=r"Optimizer\.Muon\.step",
    update=True,
)
def momentum_not_ahead(segment):
    """Muon takes its momentum as it is, without Nesterov's look ahead; the second step shows it."""

    class Muon(segment.Muon):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for weight in group["params"]:
                    state = self.state[weight]
                    held = state.setdefault("momentum", torch.zeros_like(weight))
                    held.mul_(group["momentum"]).add_(weight.grad)
                    matrix = held.flatten(1)  # here
                    update = segment.orthogonal(matrix)  # here
                    update = update * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                    weight.mul_(1 - group["lr"] * group["decay"])
                    weight.add_(update.view_as(weight), alpha=-group["lr"])

    segment.Muon = Muon


@fault("segment", module=r"gate", line="pooled = x.mean(dim=(2, 3))")
def gate_of_one_row(segment):
    """The gate pools the columns only and takes the first row."""

    class Gate(segment.Gate):
        def forward(self, x):
            pooled = x.mean(dim=3)[:, :, 0]  # here
            share = torch.sigmoid(self.outside(F.relu(self.inside(pooled))))
            return x * share[:, :, None, None]

    segment.Gate = Gate


@harmless("fused", "segment")
def gate_by_convolutions(segment):
    """The gate as convolutions of one pixel."""

    class Gate(segment.Gate):
        def forward(self, x):
            pooled = F.adaptive_avg_pool2d(x, 1)
            h = F.relu(F.conv2d(pooled, self.inside.weight[:, :, None, None], self.inside.bias))
            h = F.conv2d(h, self.outside.weight[:, :, None, None], self.outside.bias)
            return torch.mul(h.sigmoid(), x)

    segment.Gate = Gate


@harmless("loss", "segment")
def focal_of_known_pixels(segment):
    """The focal loss picks the known pixels first, and takes cross_entropy for the logarithm."""

    def focal_loss(logits, labels, weights):
        known = labels != segment.IGNORED
        rows, own = logits.permute(0, 2, 3, 1)[known], labels[known]
        entropy = F.cross_entropy(rows, own, reduction="none")
        return ((1 - torch.exp(-entropy)).pow(segment.FOCUS) * entropy * weights[own]).mean()

    segment.focal_loss = focal_loss


@harmless("loss", "segment")
def dice_by_einsum(segment):
    """The overlap by einsum over flattened pixels."""

    def dice_loss(logits, labels):
        known = (labels != segment.IGNORED).flatten(1).to(logits.dtype)
        share = logits.flatten(2).softmax(dim=1)
        kinds = torch.arange(segment.KINDS)[None, :, None]
        truth = (labels.flatten(1)[:, None] == kinds).to(logits.dtype)
        both = torch.einsum("bkp,bkp,bp->bk", share, truth, known)
        either = torch.einsum("bkp,bp->bk", share + truth, known)
        ratio = torch.div(both.mul(2).add(segment.SMOOTH), either.add(segment.SMOOTH))
        return 1 - ratio.mean()

    segment.dice_loss = dice_loss


@harmless("split", "segment")
def picture_joined_by_two_products(segment):
    """The concatenation is not made: the convolution is split into two that are added."""

    class Up(segment.Block):
        def forward(self, x):
            high, wide = x
            weight = self.conv1.weight
            x = F.conv2d(high, weight[:, : segment.WIDTH], padding=1)
            x = x + F.conv2d(wide, weight[:, segment.WIDTH :], padding=1)
            return F.gelu(self.norm2(self.conv2(F.gelu(self.norm1(x)))))

    class Net(segment.Net):
        def __init__(self):
            super().__init__()
            self.up.__class__ = Up

        def forward(self, x):
            high = self.down1(x)
            low = self.gate(self.down2(high))
            wide = F.interpolate(
                self.narrow(low), scale_factor=2, mode="bilinear", align_corners=False
            )
            return self.head(self.up((high, wide))), self.second(low)

    segment.Net = Net


@harmless("micro batches", "segment", group="whole step")
def one_picture_and_three(segment):
    """Micro-batches of one picture and of three, divided by the known pixels of the batch."""

    def backward(model, pictures, labels, weights):
        counts = [(each != segment.IGNORED).sum() for each in (labels, segment.coarse(labels))]
        for part in (slice(0, 1), slice(1, None)):
            own = labels[part]
            share = len(own) / len(labels)
            with segment.precision():
                outputs = model(pictures[part])
            loss = 0.0
            truths, factors = (own, segment.coarse(own)), (1.0, segment.AUXILIARY)
            sides = zip(outputs, truths, counts, factors, strict=True)
            for logits, truth, count, factor in sides:
                logits = logits.float()
                focal = segment.focal_loss(logits, truth, weights)
                focal = focal * (truth != segment.IGNORED).sum() / count
                loss = loss + factor * (focal + share * segment.dice_loss(logits, truth))
            (segment.SCALE * loss).backward()

    segment.backward = backward


@harmless("rows", "segment", group="whole step")
def pictures_rolled(segment):
    """The pictures of the batch are rolled by one."""
    step = segment.step

    def rolled(model, optimizer, batch):
        pictures, labels, weights = batch
        step(model, optimizer, (pictures.roll(1, 0), labels.roll(1, 0), weights))

    segment.step = rolled


@harmless("scaled", "segment", group="whole step")
def another_scale(segment):
    """The scale of the loss is 1024 for 256."""
    segment.SCALE = 1024.0


@harmless("recomputed", "segment", group="whole step")
def blocks_computed_again(segment):
    """The blocks are computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class Block(segment.Block):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    segment.Block = Block
