"""Cases of the tagger."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F

CELL = r"left\.cell"


@fault("lstm", module=CELL, api=r"Tensor.sigmoid|Tensor.tanh", line="memory = f.sigmoid() * memory")
def gates_in_the_order_of_keras(lstm):
    """The cell and output gates are exchanged, as of weights of another framework."""

    class Cell(lstm.Cell):
        def forward(self, x, state, memory):
            i, f, o, g = self.gates(x, state)  # here
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()  # here
            return o.sigmoid() * memory.tanh(), memory

    lstm.Cell = Cell


@fault("lstm", module=CELL, line="return o.sigmoid() * memory.tanh(), memory")
def memory_without_tanh(lstm):
    """The memory leaves the cell without its activation."""

    class Cell(lstm.Cell):
        def forward(self, x, state, memory):
            i, f, g, o = self.gates(x, state)
            memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
            return o.sigmoid() * memory, memory  # here

    lstm.Cell = Cell


@fault(
    "lstm",
    module=CELL,
    api="Tensor.sigmoid|Functional.hardsigmoid",
    line="memory = f.sigmoid() * memory",
)
def hard_sigmoid(lstm):
    """The forget gate is a piecewise linear sigmoid."""

    class Cell(lstm.Cell):
        def forward(self, x, state, memory):
            i, f, g, o = self.gates(x, state)
            memory = F.hardsigmoid(f) * memory + i.sigmoid() * g.tanh()  # here
            return o.sigmoid() * memory.tanh(), memory

    lstm.Cell = Cell


@fault("lstm", module=CELL + ".inner", api="Functional.linear")
def forget_bias_missing(lstm):
    """The bias of the forget gate begins with 0 for 1."""
    lstm.FORGET = 0.0


@fault("lstm", module="left", line="state, memory = torch.where(known", module_only="left")
def memory_of_the_padding(lstm):
    """The memory goes on in the padding: only the state is masked."""

    class Recurrence(lstm.Recurrence):
        def forward(self, x, valid):
            state = memory = x.new_zeros(len(x), lstm.STATE)
            states = [None] * x.shape[1]
            for time in self.times(x.shape[1]):
                new, memory = self.cell(x[:, time], state, memory)
                known = valid[:, time, None]
                state = torch.where(known, new, state)  # here
                states[time] = state  # here
            return torch.stack(states, dim=1)

    lstm.Recurrence = Recurrence


@fault(
    "lstm",
    module=r"right|right.cell.inner",
    line="new, kept = self.cell(x[:, time]",
    api="Tensor.__getitem__|Functional.linear",
    module_only=r"right.cell.inner|right.cell|right",
)
def backward_direction_runs_forward(lstm):
    """The second direction reads the text from the left, too: its first cell gets another word."""

    class Recurrence(lstm.Recurrence):
        def times(self, length):
            return range(length)  # here

    lstm.Recurrence = Recurrence


@fault("lstm", api="Torch.cat", line="return torch.cat([self.left(x, valid)")
def directions_exchanged(lstm):
    """The two directions are joined in the other order: a permutation of the features."""

    class Tagger(lstm.Tagger):
        def both(self, x, valid):
            left, right = self.left(x, valid), self.right(x, valid)
            return torch.cat([right, left], dim=-1)  # here

    lstm.Tagger = Tagger


@fault(
    "lstm",
    module=r"left|left.cell.outer",
    api="Functional.linear",
    line="new, kept = self.cell(x[:, time]",
    module_only=r"left(.cell(.outer)?)?",
)
def stale_state(lstm):
    """The state of the first step is given to every cell: the second call of the cell gets an old
    state."""

    class Recurrence(lstm.Recurrence):
        def forward(self, x, valid):
            first = state = memory = x.new_zeros(len(x), lstm.STATE)
            states = [None] * x.shape[1]
            for time in self.times(x.shape[1]):
                new, kept = self.cell(x[:, time], first, memory)  # here
                known = valid[:, time, None]
                state, memory = torch.where(known, new, state), torch.where(known, kept, memory)
                states[time] = state
            return torch.stack(states, dim=1)

    lstm.Recurrence = Recurrence


@fault("lstm", api="Optimizer.clip_grad_value_", update=True)
def values_clipped_too_early(lstm):
    """Values of gradients are clipped at 0.005 for 0.5."""
    lstm.CLIP = 0.005


@fault("lstm", api="Optimizer.RMSprop.step", update=True)
def decay_of_the_mean_square(lstm):
    """RMSprop's alpha is 0.9 for 0.99, the default of another framework."""
    lstm.optimizer = lambda model: torch.optim.RMSprop(model.parameters(), lr=2e-3, alpha=0.9)


@harmless("time steps", "lstm")
def inputs_of_all_times_at_once(lstm):
    """The product with the inputs is computed for all times before the loop."""

    class Recurrence(lstm.Recurrence):
        def forward(self, x, valid):
            inner = self.cell.inner(x)
            state = memory = x.new_zeros(len(x), lstm.STATE)
            states = [None] * x.shape[1]
            for time in self.times(x.shape[1]):
                i, f, g, o = (inner[:, time] + self.cell.outer(state)).chunk(4, dim=-1)
                kept = f.sigmoid() * memory + i.sigmoid() * g.tanh()
                new = o.sigmoid() * kept.tanh()
                known = valid[:, time, None]
                state, memory = torch.where(known, new, state), torch.where(known, kept, memory)
                states[time] = state
            return torch.stack(states, dim=1)

    lstm.Recurrence = Recurrence


def nothing_padded(lstm):
    right = lstm.batch

    def batch(generator):
        words, tags, valid = right(generator)
        return words, tags, torch.ones_like(valid)

    lstm.batch = batch


@harmless("time steps", "lstm", both=nothing_padded)
def fused_recurrence(lstm):
    """torch.lstm with the weights of the cell."""

    class Recurrence(lstm.Recurrence):
        def forward(self, x, valid):
            cell = self.cell
            weights = [cell.inner.weight, cell.outer.weight, cell.inner.bias, cell.outer.bias]
            zero = x.new_zeros(1, len(x), lstm.STATE)
            x = x.flip(1) if self.backwards else x
            states = torch.lstm(x, (zero, zero), weights, True, 1, 0.0, True, False, True)[0]
            return states.flip(1) if self.backwards else states

    lstm.Recurrence = Recurrence


@harmless("fused", "lstm")
def fused_cell(lstm):
    """torch.lstm_cell for the gates written out."""

    class Cell(lstm.Cell):
        def forward(self, x, state, memory):
            a, b = self.inner, self.outer
            return torch.lstm_cell(x, (state, memory), a.weight, b.weight, a.bias, b.bias)

    lstm.Cell = Cell


@harmless("split", "lstm")
def gate_after_gate(lstm):
    """A product for each gate."""

    class Cell(lstm.Cell):
        def gates(self, x, state):
            a, b = self.inner, self.outer
            parts = zip(
                *(part.chunk(4) for part in (a.weight, a.bias, b.weight, b.bias)), strict=True
            )
            return [F.linear(x, w, c) + F.linear(state, v, d) for w, c, v, d in parts]

    lstm.Cell = Cell


@harmless("reordered", "lstm")
def right_before_left(lstm):
    """The directions run in the other order."""

    class Tagger(lstm.Tagger):
        def both(self, x, valid):
            right = self.right(x, valid)
            return torch.cat([self.left(x, valid), right], dim=-1)

    lstm.Tagger = Tagger


@harmless("mask", "lstm")
def mask_by_a_product(lstm):
    """States are mixed by products with 0 and 1 instead of torch.where."""

    class Recurrence(lstm.Recurrence):
        def forward(self, x, valid):
            state = memory = x.new_zeros(len(x), lstm.STATE)
            states = [None] * x.shape[1]
            for time in self.times(x.shape[1]):
                new, kept = self.cell(x[:, time], state, memory)
                known = valid[:, time, None].float()
                state = known * new + (1 - known) * state
                memory = known * kept + (1 - known) * memory
                states[time] = state
            return torch.stack(states, dim=1)

    lstm.Recurrence = Recurrence


@harmless("initialised", "lstm")
def initialised_by_copying(lstm):
    """The weights are drawn in the same order into a list and copied."""

    def initialise(model):
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if parameter.dim() > 1:
                    parameter.copy_(torch.empty_like(parameter).normal_(std=0.3))
                elif name.endswith("bias") and "cell" in name:
                    parameter.copy_(torch.zeros_like(parameter))
                    if "inner" in name:
                        parameter[lstm.STATE : 2 * lstm.STATE] += lstm.FORGET

    lstm.initialise = initialise


@harmless("inserted", "lstm")
def states_through_float64(lstm):
    """States are cast to float64 and back, which loses nothing."""

    class Cell(lstm.Cell):
        def forward(self, x, state, memory):
            state, memory = super().forward(x, state, memory)
            return state.double().float(), memory.clone()

    lstm.Cell = Cell


@harmless("renamed", "lstm")
def cell_inside_of_a_wrapper(lstm):
    """The cell is wrapped in a module that only calls it."""

    class Wrapper(nn.Module):
        def __init__(self, cell):
            super().__init__()
            self.wrapped = cell

        def forward(self, *values):
            return self.wrapped(*values)

    right = lstm.build

    def build():
        model = right()
        for recurrence in (model.left, model.right):
            recurrence.cell = Wrapper(recurrence.cell)
        return model

    lstm.build = build
