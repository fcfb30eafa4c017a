"""Cases of the next event."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "events",
    # A slice may not be recorded: the product in the exponent is the first call with it.
    line=[
        "before = State(*(each[:, :-1] for each in states))",
        "faded = torch.exp(-state.decay * elapsed)",
    ],
)
def rate_when_it_has_come(events):
    """The rate of an event is that just after it: the state knows already what came."""

    def log_rates(model, states, inputs):
        after = events.State(*(each[:, 1:] for each in states))  # here
        elapsed = torch.zeros_like(inputs["lengths"][:, :-1]).unsqueeze(2)  # here
        rates = model.net.rates(events.hidden_after(after, elapsed))
        chosen = rates.gather(2, inputs["kinds"].unsqueeze(2)).squeeze(2)
        return ((chosen + events.SMOOTH).log() * inputs["real"]).sum()

    events.log_rates = log_rates


@fault(
    "events",
    line=[
        'elapsed = inputs["lengths"].unsqueeze(2) * inputs["shares"]',
        'return (rates.sum(dim=3).mean(dim=2) * inputs["lengths"]).sum()',
    ],
)
def nothing_is_expected_after_the_last(events):
    """The interval from the last event to the end is not integrated."""

    def expected(model, states, inputs):
        lengths, shares = inputs["lengths"][:, :-1], inputs["shares"][:, :-1]
        lengths = lengths * inputs["real"]  # here
        elapsed = lengths.unsqueeze(2) * shares  # here
        spread = events.State(*(each[:, :-1].unsqueeze(2) for each in states))
        rates = model.net.rates(events.hidden_after(spread, elapsed.unsqueeze(3)))
        return (rates.sum(dim=3).mean(dim=2) * lengths).sum()  # here

    events.expected = expected


@fault(
    "events",
    # The product is missing: what reads the rates is the first that lacks it.
    line=[
        "return scale * F.softplus(self.to_rates(hidden) / scale)",
        "rates = model.net.rates(hidden_after(before, elapsed))",
        'chosen = rates.gather(2, inputs["kinds"].unsqueeze(2)).squeeze(2)',
    ],
)
def scale_only_inside(events):
    """The scale of a kind divides what is bent, but does not multiply what comes out."""

    class Net(events.Net):
        def rates(self, hidden):
            scale = self.log_scale.exp()
            return F.softplus(self.to_rates(hidden) / scale)  # here

    events.Net = Net


@fault(
    "events",
    # The mask is missing: the sum is the first call without it.
    line='return ((chosen + SMOOTH).log() * inputs["real"]).sum()',
)
def padding_is_an_event(events):
    """Rows that are short get events of the first kind at their end."""

    def log_rates(model, states, inputs):
        before = events.State(*(each[:, :-1] for each in states))
        elapsed = inputs["lengths"][:, :-1].unsqueeze(2)
        rates = model.net.rates(events.hidden_after(before, elapsed))
        chosen = rates.gather(2, inputs["kinds"].unsqueeze(2)).squeeze(2)
        return (chosen + events.SMOOTH).log().sum()  # here

    events.log_rates = log_rates


@fault(
    "events",
    # What takes the gaps apart may not be recorded: the product in the exponent has the first one.
    line=[
        'return F.pad(inputs["lengths"][:, :-1], (1, 0))',
        "for x, gap in zip(self.embed(kinds).unbind(dim=1), gaps.unbind(dim=1), strict=True):",
        "state = self.cell(x, state, gap.unsqueeze(1))",
        "left = left_after(state, elapsed)",
        "faded = torch.exp(-state.decay * elapsed)",
    ],
    module_only=r"net(\.cell)?",
)
def gap_to_the_next_event(events):
    """The cell fades by the time to the next event, not from the last one: one too late."""
    events.gaps_of = lambda inputs: inputs["lengths"]  # here


@fault(
    "events",
    line="target = keep_target.sigmoid() * state.target + write_target.sigmoid() * new",
    module_only=r"net\.cell",
)
def target_is_kept_from_the_cell(events):
    """The gate of the target keeps what is left of the cell."""

    class Cell(events.Cell):
        def forward(self, x, state, elapsed):
            left = events.left_after(state, elapsed)
            hidden = state.out * left.tanh()
            write, keep, show, write_target, keep_target, new, decay = self.gates(x, hidden)
            new = new.tanh()
            cell = keep.sigmoid() * left + write.sigmoid() * new
            target = keep_target.sigmoid() * left + write_target.sigmoid() * new  # here
            return events.State(cell, target, F.softplus(decay), show.sigmoid())

    events.Cell = Cell


@fault(
    "events",
    line="return State(cell, target, F.softplus(decay), show.sigmoid())",
    api=r"Tensor\.exp|Torch\.exp|Functional\.softplus",
    module=r"net\.cell",
    module_only=r"net\.cell",
)
def decay_by_exp(events):
    """The speed of the decay is an exponential, not the soft ramp."""

    class Cell(events.Cell):
        def forward(self, x, state, elapsed):
            left = events.left_after(state, elapsed)
            hidden = state.out * left.tanh()
            write, keep, show, write_target, keep_target, new, decay = self.gates(x, hidden)
            new = new.tanh()
            cell = keep.sigmoid() * left + write.sigmoid() * new
            target = keep_target.sigmoid() * state.target + write_target.sigmoid() * new
            return events.State(cell, target, decay.exp(), show.sigmoid())  # here

    events.Cell = Cell


@fault(
    "events",
    line=[
        'loss_of(model, inputs, inputs["real"].sum()).backward()',
        "return loss / count",
    ],
)
def divided_by_places(events):
    """The loss is divided by all places of the table, also by those of padding."""

    def backward(model, inputs):
        events.loss_of(model, inputs, inputs["real"].numel()).backward()  # here

    events.backward = backward


@fault("events", line="mean.add_(mine - mean, alpha=1 / model.averaged)")
def begin_is_averaged(events):
    """The weights of the begin count as one more step of the average."""

    @torch.no_grad()
    def update_average(model):
        model.averaged += 1
        for mean, mine in zip(model.average.parameters(), model.net.parameters(), strict=True):
            mean.add_(mine - mean, alpha=1 / (model.averaged + 1))  # here

    events.update_average = update_average


@fault("events", api=r"Optimizer\.RAdam\.step", update=True)
def clipped_after_the_step(events):
    """Gradients are clipped when the weights have moved."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        events.backward(model, events.padded(batch))
        optimizer.step()
        events.clip(model)
        model.schedule.step()
        events.update_average(model)

    events.step = step


@harmless("fused", "events")
def rates_by_logaddexp(events):
    """The soft ramp is the logarithm of a sum of exponentials."""

    class Net(events.Net):
        def rates(self, hidden):
            scale = self.log_scale.exp()
            scores = self.to_rates(hidden) / scale
            return torch.logaddexp(scores, torch.zeros_like(scores)) * scale

    events.Net = Net


@harmless("split", "events")
def gates_in_one_product(events):
    """Input and hidden state are joined, and so are their weights."""

    class Cell(events.Cell):
        def gates(self, x, hidden):
            weight = torch.cat([self.of_input.weight, self.of_hidden.weight], dim=1)
            joined = torch.cat([x, hidden], dim=1)
            return F.linear(joined, weight, self.of_input.bias).chunk(7, dim=1)

    events.Cell = Cell


@harmless("fused", "events")
def decay_by_lerp(events):
    """The way from the target to the cell is one call."""

    def left_after(state, elapsed):
        faded = torch.exp(-state.decay * elapsed)
        shape = faded.shape
        return torch.lerp(state.target.expand(shape), state.cell.expand(shape), faded)

    events.left_after = left_after


@harmless("reordered", "events")
def expected_before_what_came(events):
    """The terms are computed from the last to the first."""

    def loss_of(model, inputs, count):
        kinds = F.pad(inputs["kinds"], (1, 0), value=events.BEGIN)
        states = model.net(kinds, events.gaps_of(inputs))
        loss = events.small_states(states, inputs) + events.expected(model, states, inputs)
        return (loss - events.log_rates(model, states, inputs)) / count

    events.loss_of = loss_of


@harmless("loss", "events")
def expected_by_products(events):
    """Rates, moments and lengths are summed in one product."""

    def expected(model, states, inputs):
        elapsed = inputs["lengths"].unsqueeze(2) * inputs["shares"]
        spread = events.State(*(each.unsqueeze(2) for each in states))
        rates = model.net.rates(events.hidden_after(spread, elapsed.unsqueeze(3)))
        return torch.einsum("rtmk,rt->", rates, inputs["lengths"]) / rates.shape[2]

    events.expected = expected


@harmless("rows", "events", group="whole step")
def rows_in_another_order(events):
    """The rows are in another order."""
    padded = events.padded
    events.padded = lambda rows: padded([rows[k] for k in (3, 0, 5, 1, 4, 2)])


@harmless("micro batches", "events", group="whole step")
def two_rows_at_a_time(events):
    """Two rows go backward at a time; sums are divided by the events of all."""

    def backward(model, inputs):
        count = inputs["real"].sum()
        for k in range(0, len(inputs["kinds"]), 2):
            part = {name: value[k : k + 2] for name, value in inputs.items()}
            events.loss_of(model, part, count).backward()

    events.backward = backward


@harmless("padding", "events", group="whole step")
def three_more_places(events):
    """Each row has three more places of padding."""
    padded = events.padded

    def longer(rows):
        inputs = padded(rows)
        shares = F.pad(inputs.pop("shares"), (0, 0, 0, 3), value=0.5)
        return {name: F.pad(value, (0, 3)) for name, value in inputs.items()} | {"shares": shares}

    events.padded = longer


@harmless("scaled", "events", group="whole step")
def loss_is_scaled(events):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = events.loss_of, events.clip
    events.loss_of = lambda model, inputs, count: 128.0 * loss_of(model, inputs, count)

    def unscaled(model):
        for p in model.net.parameters():
            p.grad.div_(128.0)
        clip(model)

    events.clip = unscaled


@harmless("recomputed", "events", group="whole step")
def rates_computed_again(events):
    """What the rates are made of is computed again in the backward pass."""
    hidden_after = events.hidden_after

    def again(state, elapsed):
        return checkpoint(hidden_after, state, elapsed, use_reentrant=False)

    events.hidden_after = again
