"""Parts of shapes in clouds of points: a PointNet++ with two levels, and what the shape is."""

import itertools
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_CLOUDS, NUM_POINTS, NUM_SHAPES, NUM_PARTS = 4, 64, 3, 5
JITTER, JITTER_CLIP = 0.01, 0.02
BN_MOMENTUM, EPS = 0.1, 1e-8
PART_WEIGHTS = (0.5, 1.0, 1.5, 2.0, 0.8)
SHAPE_LOSS = 0.3
LEARNING_RATE, MOMENTUM, NESTEROV, WEIGHT_DECAY, MAX_NORM = 5e-2, 0.9, True, 1e-3, 2.0
STEPS = 12


def normalize(xyz):
    """Each cloud has its centre in the origin, and its farthest point has length one."""
    xyz = xyz - xyz.mean(dim=1, keepdim=True)
    return xyz / xyz.norm(dim=2).amax(dim=1)[:, None, None]


def rotation(angles):
    """Around the axis that points up, which is the second one: (clouds, 3, 3)."""
    cos, sin = angles.cos(), angles.sin()
    zero, one = torch.zeros_like(angles), torch.ones_like(angles)
    rows = [cos, zero, sin, zero, one, zero, -sin, zero, cos]
    return torch.stack(rows, dim=1).view(-1, 3, 3)


def augment(xyz, normals, batch):
    """Clouds are turned, made larger or smaller, and their points are moved a little."""
    turn = rotation(batch["angles"])
    xyz, normals = xyz @ turn.transpose(1, 2), normals @ turn.transpose(1, 2)
    moved = (JITTER * batch["jitter"]).clamp(-JITTER_CLIP, JITTER_CLIP)
    return batch["scale"][:, None, None] * xyz + moved, normals


def square_distance(a, b):
    """(clouds, points of a, points of b)"""
    return (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(dim=-1)


def index_points(points, idx):
    cloud = torch.arange(len(points)).view(-1, *[1] * (idx.dim() - 1))
    return points[cloud, idx]


def farthest_point_sample(xyz, npoint):
    """Each point that is taken is the farthest one from all that were taken before."""
    distance = torch.full_like(xyz[:, :, 0], 1e10)
    farthest = torch.zeros(len(xyz), dtype=torch.long)
    taken = []
    for _ in range(npoint):
        taken.append(farthest)
        centre = index_points(xyz, farthest.unsqueeze(1))
        distance = torch.minimum(distance, (xyz - centre).square().sum(dim=2))
        farthest = distance.argmax(dim=1)
    return torch.stack(taken, dim=1)


def query_ball(radius, nsample, xyz, centres):
    """The first points within a radius; the first of all fills up what is missing."""
    count = xyz.shape[1]
    outside = square_distance(centres, xyz) > radius**2
    idx = torch.arange(count).expand_as(outside).masked_fill(outside, count)
    idx = idx.sort(dim=-1).values[:, :, :nsample]
    return torch.where(idx == count, idx[:, :, :1], idx)


class SetAbstraction(nn.Module):
    def __init__(self, npoint, radius, nsample, channels):
        super().__init__()
        self.npoint, self.radius, self.nsample = npoint, radius, nsample
        sizes = list(itertools.pairwise(channels))
        self.convs = nn.ModuleList([nn.Conv2d(a, b, 1) for a, b in sizes])
        self.bns = nn.ModuleList([nn.BatchNorm2d(b, momentum=BN_MOMENTUM) for _, b in sizes])

    def group(self, xyz, features, centres):
        """(clouds, centres, neighbours, channels): places as seen from the centre, and features."""
        idx = query_ball(self.radius, self.nsample, xyz, centres)
        offsets = index_points(xyz, idx) - centres.unsqueeze(2)
        return torch.cat([offsets, index_points(features, idx)], dim=-1)

    def largest(self, x):
        return x.max(dim=3).values

    def forward(self, xyz, features):
        centres = index_points(xyz, farthest_point_sample(xyz, self.npoint))
        x = self.group(xyz, features, centres).permute(0, 3, 1, 2)
        for conv, bn in zip(self.convs, self.bns, strict=True):
            x = F.relu(bn(conv(x)))
        return centres, self.largest(x).transpose(1, 2)


class FeaturePropagation(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, 1)
        self.bn = nn.BatchNorm1d(channels_out, momentum=BN_MOMENTUM)

    def nearest(self, xyz, centres):
        """The three closest centres of each point; the closest has the largest weight."""
        distance, idx = square_distance(xyz, centres).topk(3, dim=2, largest=False)
        inverse = 1.0 / (distance + EPS)
        return inverse / inverse.sum(dim=2, keepdim=True), idx

    def interpolate(self, weights, idx, features):
        return (weights.unsqueeze(-1) * index_points(features, idx)).sum(dim=2)

    def forward(self, xyz, centres, skipped, features):
        weights, idx = self.nearest(xyz, centres)
        x = self.interpolate(weights, idx, features)
        x = torch.cat([skipped, x], dim=2).transpose(1, 2)
        return F.relu(self.bn(self.conv(x))).transpose(1, 2)


class PointNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.sa1 = SetAbstraction(24, 0.5, 8, (6, 12, 16))
        self.sa2 = SetAbstraction(8, 0.8, 8, (19, 20, 24))
        self.fp2 = FeaturePropagation(16 + 24, 20)
        self.fp1 = FeaturePropagation(3 + 20, 16)
        self.part_head = nn.Linear(16 + NUM_SHAPES, NUM_PARTS)
        self.shape_head = nn.Linear(24, NUM_SHAPES)

    def forward(self, xyz, normals, shape):
        """Scores of parts for each point, and of shapes for each cloud."""
        xyz1, features1 = self.sa1(xyz, normals)
        xyz2, features2 = self.sa2(xyz1, features1)
        up = self.fp2(xyz1, xyz2, features1, features2)
        up = self.fp1(xyz, xyz1, normals, up)
        known = F.one_hot(shape, NUM_SHAPES).to(up.dtype)
        known = known.unsqueeze(1).expand(-1, xyz.shape[1], -1)
        parts = self.part_head(torch.cat([up, known], dim=2))
        return parts, self.shape_head(features2.amax(dim=1))


def part_loss(scores, parts):
    """Rare parts have more weight; the weights of all points add up to one."""
    losses = F.cross_entropy(scores.transpose(1, 2), parts, reduction="none")
    weights = torch.tensor(PART_WEIGHTS, dtype=losses.dtype)[parts]
    return (weights * losses).sum() / weights.sum()


def shape_loss(scores, shape):
    return F.cross_entropy(scores, shape, label_smoothing=0.1)


def backward(model, batch):
    xyz, normals = augment(normalize(batch["xyz"]), batch["normals"], batch)
    parts, shape = model(xyz, normals, batch["shape"])
    loss = part_loss(parts, batch["parts"]) + SHAPE_LOSS * shape_loss(shape, batch["shape"])
    loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return PointNet().train()


def optimizer(model, **more):
    sgd = torch.optim.SGD(
        model.parameters(),
        lr=LEARNING_RATE,
        momentum=MOMENTUM,
        weight_decay=WEIGHT_DECAY,
        nesterov=NESTEROV,
        **more,
    )
    model.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(sgd, STEPS)
    return sgd


def batch(generator):
    """Points on ellipsoids of several sizes; the part tells the height and the side."""
    shape = torch.randint(0, NUM_SHAPES, (NUM_CLOUDS,), generator=generator)
    normals = torch.randn(NUM_CLOUDS, NUM_POINTS, 3, generator=generator)
    normals = F.normalize(normals, dim=2)
    size = 0.5 + 2 * torch.rand(NUM_CLOUDS, 1, 3, generator=generator) + shape[:, None, None]
    height = ((normals[:, :, 1] + 1) * 1.5).long().clamp(max=2)
    return {
        "xyz": normals * size + torch.randn(NUM_CLOUDS, 1, 3, generator=generator),
        "normals": normals,
        "parts": height + 2 * (normals[:, :, 0] > 0.3),
        "shape": shape,
        "angles": 2 * math.pi * torch.rand(NUM_CLOUDS, generator=generator),
        "scale": 0.8 + 0.4 * torch.rand(NUM_CLOUDS, generator=generator),
        "jitter": torch.randn(NUM_CLOUDS, NUM_POINTS, 3, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.scheduler.step()
