"""Clouds of points: centres that are far apart, neighbours in balls, norms, a learned turn."""

import torch
from torch import nn
from torch.nn import functional as F

CLOUDS, POINTS, CENTRES, NEIGHBOURS, RADIUS = 4, 24, 8, 6, 0.9
WIDTH, KINDS, SMOOTHING, UPRIGHT = 16, 5, 0.1, 1e-2
RATE, MOMENTUM, DECAY, NORM_MOMENTUM = 0.05, 0.9, 1e-3, 0.1


def picked(points, index):
    """points[row, index[row]], for index of any shape."""
    rows = torch.arange(len(points)).view(-1, *[1] * (index.dim() - 1))
    return points[rows, index]


def squares(a, b):
    """Squared distances of all pairs."""
    return (a[:, :, None] - b[:, None]).square().sum(dim=-1)


def far_apart(points):
    """Numbers of the centres: the first is farthest from the mean, each next from those before."""
    distance = (points - points.mean(dim=1, keepdim=True)).square().sum(dim=-1)
    found = [distance.argmax(dim=1)]
    nearest = torch.full_like(distance, float("inf"))
    for _ in range(CENTRES - 1):
        last = picked(points, found[-1][:, None])
        nearest = torch.minimum(nearest, (points - last).square().sum(dim=-1))
        found.append(nearest.argmax(dim=1))
    return torch.stack(found, dim=1)


def in_balls(points, centres):
    """Numbers of the nearest neighbours; the nearest stands for those outside of the ball."""
    distance, index = squares(centres, points).topk(NEIGHBOURS, dim=-1, largest=False)
    return torch.where(distance > RADIUS**2, index[..., :1], index)


def grouped(points, features, centres, index):
    """Places, relative to their centre, and features of the neighbours."""
    near = (picked(points, index) - centres[:, :, None]) / RADIUS
    return torch.cat([near, picked(features, index)], dim=-1)


class Layer(nn.Module):
    """A product for each point, a norm over all points of the batch, and a ReLU."""

    def __init__(self, inside, outside):
        super().__init__()
        self.product = nn.Linear(inside, outside, bias=False)
        self.norm = nn.BatchNorm1d(outside, momentum=NORM_MOMENTUM)

    def normalised(self, x):
        return self.norm(x.flatten(0, -2)).view(x.shape)

    def forward(self, x):
        return F.relu(self.normalised(self.product(x)))


class Turn(nn.Module):
    """A matrix for each cloud, which begins near that of no turn."""

    def __init__(self):
        super().__init__()
        self.first, self.second = Layer(3, WIDTH), Layer(WIDTH, WIDTH)
        self.matrix = nn.Linear(WIDTH, 9)

    def forward(self, points):
        x = self.second(self.first(points)).amax(dim=1)
        return self.matrix(x).view(-1, 3, 3) + torch.eye(3)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.turn = Turn()
        self.of_points = Layer(3, WIDTH)
        self.of_groups = nn.ModuleList([Layer(3 + WIDTH, WIDTH), Layer(WIDTH, 2 * WIDTH)])
        self.of_clouds = Layer(3 + 2 * WIDTH, 2 * WIDTH)
        self.head = nn.Linear(2 * WIDTH, KINDS)

    def groups(self, points, features, centres):
        x = grouped(points, features, centres, in_balls(points, centres))
        for layer in self.of_groups:
            x = layer(x)
        return x.amax(dim=2)

    def forward(self, points):
        turn = self.turn(points)
        points = points @ turn
        centres = picked(points, far_apart(points.detach()))
        x = self.groups(points, self.of_points(points), centres)
        x = self.of_clouds(torch.cat([centres, x], dim=-1))
        return self.head(x.amax(dim=1)), turn


def build():
    model = Network()
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02 if "matrix" in name else 0.3)
    return model


def optimizer(model):
    made = torch.optim.SGD(model.parameters(), RATE, MOMENTUM, weight_decay=DECAY)
    model.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(made, T_max=6)
    return made


def batch(generator):
    points = torch.randn(CLOUDS, POINTS, 3, generator=generator).to(torch.get_default_dtype())
    return points, torch.randint(KINDS, (CLOUDS,), generator=generator)


def upright(turn):
    """How far the matrices are from turns."""
    return (turn @ turn.mT - torch.eye(3)).square().sum(dim=(1, 2)).mean()


def loss_of(logits, turn, labels):
    entropy = F.cross_entropy(logits, labels, label_smoothing=SMOOTHING)
    return entropy + UPRIGHT * upright(turn)


def descend(model, points, labels):
    loss_of(*model(points), labels).backward()


def step(model, optimizer, batch):
    descend(model, *batch)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad()
