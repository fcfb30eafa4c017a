"""Cases of the scene of Gaussians."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "splats",
    # The length is not divided away: the entries of the matrices are the first to lack it.
    line=[
        "w, x, y, z = F.normalize(quats, dim=1).unbind(dim=1)",
        "torch.stack([1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)], dim=1),",
    ],
    api=r"Tensor\.(unbind|mul|__mul__)",
)
def quaternions_of_any_length(splats):
    """Quaternions are taken as they are, which is right only for those of length one."""

    def rotations(quats):
        w, x, y, z = quats.unbind(dim=1)  # here
        rows = [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],  # here
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
        return torch.stack([torch.stack(row, dim=1) for row in rows], dim=1)

    splats.rotations = rotations


@fault("splats", line="axes = rotations(scene.quats) * scene.log_scales.exp().unsqueeze(1)")
def rows_are_scaled(splats):
    """The rows of a rotation are scaled, where its columns are the axes."""

    def covariances(scene):
        axes = splats.rotations(scene.quats) * scene.log_scales.exp().unsqueeze(2)  # here
        return axes @ axes.mT

    splats.covariances = covariances


@fault(
    "splats",
    line=["return flat + BLUR * torch.eye(2, dtype=flat.dtype)"],
)
def blur_of_all_entries(splats):
    """The blur is added to the covariances of x and y, too, not only to the variances."""

    def flat_covariances(scene, points, view):
        turned = splats.jacobian(points) @ view["rotation"]
        return turned @ splats.covariances(scene) @ turned.mT + splats.BLUR  # here

    splats.flat_covariances = flat_covariances


@fault(
    "splats",
    # The product is missing; the difference is the first that lacks it.
    line=[
        'centre = -view["translation"] @ view["rotation"]',
        "x, y, z = F.normalize(scene.means - centre, dim=1).unsqueeze(2).unbind(dim=1)",
    ],
)
def centre_is_the_translation(splats):
    """The place of the camera is taken for the translation, which is seen from the camera."""

    def colours_of(scene, view):
        centre = -view["translation"]  # here
        away = scene.means - centre  # here
        x, y, z = F.normalize(away, dim=1).unsqueeze(2).unbind(dim=1)
        sh, linear = scene.sh, splats.C1
        colour = splats.C0 * sh[:, 0] + linear * (-y * sh[:, 1] + z * sh[:, 2] - x * sh[:, 3])
        return (colour + 0.5).clamp(min=0.0)

    splats.colours_of = colours_of


@fault(
    "splats",
    # The sum is missing; the difference is the first that lacks it.
    line=[
        "return torch.stack([x, y], dim=-1).reshape(-1, 1, 2).to(like.dtype) + 0.5",
        "power = exponents(pixels - places, flat)",
    ],
)
def pixels_begin_at_their_corner(splats):
    """A pixel is where it begins, not where its middle is."""

    def pixel_centres(height, width, like):
        y, x = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        return torch.stack([x, y], dim=-1).reshape(-1, 1, 2).to(like.dtype)  # here

    splats.pixel_centres = pixel_centres


@fault(
    "splats",
    # The forward pass is the same; the first gradient that differs is that of the opacities.
    line=[
        "behind = behind + last * (grad @ background).unsqueeze(1)",
        "return ahead * own - behind / (1 - alpha), (alpha * ahead).T @ grad, None",
        "image = Blend.apply(alpha[:, order], colours[order], background)",
        "return torch.where(alpha < MIN_ALPHA, torch.zeros_like(alpha), alpha)",
    ],
    api=r".*Blend.*",
)
def background_has_no_gradient(splats):
    """What an opaque Gaussian hides of the background is missing in its gradient."""

    class Blend(splats.Blend):
        @staticmethod
        def backward(ctx, grad):
            alpha, colours, _, ahead, _ = ctx.saved_tensors
            own = grad @ colours.T
            given = alpha * ahead * own
            behind = given.sum(dim=1, keepdim=True) - given.cumsum(dim=1)
            return ahead * own - behind / (1 - alpha), (alpha * ahead).T @ grad, None  # here

    splats.Blend = Blend


@fault("splats", line="order = points[:, 2].argsort()")
def far_before_near(splats):
    """Gaussians are drawn from back to front."""

    def drawn(scene, view):
        points = scene.means @ view["rotation"].T + view["translation"]
        flat = splats.flat_covariances(scene, points, view)
        colours = splats.colours_of(scene, view)
        size = splats.HEIGHT, splats.WIDTH
        centre = points.new_tensor([splats.WIDTH / 2, splats.HEIGHT / 2])
        places = splats.FOCAL * points[:, :2] / points[:, 2:] + centre
        places.retain_grad()
        alpha = splats.alphas_of(scene, places, flat, splats.pixel_centres(*size, points))
        order = points[:, 2].argsort(descending=True)  # here
        background = colours.new_tensor(splats.BACKGROUND)
        image = splats.Blend.apply(alpha[:, order], colours[order], background)
        visible = alpha.detach().amax(dim=0) > 0
        return {
            "image": image.view(*size, 3).permute(2, 0, 1),
            "places": places,
            "visible": visible,
        }

    splats.render = drawn


@fault(
    "splats",
    # The product is missing; the sum is the first that lacks it.
    line=[
        "shared = blurred(a * b) - mean_a * mean_b",
        "return (means * (2 * shared + SSIM_C2) / (var_a + var_b + SSIM_C2)).mean()",
    ],
)
def pictures_not_centred(splats):
    """What two pictures share is a mean of products, of which the product of means is not taken."""

    def ssim(a, b):
        mean_a, mean_b = splats.blurred(a), splats.blurred(b)
        var_a = splats.blurred(a * a) - mean_a * mean_a
        var_b = splats.blurred(b * b) - mean_b * mean_b
        shared = splats.blurred(a * b)
        c1, c2 = splats.SSIM_C1, splats.SSIM_C2
        means = (2 * mean_a * mean_b + c1) / (mean_a**2 + mean_b**2 + c1)
        return (means * (2 * shared + c2) / (var_a + var_b + c2)).mean()  # here

    splats.ssim = ssim


@fault(
    "splats",
    line=[
        'length = (each["places"].grad * half).norm(dim=1)',
        'scene.moved += torch.where(each["visible"], length, 0.0)',
    ],
)
def gradients_of_pixels(splats):
    """Lengths of gradients are noted for pixels, not for halves of the picture."""

    @torch.no_grad()
    def note_gradients(scene, drawn):
        for each in drawn:
            length = each["places"].grad.norm(dim=1)  # here
            scene.moved += torch.where(each["visible"], length, 0.0)
            scene.seen += each["visible"]

    splats.note_gradients = note_gradients


@fault("splats", api=r"Optimizer\.Adam\.step", update=True)
def rates_of_other_weights(splats):
    """The rates of opacities and of quaternions are exchanged."""
    rates = splats.RATES
    splats.RATES = rates | {"quats": rates["opacities"], "opacities": rates["quats"]}


@harmless("fused", "splats")
def blended_by_autograd(splats):
    """The gradient of what is blended is left to autograd."""

    class Blend:
        @staticmethod
        def apply(alpha, colours, background):
            ahead = F.pad((1 - alpha).cumprod(dim=1), (1, 0), value=1.0)
            weights = alpha * ahead[:, :-1]
            return weights @ colours + ahead[:, -1:] * background

    splats.Blend = Blend


@harmless("split", "splats")
def covariances_by_einsum(splats):
    """Covariances are one sum over axes, with the squares of scales."""

    def covariances(scene):
        turned, squares = splats.rotations(scene.quats), (2 * scene.log_scales).exp()
        return torch.einsum("nik,nk,njk->nij", turned, squares, turned)

    splats.covariances = covariances


@harmless("inserted", "splats")
def exponents_by_inverses(splats):
    """The measure of a Gaussian is the inverse of its covariance."""

    def exponents(offsets, flat):
        moved = torch.einsum("pnd,nde->pne", offsets, torch.linalg.inv(flat))
        return -0.5 * (moved * offsets).sum(dim=-1)

    splats.exponents = exponents


@harmless("reordered", "splats")
def likeness_before_differences(splats):
    """The likeness is computed first, and what it lacks to one is written out."""

    def picture_loss(image, wanted):
        likeness = splats.ssim(image, wanted)
        l1 = F.l1_loss(image, wanted)
        weight = splats.SSIM_WEIGHT
        return weight + (1 - weight) * l1 - weight * likeness

    splats.picture_loss = picture_loss


@harmless("loss", "splats")
def windows_by_rows_and_columns(splats):
    """The window is applied to columns, and then to rows."""

    def blurred(image):
        window, half = splats.WINDOW, splats.WINDOW // 2
        away = torch.arange(window, dtype=image.dtype) - half
        line = torch.softmax(-(away**2) / (2 * splats.SIGMA**2), dim=0).expand(3, 1, window)
        image = F.conv2d(image, line.unsqueeze(3), padding=(half, 0), groups=3)
        return F.conv2d(image, line.unsqueeze(2), padding=(0, half), groups=3)

    splats.blurred = blurred


@harmless("rows", "splats", group="whole step")
def gaussians_in_another_order(splats):
    """The Gaussians have other numbers."""
    build = splats.build

    def made():
        scene = build()
        order = torch.arange(splats.GAUSSIANS) * 7 % splats.GAUSSIANS
        with torch.no_grad():
            for weight in scene.parameters():
                weight.copy_(weight[order])
        return scene

    splats.build = made


@harmless("micro batches", "splats", group="whole step")
def one_view_at_a_time(splats):
    """Each view goes backward alone; what does not depend on views goes last."""

    def backward(scene, views):
        drawn = []
        for view in views:
            drawn.append(splats.render(scene, view))
            loss = splats.picture_loss(drawn[-1]["image"], view["picture"])
            (loss / len(views)).backward()
        splats.regularizers(scene).backward()
        return drawn

    splats.backward = backward


@harmless("scaled", "splats", group="whole step")
def divided_after_the_backward_pass(splats):
    """The sum over views goes backward; gradients are divided by their number."""

    def backward(scene, views):
        loss, drawn = len(views) * splats.regularizers(scene), []
        for view in views:
            drawn.append(splats.render(scene, view))
            loss = loss + splats.picture_loss(drawn[-1]["image"], view["picture"])
        loss.backward()
        for value in [*scene.parameters(), *[each["places"] for each in drawn]]:
            value.grad.div_(len(views))
        return drawn

    splats.backward = backward


@harmless("recomputed", "splats", group="whole step")
def opacities_computed_again(splats):
    """The opacities of pixels are computed again in the backward pass."""
    alphas_of = splats.alphas_of
    splats.alphas_of = lambda *given: checkpoint(alphas_of, *given, use_reentrant=False)
