"""A scene of three-dimensional Gaussians that is drawn into pictures: Gaussian splatting."""

import math

import torch
import torch.nn.functional as F
from torch import nn

GAUSSIANS, VIEWS, HEIGHT, WIDTH, FOCAL = 36, 3, 14, 18, 20.0
BLUR, MAX_ALPHA, MIN_ALPHA = 0.3, 0.99, 1 / 255
C0, C1 = 0.28209479177387814, 0.4886025119029199
WINDOW, SIGMA, SSIM_C1, SSIM_C2 = 5, 1.5, 0.01**2, 0.03**2
SSIM_WEIGHT, OPACITY_WEIGHT, SCALE_WEIGHT = 0.2, 0.01, 0.02
RATES = {"means": 4e-3, "log_scales": 1e-2, "quats": 5e-3, "opacities": 5e-2, "sh": 1e-2}
LAST_RATE, STEPS, ADAM_EPS, BACKGROUND = 0.01, 30, 1e-15, (0.1, 0.3, 0.6)


def distance_to_neighbours(means):
    """The mean distance to the three nearest: the first one found is the point itself."""
    nearest = torch.cdist(means, means).topk(4, largest=False).values
    return nearest[:, 1:].mean(dim=1)


class Scene(nn.Module):
    def __init__(self):
        super().__init__()
        means = torch.randn(GAUSSIANS, 3)
        scales = distance_to_neighbours(means)
        self.means = nn.Parameter(means)
        self.log_scales = nn.Parameter(scales.log()[:, None] + 0.2 * torch.randn(GAUSSIANS, 3))
        self.quats = nn.Parameter(torch.randn(GAUSSIANS, 4))
        self.opacities = nn.Parameter(0.5 * torch.randn(GAUSSIANS) - 0.5)
        self.sh = nn.Parameter(0.3 * torch.randn(GAUSSIANS, 4, 3))
        self.register_buffer("moved", torch.zeros(GAUSSIANS))
        self.register_buffer("seen", torch.zeros(GAUSSIANS))


def rotations(quats):
    """Matrices of quaternions, whose length has no meaning."""
    w, x, y, z = F.normalize(quats, dim=1).unbind(dim=1)
    rows = [
        torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=1),
        torch.stack([2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)], dim=1),
        torch.stack([2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)], dim=1),
    ]
    return torch.stack(rows, dim=1)


def covariances(scene):
    """Each axis of an ellipsoid is a column."""
    axes = rotations(scene.quats) * scene.log_scales.exp().unsqueeze(1)
    return axes @ axes.mT


def jacobian(points):
    """How places in the picture move with points in front of the camera: (points, 2, 3)."""
    x, y, z = points.unbind(dim=1)
    zero = torch.zeros_like(z)
    entries = [FOCAL / z, zero, -FOCAL * x / z**2, zero, FOCAL / z, -FOCAL * y / z**2]
    return torch.stack(entries, dim=1).view(-1, 2, 3)


def flat_covariances(scene, points, view):
    """A blur of the size of a pixel is added to both variances."""
    turned = jacobian(points) @ view["rotation"]
    flat = turned @ covariances(scene) @ turned.mT
    return flat + BLUR * torch.eye(2, dtype=flat.dtype)


def colours_of(scene, view):
    """Spherical harmonics of the direction in which each Gaussian is seen."""
    centre = -view["translation"] @ view["rotation"]
    x, y, z = F.normalize(scene.means - centre, dim=1).unsqueeze(2).unbind(dim=1)
    sh = scene.sh
    colour = C0 * sh[:, 0] + C1 * (-y * sh[:, 1] + z * sh[:, 2] - x * sh[:, 3])
    return (colour + 0.5).clamp(min=0.0)


def pixel_centres(height, width, like):
    y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack([x, y], dim=-1).reshape(-1, 1, 2).to(like.dtype) + 0.5


def exponents(offsets, flat):
    """How far each pixel is from each Gaussian, in its own measure."""
    a, b, c = flat[:, 0, 0], flat[:, 0, 1], flat[:, 1, 1]
    det = a * c - b * b
    dx, dy = offsets.unbind(dim=-1)
    return -0.5 * (c * dx * dx - 2 * b * dx * dy + a * dy * dy) / det


def alphas_of(scene, places, flat, pixels):
    power = exponents(pixels - places, flat)
    alpha = (scene.opacities.sigmoid() * power.exp()).clamp(max=MAX_ALPHA)
    return torch.where(alpha < MIN_ALPHA, torch.zeros_like(alpha), alpha)


class Blend(torch.autograd.Function):
    """Colours from front to back, the background behind; the gradient needs no graph."""

    @staticmethod
    def forward(ctx, alpha, colours, background):
        through = torch.cumprod(1 - alpha, dim=1)
        ahead = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], dim=1)
        ctx.save_for_backward(alpha, colours, background, ahead, through[:, -1:])
        return (alpha * ahead) @ colours + through[:, -1:] * background

    @staticmethod
    def backward(ctx, grad):
        alpha, colours, background, ahead, last = ctx.saved_tensors
        own = grad @ colours.T
        given = alpha * ahead * own
        behind = given.sum(dim=1, keepdim=True) - given.cumsum(dim=1)
        behind = behind + last * (grad @ background).unsqueeze(1)
        return ahead * own - behind / (1 - alpha), (alpha * ahead).T @ grad, None


def render(scene, view):
    """The picture, where the Gaussians are in it, and which of them are to be seen."""
    points = scene.means @ view["rotation"].T + view["translation"]
    flat = flat_covariances(scene, points, view)
    colours = colours_of(scene, view)
    centre = points.new_tensor([WIDTH / 2, HEIGHT / 2])
    places = FOCAL * points[:, :2] / points[:, 2:] + centre
    places.retain_grad()
    alpha = alphas_of(scene, places, flat, pixel_centres(HEIGHT, WIDTH, points))
    order = points[:, 2].argsort()
    background = colours.new_tensor(BACKGROUND)
    image = Blend.apply(alpha[:, order], colours[order], background)
    image = image.view(HEIGHT, WIDTH, 3).permute(2, 0, 1)
    return {"image": image, "places": places, "visible": alpha.detach().amax(dim=0) > 0}


def window_like(image):
    away = torch.arange(WINDOW, dtype=image.dtype) - WINDOW // 2
    line = torch.exp(-(away**2) / (2 * SIGMA**2))
    line = line / line.sum()
    return torch.outer(line, line).expand(3, 1, WINDOW, WINDOW)


def blurred(image):
    kernel = window_like(image)
    return F.conv2d(image.unsqueeze(0), kernel, padding=WINDOW // 2, groups=3).squeeze(0)


def ssim(a, b):
    mean_a, mean_b = blurred(a), blurred(b)
    var_a = blurred(a * a) - mean_a * mean_a
    var_b = blurred(b * b) - mean_b * mean_b
    shared = blurred(a * b) - mean_a * mean_b
    means = (2 * mean_a * mean_b + SSIM_C1) / (mean_a**2 + mean_b**2 + SSIM_C1)
    return (means * (2 * shared + SSIM_C2) / (var_a + var_b + SSIM_C2)).mean()


def picture_loss(image, wanted):
    l1 = (image - wanted).abs().mean()
    return (1 - SSIM_WEIGHT) * l1 + SSIM_WEIGHT * (1 - ssim(image, wanted))


def regularizers(scene):
    """Few Gaussians that are to be seen, and small ones."""
    opaque = scene.opacities.sigmoid().mean()
    return OPACITY_WEIGHT * opaque + SCALE_WEIGHT * scene.log_scales.exp().mean()


def backward(scene, views):
    loss, drawn = 0.0, []
    for view in views:
        drawn.append(render(scene, view))
        loss = loss + picture_loss(drawn[-1]["image"], view["picture"])
    (loss / len(views) + regularizers(scene)).backward()
    return drawn


@torch.no_grad()
def note_gradients(scene, drawn):
    """How much the places in pictures want to move, which says where Gaussians are missing."""
    half = scene.means.new_tensor([WIDTH / 2, HEIGHT / 2])
    for each in drawn:
        length = (each["places"].grad * half).norm(dim=1)
        scene.moved += torch.where(each["visible"], length, 0.0)
        scene.seen += each["visible"]


def build():
    return Scene().train()


def decays():
    """Only the rate of places goes down, to a hundredth."""
    return [
        (lambda step: LAST_RATE ** (step / STEPS)) if name == "means" else (lambda step: 1.0)
        for name in RATES
    ]


def optimizer(scene, **more):
    groups = [{"params": [getattr(scene, name)], "lr": rate} for name, rate in RATES.items()]
    adam = torch.optim.Adam(groups, eps=ADAM_EPS, **more)
    scene.schedule = torch.optim.lr_scheduler.LambdaLR(adam, decays())
    return adam


def camera(angle, height):
    """Looks at the middle of the scene from a circle around it."""
    place = torch.stack([6 * angle.cos(), height, 6 * angle.sin()])
    ahead = F.normalize(-place, dim=0)
    right = F.normalize(torch.linalg.cross(torch.tensor([0.0, 1.0, 0.0]), ahead), dim=0)
    rotation = torch.stack([right, torch.linalg.cross(ahead, right), ahead])
    return rotation, -rotation @ place


def batch(generator):
    """Smooth pictures, from several sides."""
    views = []
    for _ in range(VIEWS):
        angle, height = torch.rand(2, generator=generator)
        rotation, translation = camera(2 * math.pi * angle, 2 * height - 1)
        coarse = torch.rand(1, 3, 4, 5, generator=generator)
        picture = F.interpolate(coarse, size=(HEIGHT, WIDTH), mode="bilinear")[0]
        views.append({"rotation": rotation, "translation": translation, "picture": picture})
    return views


def step(scene, optimizer, batch):
    optimizer.zero_grad()
    drawn = backward(scene, batch)
    note_gradients(scene, drawn)
    optimizer.step()
    scene.schedule.step()
