"""Cases of the latent differential equation."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F

LINES = [
    "k2 = field(time + half, h + 0.5 * wide * k1)",
    "k3 = field(time + half, h + 0.5 * wide * k2)",
]


@fault("ode", line=["return h + wide / 6 * (k1 + 2 * k2 + 2 * k3 + k4)"])
def weights_of_the_middle_missing(ode):
    """The two slopes of the middle do not count twice."""

    def runge_kutta(field, time, h, size):
        half, wide = 0.5 * size, size[:, None]
        k1 = field(time, h)
        k2 = field(time + half, h + 0.5 * wide * k1)
        k3 = field(time + half, h + 0.5 * wide * k2)
        k4 = field(time + size, h + wide * k3)
        return h + wide / 6 * (k1 + k2 + k3 + k4)  # here

    ode.runge_kutta = runge_kutta


@fault(
    "ode",
    line=[*LINES, "half, wide = 0.5 * size, size[:, None]", "phase = torch.stack([torch.sin(time)"],
)
def slopes_of_the_begin_of_the_interval(ode):
    """The slopes of the middle take the phase of the begin."""

    def runge_kutta(field, time, h, size):
        wide = size[:, None]
        k1 = field(time, h)
        k2 = field(time, h + 0.5 * wide * k1)  # here
        k3 = field(time, h + 0.5 * wide * k2)  # here
        k4 = field(time + size, h + wide * k3)
        return h + wide / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    ode.runge_kutta = runge_kutta


@fault(
    "ode",
    module=r"",
    line=[
        "h = flow(self.field, time, times[:, number], h)",
        "time = times[:, number]",
        "size = (end - start) / STEPS",
    ],
)
def time_never_moves(ode):
    """Each interval begins at time zero."""

    class Model(ode.Model):
        def forward(self, x, seen, times):
            h = self.begin.expand(len(x), -1)
            time, means, logs = torch.zeros(len(x)), [], []
            for number in range(x.shape[1]):
                if number == x.shape[1] - ode.CUT:
                    h = h.detach()
                h = ode.flow(self.field, time, times[:, number], h)  # here
                mean, log_variance = self.read(h).chunk(2, dim=-1)
                means.append(mean)
                logs.append(log_variance)
                h = self.jump(h, x[:, number], seen[:, number], mean)
            return torch.stack(means, dim=1), torch.stack(logs, dim=1)

    ode.Model = Model


@fault(
    "ode",
    module=r"",
    line=[
        "h = h.detach()",
        "h = flow(self.field, time, times[:, number], h)",
        "h = self.jump(h, x[:, number], seen[:, number], mean)",
        "return torch.where(seen.any(dim=-1, keepdim=True), changed, h)",
        "return self.outside(torch.tanh(self.inside(torch.cat([h, phase]",
        "k1 = field(time, h)",
    ],
)
def detached_at_each_observation(ode):
    """The state is detached before each interval: values are right, gradients are short."""

    class Model(ode.Model):
        def forward(self, x, seen, times):
            h = self.begin.expand(len(x), -1)
            time, means, logs = torch.zeros(len(x)), [], []
            for number in range(x.shape[1]):
                if number >= x.shape[1] - ode.CUT:
                    h = h.detach()  # here
                h = ode.flow(self.field, time, times[:, number], h)  # here
                mean, log_variance = self.read(h).chunk(2, dim=-1)
                means.append(mean)
                logs.append(log_variance)
                h = self.jump(h, x[:, number], seen[:, number], mean)  # here
                time = times[:, number]
            return torch.stack(means, dim=1), torch.stack(logs, dim=1)

    ode.Model = Model


@fault(
    "ode",
    module=r"jump",
    line=["filled = torch.where(seen, x, predicted)", "changed = self.cell(torch.cat([filled"],
)
def unseen_values_leak(ode):
    """What was not seen is fed, too."""

    class Jump(ode.Jump):
        def forward(self, h, x, seen, predicted):
            changed = self.cell(torch.cat([x, seen.to(h.dtype)], dim=-1), h)  # here
            return torch.where(seen.any(dim=-1, keepdim=True), changed, h)

    ode.Jump = Jump


@fault(
    "ode", module=r"jump", line=["return torch.where(seen.any(dim=-1, keepdim=True), changed, h)"]
)
def changed_where_all_was_seen(ode):
    """The state changes only where all series were seen."""

    class Jump(ode.Jump):
        def forward(self, h, x, seen, predicted):
            filled = torch.where(seen, x, predicted)
            changed = self.cell(torch.cat([filled, seen.to(h.dtype)], dim=-1), h)
            return torch.where(seen.all(dim=-1, keepdim=True), changed, h)  # here

    ode.Jump = Jump


@fault(
    "ode",
    line=[
        "counts = seen.sum(dim=(0, 1)).clamp(min=1)",
        "return ((value * seen).sum(dim=(0, 1)) / counts).mean()",
    ],
)
def mean_of_all_observations(ode):
    """One mean over all that was seen, so that rare series weigh less."""

    def loss_of(mean, log_variance, x, seen):
        bounded = log_variance.clamp(-4, 4)
        distance = (x - mean).square() * torch.exp(-bounded)
        value = 0.5 * (bounded + distance + math.log(2 * math.pi))
        return (value * seen).sum() / seen.sum()  # here

    ode.loss_of = loss_of


@fault(
    "ode",
    line=[
        'state["left"] += gradient @ gradient.T',
        'state["right"] += gradient.T @ gradient',
        'return root(state["left"], -0.25)',
        "values, vectors = torch.linalg.eigh(matrix)",
    ],
    api=r"Optimizer\.Shampoo\.step",
    update=True,
)
def roots_of_one_side(ode):
    """Each side is preconditioned with the power of a method that has one side."""

    class Shampoo(ode.Shampoo):
        def direction(self, gradient, state, group):
            if gradient.dim() != 2:
                return super().direction(gradient, state, group)
            if not state:
                rows, columns = gradient.shape
                state["left"] = group["epsilon"] * torch.eye(rows)
                state["right"] = group["epsilon"] * torch.eye(columns)
            state["left"] += gradient @ gradient.T
            state["right"] += gradient.T @ gradient
            return ode.root(state["left"], -0.5) @ gradient @ ode.root(state["right"], -0.5)  # here

    ode.Shampoo = Shampoo


@fault(
    "ode",
    api="Optimizer.Shampoo.step",
    update=True,
    line="made = Shampoo(model.parameters(), lr=0.02)",
)
def warm_up_begins_a_step_early(ode):
    """The schedule begins with the second rate."""

    def optimizer(model):
        made = ode.Shampoo(model.parameters(), lr=0.02)
        rate = torch.optim.lr_scheduler.LambdaLR(made, lambda t: min(1.0, (t + 2) / 4))  # here
        model.schedule = rate
        return made

    ode.optimizer = optimizer


@harmless("split", "ode")
def field_of_state_and_phase(ode):
    """The first matrix of the field is split into that of the state and that of the phase."""

    class Field(ode.Field):
        def forward(self, time, h):
            state, phase = self.inside.weight.split([ode.WIDTH, 2], dim=1)
            angle = time[:, None]
            x = h @ state.T + angle.sin() * phase[:, 0] + angle.cos() * phase[:, 1]
            y = torch.addmm(
                self.outside.bias, torch.tanh(x + self.inside.bias), self.outside.weight.T
            )
            return torch.sub(y, h, alpha=0.1)

    ode.Field = Field


@harmless("fused", "ode")
def cell_written_out(ode):
    """The gated cell is written out."""

    class Jump(ode.Jump):
        def forward(self, h, x, seen, predicted):
            mask = seen.to(h.dtype)
            filled = predicted + mask * (x - predicted)
            cell = self.cell
            inside = F.linear(torch.cat([filled, mask], dim=-1), cell.weight_ih, cell.bias_ih)
            r, z, n = inside.chunk(3, dim=-1)
            hr, hz, hn = F.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, dim=-1)
            r, z = torch.sigmoid(r + hr), torch.sigmoid(z + hz)
            new = torch.tanh(n + r * hn)
            changed = new + z * (h - new)
            return torch.where(seen.sum(dim=-1, keepdim=True) > 0, changed, h)

    ode.Jump = Jump


@harmless("loss", "ode")
def loss_series_by_series(ode):
    """The loss picks what was seen of one series after the other."""

    def loss_of(mean, log_variance, x, seen):
        parts = []
        for s in range(ode.SERIES):
            known = seen[..., s]
            log = log_variance[..., s][known].clamp(-4, 4)
            apart = x[..., s][known] - mean[..., s][known]
            parts.append((log + apart * apart / log.exp()).mean())
        return torch.stack(parts).mean() / 2 + 0.5 * math.log(2 * math.pi)

    ode.loss_of = loss_of


@harmless("reordered", "ode")
def slopes_added_up(ode):
    """The slopes are added up while they are computed."""

    def runge_kutta(field, time, h, size):
        wide, total, k = size[:, None], 0.0, 0.0
        for share, weight in ((0.0, 1), (0.5, 2), (0.5, 2), (1.0, 1)):
            k = field(time + share * size, h + share * wide * k)
            total = total + k * (weight / 6)
        return torch.addcmul(h, total, wide)

    ode.runge_kutta = runge_kutta


@harmless("rows", "ode", group="whole step")
def series_of_other_order(ode):
    """The rows of the batch are rolled by two."""
    step = ode.step
    ode.step = lambda model, optimizer, batch: step(
        model, optimizer, tuple(value.roll(2, 0) for value in batch)
    )


@harmless("scaled", "ode", group="whole step")
def penalty_backward_apart(ode):
    """The penalty goes backward first, on its own."""

    def backward(model, x, seen, times):
        (ode.EMPTY * ode.penalty(model)).backward()
        mean, log_variance = model(x, seen, times)
        ode.loss_of(mean, log_variance, x, seen).backward()

    ode.backward = backward


@harmless("micro batches", "ode", group="whole step")
def two_unequal_parts(ode):
    """Micro-batches of four rows and of two, divided by what was seen in both."""

    def backward(model, x, seen, times):
        counts = seen.sum(dim=(0, 1)).clamp(min=1)
        for part in (slice(0, 4), slice(4, None)):
            mean, log_variance = model(x[part], seen[part], times[part])
            bounded = log_variance.clamp(-4, 4)
            value = 0.5 * (bounded + (x[part] - mean).square() * torch.exp(-bounded))
            loss = ((value * seen[part]).sum(dim=(0, 1)) / counts).mean()
            (loss + ode.EMPTY / 2 * ode.penalty(model)).backward()

    ode.backward = backward


@harmless("padding", "ode", group="whole step")
def one_more_time(ode):
    """An empty time follows: nothing is seen there."""
    backward = ode.backward

    def longer(model, x, seen, times):
        ode.CUT += 1
        x = F.pad(x, (0, 0, 0, 1))
        backward(model, x, F.pad(seen, (0, 0, 0, 1)), torch.cat([times, times[:, -1:] + 1], dim=1))
        ode.CUT -= 1

    ode.backward = longer
