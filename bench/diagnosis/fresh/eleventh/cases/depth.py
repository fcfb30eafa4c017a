"""Cases of the depth from a video."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "depth",
    line=[
        "turn = rotation(axis).transpose(1, 2)",
        "return turn, -(turn @ way[:, :, None])",
        'grid = project(turn @ points + way, batch["intrinsics"])',
    ],
)
def motion_not_inverted(depth):
    """The motion from the frame before is used for the way back to it."""

    def camera_motion(model, batch, source):
        pair = (batch["target"], batch[source])
        axis, way = model.pose(*(pair[::-1] if source == "before" else pair))
        return depth.rotation(axis), way[:, :, None]  # here

    depth.camera_motion = camera_motion


@fault(
    "depth",
    api=r"Functional\.grid_sample|Torch\.grid_sampler.*",
    line=[
        'return F.grid_sample(image, grid, padding_mode="border", align_corners=True)',
        "seen[source] = sample(batch[source], grid)",
    ],
)
def corners_by_default(depth):
    """The sampler takes -1 and 1 for the edges of the picture, not for its outer pixels."""

    def sample(image, grid):
        return F.grid_sample(image, grid, padding_mode="border", align_corners=False)  # here

    depth.sample = sample


@fault(
    "depth",
    line=[
        "return torch.stack([x, y, torch.ones_like(x)]).flatten(1).to(torch.get_default_dtype())",
        "rays = torch.linalg.inv(intrinsics) @ pixel_grid()",
    ],
)
def rows_for_columns(depth):
    """The places of pixels are row and column, where column and row are expected."""

    def pixel_grid():
        rows, columns = torch.arange(depth.HEIGHT), torch.arange(depth.WIDTH)
        y, x = torch.meshgrid(rows, columns, indexing="ij")
        grid = torch.stack([y, x, torch.ones_like(x)])  # here
        return grid.flatten(1).to(torch.get_default_dtype())  # here

    depth.pixel_grid = pixel_grid


@fault("depth", line="return torch.eye(3) + sin * k + (1 - cos) * (k @ k)")
def rotation_with_a_wrong_sign(depth):
    """In the formula of Rodrigues the last term has the wrong sign."""

    def rotation(vector):
        angle = torch.sqrt(vector.square().sum(dim=1, keepdim=True) + depth.EPS**2)
        k = depth.skew(vector / angle)
        sin, cos = angle.sin()[:, :, None], angle.cos()[:, :, None]
        return torch.eye(3) + sin * k + (cos - 1) * (k @ k)  # here

    depth.rotation = rotation


@fault(
    "depth",
    line=[
        "var_x = local_mean(x * x) - mean_x**2",
        "var_y = local_mean(y * y) - mean_y**2",
        "top = (2 * mean_x * mean_y + C1) * (2 * cov + C2)",
        "bottom = (mean_x**2 + mean_y**2 + C1) * (var_x + var_y + C2)",
    ],
)
def constants_not_squared(depth):
    """The constants of the similarity are 0.01 and 0.03, and not their squares."""

    def ssim(x, y):
        mean_x, mean_y = depth.local_mean(x), depth.local_mean(y)
        var_x = depth.local_mean(x * x) - mean_x**2
        var_y = depth.local_mean(y * y) - mean_y**2
        cov = depth.local_mean(x * y) - mean_x * mean_y
        top = (2 * mean_x * mean_y + 0.01) * (2 * cov + 0.03)  # here
        bottom = (mean_x**2 + mean_y**2 + 0.01) * (var_x + var_y + 0.03)  # here
        return ((1 - top / bottom) / 2).clamp(0, 1)

    depth.ssim = ssim


@fault("depth", line="return torch.stack(errors + still, dim=1).amin(dim=1).mean()")
def mean_of_the_sources(depth):
    """The errors of all sources are averaged, where the least is wanted."""

    def reprojection_loss(batch, seen):
        target = batch["target"]
        errors = [depth.photometric(seen[source], target) for source in depth.SOURCES]
        still = [depth.photometric(batch[source], target) for source in depth.SOURCES]
        return torch.stack(errors + still, dim=1).mean(dim=1).mean()  # here

    depth.reprojection_loss = reprojection_loss


@fault(
    "depth",
    line=[
        "disp = disp / (disp.mean(dim=(2, 3), keepdim=True) + EPS)",
        "disp_x, disp_y = slopes(disp)",
        "return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]",
    ],
)
def smallness_is_smooth(depth):
    """Disparities are not divided by their mean: small ones count as smooth."""

    def smooth_loss(disp, image):
        disp_x, disp_y = depth.slopes(disp)  # here
        image_x, image_y = depth.slopes(image)
        edge_x = torch.exp(-image_x.abs().mean(dim=1, keepdim=True))
        edge_y = torch.exp(-image_y.abs().mean(dim=1, keepdim=True))
        return (disp_x.abs() * edge_x).mean() + (disp_y.abs() * edge_y).mean()

    depth.smooth_loss = smooth_loss


@fault(
    "depth",
    # Forward nothing is wrong; backward the disparities have no gradient from the pictures.
    line=[
        "seen = warp_all(batch, disp_to_depth(full), motions)",
        "return 1 / (low + (high - low) * disp)",
        'full = F.interpolate(disp, (HEIGHT, WIDTH), mode="bilinear", align_corners=False)',
        "return depth.flatten(2) * rays",
    ],
    api=r"Tensor\.detach|Functional\.interpolate",
)
def depth_is_detached(depth):
    """The depth is detached before the sources are warped."""

    def scale_loss(batch, disp, motions, scale):
        image = F.avg_pool2d(batch["target"], 2**scale)
        size = (depth.HEIGHT, depth.WIDTH)
        full = F.interpolate(disp, size, mode="bilinear", align_corners=False)  # here
        away = depth.disp_to_depth(full).detach()  # here
        seen = depth.warp_all(batch, away, motions)  # here
        smooth = depth.SMOOTHNESS * depth.smooth_loss(disp, image) / 2**scale
        return depth.reprojection_loss(batch, seen) + smooth

    depth.scale_loss = scale_loss


@fault(
    "depth",
    settings={"float32": True},
    line=[
        "seen = intrinsics @ points",
        "xy = seen[:, :2] / (seen[:, 2:] + EPS)",
    ],
    api=r"Tensor\.(bfloat16|to|__matmul__|float)|Torch\.(matmul|bmm)",
)
def pixels_in_bfloat16(depth):
    """Where points are seen is computed in bfloat16, which has no fractions of far pixels."""

    def project(points, intrinsics):
        seen = intrinsics.bfloat16() @ points.bfloat16()  # here
        xy = (seen[:, :2] / (seen[:, 2:] + depth.EPS)).float()  # here
        size = torch.tensor([depth.WIDTH - 1, depth.HEIGHT - 1], dtype=xy.dtype)
        grid = 2 * xy.transpose(1, 2) / size - 1
        return grid.view(-1, depth.HEIGHT, depth.WIDTH, 2)

    depth.project = project


@fault("depth", api=r"Optimizer\.Adam\.step", update=True)
def camera_is_not_learned(depth):
    """The weights of the camera's motion are not given to the optimizer."""

    def param_groups(model):
        return [{"params": list(model.depth.parameters()), "lr": depth.LR}]

    depth.param_groups = param_groups


@harmless("split", "depth")
def local_means_by_a_convolution(depth):
    """A local mean is a convolution with ninths."""

    def local_mean(x):
        kernel = torch.full((x.shape[1], 1, 3, 3), 1 / 9, dtype=x.dtype)
        return F.conv2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), kernel, groups=x.shape[1])

    depth.local_mean = local_mean


@harmless("fused", "depth")
def rotation_by_an_exponential(depth):
    """A rotation is the exponential of a matrix."""
    depth.rotation = lambda vector: torch.linalg.matrix_exp(depth.skew(vector))


@harmless("split", "depth")
def sources_sampled_together(depth):
    """Both sources are sampled in one call."""

    def warp_all(batch, away, motions):
        points = depth.backproject(away, batch["intrinsics"])
        moved = [turn @ points + way for turn, way in motions.values()]
        grids = [depth.project(each, batch["intrinsics"]) for each in moved]
        images = torch.cat([batch[source] for source in motions])
        seen = depth.sample(images, torch.cat(grids)).chunk(len(grids))
        return dict(zip(motions, seen, strict=True))

    depth.warp_all = warp_all


@harmless("reordered", "depth")
def motions_before_depth(depth):
    """The motions are computed before the disparities."""

    def predict(model, batch):
        motions = depth.all_motions(model, batch)
        return model.depth(batch["target"]), motions

    depth.predict = predict


@harmless("loss", "depth")
def slopes_by_diff(depth):
    """Slopes are differences as PyTorch takes them."""
    depth.slopes = lambda x: (x.diff(dim=-1), x.diff(dim=-2))


@harmless("rows", "depth", group="whole step")
def frames_in_another_order(depth):
    """The frames of the batch are in another order."""
    train = depth.train

    def shuffled(model, batch):
        train(model, {name: value[[2, 0, 3, 1]] for name, value in batch.items()})

    depth.train = shuffled


@harmless("micro batches", "depth", group="whole step")
def two_halves(depth):
    """Both halves of the batch go backward on their own."""

    def train(model, batch):
        for half in range(2):
            part = {name: value.chunk(2)[half] for name, value in batch.items()}
            (depth.loss_of(model, part) / 2).backward()

    depth.train = train


@harmless("rows", "depth", group="whole step")
def later_frame_first(depth):
    """The frame after comes before the other; the least error is the same."""
    depth.SOURCES = ("after", "before")


@harmless("scaled", "depth", group="whole step")
def scales_divided_later(depth):
    """The losses of both scales are added up; the gradients are divided before the update."""

    def train(model, batch):
        (depth.loss_of(model, batch) * depth.SCALES).backward()
        for p in model.parameters():
            p.grad.div_(depth.SCALES)

    depth.train = train


@harmless("recomputed", "depth", group="whole step")
def encoder_computed_again(depth):
    """The encoder is computed again in the backward pass."""

    class DepthNet(depth.DepthNet):
        def encode(self, image):
            return checkpoint(super().encode, image, use_reentrant=False)

    depth.DepthNet = DepthNet
