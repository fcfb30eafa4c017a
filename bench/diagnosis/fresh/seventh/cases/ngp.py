"""Cases of the radiance field."""

import torch
from case import fault, harmless
from torch.utils.checkpoint import checkpoint


@fault(
    "ngp",
    line=[
        "return torch.exp(-sum_before(depth, ray, count)) * (1 - torch.exp(-depth))",
        "before = torch.cumsum(values, dim=0) - values",
    ],
)
def hidden_by_itself(ngp):
    """A sample is hidden by its own density, too: the sum is that behind it."""

    def weights_of(sigma, length, ray, count):
        depth = sigma * length
        behind = ngp.sum_before(depth, ray, count) + depth  # here
        return torch.exp(-behind) * (1 - torch.exp(-depth))  # here

    ngp.weights_of = weights_of


@fault(
    "ngp",
    steps=3,
    line=[
        "model.grid.mul_(GRID_DECAY)",
        "torch.maximum(model.grid, sigma, out=model.grid)",
        "model.occupied.copy_(model.grid > model.grid.mean().clamp(max=GRID_MOST))",
    ],
)
def grid_never_forgets(ngp):
    """The decay of the occupancy grid is computed and thrown away."""

    @torch.no_grad()
    def update_grid(model, jitter):
        sigma, _ = model.field.density(ngp.centres(jitter))
        model.grid.mul(ngp.GRID_DECAY)  # here
        torch.maximum(model.grid, sigma, out=model.grid)  # here
        model.occupied.copy_(model.grid > model.grid.mean().clamp(max=ngp.GRID_MOST))  # here

    ngp.update_grid = update_grid


@fault(
    "ngp",
    api=r".*clip_grad_norm_|.*get_total_norm|Torch\._foreach_norm|Torch\.linalg\..*norm"
    r"|Torch\._foreach_mul_",
    line=[
        "nn.utils.clip_grad_norm_(model.field.parameters(), MAX_NORM)",
        "finite = unscale(model)",
        "torch._foreach_mul_(grads, 1 / model.scale)",
    ],
)
def clipped_before_unscaled(ngp):
    """The scaled gradients are clipped, and what is left is divided by the scale."""
    unscale = ngp.unscale

    def clipped(model):
        torch.nn.utils.clip_grad_norm_(model.field.parameters(), ngp.MAX_NORM)  # here
        return unscale(model)

    ngp.unscale = clipped


@fault(
    "ngp",
    line=[
        "x, y, z = part[:, None].unbind(dim=-1)",
        "face = low * (1 - x)[..., None] + high * x[..., None]",
        "edge = face[:, :2] * (1 - y)[..., None] + face[:, 2:] * y[..., None]",
        "return edge[:, 0] * (1 - z) + edge[:, 1] * z",
    ],
)
def axes_of_corners_reversed(ngp):
    """The corners run along x first, the parts are taken as if they ran along z first."""
    interpolate = ngp.interpolate
    ngp.interpolate = lambda values, part: interpolate(values, part.flip(-1))  # here


@fault(
    "ngp",
    # Forward, nothing is wrong. Backward, what is above the exponential gets a wrong gradient.
    api=r"Functional\.linear|Tensor\.__getitem__|Module\.field\.sigma_net(\.2)?\..*",
    module=r"field|field\.sigma_net(\.2)?",
    line=[
        "return TruncExp.apply(hidden[:, 0]), hidden[:, 1:]",
        "return grad * torch.exp(x.clamp(max=2.0))",
    ],
)
def exponential_saved_for_its_input(ngp):
    """The exponential is saved for the backward pass, which takes its exponential again."""

    class TruncExp(ngp.TruncExp):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(x)
            ctx.save_for_backward(y)
            return y

    ngp.TruncExp = TruncExp


@fault(
    "ngp",
    line=[
        'return rgba[:, :3] * rgba[:, 3:] + batch["background"] * (1 - rgba[:, 3:])',
        "loss = F.huber_loss(pixel, target_of(batch), delta=0.1)",
    ],
)
def target_on_white(ngp):
    """The picture is put on white, what is rendered on a random background."""

    def target_of(batch):
        rgba = batch["rgba"]
        return rgba[:, :3] * rgba[:, 3:] + (1 - rgba[:, 3:])  # here

    ngp.target_of = target_of


@fault(
    "ngp",
    api=r"Torch\._foreach_(mul_|add_)",
    line=[
        "torch._foreach_mul_(averaged, EMA_DECAY)",
        "torch._foreach_add_(averaged, weights, alpha=1 - EMA_DECAY)",
    ],
)
def decay_and_rate_swapped(ngp):
    """The average keeps the share that it ought to take."""

    @torch.no_grad()
    def update_ema(model):
        averaged, weights = list(model.ema_field.parameters()), list(model.field.parameters())
        torch._foreach_mul_(averaged, 1 - ngp.EMA_DECAY)  # here
        torch._foreach_add_(averaged, weights, alpha=ngp.EMA_DECAY)  # here

    ngp.update_ema = update_ema


@fault(
    "ngp",
    line=["return (between + weights.square() * length / 3).sum() / count"],
)
def spread_of_a_sample(ngp):
    """The distortion is divided by the samples that are left, not by the rays."""

    def distortion(weights, t, length, ray, count):
        w_before = ngp.sum_before(weights, ray, count)
        wt_before = ngp.sum_before(weights * t, ray, count)
        between = 2 * weights * (t * w_before - wt_before)
        return (between + weights.square() * length / 3).mean()  # here

    ngp.distortion = distortion


@fault(
    "ngp",
    line=[
        "return (index[:, 0] * GRID + index[:, 1]) * GRID + index[:, 2]",
        "keep = model.occupied[cells(x.flatten(0, 1))].view_as(t) & (x.abs().amax(dim=-1) < 1)",
    ],
)
def cells_by_another_axis(ngp):
    """Samples look up the grid with z as the slowest axis; it is filled with x as the slowest."""

    def cells(x):
        index = ((x + 1) / 2 * ngp.GRID).long().clamp(0, ngp.GRID - 1)
        return (index[:, 2] * ngp.GRID + index[:, 1]) * ngp.GRID + index[:, 0]  # here

    ngp.cells = cells


@harmless("fused", "ngp")
def eight_weights(ngp):
    """The interpolation is one product with eight weights."""

    def interpolate(values, part):
        ends = torch.stack([1 - part, part], dim=-1)
        weights = torch.einsum("na,nb,nc->nabc", *ends.unbind(dim=1)).flatten(1)
        return torch.bmm(weights[:, None], values)[:, 0]

    ngp.interpolate = interpolate


@harmless("time steps", "ngp")
def sums_by_a_matrix(ngp):
    """The sums of earlier samples are a product with a matrix of ones."""

    def sum_before(values, ray, count):
        place = torch.arange(len(ray))
        earlier = (ray[:, None] == ray) & (place[:, None] > place)
        return earlier.to(values.dtype) @ values

    ngp.sum_before = sum_before


@harmless("fused", "ngp")
def rays_by_one_hot(ngp):
    """Samples are added up by a product with a sparse matrix."""

    def composite(weights, values, ray, count):
        index = torch.stack([ray, torch.arange(len(ray))])
        matrix = torch.sparse_coo_tensor(index, weights, (count, len(ray)))
        return torch.sparse.mm(matrix, values)

    ngp.composite = composite


@harmless("split", "ngp")
def first_layer_of_color_in_parts(ngp):
    """The harmonics and the geometry are multiplied apart; nothing is joined."""

    class Field(ngp.Field):
        def forward(self, x, direction):
            sigma, geometry = self.density(x)
            first, _, last = self.color_net
            weight = first.weight
            hidden = geometry @ weight[:, : ngp.GEOMETRY].t()
            hidden = hidden + direction @ weight[:, ngp.GEOMETRY + 1 :].t()
            hidden = hidden + (first.bias + weight[:, ngp.GEOMETRY])
            return sigma, torch.sigmoid(last(hidden.clamp_min(0)))

    ngp.Field = Field


@harmless("loss", "ngp")
def pairs_of_samples(ngp):
    """The distortion of all pairs of samples, as the paper has it."""

    def distortion(weights, t, length, ray, count):
        pairs = weights[:, None] * weights * (t[:, None] - t).abs()
        same = ray[:, None] == ray
        own = torch.linalg.vecdot(weights * length, weights) / 3
        return ((pairs * same).sum() + own) / count

    ngp.distortion = distortion


@harmless("micro batches", "ngp", group="whole step")
def four_rays_and_six(ngp):
    """Four rays go through first, then six; each loss counts as many rays as it has."""
    backward = ngp.backward

    def parts(model, batch):
        rays = {name: value for name, value in batch.items() if name != "cells"}
        scale = model.scale
        for chosen in (slice(0, 4), slice(4, None)):
            part = {name: value[chosen] for name, value in rays.items()}
            model.scale = scale * len(part["rgba"]) / len(rays["rgba"])
            backward(model, part)
        model.scale = scale

    ngp.backward = parts


@harmless("rows", "ngp", group="whole step")
def rays_turned(ngp):
    """The last ray comes first."""
    backward = ngp.backward

    def turned(model, batch):
        backward(model, {n: v if n == "cells" else v.flip(0) for n, v in batch.items()})

    ngp.backward = turned


@harmless("padding", "ngp", group="whole step")
def empty_samples_stay(ngp):
    """Samples in empty cells stay where they are, with no length."""

    def march(model, origins, directions, jitter):
        edges = torch.linspace(ngp.NEAR, ngp.FAR, ngp.SAMPLES + 1)
        length = edges.diff()
        t = torch.addcmul(edges[:-1], length, jitter)
        x = origins[:, None] + t[..., None] * directions[:, None]
        inside = x.abs().amax(dim=-1) < 1
        keep = model.occupied[ngp.cells(x.flatten(0, 1))].view_as(t) & inside
        ray = torch.arange(len(t)).repeat_interleave(t.shape[1])
        return x.flatten(0, 1), ray, t.flatten(), (length * keep).flatten()

    ngp.march = march


@harmless("scaled", "ngp", group="whole step")
def another_scale(ngp):
    """The scale that is kept is an eighth of the scale that is used."""
    loss_of, unscale = ngp.loss_of, ngp.unscale

    def unscaled(model):
        for p in model.field.parameters():
            p.grad.div_(8)
        return unscale(model)

    ngp.loss_of = lambda model, batch: loss_of(model, batch) * 8
    ngp.unscale = unscaled


@harmless("recomputed", "ngp", group="whole step")
def field_computed_again(ngp):
    """The field is computed again in the backward pass."""
    build = ngp.build

    def built():
        model = build()
        forward = model.field.forward
        model.field.forward = lambda *xs: checkpoint(forward, *xs, use_reentrant=False)
        return model

    ngp.build = built
