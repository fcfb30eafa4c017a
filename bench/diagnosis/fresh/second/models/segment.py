"""Segmentation under autocast: dice and focal loss, a second head, and Muon for the matrices."""

import torch
from torch import nn
from torch.nn import functional as F

KINDS, WIDTH, SIZE, BATCH, IGNORED = 3, 8, 8, 4, 255
FOCUS, SMOOTH, AUXILIARY, SCALE, LARGEST = 2.0, 1.0, 0.4, 256.0, 0.5
COARSE = 3


class Block(nn.Module):
    def __init__(self, inside, outside, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(2, outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(2, outside)

    def forward(self, x):
        x = F.gelu(self.norm1(self.conv1(x)))
        return F.gelu(self.norm2(self.conv2(x)))


class Gate(nn.Module):
    """Channels are weighted by their mean over the picture."""

    def __init__(self, channels):
        super().__init__()
        self.inside = nn.Linear(channels, channels // 2)
        self.outside = nn.Linear(channels // 2, channels)

    def forward(self, x):
        pooled = x.mean(dim=(2, 3))
        share = torch.sigmoid(self.outside(F.relu(self.inside(pooled))))
        return x * share[:, :, None, None]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down1 = Block(2, WIDTH)
        self.down2 = Block(WIDTH, 2 * WIDTH, 2)
        self.gate = Gate(2 * WIDTH)
        self.narrow = nn.Conv2d(2 * WIDTH, WIDTH, 1)
        self.up = Block(2 * WIDTH, WIDTH)
        self.head = nn.Conv2d(WIDTH, KINDS, 1)
        self.second = nn.Conv2d(2 * WIDTH, KINDS, 1)

    def forward(self, x):
        high = self.down1(x)
        low = self.gate(self.down2(high))
        wide = F.interpolate(self.narrow(low), scale_factor=2, mode="bilinear", align_corners=False)
        fine = self.up(torch.cat([high, wide], dim=1))
        return self.head(fine), self.second(low)


def focal_loss(logits, labels, weights):
    """The mean over all known pixels, weighted by their class."""
    known = labels != IGNORED
    log_p = F.log_softmax(logits, dim=1)
    chosen = labels.masked_fill(~known, 0)[:, None]
    log_p = log_p.gather(1, chosen)[:, 0]
    value = -((1 - log_p.exp()) ** FOCUS) * log_p * weights[chosen[:, 0]]
    return (value * known).sum() / known.sum()


def dice_loss(logits, labels):
    """One minus the overlap, of each class and picture."""
    known = (labels != IGNORED)[:, None]
    share = torch.softmax(logits, dim=1) * known
    truth = F.one_hot(labels.masked_fill(labels == IGNORED, 0), KINDS).permute(0, 3, 1, 2) * known
    both = (share * truth).sum(dim=(2, 3))
    either = share.sum(dim=(2, 3)) + truth.sum(dim=(2, 3))
    return (1 - (2 * both + SMOOTH) / (either + SMOOTH)).mean()


def coarse(labels):
    return labels[:, ::2, ::2]


def loss_of(outputs, labels, weights):
    fine, low = (each.float() for each in outputs)
    small = coarse(labels)
    loss = focal_loss(fine, labels, weights) + dice_loss(fine, labels)
    return loss + AUXILIARY * (focal_loss(low, small, weights) + dice_loss(low, small))


def precision():
    """Autocast; none where float64 is the default, which checks what is harmless."""
    return torch.autocast("cpu", torch.bfloat16, torch.get_default_dtype() == torch.float32)


def orthogonal(matrix):
    """Newton and Schulz: the nearest orthogonal matrix, nearly."""
    x = matrix / (matrix.norm() + 1e-7)
    wide = x.shape[0] <= x.shape[1]
    x = x if wide else x.T
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x if wide else x.T


class Muon(torch.optim.Optimizer):
    def __init__(self, weights, lr, momentum=0.9, decay=0.05):
        super().__init__(weights, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for weight in group["params"]:
                state = self.state[weight]
                held = state.setdefault("momentum", torch.zeros_like(weight))
                held.mul_(group["momentum"]).add_(weight.grad)
                ahead = weight.grad + group["momentum"] * held
                matrix = ahead.flatten(1)
                update = orthogonal(matrix) * max(1.0, matrix.shape[0] / matrix.shape[1]) ** 0.5
                weight.mul_(1 - group["lr"] * group["decay"])
                weight.add_(update.view_as(weight), alpha=-group["lr"])


def build():
    return Net()


def is_matrix(name, weight):
    return weight.dim() >= 2 and not name.startswith(("head", "second"))


def optimizer(model):
    named = list(model.named_parameters())
    model.muon = Muon([w for n, w in named if is_matrix(n, w)], lr=0.02)
    return torch.optim.AdamW([w for n, w in named if not is_matrix(n, w)], lr=3e-3)


def batch(generator):
    pictures = torch.randn(BATCH, 2, SIZE, SIZE, generator=generator)
    labels = torch.randint(0, KINDS, (BATCH, SIZE, SIZE), generator=generator)
    unknown = torch.rand(BATCH, SIZE, SIZE, generator=generator) < 0.15
    return pictures, labels.masked_fill(unknown, IGNORED), torch.tensor([0.5, 1.0, 2.0])


def backward(model, pictures, labels, weights):
    with precision():
        outputs = model(pictures)
    (SCALE * loss_of(outputs, labels, weights)).backward()


def unscale(model):
    for weight in model.parameters():
        weight.grad.div_(SCALE)


def update(model, optimizer):
    unscale(model)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    model.muon.step()
    optimizer.step()


def step(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    model.muon.zero_grad(set_to_none=True)
    backward(model, *batch)
    update(model, optimizer)
