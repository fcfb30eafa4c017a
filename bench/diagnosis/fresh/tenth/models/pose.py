"""Joints of people by heat maps: a residual net, flips, autocast, the hardest joints twice."""

import torch
import torch.nn as nn
import torch.nn.functional as F

PEOPLE, SIZE, STRIDE, JOINTS = 6, 24, 2, 7
MAP = SIZE // STRIDE
MIRRORED = [0, 2, 1, 4, 3, 6, 5]  # left and right joints change places
SIGMA, HARDEST, HARD_WEIGHT, PLACE_WEIGHT, SHARPNESS = 1.2, 3, 0.5, 0.05, 4.0
LR, MOMENTUM, WEIGHT_DECAY, WARMUP, MILESTONES = 0.05, 0.9, 1e-3, 3, (6, 9)


class ConvNorm(nn.Sequential):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
        )


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = ConvNorm(width, width), ConvNorm(width, width)

    def forward(self, x):
        return F.relu(x + self.conv2(F.relu(self.conv1(x))))


class PoseNet(nn.Module):
    """Maps of half the size of the picture, one for each joint."""

    def __init__(self):
        super().__init__()
        self.stem = ConvNorm(3, 8, stride=2)
        self.down = ConvNorm(8, 16, stride=2)
        self.blocks = nn.Sequential(Block(16), Block(16))
        self.lateral = nn.Conv2d(8, 16, 1)
        self.smooth = ConvNorm(16, 16)
        self.head = nn.Sequential(
            nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, JOINTS, 1)
        )

    def upsample(self, x):
        return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)

    def forward(self, images):
        fine = F.relu(self.stem(images))
        coarse = self.blocks(F.relu(self.down(fine)))
        merged = self.upsample(coarse) + self.lateral(fine)
        return self.head(F.relu(self.smooth(merged)))


def flip_people(batch):
    """Some pictures are mirrored, and their joints with them."""
    flip = batch["flip"]
    images = torch.where(flip[:, None, None, None], batch["images"].flip(-1), batch["images"])
    joints, visible = batch["joints"], batch["visible"]
    x, y = joints.unbind(dim=-1)
    turned = torch.stack([SIZE - 1 - x, y], dim=-1)[:, MIRRORED]
    joints = torch.where(flip[:, None, None], turned, joints)
    visible = torch.where(flip[:, None], visible[:, MIRRORED], visible)
    return images, joints, visible


def gaussian_maps(joints):
    """A hill of height one around each joint."""
    grid = torch.arange(MAP, dtype=joints.dtype)
    x, y = (joints / STRIDE).unbind(dim=-1)
    across = (grid - x[..., None]).square()[:, :, None, :]
    along = (grid - y[..., None]).square()[:, :, :, None]
    return torch.exp(-(across + along) / (2 * SIGMA**2))


def hardest_joints(errors):
    """The largest errors of each person."""
    return errors.topk(HARDEST, dim=1).values


def heat_loss(maps, target, visible):
    errors = F.mse_loss(maps, target, reduction="none").mean(dim=(2, 3)) * visible
    return errors.mean() + HARD_WEIGHT * hardest_joints(errors).mean()


def expected_joints(maps):
    """Where a map is highest, as a mean over its places, in pixels of the picture."""
    chance = (SHARPNESS * maps).flatten(2).softmax(dim=-1).view_as(maps)
    grid = torch.arange(MAP, dtype=chance.dtype)
    x = (chance.sum(dim=2) * grid).sum(dim=-1)
    y = (chance.sum(dim=3) * grid).sum(dim=-1)
    return STRIDE * torch.stack([x, y], dim=-1)


def place_loss(maps, joints, visible):
    found = expected_joints(maps)
    errors = F.smooth_l1_loss(found, joints, reduction="none").sum(dim=-1)
    return (errors * visible).sum() / visible.sum().clamp(min=1)


def predict(model, images):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(images)


def total_loss(maps, joints, visible):
    heat = heat_loss(maps, gaussian_maps(joints), visible)
    return heat + PLACE_WEIGHT * place_loss(maps, joints, visible)


def train(model, optimizer, batch):
    images, joints, visible = flip_people(batch)
    maps = predict(model, images).float()
    optimizer.zero_grad()
    total_loss(maps, joints, visible).backward()


@torch.no_grad()
def validate(model, batch):
    """The mean distance for other pictures, of maps averaged with those of the mirror."""
    model.eval()
    images = batch["held_out"]
    maps = predict(model, images).float()
    mirrored = predict(model, images.flip(-1)).float().flip(-1)[:, MIRRORED]
    found = expected_joints((maps + mirrored) / 2)
    distance = (found - batch["held_out_joints"]).square().sum(dim=-1).sqrt().mean()
    model.train()
    return distance.item()


def build():
    return PoseNet().train()


def make_scheduler(optimizer):
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / WARMUP, total_iters=WARMUP)
    drops = torch.optim.lr_scheduler.MultiStepLR(optimizer, MILESTONES)
    return torch.optim.lr_scheduler.ChainedScheduler([warmup, drops])


def optimizer(model, **more):
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": WEIGHT_DECAY},
        {"params": vectors, "weight_decay": 0.0},
    ]
    made = torch.optim.SGD(groups, lr=LR, momentum=MOMENTUM, nesterov=True, **more)
    model.scheduler = make_scheduler(made)
    return made


def batch(generator):
    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    visible = (rand(PEOPLE, JOINTS) < 0.8).to(torch.get_default_dtype())
    visible[:, 0], visible[1, 3] = 1, 0
    return {
        "images": rand(PEOPLE, 3, SIZE, SIZE) * 2 - 1,
        "joints": rand(PEOPLE, JOINTS, 2) * (SIZE - 1),
        "visible": visible,
        "flip": torch.tensor([True, False, True, False, False, True]),
        "held_out": rand(4, 3, SIZE, SIZE) * 2 - 1,
        "held_out_joints": rand(4, JOINTS, 2) * (SIZE - 1),
    }


def step(model, optimizer, batch):
    train(model, optimizer, batch)
    optimizer.step()
    model.scheduler.step()
    model.distance = validate(model, batch)
