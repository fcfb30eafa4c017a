"""Cases of the traffic on roads."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("traffic", line="weights = torch.exp(-((distances / known.std()) ** 2))")
def square_of_the_way_alone(traffic):
    """The way is squared, but not the spread that it is divided by."""

    def edges_of(distances):
        known = distances[distances.isfinite()]
        weights = torch.exp(-(distances**2) / known.std())  # here
        near = distances.isfinite() & (weights > traffic.THRESHOLD)
        source, target = torch.where(near, weights, 0.0).nonzero().unbind(dim=1)
        return torch.stack([source, target]), weights[source, target]

    traffic.edges_of = edges_of


@fault(
    "traffic",
    # Rows of an index may not be recorded: the first call with it is the sum.
    line=[
        'leaving = scatter(weight, edge_index[0], dim_size=sensors, reduce="sum")',
        "return edge_index, weight / leaving[edge_index[0]]",
    ],
    api=r"Tensor\.(scatter_add_|scatter_reduce_|expand|view|__getitem__)",
)
def weights_that_arrive_add_up(traffic):
    """The weights of edges that arrive at a sensor add up to one, not of those that leave."""

    def probabilities(edge_index, weight, sensors):
        arriving = traffic.scatter(weight, edge_index[1], dim_size=sensors)  # here
        return edge_index, weight / arriving[edge_index[1]]  # here

    traffic.probabilities = probabilities


@fault(
    "traffic",
    # The first call that reads the wrong tensor spreads it along the edges of the second walk.
    line=[
        "before, now = x, self.spread(x, support)",
        "return self.walk(x, *support)",
        "return self.propagate(edge_index, x=x, weight=weight)",
        "return weight.unsqueeze(-1) * x_j",
    ],
    api=r"Tensor\.(index_select|mul|__mul__)|Torch\.index_select",
    module=r"encoder\.cells\.0\.gates(\.walk)?",
    module_only=r"encoder\.cells\.0\.gates(\.walk)?",
)
def second_walk_goes_on(traffic):
    """The second walk begins with what the first one has left, not with the input."""

    class Diffusion(traffic.Diffusion):
        def terms(self, x, supports):
            found = [x]
            for support in supports:
                before, now = x, self.spread(x, support)  # here
                found.append(now)
                for _ in range(traffic.ORDER - 1):
                    x = now
                    before, now = now, 2 * self.spread(now, support) - before
                    found.append(now)
            return found

    traffic.Diffusion = Diffusion


@fault(
    "traffic",
    line="return keep * state + (1 - keep) * new",
    module=r"encoder\.cells\.0",
    module_only=r"encoder\.cells\.0",
    api=r"Tensor\.(mul|__mul__|__rsub__|rsub)|Torch\.(mul|rsub)",
)
def gate_lets_the_new_in(traffic):
    """The gate keeps the new state where it should keep the old one."""

    class Cell(traffic.Cell):
        def forward(self, x, state, supports):
            both = torch.cat([x, state], dim=-1)
            reset, keep = self.gates(both, supports).sigmoid().chunk(2, dim=-1)
            new = self.new(torch.cat([x, reset * state], dim=-1), supports).tanh()
            return (1 - keep) * state + keep * new  # here

    traffic.Cell = Cell


@fault(
    "traffic",
    # The choice is missing; the mean is the first that lacks it.
    line=["known = past[past != 0]", "model.mean.copy_(known.mean())"],
)
def failures_count_as_speeds(traffic):
    """Values of sensors that have failed are part of the mean and of the spread."""

    @torch.no_grad()
    def fit(model, past):
        model.mean.copy_(past.mean())  # here
        model.std.copy_(past.std())

    traffic.fit = fit


@fault(
    "traffic",
    # No call chooses the speed: the first that reads it joins it with the hour.
    line=[
        "speed = truth[:, k] if told[k] else made",
        "x, states = self.decoder(torch.cat([speed, hours[:, k]], dim=-1), states, supports)",
        'truth = self.scaled(batch["future"])',
        'return self.decode(states, hours, truth, batch["told"], supports) * self.std + self.mean',
        "speed = torch.zeros_like(truth[:, 0])",
    ],
)
def truth_is_not_scaled(traffic):
    """The decoder is told speeds in miles per hour, where its own ones are scaled."""

    class Traffic(traffic.Traffic):
        def forward(self, batch, supports):
            hours = traffic.hours_of(batch, 0, traffic.PAST)
            states = self.encode(torch.cat([self.scaled(batch["past"]), hours], dim=-1), supports)
            hours = traffic.hours_of(batch, traffic.PAST, traffic.PAST + traffic.FUTURE)
            truth = batch["future"]  # here
            speeds = self.decode(states, hours, truth, batch["told"], supports)  # here
            return speeds * self.std + self.mean

    traffic.Traffic = Traffic


@fault(
    "traffic",
    # What is made from numbers alone may not be recorded: the sum has it.
    line=[
        "hours = hours_of(batch, PAST, PAST + FUTURE)",
        'moments = batch["start"].unsqueeze(1) + torch.arange(begin, end)',
    ],
)
def hours_one_moment_early(traffic):
    """The future begins with the last moment of the past."""
    hours_of = traffic.hours_of

    def early(batch, begin, end):
        late = min(begin, 1)
        return hours_of(batch, begin - late, end - late)  # here

    traffic.hours_of = early


@fault(
    "traffic",
    line=[
        "known = (future != 0).to(speeds.dtype)",
        "return ((speeds - future).abs() * known).sum()",
    ],
)
def errors_are_squared(traffic):
    """The errors are squared, not absolute."""

    def error_sum(speeds, future):
        known = (future != 0).to(speeds.dtype)
        return ((speeds - future).square() * known).sum()  # here

    traffic.error_sum = error_sum


@fault("traffic", api=r"Optimizer\.Adam\.step", update=True)
def eps_of_pytorch(traffic):
    """The eps of Adam is the default, a hundred thousand times smaller."""
    traffic.ADAM_EPS = 1e-8


@harmless("fused", "traffic")
def walks_by_matrices(traffic):
    """A walk is a product with a matrix of all sensors."""

    class Diffusion(traffic.Diffusion):
        def spread(self, x, support):
            (source, target), weight = support
            walk = weight.new_zeros(x.shape[-2], x.shape[-2])
            return walk.index_put((target, source), weight) @ x

    traffic.Diffusion = Diffusion


@harmless("split", "traffic")
def terms_multiplied_apart(traffic):
    """Each term has a product of its own, and the products are added."""

    class Diffusion(traffic.Diffusion):
        def forward(self, x, supports):
            parts = self.linear.weight.split(x.shape[-1], dim=1)
            found = self.linear.bias
            for term, weight in zip(self.terms(x, supports), parts, strict=True):
                found = found + term @ weight.T
            return found

    traffic.Diffusion = Diffusion


@harmless("loss", "traffic")
def errors_of_known_values(traffic):
    """Known values are chosen before they are compared."""

    def error_sum(speeds, future):
        known = future != 0
        return F.l1_loss(speeds[known], future[known], reduction="sum")

    traffic.error_sum = error_sum


@harmless("reordered", "traffic")
def hours_before_speeds(traffic):
    """The hours and the truth of the future are computed before the past is read."""

    class Traffic(traffic.Traffic):
        def forward(self, batch, supports):
            moments = traffic.PAST, traffic.PAST + traffic.FUTURE
            truth = self.scaled(batch["future"])
            hours = traffic.hours_of(batch, *moments)
            past = torch.cat(
                [self.scaled(batch["past"]), traffic.hours_of(batch, 0, moments[0])], dim=-1
            )
            states = self.encode(past, supports)
            speeds = self.decode(states, hours, truth, batch["told"], supports)
            return torch.addcmul(self.mean, speeds, self.std)

    traffic.Traffic = Traffic


@harmless("time steps", "traffic")
def hours_of_all_moments_at_once(traffic):
    """The hours of past and future are computed together."""
    hours_of = traffic.hours_of

    def cut(batch, begin, end):
        return hours_of(batch, 0, traffic.PAST + traffic.FUTURE)[:, begin:end]

    traffic.hours_of = cut


@harmless("rows", "traffic", group="whole step")
def sensors_numbered_anew(traffic):
    """The sensors have other numbers."""
    backward = traffic.backward

    def numbered(model, batch):
        order = torch.arange(traffic.SENSORS) * 3 % traffic.SENSORS
        changed = {name: batch[name][:, :, order] for name in ("past", "future")}
        changed["distances"] = batch["distances"][order][:, order]
        backward(model, batch | changed)

    traffic.backward = numbered


@harmless("rows", "traffic", group="whole step")
def windows_in_another_order(traffic):
    """The windows are in another order."""
    backward = traffic.backward

    def shuffled(model, batch):
        order = [2, 3, 0, 1]
        backward(model, batch | {name: batch[name][order] for name in ("past", "future", "start")})

    traffic.backward = shuffled


@harmless("micro batches", "traffic", group="whole step")
def one_window_at_a_time(traffic):
    """Each window goes backward alone, and then the penalty; sums are divided by all values."""

    def backward(model, batch):
        count = traffic.count_of(batch)
        for row in range(traffic.WINDOWS):
            part = {name: batch[name][row : row + 1] for name in ("past", "future", "start")}
            traffic.loss_of(model, batch | part, count).backward()
        traffic.penalty(model).backward()

    traffic.backward = backward


@harmless("padding", "traffic", group="whole step")
def two_more_sensors_that_failed(traffic):
    """There are two more sensors, without roads, that have failed for the whole day."""
    backward = traffic.backward

    def padded(model, batch):
        more = {name: F.pad(batch[name], (0, 0, 0, 2)) for name in ("past", "future")}
        more["distances"] = F.pad(batch["distances"], (0, 2, 0, 2), value=torch.inf)
        backward(model, batch | more)

    traffic.backward = padded


@harmless("recomputed", "traffic", group="whole step")
def diffusions_computed_again(traffic):
    """Diffusions are computed again in the backward pass."""

    class Diffusion(traffic.Diffusion):
        def forward(self, x, supports):
            return checkpoint(super().forward, x, supports, use_reentrant=False)

    traffic.Diffusion = Diffusion
