"""Cases of the normalizing flow."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "flow",
    module=r"steps.[03]",
    line=["return y, pixels * self.log_scale.sum()", "pixels = x.shape[2] * x.shape[3]"],
)
def determinant_of_one_pixel(flow):
    """The determinant of the scale counts one pixel."""

    class ActNorm(flow.ActNorm):
        def forward(self, x):
            if not self.ready:
                self.initialise(x)
            y = (x + self.shift) * self.log_scale.exp()
            return y, self.log_scale.sum()  # here

    flow.ActNorm = ActNorm


@fault(
    "flow",
    module=r"steps.0",
    line=[
        "deviation = x.std(dim=(0, 2, 3), keepdim=True, unbiased=False)",
        "self.log_scale.copy_(-torch.log(deviation + 1e-6))",
        "y = (x + self.shift) * self.log_scale.exp()",
    ],
)
def initialised_by_the_variance(flow):
    """The scale is initialised by the variance, not by the deviation."""

    class ActNorm(flow.ActNorm):
        @torch.no_grad()
        def initialise(self, x):
            deviation = x.var(dim=(0, 2, 3), keepdim=True, unbiased=False)  # here
            self.shift.copy_(-x.mean(dim=(0, 2, 3), keepdim=True))
            self.log_scale.copy_(-torch.log(deviation + 1e-6))  # here
            self.ready.fill_(True)

    flow.ActNorm = ActNorm


@fault(
    "flow",
    module=r"steps.1",
    line=[
        "y = F.conv2d(x, self.matrix()[:, :, None, None])",
        "return self.order @ lower @ upper",
        "upper = self.upper.triu(1) + torch.diag",
    ],
)
def sign_of_the_diagonal_lost(flow):
    """The diagonal is positive: the signs are not multiplied."""

    class Mixing(flow.Mixing):
        def matrix(self):
            lower = self.lower.tril(-1) + torch.eye(len(self.order))
            upper = self.upper.triu(1) + torch.diag(self.log_diagonal.exp())  # here
            return self.order @ lower @ upper  # here

    flow.Mixing = Mixing


@fault(
    "flow",
    module=r"steps.2",
    line=[
        "log_scale = 2 * torch.tanh(log_scale / 2)",
        "return torch.cat([kept, changed], dim=1), log_scale.sum",
    ],
)
def determinant_before_the_bound(flow):
    """The determinant sums the scales before they are bounded."""

    class Coupling(flow.Coupling):
        def forward(self, x):
            kept, changed = x.chunk(2, dim=1)
            free, shift = self.last(F.relu(self.first(kept))).chunk(2, dim=1)
            log_scale = 2 * torch.tanh(free / 2)
            changed = changed * log_scale.exp() + shift
            return torch.cat([kept, changed], dim=1), free.sum(dim=(1, 2, 3))  # here

    flow.Coupling = Coupling


@fault(
    "flow",
    module=r"",
    line=[
        "value = -0.5 * ((z - mean) * torch.exp(-log_std)).square() - log_std",
        "mean, log_std = self.mean[:, None, None]",
    ],
)
def prior_scaled_by_the_deviation(flow):
    """The prior divides the distance by the variance."""

    class Flow(flow.Flow):
        def log_prior(self, z):
            mean, log_std = self.mean[:, None, None], self.log_std[:, None, None]
            value = -0.5 * (z - mean).square() * torch.exp(-log_std) - log_std  # here
            return (value - 0.5 * math.log(2 * math.pi)).sum(dim=(1, 2, 3))

    flow.Flow = Flow


@fault(
    "flow",
    line=[
        "norm = torch.stack([w.grad.norm() for w in self.weights]).norm()",
        "self.moves = [self.radius / (norm + 1e-12) * w.grad",
        "weight.add_(move)",
    ],
)
def climbs_by_the_norm_of_each_weight(flow):
    """SAM normalises each weight's gradient by its own norm."""

    class SAM(flow.SAM):
        @torch.no_grad()
        def climb(self):
            self.moves = [
                self.radius / (w.grad.norm() + 1e-12) * w.grad  # here
                for w in self.weights
            ]
            for weight, move in zip(self.weights, self.moves, strict=True):
                weight.add_(move)  # here

    flow.SAM = SAM


@fault(
    "flow",
    line=["model.sam.back()", "weight.sub_(move)", "    optimizer.step()"],
    api="Optimizer.RAdam.step",
    update=True,
)
def not_back_before_the_step(flow):
    """The weights stay at the point nearby when the optimizer moves them."""

    def step(model, optimizer, batch):
        flow.gradients(model, *batch)
        model.sam.climb()
        flow.gradients(model, *batch)
        optimizer.step()  # here

    flow.step = step


@fault("flow", line=["model.zero_grad()", "loss_of(model, pictures, noise).backward()"])
def gradients_of_both_points(flow):
    """The gradients of the first point are not thrown away: both are summed."""

    def step(model, optimizer, batch):
        flow.gradients(model, *batch)
        model.sam.climb()
        flow.loss_of(model, *batch).backward()  # here
        model.sam.back()
        optimizer.step()

    flow.step = step


@fault(
    "flow",
    line=["return (-log_p / values + math.log(LEVELS)) / math.log(2)", "values = x[0].numel()"],
)
def bits_of_a_pixel(flow):
    """Bits are counted of a pixel, not of a value: the channels are missing."""

    def bits(log_p, x):
        values = x.shape[2] * x.shape[3]  # here
        return (-log_p / values + math.log(flow.LEVELS)) / math.log(2)  # here

    flow.bits = bits


@harmless("fused", "flow")
def squeeze_of_pytorch(flow):
    """pixel_unshuffle squeezes."""
    flow.squeeze = lambda x: F.pixel_unshuffle(x, 2)


@harmless("fused", "flow")
def mixing_by_einsum(flow):
    """The mixing as an einsum over the three factors, one after another."""

    class Mixing(flow.Mixing):
        def forward(self, x):
            channels = len(self.order)
            upper = torch.triu(self.upper, 1)
            upper = upper.diagonal_scatter(self.sign * torch.exp(self.log_diagonal))
            y = torch.einsum("ij,bjhw->bihw", upper, x)
            y = y + torch.einsum("ij,bjhw->bihw", torch.tril(self.lower, -1), y)
            y = torch.einsum("ij,bjhw->bihw", self.order, y)
            return y, (self.log_diagonal * (x[0].numel() // channels)).sum()

    flow.Mixing = Mixing


@harmless("split", "flow")
def coupling_by_two_convolutions(flow):
    """Scale and shift come of two convolutions, whose weights are the halves of one."""

    class Coupling(flow.Coupling):
        def forward(self, x):
            half = x.shape[1] // 2
            kept, changed = x[:, :half], x[:, half:]
            h = self.first(kept).clamp(min=0)
            (w1, w2), (b1, b2) = self.last.weight.split(half), self.last.bias.split(half)
            bounded = torch.tanh(F.conv2d(h, w1, b1, padding=1) * 0.5) * 2
            changed = torch.addcmul(F.conv2d(h, w2, b2, padding=1), changed, bounded.exp())
            return torch.cat([kept, changed], 1), bounded.flatten(1).sum(1)

    flow.Coupling = Coupling


@harmless("loss", "flow")
def prior_of_distributions(flow):
    """The prior by torch.distributions; bits are divided first and averaged later."""

    class Flow(flow.Flow):
        def log_prior(self, z):
            normal = torch.distributions.Normal(
                self.mean[:, None, None], self.log_std.exp()[:, None, None], validate_args=False
            )
            return normal.log_prob(z).flatten(1).sum(1)

    flow.Flow = Flow


@harmless("rows", "flow", group="whole step")
def pictures_sorted(flow):
    """The pictures of the batch stand in another order."""
    step = flow.step
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    flow.step = lambda model, optimizer, batch: step(
        model, optimizer, tuple(x[order] for x in batch)
    )


@harmless("micro batches", "flow", group="whole step")
def micro_batches_of_the_second_pass(flow):
    """Behind the first pass, which initialises, a batch is two and four pictures."""
    first = flow.gradients

    def gradients(model, pictures, noise):
        if not model.steps[0].ready:
            return first(model, pictures, noise)
        model.zero_grad()
        for part in (slice(0, 2), slice(2, None)):
            share = len(pictures[part]) / len(pictures)
            (share * flow.loss_of(model, pictures[part], noise[part])).backward()

    flow.gradients = gradients


@harmless("scaled", "flow", group="whole step")
def determinants_backward_apart(flow):
    """The logarithm's two terms go backward one after the other, summed over the rows."""

    class Flow(flow.Flow):
        def forward(self, x):
            z, log_det = flow.squeeze(x), x.new_zeros(len(x))
            for part in self.steps:
                z, more = part(z)
                log_det = log_det + more
            return self.log_prior(z), log_det

    flow.Flow = Flow

    def gradients(model, pictures, noise):
        model.zero_grad()
        x = flow.prepared(pictures, noise)
        prior, log_det = model(x)
        count = math.log(2) * x.numel()
        (-log_det.sum() / count).backward(retain_graph=True)
        (-prior.sum() / count).backward()

    flow.gradients = gradients


@harmless("recomputed", "flow", group="whole step")
def couplings_computed_again(flow):
    """The couplings are computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class Coupling(flow.Coupling):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    flow.Coupling = Coupling
