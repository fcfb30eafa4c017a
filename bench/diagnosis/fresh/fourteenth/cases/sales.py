"""Cases of the sales of goods."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "sales",
    # The slices are missing; the sums are the first that lack them.
    line=[
        'sales, is_open = batch["sales"][:, : CFG.history], batch["open"][:, : CFG.history]',
        "return (sales.sum(dim=1) / is_open.sum(dim=1)).clamp(min=0.5).unsqueeze(1)",
    ],
)
def scale_sees_the_future(sales):
    """The scale is that of all days, also of those that are to be foretold."""

    def scale_of(batch):
        sold, is_open = batch["sales"], batch["open"]
        return (sold.sum(dim=1) / is_open.sum(dim=1)).clamp(min=0.5).unsqueeze(1)  # here

    sales.scale_of = scale_of


@fault("sales", line="error = target.unsqueeze(-1) - predicted")
def quantiles_turned_round(sales):
    """The error has the other sign: the lowest quantile is learned as the highest."""

    def pinball(predicted, target):
        error = predicted - target.unsqueeze(-1)  # here
        q = torch.tensor(sales.CFG.quantiles, dtype=error.dtype)
        return torch.maximum(q * error, (q - 1) * error).sum(dim=-1)

    sales.pinball = pinball


@fault(
    "sales",
    line="weights = torch.softmax(logits, dim=-1)",
    api=r"Torch\.softmax|Functional\.softmax|Tensor\.softmax",
    module="past_selection",
    module_only="past_selection",
)
def selection_over_days(sales):
    """The weights of a variable add up to one over the days."""

    class Selection(sales.Selection):
        def forward(self, variables, context):
            chosen = self.weigh_context(context).unsqueeze(1)
            weights = torch.softmax(self.weigh(variables.flatten(2)) + chosen, dim=1)  # here
            return (weights.unsqueeze(-1) * self.transform(variables)).sum(dim=2)

    sales.Selection = Selection


@fault(
    "sales",
    line=[
        "return day > day[CFG.history :, None]",
        'scores = scores.masked_fill(self.later(), float("-inf"))',
    ],
)
def next_day_is_seen(sales):
    """A day to come sees the day after it."""

    class SharedAttention(sales.SharedAttention):
        def later(self):
            day = torch.arange(sales.CFG.history + sales.CFG.horizon)
            return day > day[sales.CFG.history :, None] + 1  # here

    sales.SharedAttention = SharedAttention


@fault("sales", line="scores = q @ k.transpose(2, 3) / math.sqrt(self.head_dim)")
def scores_by_width_of_model(sales):
    """Scores are divided by the root of the width of the model, not of a head."""

    class SharedAttention(sales.SharedAttention):
        def attend(self, q, k, v):
            scores = q @ k.transpose(2, 3) / math.sqrt(sales.CFG.hidden)  # here
            scores = scores.masked_fill(self.later(), float("-inf"))
            return torch.softmax(scores, dim=-1) @ v

    sales.SharedAttention = SharedAttention


@fault(
    "sales",
    line=[
        "return hidden.unsqueeze(0), cell.unsqueeze(0)",
        "past, state = self.encoder(past, state)",
    ],
)
def cell_starts_as_hidden(sales):
    """The cell of the recurrence starts with what was computed for its output."""

    class TFT(sales.TFT):
        def start(self, hidden, cell):
            return hidden.unsqueeze(0), hidden.unsqueeze(0)  # here

    sales.TFT = TFT


@fault(
    "sales",
    # A slice may not be recorded: the first calls with its result make vectors of the variables.
    line=[
        'return scalars[:, CFG.history :], batch["weekday"][:, CFG.history :]',
        '"future": future_inputs(batch),',
    ],
    api=r"Tensor\.(unsqueeze|mul|__r?mul__)|Torch\.(unsqueeze|mul)|Functional\.embedding"
    r"|Module\.future_variables\.weekday\..*",
    module=r"future_variables(\.weekday)?",
    module_only=r"future_variables(\.weekday)?",
)
def known_days_are_a_day_late(sales):
    """What is known of a day to come is that of the day before."""

    def future_inputs(batch):
        scalars = torch.stack([batch[name] for name in sales.CFG.scalars_future], dim=2)
        first = sales.CFG.history - 1
        return scalars[:, first:-1], batch["weekday"][:, first:-1]  # here

    sales.future_inputs = future_inputs


@fault(
    "sales",
    # The count is no tensor any more; the quotient is the first to use it.
    line=["total = counted(batch).sum()", "return (losses * counted(batch)).sum() / total"],
)
def divided_by_all_days(sales):
    """The loss is divided by the number of days, whatever they count."""

    def backward(model, batch):
        total = sales.counted(batch).numel()  # here
        sales.loss_of(model, batch, total).backward()

    sales.backward = backward


@fault("sales", api=r"Optimizer\.AdamW?\.step", update=True)
def decay_in_the_gradient(sales):
    """The optimizer is Adam, where weight decay is a part of the gradient."""

    def make_optimizer(parameters, **more):
        decay = sales.CFG.weight_decay
        return torch.optim.Adam(parameters, lr=sales.CFG.max_lr, weight_decay=decay, **more)

    sales.make_optimizer = make_optimizer


@harmless("fused", "sales")
def attention_by_pytorch(sales):
    """The attention is one call; the values are the same for all heads."""

    class SharedAttention(sales.SharedAttention):
        def attend(self, q, k, v):
            v = v.expand(-1, sales.CFG.heads, -1, -1)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=~self.later())

    sales.SharedAttention = SharedAttention


@harmless("split", "sales")
def variables_by_a_product(sales):
    """The chosen variables are a product of a row of weights with a matrix."""

    class Selection(sales.Selection):
        def forward(self, variables, context):
            logits = self.weigh(variables.flatten(2)) + self.weigh_context(context).unsqueeze(1)
            weights = torch.softmax(logits, dim=2).unsqueeze(2)
            return torch.matmul(weights, self.transform(variables)).squeeze(2)

    sales.Selection = Selection


@harmless("loss", "sales")
def pinball_by_sizes_of_errors(sales):
    """The loss is half the size of an error, and a part of the error with its sign."""

    def pinball(predicted, target):
        error = target.unsqueeze(-1) - predicted
        q = torch.tensor(sales.CFG.quantiles, dtype=error.dtype)
        return 0.5 * error.abs().sum(dim=-1) + error @ (q - 0.5)

    sales.pinball = pinball


@harmless("reordered", "sales")
def future_before_past(sales):
    """Variables of the days to come are chosen before those of the past."""

    class TFT(sales.TFT):
        def select(self, inputs, context):
            future = self.future_selection(self.future_variables(*inputs["future"]), context)
            past = self.past_selection(self.past_variables(*inputs["past"]), context)
            return past, future

    sales.TFT = TFT


@harmless("time steps", "sales")
def weeks_one_after_the_other(sales):
    """The recurrence reads the past week by week, and goes on with the state."""

    class TFT(sales.TFT):
        def recur(self, past, future, state):
            read = []
            for week in past.split(7, dim=1):
                week, state = self.encoder(week, state)
                read.append(week)
            return torch.cat([*read, self.decoder(future, state)[0]], dim=1)

    sales.TFT = TFT


@harmless("rows", "sales", group="whole step")
def series_in_another_order(sales):
    """The series are in another order."""
    backward = sales.backward

    def shuffled(model, batch):
        order = [6, 2, 0, 7, 4, 1, 3, 5]
        backward(model, {name: value[order] for name, value in batch.items()})

    sales.backward = shuffled


@harmless("micro batches", "sales", group="whole step")
def two_series_at_a_time(sales):
    """Two series go backward at a time; the sum is divided by what all of them count."""

    def backward(model, batch):
        total = sales.counted(batch).sum()
        for first in range(0, sales.CFG.series, 2):
            part = {name: value[first : first + 2] for name, value in batch.items()}
            sales.loss_of(model, part, total).backward()

    sales.backward = backward


@harmless("padding", "sales", group="whole step")
def closed_days_behind(sales):
    """Three days are added at the end, on which all shops are closed."""
    backward = sales.backward

    class SharedAttention(sales.SharedAttention):
        def later(self):
            day = torch.arange(sales.CFG.history + sales.CFG.horizon + 3)
            return day > day[sales.CFG.history :, None]

    def padded(model, batch):
        longer = {n: F.pad(v, (0, 3)) if v.dim() == 2 else v for n, v in batch.items()}
        backward(model, longer)

    sales.SharedAttention, sales.backward = SharedAttention, padded


@harmless("scaled", "sales", group="whole step")
def divided_after_the_backward_pass(sales):
    """The sum of losses goes backward; gradients are divided by what the days count."""

    def backward(model, batch):
        sales.loss_of(model, batch, 1.0).backward()
        total = sales.counted(batch).sum()
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(total)

    sales.backward = backward


@harmless("recomputed", "sales", group="whole step")
def variables_computed_again(sales):
    """What is made of each variable is computed again in the backward pass."""

    class Selection(sales.Selection):
        def transform(self, variables):
            return checkpoint(super().transform, variables, use_reentrant=False)

    sales.Selection = Selection
