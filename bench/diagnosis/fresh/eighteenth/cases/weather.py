"""Cases of the weather on a sphere."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "weather",
    # The conversion is missing; the cosine is the first that lacks it.
    line="weights = torch.cos(torch.deg2rad(latitudes()))",
    api=r"Torch\.cos|Tensor\.cos",
)
def rows_weighed_by_degrees(weather):
    """The weights of rows are cosines of degrees that are taken for radians."""

    def row_weights():
        weights = torch.cos(weather.latitudes())  # here
        return weights / weights.mean()

    weather.row_weights = row_weights


@fault(
    "weather",
    # What is made from numbers alone may not be recorded: the sum with the bias has the mask.
    line=[
        "shifted = (torch.arange(rows) >= rows - SHIFT[0]).view(1, rows, 1, 1)",
        "band = to_windows(shifted.expand(1, rows, columns, 1)).squeeze(-1)",
        "return x.transpose(2, 3).reshape(days, -1, high * wide, width)",
        "return FAR * (band.unsqueeze(3) != band.unsqueeze(2)).to(torch.get_default_dtype())",
        "mask = apart_at_the_poles(rows, columns)",
        "bias = bias + mask.unsqueeze(2)",
    ],
    module_only=r"net\.blocks\.1(\.attention)?",
)
def poles_see_each_other(weather):
    """The row that a shift brought from the north is not counted: the mask is empty."""

    def apart_at_the_poles(rows, columns):
        shifted = (torch.arange(rows) > rows - weather.SHIFT[0]).view(1, rows, 1, 1)  # here
        band = weather.to_windows(shifted.expand(1, rows, columns, 1)).squeeze(-1)  # here
        apart = band.unsqueeze(3) != band.unsqueeze(2)  # here
        return weather.FAR * apart.to(torch.get_default_dtype())  # here

    weather.apart_at_the_poles = apart_at_the_poles


@fault(
    "weather",
    line="return torch.roll(x, SHIFT, dims=(1, 2))",
    api=r"Torch\.roll|Tensor\.roll",
    module=r"net\.blocks\.1",
    module_only=r"net\.blocks\.1",
)
def rolled_on_and_not_back(weather):
    """What was looked at is moved once more in the same direction."""

    class Block(weather.Block):
        def looked(self, x):
            _, rows, columns, _ = x.shape
            if not self.shifted:
                x = self.attention(weather.to_windows(x), None)
                return weather.from_windows(x, rows, columns)
            mask = weather.apart_at_the_poles(rows, columns)
            away = [-shift for shift in weather.SHIFT]
            x = torch.roll(x, away, dims=(1, 2))
            x = weather.from_windows(self.attention(weather.to_windows(x), mask), rows, columns)
            return torch.roll(x, away, dims=(1, 2))  # here

    weather.Block = Block


@fault(
    "weather",
    line='x = F.pad(x, (1, 1, 0, 0), mode="circular")',
    api=r"Functional\.pad|Torch\.pad",
    module="net",
    module_only="net",
)
def nothing_west_of_the_first_column(weather):
    """The map has an edge where it should go on around the earth."""

    def around(x):
        x = F.pad(x, (1, 1, 0, 0))  # here
        return F.pad(x, (0, 0, 1, 1), mode="replicate")

    weather.around = around


@fault(
    "weather",
    # A product is missing: the sum is the first that lacks it.
    line=[
        'ratio = like_fields(batch["spread_of_changes"] / batch["spread"])',
        "return state + ratio * change(model, state, statics, clock)",
    ],
)
def changes_spread_like_states(weather):
    """Changes have the spread of states."""

    def next_state(model, state, statics, clock, batch):
        return state + weather.change(model, state, statics, clock)  # here

    weather.next_state = next_state


@fault(
    "weather",
    # The forward pass is the same; gradients differ where the first prediction is read again.
    line=[
        "state = next_state(model, state, statics, clock, batch)",
        "return state + ratio * change(model, state, statics, clock)",
        "x = self.patches(around(torch.cat([state, statics], dim=1))).permute(0, 2, 3, 1)",
    ],
    api=r"Tensor\.detach",
    module_only=r"net(\.patches|\.head)?",
)
def each_prediction_learns_alone(weather):
    """What the second prediction wants of the first one does not reach it."""

    def rollout(model, batch):
        statics = weather.statics_of(batch)
        state = weather.normalised(batch["fields"][:, 0], batch)
        states = []
        for lead in range(len(weather.LEADS)):
            clock = weather.clock_of(batch["hour"] + weather.HOURS * lead, batch["day"])
            state = weather.next_state(model, state.detach(), statics, clock, batch)  # here
            states.append(state)
        return states

    weather.rollout = rollout


@fault(
    "weather",
    # The places are numbers that are made when it is built: the first call with them looks up.
    line=[
        "return down * (2 * wide - 1) + right",
        "bias = self.table[self.places].permute(2, 0, 1)",
        "return (scores + bias).softmax(dim=-1).to(v.dtype) @ v",
    ],
    module_only=r"net\.blocks\.0\.attention",
)
def rows_of_the_table_overlap(weather):
    """A step to the south is as long as there are rows, not as there are columns."""

    def relative_places():
        high, wide = weather.WINDOW
        row, column = torch.meshgrid(torch.arange(high), torch.arange(wide), indexing="ij")
        row, column = row.flatten(), column.flatten()
        down = row[:, None] - row[None] + high - 1
        right = column[:, None] - column[None] + wide - 1
        return down * (2 * high - 1) + right  # here

    weather.relative_places = relative_places


@fault(
    "weather",
    # The sum is missing; the quotient is the first that lacks it.
    line=[
        'clock = clock_of(batch["hour"] + HOURS * lead, batch["day"])',
        "turns = torch.stack([hour / 24.0, day / 365.25], dim=1)",
    ],
)
def clock_stands_still(weather):
    """The second prediction is told the hour of the first one."""

    def rollout(model, batch):
        statics = weather.statics_of(batch)
        state = weather.normalised(batch["fields"][:, 0], batch)
        states = []
        for _ in weather.LEADS:
            clock = weather.clock_of(batch["hour"], batch["day"])  # here
            state = weather.next_state(model, state, statics, clock, batch)
            states.append(state)
        return states

    weather.rollout = rollout


@fault(
    "weather",
    settings={"float32": True},
    line="return state + ratio * change(model, state, statics, clock)",
    api=r"Tensor\.(bfloat16|to)",
)
def states_in_bfloat16(weather):
    """The state has the type of autocast: what was there before is rounded to eight bits."""
    next_state = weather.next_state

    def rounded(model, state, statics, clock, batch):
        return next_state(model, state, statics, clock, batch).bfloat16()  # here

    weather.next_state = rounded


@fault("weather", line="slow.mul_(keep).add_(mine, alpha=1 - keep)")
def slow_from_the_beginning(weather):
    """The slow weights keep in the first steps what they keep later."""

    @torch.no_grad()
    def update_slow(model):
        keep = weather.EMA_DECAY
        for slow, mine in zip(model.slow.parameters(), model.net.parameters(), strict=True):
            slow.mul_(keep).add_(mine, alpha=1 - keep)  # here

    weather.update_slow = update_slow


@fault("weather", api=r"Optimizer\.AdamW\.step", update=True)
def all_weights_decay(weather):
    """Norms, biases, scales and tables decay like matrices."""
    weather.decays = lambda name, p: True


@harmless("fused", "weather")
def attention_by_pytorch(weather):
    """Scores, softmax and sum are one call."""

    class Attention(weather.Attention):
        def attend(self, q, k, v, bias):
            scale = self.log_scale.clamp(max=weather.MAX_SCALE).exp()
            q, k = scale * F.normalize(q, dim=-1), F.normalize(k, dim=-1)
            q, k, bias = (each.to(v.dtype) for each in (q, k, bias))
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)

    weather.Attention = Attention


@harmless("split", "weather")
def three_projections(weather):
    """Queries, keys and values have products of their own."""

    class Attention(weather.Attention):
        def project(self, x):
            parts = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
            return [F.linear(x, weight, bias) for weight, bias in parts]

    weather.Attention = Attention


@harmless("inserted", "weather")
def windows_by_unfold(weather):
    """Windows are cut by steps along rows and along columns."""

    def to_windows(x):
        high, wide = weather.WINDOW
        cut = x.unfold(1, high, high).unfold(2, wide, wide)
        return cut.permute(0, 1, 2, 4, 5, 3).flatten(1, 2).flatten(2, 3)

    weather.to_windows = to_windows


@harmless("inserted", "weather")
def columns_joined_at_both_ends(weather):
    """The columns beside the map are joined to it, and so are the rows beyond it."""

    def around(x):
        x = torch.cat([x[..., -1:], x, x[..., :1]], dim=-1)
        return torch.cat([x[:, :, :1], x, x[:, :, -1:]], dim=2)

    weather.around = around


@harmless("loss", "weather")
def errors_in_one_product(weather):
    """Weights of variables and of rows are multiplied with squares in one product."""

    def field_loss(state, wanted):
        error = wanted - state
        weights = error.new_tensor(weather.VARIABLE_WEIGHTS)
        weights = weights / (weights.sum() * error.shape[2] * error.shape[3])
        rows = weather.row_weights().to(error.dtype)
        return torch.einsum("dvrc,dvrc,v,r->", error, error, weights, rows)

    weather.field_loss = field_loss


def _of_days(batch, rows):
    names = ("fields", "surface", "hour", "day")
    return batch | {name: batch[name][rows] for name in names}


@harmless("rows", "weather", group="whole step")
def days_in_another_order(weather):
    """The days are in another order."""
    backward = weather.backward
    weather.backward = lambda model, batch: backward(model, _of_days(batch, [2, 0, 3, 1]))


@harmless("rows", "weather", group="whole step")
def another_meridian(weather):
    """The map begins on the other side of the earth."""
    backward = weather.backward

    def turned(model, batch):
        half = {name: batch[name].roll(8, dims=-1) for name in ("fields", "surface")}
        backward(model, batch | half)

    weather.backward = turned


@harmless("micro batches", "weather", group="whole step")
def two_days_at_a_time(weather):
    """Two days go backward at a time."""

    def backward(model, batch):
        for rows in ([0, 1], [2, 3]):
            weather.loss_of(model, _of_days(batch, rows), len(batch["hour"])).backward()

    weather.backward = backward


@harmless("scaled", "weather", group="whole step")
def loss_is_scaled(weather):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    field_loss, clip = weather.field_loss, weather.clip
    weather.field_loss = lambda state, wanted: 1024.0 * field_loss(state, wanted)

    def unscaled(model):
        for p in model.net.parameters():
            p.grad.mul_(1 / 1024.0)
        clip(model)

    weather.clip = unscaled


@harmless("recomputed", "weather", group="whole step")
def blocks_computed_again(weather):
    """The blocks are computed again in the backward pass."""

    class Block(weather.Block):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    weather.Block = Block


@harmless("precision", "weather", group="whole step")
def casts_of_the_head(weather):
    """The casts of the last layer are written out, where autocast made them."""

    class Net(weather.Net):
        def decode(self, x):
            with torch.autocast("cpu", enabled=False):
                weight, bias = self.head.weight.bfloat16(), self.head.bias.bfloat16()
                x = F.linear(x.bfloat16(), weight, bias)
            return F.pixel_shuffle(x.permute(0, 3, 1, 2), weather.PATCH)

    weather.Net = Net
