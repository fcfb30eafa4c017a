"""Cases of the joints."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "pose",
    line=[
        "turned = torch.stack([SIZE - 1 - x, y], dim=-1)[:, MIRRORED]",
        "joints = torch.where(flip[:, None, None], turned, joints)",
        "visible = torch.where(flip[:, None], visible[:, MIRRORED], visible)",
    ],
)
def sides_not_exchanged(pose):
    """A mirrored person has the left arm where the right one is."""

    def flip_people(batch):
        flip = batch["flip"]
        wide = flip[:, None, None, None]
        images = torch.where(wide, batch["images"].flip(-1), batch["images"])
        x, y = batch["joints"].unbind(dim=-1)
        turned = torch.stack([pose.SIZE - 1 - x, y], dim=-1)  # here
        joints = torch.where(flip[:, None, None], turned, batch["joints"])  # here
        return images, joints, batch["visible"]

    pose.flip_people = flip_people


@fault(
    "pose",
    line=[
        "turned = torch.stack([SIZE - 1 - x, y], dim=-1)[:, MIRRORED]",
        "joints = torch.where(flip[:, None, None], turned, joints)",
    ],
)
def mirrored_at_the_edge(pose):
    """Joints are mirrored at the size of the picture: one pixel too far."""

    def flip_people(batch):
        flip = batch["flip"]
        wide = flip[:, None, None, None]
        images = torch.where(wide, batch["images"].flip(-1), batch["images"])
        x, y = batch["joints"].unbind(dim=-1)
        turned = torch.stack([pose.SIZE - x, y], dim=-1)[:, pose.MIRRORED]  # here
        joints = torch.where(flip[:, None, None], turned, batch["joints"])  # here
        visible = batch["visible"]
        visible = torch.where(flip[:, None], visible[:, pose.MIRRORED], visible)
        return images, joints, visible

    pose.flip_people = flip_people


@fault("pose", line="return torch.exp(-(across + along) / (2 * SIGMA**2))")
def hills_too_narrow(pose):
    """Squares of distances are divided by the variance, not by twice the variance."""

    def gaussian_maps(joints):
        grid = torch.arange(pose.MAP, dtype=joints.dtype)
        x, y = (joints / pose.STRIDE).unbind(dim=-1)
        across = (grid - x[..., None]).square()[:, :, None, :]
        along = (grid - y[..., None]).square()[:, :, :, None]
        return torch.exp(-(across + along) / pose.SIGMA**2)  # here

    pose.gaussian_maps = gaussian_maps


@fault(
    "pose",
    api=r"Functional\.(interpolate|upsample_bilinear)|Torch\..*upsample.*",
    line=[
        'return F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)',
        "merged = self.upsample(coarse) + self.lateral(fine)",
    ],
)
def corners_aligned(pose):
    """The coarse maps are enlarged so that corners lie upon corners."""

    class PoseNet(pose.PoseNet):
        def upsample(self, x):
            return F.interpolate(  # here
                x, scale_factor=2, mode="bilinear", align_corners=True
            )

    pose.PoseNet = PoseNet


@fault(
    "pose",
    # The product is missing; the hardest joints and the mean use what it lacks.
    line=[
        'errors = F.mse_loss(maps, target, reduction="none").mean(dim=(2, 3)) * visible',
        "return errors.mean() + HARD_WEIGHT * hardest_joints(errors).mean()",
    ],
)
def joints_that_nobody_sees(pose):
    """Joints that are not visible have a part in the loss of maps."""

    def heat_loss(maps, target, visible):
        errors = F.mse_loss(maps, target, reduction="none").mean(dim=(2, 3))  # here
        hardest = pose.hardest_joints(errors)  # here
        return errors.mean() + pose.HARD_WEIGHT * hardest.mean()  # here

    pose.heat_loss = heat_loss


@fault("pose", line="return errors.topk(HARDEST, dim=1).values")
def hardest_people_of_a_joint(pose):
    """The largest errors are taken along the people, not along the joints."""

    def hardest_joints(errors):
        return errors.topk(pose.HARDEST, dim=0).values  # here

    pose.hardest_joints = hardest_joints


@fault(
    "pose",
    # What the norm remembers is wrong at once, what it answers is wrong in the validation.
    api=r"Functional\.batch_norm|Torch\.batch_norm|Module\.stem\.1\..*",
    module=r"stem(\.1)?",
    line=["nn.BatchNorm2d(outputs),", "fine = F.relu(self.stem(images))"],
)
def momentum_of_another_library(pose):
    """The momentum of the norms is what another library calls it: 0.9 for 0.1."""

    class ConvNorm(pose.ConvNorm):
        def __init__(self, *sizes, **more):
            super().__init__(*sizes, **more)
            self[1].momentum = 0.9  # here

    pose.ConvNorm = ConvNorm


@fault(
    "pose",
    # The next training is the first that notices.
    api=r"Functional\.batch_norm|Torch\.batch_norm|Module\.stem\.1\..*",
    module=r"stem(\.1)?",
    line=["model.train()", "model.eval()", "fine = F.relu(self.stem(images))"],
)
def validation_never_ends(pose):
    """After the first validation the net is not set back to training."""
    validate = pose.validate

    def validated(model, batch):
        distance = validate(model, batch)
        model.eval()  # here
        return distance

    pose.validate = validated


@fault(
    "pose",
    settings={"float32": True},
    line="chance = (SHARPNESS * maps).flatten(2).softmax(dim=-1).view_as(maps)",
    api=r"Tensor\.(bfloat16|to|softmax|float|view_as)|Functional\.softmax",
)
def chances_in_bfloat16(pose):
    """The softmax over the places of a map is computed in bfloat16."""

    def expected_joints(maps):
        sharp = (pose.SHARPNESS * maps).flatten(2)
        chance = sharp.bfloat16().softmax(dim=-1).float().view_as(maps)  # here
        grid = torch.arange(pose.MAP, dtype=chance.dtype)
        x = (chance.sum(dim=2) * grid).sum(dim=-1)
        y = (chance.sum(dim=3) * grid).sum(dim=-1)
        return pose.STRIDE * torch.stack([x, y], dim=-1)

    pose.expected_joints = expected_joints


@harmless("split", "pose")
def hills_of_rows_and_columns(pose):
    """A hill is the product of one across and one along."""

    def gaussian_maps(joints):
        grid = torch.arange(pose.MAP, dtype=joints.dtype)
        distance = grid - joints[..., None] / pose.STRIDE
        x, y = torch.exp(-0.5 * (distance / pose.SIGMA).square()).unbind(dim=2)
        return torch.einsum("pjy,pjx->pjyx", y, x)

    pose.gaussian_maps = gaussian_maps


@harmless("loss", "pose")
def places_by_a_product(pose):
    """The mean place is a product of all chances with a table of places."""

    def expected_joints(maps):
        chance = F.softmax(pose.SHARPNESS * maps.flatten(2), dim=-1)
        grid = torch.arange(pose.MAP, dtype=chance.dtype) * pose.STRIDE
        y, x = torch.meshgrid(grid, grid, indexing="ij")
        return chance @ torch.stack([x.flatten(), y.flatten()], dim=1)

    pose.expected_joints = expected_joints


@harmless("fused", "pose")
def hardest_by_sorting(pose):
    """The hardest joints are the first ones of a descending order."""

    def hardest_joints(errors):
        return errors.sort(dim=1, descending=True).values[:, : pose.HARDEST]

    pose.hardest_joints = hardest_joints


@harmless("inserted", "pose")
def channels_stand_last(pose):
    """Pictures and weights have their channels last in memory."""
    build, predict = pose.build, pose.predict
    pose.build = lambda: build().to(memory_format=torch.channels_last)

    def of_channels_last(model, images):
        return predict(model, images.contiguous(memory_format=torch.channels_last))

    pose.predict = of_channels_last


@harmless("reordered", "pose")
def places_before_maps(pose):
    """The loss of places is computed before that of maps."""

    def total_loss(maps, joints, visible):
        place = pose.PLACE_WEIGHT * pose.place_loss(maps, joints, visible)
        return place + pose.heat_loss(maps, pose.gaussian_maps(joints), visible)

    pose.total_loss = total_loss


@harmless("rows", "pose", group="whole step")
def people_turned_round(pose):
    """The people are in the opposite order."""
    train = pose.train

    def turned(model, optimizer, batch):
        names = ("images", "joints", "visible", "flip")
        train(model, optimizer, batch | {name: batch[name].flip(0) for name in names})

    pose.train = turned


@harmless("scaled", "pose", group="whole step")
def loss_is_scaled(pose):
    """The loss is scaled, as for float16, and the gradients unscaled before the update."""
    total_loss, train = pose.total_loss, pose.train
    pose.total_loss = lambda *inputs: 1024 * total_loss(*inputs)

    def unscaled(model, optimizer, batch):
        train(model, optimizer, batch)
        torch._foreach_div_([p.grad for p in model.parameters()], 1024.0)

    pose.train = unscaled


@harmless("recomputed", "pose", group="whole step", settings={"float32": True})
def head_computed_again(pose):
    """The head is computed again in the backward pass."""

    class PoseNet(pose.PoseNet):
        def __init__(self):
            super().__init__()
            right = self.head.forward
            self.head.forward = lambda x: checkpoint(right, x, use_reentrant=False)

    pose.PoseNet = PoseNet


@harmless("precision", "pose", group="whole step")
def casts_written_out(pose):
    """There is no autocast: convolutions cast what they are given, and their weights."""

    def cast(conv):
        def forward(x):
            bias = None if conv.bias is None else conv.bias.bfloat16()
            weight = conv.weight.bfloat16()
            return F.conv2d(x.bfloat16(), weight, bias, conv.stride, conv.padding)

        conv.forward = forward

    class PoseNet(pose.PoseNet):
        def __init__(self):
            super().__init__()
            for module in self.modules():
                if isinstance(module, torch.nn.Conv2d):
                    cast(module)

    pose.PoseNet = PoseNet
    pose.predict = lambda model, images: model(images)
