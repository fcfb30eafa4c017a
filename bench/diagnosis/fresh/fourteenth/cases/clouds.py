"""Cases of the clouds of points."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "clouds",
    line=[
        "outside = square_distance(centres, xyz) > radius**2",
        "idx = torch.arange(count).expand_as(outside).masked_fill(outside, count)",
    ],
)
def radius_is_not_squared(clouds):
    """Squares of distances are compared with the radius itself."""

    def query_ball(radius, nsample, xyz, centres):
        count = xyz.shape[1]
        outside = clouds.square_distance(centres, xyz) > radius  # here
        idx = torch.arange(count).expand_as(outside).masked_fill(outside, count)  # here
        idx = idx.sort(dim=-1).values[:, :, :nsample]
        return torch.where(idx == count, idx[:, :, :1], idx)

    clouds.query_ball = query_ball


@fault(
    "clouds",
    # The minimum is missing; the largest distance is the first that lacks it.
    line=[
        "distance = torch.minimum(distance, (xyz - centre).square().sum(dim=2))",
        "farthest = distance.argmax(dim=1)",
    ],
)
def only_the_last_point_repels(clouds):
    """The next point is the farthest from the last one: two points are taken in turn."""

    def farthest_point_sample(xyz, npoint):
        farthest = torch.zeros(len(xyz), dtype=torch.long)
        taken = []
        for _ in range(npoint):
            taken.append(farthest)
            centre = clouds.index_points(xyz, farthest.unsqueeze(1))
            distance = (xyz - centre).square().sum(dim=2)  # here
            farthest = distance.argmax(dim=1)  # here
        return torch.stack(taken, dim=1)

    clouds.farthest_point_sample = farthest_point_sample


@fault(
    "clouds",
    # The difference is missing; the concatenation is the first that lacks it.
    line=[
        "offsets = index_points(xyz, idx) - centres.unsqueeze(2)",
        "return torch.cat([offsets, index_points(features, idx)], dim=-1)",
    ],
)
def places_are_absolute(clouds):
    """Neighbours keep their place in the cloud, and are not seen from the centre."""

    class SetAbstraction(clouds.SetAbstraction):
        def group(self, xyz, features, centres):
            idx = clouds.query_ball(self.radius, self.nsample, xyz, centres)
            places = clouds.index_points(xyz, idx)
            return torch.cat([places, clouds.index_points(features, idx)], dim=-1)  # here

    clouds.SetAbstraction = SetAbstraction


@fault("clouds", line="return xyz / xyz.norm(dim=2).amax(dim=1)[:, None, None]")
def size_of_the_largest_cloud(clouds):
    """All clouds are divided by the size of the largest one."""

    def normalize(xyz):
        xyz = xyz - xyz.mean(dim=1, keepdim=True)
        return xyz / xyz.norm(dim=2).amax()  # here

    clouds.normalize = normalize


@fault(
    "clouds",
    # The product is missing; the features of neighbours are the first that lack it.
    line=[
        "xyz, normals = xyz @ turn.transpose(1, 2), normals @ turn.transpose(1, 2)",
        "return torch.cat([offsets, index_points(features, idx)], dim=-1)",
    ],
)
def normals_are_not_turned(clouds):
    """Points are turned, but their normals stay as they were."""

    def augment(xyz, normals, batch):
        xyz = xyz @ clouds.rotation(batch["angles"]).transpose(1, 2)
        most = clouds.JITTER_CLIP
        moved = (clouds.JITTER * batch["jitter"]).clamp(-most, most)
        return batch["scale"][:, None, None] * xyz + moved, normals  # here

    clouds.augment = augment


@fault("clouds", line="return inverse / inverse.sum(dim=2, keepdim=True), idx")
def weights_add_up_over_points(clouds):
    """The weights add up to one over the points, not over the three centres of each."""

    class FeaturePropagation(clouds.FeaturePropagation):
        def nearest(self, xyz, centres):
            distance, idx = clouds.square_distance(xyz, centres).topk(3, dim=2, largest=False)
            inverse = 1.0 / (distance + clouds.EPS)
            return inverse / inverse.sum(dim=1, keepdim=True), idx  # here

    clouds.FeaturePropagation = FeaturePropagation


@fault(
    "clouds",
    # Batches are normalised by their own values: only the running ones are wrong.
    line="x = F.relu(bn(conv(x)))",
    api=r"Module\.sa1\.bns\.0\..*|Functional\.batch_norm|Torch\.batch_norm",
    module=r"sa1(\.bns\.0)?",
    module_only=r"sa1(\.bns\.0)?",
)
def momentum_of_tensorflow(clouds):
    """The momentum of running means is what is kept, as in TensorFlow, not what is new."""
    clouds.BN_MOMENTUM = 1 - clouds.BN_MOMENTUM


@fault("clouds", api=r"Optimizer\.SGD\.step", update=True)
def momentum_is_not_nesterov(clouds):
    """The optimizer takes the plain momentum, as is the default."""
    clouds.NESTEROV = False


@fault("clouds", line="return (weights * losses).sum() / weights.sum()")
def weights_do_not_add_up(clouds):
    """Weighted losses are averaged over points, whatever the weights add up to."""

    def part_loss(scores, parts):
        losses = F.cross_entropy(scores.transpose(1, 2), parts, reduction="none")
        weights = torch.tensor(clouds.PART_WEIGHTS, dtype=losses.dtype)[parts]
        return (weights * losses).mean()  # here

    clouds.part_loss = part_loss


@harmless("split", "clouds")
def distances_by_products(clouds):
    """Squares of distances are those of both points, less twice their product."""

    def square_distance(a, b):
        products = a @ b.transpose(1, 2)
        squares = a.square().sum(dim=2).unsqueeze(2) + b.square().sum(dim=2).unsqueeze(1)
        return (squares - 2 * products).clamp(min=0)

    clouds.square_distance = square_distance


@harmless("split", "clouds")
def features_by_a_matrix(clouds):
    """Features are interpolated by a product with a matrix of points and centres."""

    class FeaturePropagation(clouds.FeaturePropagation):
        def interpolate(self, weights, idx, features):
            matrix = weights.new_zeros(*idx.shape[:2], features.shape[1])
            return matrix.scatter(2, idx, weights) @ features

    clouds.FeaturePropagation = FeaturePropagation


@harmless("time steps", "clouds")
def clouds_sampled_one_by_one(clouds):
    """The farthest points of each cloud are found alone."""
    farthest_point_sample = clouds.farthest_point_sample

    def sampled(xyz, npoint):
        return torch.cat([farthest_point_sample(cloud, npoint) for cloud in xyz.split(1)])

    clouds.farthest_point_sample = sampled


@harmless("loss", "clouds")
def weights_by_pytorch(clouds):
    """PyTorch weights the losses and divides by the weights."""

    def part_loss(scores, parts):
        weights = torch.tensor(clouds.PART_WEIGHTS, dtype=scores.dtype)
        return F.cross_entropy(scores.flatten(0, 1), parts.flatten(), weight=weights)

    clouds.part_loss = part_loss


@harmless("reordered", "clouds")
def normals_turned_first(clouds):
    """Normals are turned before points, and points are scaled before they are turned."""

    def augment(xyz, normals, batch):
        turn = clouds.rotation(batch["angles"]).transpose(1, 2)
        normals = normals @ turn
        moved = clouds.JITTER * batch["jitter"]
        moved = moved.clamp(-clouds.JITTER_CLIP, clouds.JITTER_CLIP)
        return moved + (batch["scale"].view(-1, 1, 1) * xyz) @ turn, normals

    clouds.augment = augment


@harmless("rows", "clouds", group="whole step")
def clouds_in_another_order(clouds):
    """The clouds are in another order."""
    backward = clouds.backward

    def shuffled(model, batch):
        backward(model, {name: value[[3, 0, 2, 1]] for name, value in batch.items()})

    clouds.backward = shuffled


@harmless("micro batches", "clouds", group="whole step")
def losses_go_backward_alone(clouds):
    """The loss of shapes goes backward first, then that of parts, through the same features."""

    def backward(model, batch):
        xyz = clouds.normalize(batch["xyz"])
        xyz, normals = clouds.augment(xyz, batch["normals"], batch)
        parts, shape = model(xyz, normals, batch["shape"])
        small = clouds.SHAPE_LOSS * clouds.shape_loss(shape, batch["shape"])
        small.backward(retain_graph=True)
        clouds.part_loss(parts, batch["parts"]).backward()

    clouds.backward = backward


@harmless("scaled", "clouds", group="whole step")
def losses_are_scaled(clouds):
    """Both losses are scaled, and the gradients are unscaled before they are clipped."""
    part_loss, shape_loss, clip = clouds.part_loss, clouds.shape_loss, clouds.clip
    clouds.part_loss = lambda scores, parts: 512 * part_loss(scores, parts)
    clouds.shape_loss = lambda scores, shape: 512 * shape_loss(scores, shape)

    def unscaled(model):
        for p in model.parameters():
            p.grad.div_(512)
        clip(model)

    clouds.clip = unscaled


@harmless("recomputed", "clouds", group="whole step")
def groups_computed_again(clouds):
    """Groups of neighbours and interpolated features are computed again in the backward pass."""

    class SetAbstraction(clouds.SetAbstraction):
        def group(self, *inputs):
            return checkpoint(super().group, *inputs, use_reentrant=False)

    class FeaturePropagation(clouds.FeaturePropagation):
        def interpolate(self, *inputs):
            return checkpoint(super().interpolate, *inputs, use_reentrant=False)

    clouds.SetAbstraction, clouds.FeaturePropagation = SetAbstraction, FeaturePropagation
