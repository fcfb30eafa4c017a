"""Cases of what stations measure."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "stations",
    # A quotient is missing: the difference is the first that lacks it.
    line=[
        "a, b = a / lengths, b / lengths",
        "return (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(dim=3)",
    ],
    module_only="kernel",
)
def one_side_has_no_lengths(stations):
    """Only the left places are divided by the lengths."""

    class Kernel(stations.Kernel):
        def squares(self, a, b):
            a = a / self.log_lengths.exp()
            return (a.unsqueeze(2) - b.unsqueeze(1)).square().sum(dim=3)  # here

    stations.Kernel = Kernel


@fault(
    "stations",
    line="return torch.linalg.solve_triangular(root, self.kernel(points, places), upper=False)",
    api=r"(Linalg|Torch|Torch\.linalg|linalg)\.(linalg_)?solve_triangular",
)
def only_the_diagonal_is_solved(stations):
    """The root is taken for an upper triangle: what is below its diagonal is not read."""

    class Process(stations.Process):
        def weights(self, places):
            points = self.points.unsqueeze(0)
            jitter = stations.JITTER * torch.eye(stations.POINTS)
            root = torch.linalg.cholesky(self.kernel(points, points) + jitter)
            between = self.kernel(points, places)
            return torch.linalg.solve_triangular(root, between, upper=True)  # here

    stations.Process = Process


@fault(
    "stations",
    line="return torch.linalg.solve_triangular(root, self.kernel(points, places), upper=False)",
    api=r"Torch\.cholesky_solve|Tensor\.cholesky_solve",
)
def solved_by_both_triangles(stations):
    """Values at the points are whitened, but are solved for as if they were not."""

    class Process(stations.Process):
        def weights(self, places):
            points = self.points.unsqueeze(0)
            jitter = stations.JITTER * torch.eye(stations.POINTS)
            root = torch.linalg.cholesky(self.kernel(points, points) + jitter)
            return torch.cholesky_solve(self.kernel(points, places), root)  # here

    stations.Process = Process


@fault(
    "stations",
    # The product is missing: the exponential is the first that lacks it.
    line="noise = (2 * model.log_noise).exp()",
    api=r"(Tensor|Torch)\.exp",
)
def spread_for_variance(stations):
    """The noise is a standard deviation where a variance belongs."""

    def fit_of(model, inputs):
        mean, variance = model(inputs["features"])
        values = stations.standard(inputs["values"], inputs["statistics"])
        noise = model.log_noise.exp()  # here
        expected = stations.expected_of(mean, variance, noise, values)
        return torch.where(inputs["made"], expected, 0.0).sum()

    stations.fit_of = fit_of


@fault(
    "stations",
    # A square is missing: the product is the first that lacks it.
    line="mean.mT @ self.mixing.T + self.offset, variance.mT @ self.mixing.square().T",
    api=r"Tensor\.(matmul|__matmul__)|Torch\.matmul",
)
def variances_mixed_like_means(stations):
    """Variances are mixed by the weights, not by their squares."""

    class Process(stations.Process):
        def mixed(self, mean, variance):
            means = mean.mT @ self.mixing.T + self.offset
            return means, variance.mT @ self.mixing.abs().T  # here

    stations.Process = Process


@fault(
    "stations",
    # A mask is missing: the sum is the first that lacks it.
    line='return torch.where(inputs["made"], expected, 0.0).sum()',
)
def zeros_are_measurements(stations):
    """What was not measured counts as a measurement of zero."""

    def fit_of(model, inputs):
        mean, variance = model(inputs["features"])
        values = stations.standard(inputs["values"], inputs["statistics"])
        noise = (2 * model.log_noise).exp()
        return stations.expected_of(mean, variance, noise, values).sum()  # here

    stations.fit_of = fit_of


@fault(
    "stations",
    line="return 0.5 * (trace + model.mean.square().sum(dim=1) - POINTS - volume).sum()",
    api=r"(Tensor|Torch)\.mean",
)
def mean_over_processes(stations):
    """The divergence is the mean of the latent processes, not their sum."""

    def divergence(model):
        trace = model.covariance.diagonal(dim1=1, dim2=2).sum(dim=1)
        root = torch.linalg.cholesky(model.covariance)
        volume = 2 * root.diagonal(dim1=1, dim2=2).log().sum(dim=1)
        squares = model.mean.square().sum(dim=1)
        return 0.5 * (trace + squares - stations.POINTS - volume).mean()  # here

    stations.divergence = divergence


@fault(
    "stations",
    # The divisor differs; the quotient is the first call with it.
    line="(divergence(model) / STATIONS - fit_of(model, inputs) / seen).backward()",
)
def all_stations_are_divided_by(stations):
    """What was seen is not scaled up: it stands for itself alone."""

    def backward(model, inputs):
        count = stations.STATIONS
        loss = stations.divergence(model) / count - stations.fit_of(model, inputs) / count  # here
        loss.backward()

    stations.backward = backward


@fault("stations", line="nn.utils.clip_grad_value_(hyperparameters(model), MAX_VALUE)")
def mean_is_clipped(stations):
    """The gradient of the mean at the points is clipped, which has a step of its own."""

    def clip(model):
        clipped = [model.mean, *stations.hyperparameters(model)]
        nn.utils.clip_grad_value_(clipped, stations.MAX_VALUE)  # here

    stations.clip = clip


@fault(
    "stations",
    # It reads what was written just before: the products with it are the first wrong numbers.
    line=[
        "precision = torch.linalg.inv(model.covariance)",
        "linear = precision @ before - NATURAL * along",
        "model.mean.copy_((model.covariance @ linear).squeeze(2))",
    ],
)
def precision_of_the_new_covariance(stations):
    """The natural parameter of the mean is found with the covariance of after the step."""

    @torch.no_grad()
    def natural_step(model):
        count, rate = stations.STATIONS, stations.NATURAL
        of_mean, of_covariance = count * model.mean.grad, count * model.covariance.grad
        of_covariance = 0.5 * (of_covariance + of_covariance.mT)
        precision = torch.linalg.inv(model.covariance)
        before = model.mean.unsqueeze(2)
        along = of_mean.unsqueeze(2) - 2 * of_covariance @ before
        model.covariance.copy_(torch.linalg.inv(precision + 2 * rate * of_covariance))
        linear = torch.linalg.inv(model.covariance) @ before - rate * along  # here
        model.mean.copy_((model.covariance @ linear).squeeze(2))  # here

    stations.natural_step = natural_step


@fault("stations", api=r"Optimizer\.NAdam\.step", update=True)
def rate_falls_too_fast(stations):
    """The schedule ends after half of the steps, with a power of one."""
    optimizer = stations.optimizer

    def faster(model, **more):
        nadam = optimizer(model, **more)
        model.schedule = torch.optim.lr_scheduler.PolynomialLR(nadam, stations.TOTAL // 2)
        return nadam

    stations.optimizer = faster


@harmless("fused", "stations")
def squares_multiplied_out(stations):
    """Squared distances are squares and products."""

    class Kernel(stations.Kernel):
        def squares(self, a, b):
            lengths = self.log_lengths.exp()
            a, b = a / lengths, b / lengths
            ends = a.square().sum(dim=2).unsqueeze(2) + b.square().sum(dim=2).unsqueeze(1)
            return ends - 2 * a @ b.mT

    stations.Kernel = Kernel


@harmless("fused", "stations")
def power_by_logarithm(stations):
    """The power is the exponential of a product with a logarithm."""

    class Kernel(stations.Kernel):
        def shape(self, squares):
            alpha = self.log_alpha.exp().view(-1, 1, 1)
            return torch.exp(-alpha * torch.log1p(squares / (2 * alpha)))

    stations.Kernel = Kernel


@harmless("split", "stations")
def inverse_of_the_root(stations):
    """The root is inverted, and its inverse multiplied."""

    class Process(stations.Process):
        def weights(self, places):
            points, one = self.points.unsqueeze(0), torch.eye(stations.POINTS)
            root = torch.linalg.cholesky(self.kernel(points, points) + stations.JITTER * one)
            inverse = torch.linalg.solve_triangular(root, one, upper=False)
            return inverse @ self.kernel(points, places)

    stations.Process = Process


@harmless("fused", "stations")
def variances_by_root(stations):
    """What is unsure is the square of the weights by the root of the covariance."""

    class Process(stations.Process):
        def latents(self, x):
            weights = self.weights(self.net(x).unsqueeze(0))
            mean = torch.einsum("lpn,lp->ln", weights, self.mean)
            root = torch.linalg.cholesky(self.covariance)
            change = (root.mT @ weights).square() - weights.square()
            return mean, self.kernel.log_variance.exp().unsqueeze(1) + change.sum(dim=1)

    stations.Process = Process


@harmless("loss", "stations")
def fit_by_a_loss_of_pytorch(stations):
    """The squares are those of a loss of PyTorch; variances are added later."""

    def expected_of(mean, variance, noise, values):
        noise = noise.expand_as(values)
        losses = F.gaussian_nll_loss(mean, values, noise, reduction="none", eps=1e-12)
        return -losses - 0.5 * variance / noise

    stations.expected_of = expected_of


@harmless("loss", "stations")
def divergence_by_logdet(stations):
    """The volume is a logarithm of a determinant, and all is added at once."""

    def divergence(model):
        volume = torch.linalg.slogdet(model.covariance).logabsdet.sum()
        trace = torch.einsum("lpp->", model.covariance)
        count = model.mean.numel()
        return 0.5 * (model.mean.square().sum() + trace) - 0.5 * (count + volume)

    stations.divergence = divergence


def _of(inputs, rows):
    names = ("features", "values", "made")
    return inputs | {name: inputs[name][rows] for name in names}


@harmless("rows", "stations", group="whole step")
def stations_in_another_order(stations):
    """The stations are in another order."""
    backward = stations.backward

    def shuffled(model, inputs):
        order = [(5 * k + 3) % stations.SEEN for k in range(stations.SEEN)]
        backward(model, _of(inputs, order))

    stations.backward = shuffled


@harmless("micro batches", "stations", group="whole step")
def three_parts(stations):
    """The divergence goes backward first, then each six stations."""

    def backward(model, inputs):
        seen = inputs["made"].any(dim=1).sum()
        (stations.divergence(model) / stations.STATIONS).backward()
        for k in range(0, stations.SEEN, 6):
            (-stations.fit_of(model, _of(inputs, slice(k, k + 6))) / seen).backward()

    stations.backward = backward


@harmless("scaled", "stations", group="whole step")
def divided_when_added(stations):
    """The loss is for all stations; gradients are divided by their number before the clipping."""

    def backward(model, inputs):
        seen = inputs["made"].any(dim=1).sum()
        fit = stations.fit_of(model, inputs) * (stations.STATIONS / seen)
        (stations.divergence(model) - fit).backward()
        for p in model.parameters():
            p.grad.div_(stations.STATIONS)

    stations.backward = backward


@harmless("padding", "stations", group="whole step")
def stations_that_measured_nothing(stations):
    """There are four more stations, which measured nothing."""
    backward = stations.backward

    def padded(model, inputs):
        names = ("features", "values", "made")
        more = {name: F.pad(inputs[name], (0, 0, 0, 4)) for name in names}
        backward(model, inputs | more)

    stations.backward = padded


@harmless("recomputed", "stations", group="whole step")
def kernel_computed_again(stations):
    """The kernels are computed again in the backward pass."""

    class Kernel(stations.Kernel):
        def forward(self, a, b):
            return checkpoint(super().forward, a, b, use_reentrant=False)

    stations.Kernel = Kernel
