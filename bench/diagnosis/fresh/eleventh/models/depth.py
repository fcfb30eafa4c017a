"""Depth from a video without labels: what one frame sees is predicted from its neighbours."""

import torch
import torch.nn as nn
import torch.nn.functional as F

FRAMES, HEIGHT, WIDTH = 4, 16, 24
MIN_DEPTH, MAX_DEPTH = 0.5, 20.0
SSIM_WEIGHT, SMOOTHNESS, SCALES = 0.85, 0.01, 2
C1, C2 = 0.01**2, 0.03**2
POSE_SCALE, EPS = 0.1, 1e-7
LR, POSE_LR, STEP_SIZE, GAMMA = 2e-3, 1e-3, 4, 0.1
SOURCES = ("before", "after")


class Conv3x3(nn.Module):
    def __init__(self, inputs, outputs, stride=1):
        super().__init__()
        self.pad = nn.ReflectionPad2d(1)
        self.conv = nn.Conv2d(inputs, outputs, 3, stride)

    def forward(self, x):
        return self.conv(self.pad(x))


class DepthNet(nn.Module):
    """Two maps of disparities, between 0 and 1: of the whole size, and of half of it."""

    def __init__(self):
        super().__init__()
        self.enc1, self.enc2 = Conv3x3(3, 8, stride=2), Conv3x3(8, 16, stride=2)
        self.up2, self.merge2 = Conv3x3(16, 8), Conv3x3(16, 8)
        self.up1, self.merge1 = Conv3x3(8, 8), Conv3x3(8, 8)
        self.disp2, self.disp1 = Conv3x3(8, 1), Conv3x3(8, 1)

    def encode(self, image):
        half = F.elu(self.enc1((image - 0.45) / 0.225))
        return half, F.elu(self.enc2(half))

    def forward(self, image):
        half, quarter = self.encode(image)
        x = upsample(F.elu(self.up2(quarter)))
        x = F.elu(self.merge2(torch.cat([x, half], dim=1)))
        coarse = torch.sigmoid(self.disp2(x))
        x = F.elu(self.merge1(upsample(F.elu(self.up1(x)))))
        return torch.sigmoid(self.disp1(x)), coarse


class PoseNet(nn.Module):
    """How the camera moves between two frames: an axis with an angle, and a way."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(6, 8, 5, stride=2, padding=2),
            nn.ReLU(),
            nn.Conv2d(8, 16, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 6, 1),
        )

    def forward(self, first, second):
        out = self.net(torch.cat([first, second], dim=1)).mean(dim=(2, 3))
        return (POSE_SCALE * out).chunk(2, dim=1)


class MonoDepth(nn.Module):
    def __init__(self):
        super().__init__()
        self.depth, self.pose = DepthNet(), PoseNet()


def upsample(x):
    return F.interpolate(x, scale_factor=2, mode="nearest")


def disp_to_depth(disp):
    low, high = 1 / MAX_DEPTH, 1 / MIN_DEPTH
    return 1 / (low + (high - low) * disp)


def skew(v):
    """(B, 3) -> (B, 3, 3): the matrix of the cross product with v."""
    x, y, z = v.unbind(dim=1)
    zero = torch.zeros_like(x)
    return torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], dim=1).view(-1, 3, 3)


def rotation(vector):
    """Rodrigues' formula."""
    angle = torch.sqrt(vector.square().sum(dim=1, keepdim=True) + EPS**2)
    k = skew(vector / angle)
    sin, cos = angle.sin()[:, :, None], angle.cos()[:, :, None]
    return torch.eye(3) + sin * k + (1 - cos) * (k @ k)


def camera_motion(model, batch, source):
    """From the target's camera to that of the source; frames go in as they were taken."""
    target, other = batch["target"], batch[source]
    if source == "before":
        axis, way = model.pose(other, target)
        turn = rotation(axis).transpose(1, 2)
        return turn, -(turn @ way[:, :, None])
    axis, way = model.pose(target, other)
    return rotation(axis), way[:, :, None]


def pixel_grid():
    """(3, pixels): x, y and 1."""
    y, x = torch.meshgrid(torch.arange(HEIGHT), torch.arange(WIDTH), indexing="ij")
    return torch.stack([x, y, torch.ones_like(x)]).flatten(1).to(torch.get_default_dtype())


def backproject(depth, intrinsics):
    rays = torch.linalg.inv(intrinsics) @ pixel_grid()
    return depth.flatten(2) * rays


def project(points, intrinsics):
    """Where the points are seen, between -1 and 1 from the first pixel to the last."""
    seen = intrinsics @ points
    xy = seen[:, :2] / (seen[:, 2:] + EPS)
    size = torch.tensor([WIDTH - 1, HEIGHT - 1], dtype=xy.dtype)
    grid = 2 * xy.transpose(1, 2) / size - 1
    return grid.view(-1, HEIGHT, WIDTH, 2)


def sample(image, grid):
    return F.grid_sample(image, grid, padding_mode="border", align_corners=True)


def warp_all(batch, depth, motions):
    """Each source as the target's camera would see it."""
    points = backproject(depth, batch["intrinsics"])
    seen = {}
    for source, (turn, way) in motions.items():
        grid = project(turn @ points + way, batch["intrinsics"])
        seen[source] = sample(batch[source], grid)
    return seen


def local_mean(x):
    return F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 3, 1)


def ssim(x, y):
    """How unlike two pictures are in each place: 0 if they are the same."""
    mean_x, mean_y = local_mean(x), local_mean(y)
    var_x = local_mean(x * x) - mean_x**2
    var_y = local_mean(y * y) - mean_y**2
    cov = local_mean(x * y) - mean_x * mean_y
    top = (2 * mean_x * mean_y + C1) * (2 * cov + C2)
    bottom = (mean_x**2 + mean_y**2 + C1) * (var_x + var_y + C2)
    return ((1 - top / bottom) / 2).clamp(0, 1)


def photometric(seen, target):
    l1 = (seen - target).abs().mean(dim=1)
    return SSIM_WEIGHT * ssim(seen, target).mean(dim=1) + (1 - SSIM_WEIGHT) * l1


def reprojection_loss(batch, seen):
    """The least error of all sources; what does not move is best explained by no motion."""
    target = batch["target"]
    errors = [photometric(seen[source], target) for source in SOURCES]
    still = [photometric(batch[source], target) for source in SOURCES]
    return torch.stack(errors + still, dim=1).amin(dim=1).mean()


def slopes(x):
    return x[..., 1:] - x[..., :-1], x[..., 1:, :] - x[..., :-1, :]


def smooth_loss(disp, image):
    """Disparities may jump where the picture does."""
    disp = disp / (disp.mean(dim=(2, 3), keepdim=True) + EPS)
    disp_x, disp_y = slopes(disp)
    image_x, image_y = slopes(image)
    edge_x = torch.exp(-image_x.abs().mean(dim=1, keepdim=True))
    edge_y = torch.exp(-image_y.abs().mean(dim=1, keepdim=True))
    return (disp_x.abs() * edge_x).mean() + (disp_y.abs() * edge_y).mean()


def scale_loss(batch, disp, motions, scale):
    image = F.avg_pool2d(batch["target"], 2**scale)
    full = F.interpolate(disp, (HEIGHT, WIDTH), mode="bilinear", align_corners=False)
    seen = warp_all(batch, disp_to_depth(full), motions)
    smooth = SMOOTHNESS * smooth_loss(disp, image) / 2**scale
    return reprojection_loss(batch, seen) + smooth


def all_motions(model, batch):
    return {source: camera_motion(model, batch, source) for source in SOURCES}


def predict(model, batch):
    """Disparities, and motions to the sources."""
    disps = model.depth(batch["target"])
    return disps, all_motions(model, batch)


def loss_of(model, batch):
    """The mean over the frames."""
    disps, motions = predict(model, batch)
    total = 0
    for scale, disp in enumerate(disps):
        total = total + scale_loss(batch, disp, motions, scale)
    return total / SCALES


def train(model, batch):
    loss_of(model, batch).backward()


def build():
    return MonoDepth().train()


def param_groups(model):
    return [
        {"params": list(model.depth.parameters()), "lr": LR},
        {"params": list(model.pose.parameters()), "lr": POSE_LR},
    ]


def optimizer(model, **more):
    made = torch.optim.Adam(param_groups(model), **more)
    model.scheduler = torch.optim.lr_scheduler.StepLR(made, STEP_SIZE, GAMMA)
    return made


def batch(generator):
    """A wide picture, of which the frames are parts, with a little noise."""
    wide = torch.rand(FRAMES, 3, HEIGHT + 4, WIDTH + 4, generator=generator)
    wide = F.avg_pool2d(wide, 3, 1)

    def crop(top, left):
        noise = 0.02 * torch.rand(FRAMES, 3, HEIGHT, WIDTH, generator=generator)
        return wide[:, :, top : top + HEIGHT, left : left + WIDTH] + noise

    focal = 12 + 4 * torch.rand(FRAMES, 2, generator=generator)
    intrinsics = torch.eye(3).repeat(FRAMES, 1, 1)
    intrinsics[:, 0, 0], intrinsics[:, 1, 1] = focal.unbind(dim=1)
    intrinsics[:, 0, 2], intrinsics[:, 1, 2] = (WIDTH - 1) / 2, (HEIGHT - 1) / 2
    return {
        "before": crop(0, 0),
        "target": crop(1, 1),
        "after": crop(1, 2),
        "intrinsics": intrinsics,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    train(model, batch)
    optimizer.step()
    model.scheduler.step()
