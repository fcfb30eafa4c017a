"""Cases of the heat in a plate."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "plate",
    # The product is missing; the derivatives of the flux are the first that lack it.
    line=[
        "flux = model.conductivity(points[:, 1:]).unsqueeze(1) * slopes[:, 1:]",
        "along_x = gradient(flux[:, 0], points)[:, 1]",
        "return torch.autograd.grad(values.sum(), points, create_graph=True)[0]",
        "return CAPACITY * slopes[:, 0] - (along_x + along_y) - heat_of_the_laser(points)",
    ],
)
def conductivity_outside_of_the_divergence(plate):
    """The conductivity is taken for a constant: k times the second derivatives."""

    def residuals(model, points):
        points = points.clone().requires_grad_()
        slopes = plate.gradient(model.temperature(points), points)
        along_x = plate.gradient(slopes[:, 1], points)[:, 1]  # here
        along_y = plate.gradient(slopes[:, 2], points)[:, 2]
        conducted = model.conductivity(points[:, 1:]) * (along_x + along_y)  # here
        return plate.CAPACITY * slopes[:, 0] - conducted - plate.heat_of_the_laser(points)

    plate.residuals = residuals


@fault(
    "plate",
    # The forward pass is the same; gradients differ from the sums on.
    line=[
        "before = chunks.cumsum(dim=0) - chunks",
        "trust = torch.exp(-CAUSAL * before).detach()",
        "return (trust * chunks).mean()",
        "norms.append(torch.stack(squares).sum().sqrt())",
    ],
    api=r"Torch\.exp|Tensor\.(detach|exp)",
)
def trust_learns(plate):
    """The trust is not detached: early points get worse so that late ones count less."""

    def causal_loss(left, times):
        chunks = left[times.argsort()].view(plate.CHUNKS, -1).square().mean(dim=1)
        before = chunks.cumsum(dim=0) - chunks  # here
        trust = torch.exp(-plate.CAUSAL * before)  # here
        return (trust * chunks).mean()  # here

    plate.causal_loss = causal_loss


@fault("plate", line="chunks = left[times.argsort()].view(CHUNKS, -1).square().mean(dim=1)")
def points_in_no_order(plate):
    """Points are not sorted by time before they are cut in chunks."""

    def causal_loss(left, times):
        chunks = left.view(plate.CHUNKS, -1).square().mean(dim=1)  # here
        before = chunks.cumsum(dim=0) - chunks
        trust = torch.exp(-plate.CAUSAL * before).detach()
        return (trust * chunks).mean()

    plate.causal_loss = causal_loss


@fault(
    "plate",
    # The product is missing; the cosine is the first that lacks it.
    line=[
        "phase = 2 * math.pi * (unit @ self.frequencies)",
        "return torch.cat([phase.cos(), phase.sin()], dim=-1)",
    ],
    api=r"Tensor\.(cos|sin)|Torch\.(cos|sin)",
    module=r"temperature\.waves",
    module_only=r"temperature\.waves",
)
def frequencies_are_angles(plate):
    """Frequencies are not multiplied by two pi."""

    class Waves(plate.Waves):
        def forward(self, points):
            unit = 2 * points / self.extent - 1
            phase = unit @ self.frequencies  # here
            return torch.cat([phase.cos(), phase.sin()], dim=-1)  # here

    plate.Waves = Waves


@fault(
    "plate",
    # A slice may not be recorded: the product is the first call with it.
    line=[
        "slopes = gradient(model.temperature(points), points)[:, 1:]",
        'return (slopes * batch["normal"]).sum(dim=1).square().mean()',
    ],
)
def slopes_begin_with_time(plate):
    """The slopes at the edges are those of time and x, not of x and y."""

    def loss_of_edges(model, batch):
        points = batch["edge"].clone().requires_grad_()
        slopes = plate.gradient(model.temperature(points), points)[:, :2]  # here
        return (slopes * batch["normal"]).sum(dim=1).square().mean()  # here

    plate.loss_of_edges = loss_of_edges


@fault("plate", line='return (error / batch["noise"]).square().mean()')
def noise_is_not_squared(plate):
    """Squares of errors are divided by the noise, not by its square."""

    def loss_of_sensors(model, batch):
        error = model.temperature(batch["sensors"]) - plate.to_unit(batch["measured"])
        return (error.square() / batch["noise"]).mean()  # here

    plate.loss_of_sensors = loss_of_sensors


@fault(
    "plate",
    line=[
        "    balance(model, losses)",
        "(model.weights * losses).sum().backward()",
    ],
)
def weights_of_the_last_step(plate):
    """The losses are summed before their weights are moved."""

    def backward(model, batch):
        losses = plate.losses_of(model, batch)
        total = (model.weights.clone() * losses).sum()  # here
        plate.balance(model, losses)
        total.backward()

    plate.backward = backward


@fault(
    "plate",
    # What a buffer begins with may not be recorded: the first call with it moves it.
    line=[
        'self.register_buffer("weights", torch.ones(4))',
        "model.weights.lerp_(norms.sum() / (norms + NORM_EPS), 1 - KEEP)",
    ],
)
def weights_begin_with_zero(plate):
    """The moving weights of losses begin with zero, not with one."""

    class Plate(plate.Plate):
        def __init__(self):
            super().__init__()
            self.register_buffer("weights", torch.zeros(4))  # here

    plate.Plate = Plate


@fault("plate", api=r"Optimizer\.NAdam\.step", update=True)
def rate_falls_twice(plate):
    """The schedule makes two steps: one was left in the loop when it was moved to the end."""
    step = plate.step

    def twice(model, optimizer, batch):
        step(model, optimizer, batch)
        model.schedule.step()

    plate.step = twice


@harmless("fused", "plate")
def lengths_after_the_product(plate):
    """Rows get their length when they have been multiplied."""

    class Factored(plate.Factored):
        def forward(self, x):
            return torch.addcmul(self.bias, F.linear(x, self.direction), self.log_length.exp())

    plate.Factored = Factored


@harmless("fused", "plate")
def gates_by_lerp(plate):
    """What gates do is one call."""

    class Temperature(plate.Temperature):
        def mix(self, h, u, v):
            return torch.lerp(v, u, h)

    plate.Temperature = Temperature


@harmless("split", "plate")
def waves_by_one_sine(plate):
    """A cosine is a sine that is a quarter ahead: there is one call."""

    class Waves(plate.Waves):
        def forward(self, points):
            turns = (2 * points / self.extent - 1) @ self.frequencies
            return torch.sin(2 * math.pi * torch.cat([turns + 0.25, turns], dim=-1))

    plate.Waves = Waves


@harmless("reordered", "plate")
def sensors_before_the_equation(plate):
    """The losses are computed from the last to the first."""

    def losses_of(model, batch):
        sensors = plate.loss_of_sensors(model, batch)
        edges = plate.loss_of_edges(model, batch)
        begin = plate.loss_of_begin(model, batch)
        return torch.stack([plate.loss_of_equation(model, batch), begin, edges, sensors])

    plate.losses_of = losses_of


@harmless("loss", "plate")
def trust_by_a_matrix(plate):
    """What is before a chunk is a product with a triangle of ones."""

    def causal_loss(left, times):
        _, order = times.sort()
        squares = left.square()[order].view(plate.CHUNKS, -1)
        chunks = squares.sum(dim=1) / squares.shape[1]
        earlier = torch.ones(plate.CHUNKS, plate.CHUNKS, dtype=left.dtype).tril(-1)
        with torch.no_grad():
            trust = torch.exp(-plate.CAUSAL * (earlier @ chunks))
        return (trust @ chunks) / plate.CHUNKS

    plate.causal_loss = causal_loss


@harmless("rows", "plate", group="whole step")
def points_in_another_order(plate):
    """The points inside and those of sensors are in another order."""
    backward = plate.backward

    def shuffled(model, batch):
        inside = torch.arange(plate.INSIDE) * 5 % plate.INSIDE
        sensors = torch.arange(plate.SENSORS * plate.MOMENTS).flip(0)
        changed = {name: batch[name][sensors] for name in ("sensors", "measured", "noise")}
        backward(model, batch | changed | {"inside": batch["inside"][inside]})

    plate.backward = shuffled


@harmless("micro batches", "plate", group="whole step")
def inside_in_three_parts(plate):
    """The points inside go through the network in three parts."""
    residuals = plate.residuals

    def in_parts(model, points):
        return torch.cat([residuals(model, part) for part in points.chunk(3)])

    plate.residuals = in_parts


@harmless("scaled", "plate", group="whole step")
def loss_is_scaled(plate):
    """The sum of losses is scaled, and gradients are unscaled before they are clipped."""
    clip = plate.clip

    def backward(model, batch):
        losses = plate.losses_of(model, batch)
        plate.balance(model, losses)
        (model.weights * losses).sum().mul(64.0).backward()

    def unscaled(model):
        for p in model.parameters():
            p.grad.div_(64.0)
        clip(model)

    plate.backward, plate.clip = backward, unscaled


@harmless("recomputed", "plate", group="whole step")
def temperatures_computed_again(plate):
    """The temperatures of the begin and of sensors are computed again in the backward pass."""

    class Temperature(plate.Temperature):
        def forward(self, points):
            if points.requires_grad:  # its derivatives have derivatives
                return super().forward(points)
            return checkpoint(super().forward, points, use_reentrant=False)

    plate.Temperature = Temperature
