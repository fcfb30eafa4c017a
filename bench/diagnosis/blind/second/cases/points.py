"""Cases of the clouds of points."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def points_in_another_order(points):
    """The points of each cloud stand in another order, and so do the clouds."""
    descend = points.descend

    def reordered(model, clouds, labels):
        order = torch.arange(points.POINTS).view(4, -1).t().flatten().flip(0)
        descend(model, clouds[:, order].roll(1, 0), labels.roll(1, 0))

    points.descend = reordered


def scaled_by_a_power(points):
    """The loss is multiplied by 128; the gradients are divided where they arrive, by hooks."""
    loss_of, build = points.loss_of, points.build
    points.loss_of = lambda *arguments: loss_of(*arguments) * 128

    def with_hooks():
        model = build()
        for parameter in model.parameters():
            parameter.register_hook(lambda gradient: gradient / 128)
        return model

    points.build = with_hooks


@fault(
    "points",
    module_only=r"(of_groups\.0.*)?",
    line=[
        "near = (picked(points, index) - centres[:, :, None]) / RADIUS",
        "return torch.cat([near, picked(features, index)], dim=-1)",
    ],
)
def neighbours_not_relative(points):
    """The places of the neighbours are not relative to their centre."""

    def grouped(clouds, features, centres, index):
        near = points.picked(clouds, index) / points.RADIUS  # here
        return torch.cat([near, points.picked(features, index)], dim=-1)  # here

    points.grouped = grouped


@fault(
    "points",
    module_only=r"(of_groups\.0.*)?",
    line=["return torch.where(distance > RADIUS**2, index[..., :1], index)"],
)
def radius_without_square(points):
    """Squared distances are compared with the radius."""

    def in_balls(clouds, centres):
        distance, index = points.squares(centres, clouds).topk(points.NEIGHBOURS, -1, False)
        return torch.where(distance > points.RADIUS, index[..., :1], index)  # here

    points.in_balls = in_balls


@fault(
    "points",
    api=r"Functional\.batch_norm|Tensor\.(mul_|add_)",
    module=r"(turn\.first|turn\.second|of_points)\.norm",
)
def momentum_of_another_library(points):
    """The momentum of the norms is the share that is kept, as of other libraries: 0.9 for 0.1."""
    points.NORM_MOMENTUM = 1 - points.NORM_MOMENTUM


@fault(
    "points",
    line=["nearest = torch.minimum(nearest, (points - last).square()"],
    module_only=r"(of_groups\.0.*|of_clouds.*)?",
)
def far_from_the_last_alone(points):
    """A centre is far from the last one alone, not from all before it."""

    def far_apart(clouds):
        distance = (clouds - clouds.mean(dim=1, keepdim=True)).square().sum(dim=-1)
        found = [distance.argmax(dim=1)]
        for _ in range(points.CENTRES - 1):
            last = points.picked(clouds, found[-1][:, None])
            nearest = (clouds - last).square().sum(dim=-1)  # here
            found.append(nearest.argmax(dim=1))  # here
        return torch.stack(found, dim=1)

    points.far_apart = far_apart


@fault(
    "points",
    beside=points_in_another_order,
    line=[
        "return self.matrix(x).view(-1, 3, 3) + torch.eye(3)",
        "x = self.second(self.first(points)).amax(dim=1)",
    ],
    module="turn",
    module_only=r"turn(\.matrix)?",
    api=r"Tensor\.(amax|mean)",
)
def mean_of_the_turns_features(points):
    """The turn's features are the mean over the points, in place of the largest."""

    class Turn(points.Turn):
        def forward(self, clouds):
            x = self.second(self.first(clouds)).mean(dim=1)  # here
            return self.matrix(x).view(-1, 3, 3) + torch.eye(3)

    points.Turn = Turn


@fault(
    "points",
    beside=scaled_by_a_power,
    module_only=r"turn(\.matrix)?|",
    line=["return (turn @ turn.mT - torch.eye(3)).square().sum(dim=(1, 2)).mean()"],
)
def sum_of_all_clouds_penalties(points):
    """The penalty of the turns is the sum over the clouds, in place of the mean."""

    def upright(turn):
        return (turn @ turn.mT - torch.eye(3)).square().sum()  # here

    points.upright = upright


harmless("rows", "points")(points_in_another_order)
harmless("scaled", "points")(scaled_by_a_power)


@harmless("fused", "points")
def distances_of_pytorch(points):
    """Distances by cdist, picks by gather."""

    def squares(a, b):
        return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist").square()

    def picked(clouds, index):
        flat = index.flatten(1)[..., None].expand(-1, -1, clouds.shape[-1])
        return clouds.gather(1, flat).view(*index.shape, -1)

    points.squares = squares
    points.picked = picked


@harmless("inserted", "points")
def products_by_convolutions(points):
    """Points go through convolutions of width one, and norms have the channels second."""

    class Layer(points.Layer):
        def forward(self, x):
            channels = x.flatten(0, -2).t()[None]
            made = F.conv1d(channels, self.product.weight[..., None])
            return F.relu(self.norm(made))[0].t().view(*x.shape[:-1], -1)

    points.Layer = Layer
