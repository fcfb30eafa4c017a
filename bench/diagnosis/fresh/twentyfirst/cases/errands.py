"""Cases of the errands in a maze."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "errands",
    # The forward pass is the same; goals have gradients of the worker.
    line=[
        "pooled = self.bend(recent(goals.detach(), first))",
        "own = same_episode(first, back).unsqueeze(2)",
        "total = total + F.pad(goals[:-back] * own, (0, 0, 0, 0, back, 0))",
        "return places, F.normalize(memory, dim=2), self.value(memory).squeeze(2)",
    ],
    api=r"Functional\.(linear|normalize|pad)|Tensor\.(detach|add|__add__)|Module\.worker\.bend\..*",
    module=r"worker(\.bend)?|manager",
    module_only=r"worker(\.bend)?|manager",
)
def goals_learn_from_the_worker(errands):
    """Goals are not detached: the manager learns from the loss of the worker."""

    class Worker(errands.Worker):
        def forward(self, seen, goals, first):
            memory = self.remember(seen, first)
            pooled = self.bend(errands.recent(goals, first))  # here
            return self.scores(memory, pooled), self.value(memory).squeeze(2)

    errands.Worker = Worker


@fault(
    "errands",
    # The forward pass is the same; places have gradients of the directions.
    line=[
        "moved = places[AHEAD:] - places[:-AHEAD]",
        "return cosine(moved.detach(), goals[:-AHEAD])",
        "return F.cosine_similarity(a, b, dim=2, eps=LEAST)",
    ],
    api=r"Functional\.cosine_similarity|Torch\.cosine_similarity|Tensor\.(sub|__sub__|detach)",
)
def places_move_to_the_goals(errands):
    """Where the worker went is not detached: places learn to lie where goals point."""

    def directions(places, goals):
        moved = places[errands.AHEAD :] - places[: -errands.AHEAD]  # here
        return errands.cosine(moved, goals[: -errands.AHEAD])  # here

    errands.directions = directions


@fault(
    "errands",
    # The product with the mask is missing: the cell is the first that lacks it.
    line=[
        "h, c = self.cell(x[t], (h * kept, c * kept))",
        "return self.gates(x, state)",
    ],
    api=r"Torch\.lstm_cell|Module\.worker\.cell\..*",
    module=r"worker(\.cell(\.gates)?)?",
    module_only=r"worker(\.cell(\.gates)?)?",
)
def worker_remembers_other_episodes(errands):
    """The memory of the worker goes on when an episode begins."""

    class Worker(errands.Worker):
        def remember(self, x, first):
            h = c = x.new_zeros(x.shape[1], errands.ACTIONS * errands.GOAL)
            found = []
            for t in range(len(x)):
                h, c = self.cell(x[t], (h, c))  # here
                found.append(h)
            return torch.stack(found)

    errands.Worker = Worker


@fault(
    "errands",
    # All parts begin as zeros: the second step is the first that has another state.
    line=[
        "parts[t % RADIUS] = self.cell(x[t], parts[t % RADIUS])",
        "found.append(torch.stack([h for h, _ in parts]).mean(dim=0))",
        "parts = [(h * kept, c * kept) for h, c in parts]",
        "return self.gates(x, state)",
    ],
    api=r"Torch\.(lstm_cell|stack)|Module\.manager\.cell\..*",
    module=r"manager(\.cell(\.gates)?)?",
    module_only=r"manager(\.cell(\.gates)?)?",
)
def one_part_of_the_memory_is_used(errands):
    """The parts of the memory do not take turns: the first one has all steps."""

    class Manager(errands.Manager):
        def remember(self, x, first):
            none = x.new_zeros(x.shape[1], errands.GOAL)
            parts, found = [(none, none) for _ in range(errands.RADIUS)], []
            for t in range(len(x)):
                kept = ~first[t].unsqueeze(1)
                parts = [(h * kept, c * kept) for h, c in parts]
                parts[0] = self.cell(x[t], parts[0])  # here
                found.append(torch.stack([h for h, _ in parts]).mean(dim=0))  # here
            return torch.stack(found)

    errands.Manager = Manager


@fault(
    "errands",
    line=[
        "moved = places[AHEAD:] - places[:-AHEAD]",
        "return cosine(moved.detach(), goals[:-AHEAD])",
    ],
    api=r"Tensor\.(sub|__sub__|__getitem__)|Torch\.sub",
)
def directions_of_one_step_less(errands):
    """Goals are compared with where the worker was one step too early."""

    def directions(places, goals):
        ahead = errands.AHEAD
        moved = places[ahead - 1 : -1] - places[:-ahead]  # here
        return errands.cosine(moved.detach(), goals[:-ahead])

    errands.directions = directions


@fault(
    "errands",
    # Other goals: what compares them is the first call with them.
    line=[
        "found = cosine(moved, goals[:-back].detach()) * same_episode(first, back)",
        "return F.cosine_similarity(a, b, dim=2, eps=LEAST)",
    ],
    api=r"Functional\.cosine_similarity|Torch\.cosine_similarity|Tensor\.(__getitem__|detach)",
)
def obeys_the_goal_of_today(errands):
    """What was done is compared with the goals of now, not with those of then."""

    def obeyed(places, goals, first):
        places, total = places.detach(), 0.0
        for back in range(1, errands.AHEAD + 1):
            moved = places[back:] - places[:-back]
            found = errands.cosine(moved, goals[back:].detach())  # here
            found = found * errands.same_episode(first, back)
            total = total + F.pad(found, (0, 0, back, 0))
        return total / errands.AHEAD

    errands.obeyed = obeyed


@fault(
    "errands",
    line=[
        "discounts = discount * goes_on",
        'value, inputs["rewards"], inputs["goes_on"], ratio, counts, discount=FAR',
    ],
    api=r"Tensor\.(mul|__mul__|__rmul__)",
)
def manager_is_short_sighted(errands):
    """The manager has the discount of the worker."""
    errands.FAR = errands.NEAR


@fault(
    "errands",
    # The bound is missing: the product with the ratio is the first call that lacks it.
    line=[
        "bounded = ratio.clamp(max=MOST)",
        "errors = bounded * (rewards + discounts * value[1:] - value[:-1]) * counts",
    ],
    api=r"(Tensor|Torch)\.(mul|__mul__|clamp)",
)
def ratios_without_bound(errands):
    """Actions that are much likelier now than they were count without a bound."""

    def corrected(value, rewards, goes_on, ratio, counts, discount):
        value = value.detach()
        discounts = discount * goes_on
        errors = ratio * (rewards + discounts * value[1:] - value[:-1]) * counts  # here
        found, error = [], torch.zeros_like(errors[0])
        for t in reversed(range(len(errors))):
            error = errors[t] + discounts[t] * ratio[t] * error
            found.append(error)
        wanted = value[:-1] + torch.stack(found[::-1])
        later = torch.cat([wanted[1:], value[-1:]])
        later = torch.where(errands.ends(counts), value[1:], later)
        return wanted, ratio * (rewards + discounts * later - value[:-1])

    errands.corrected = corrected


@fault(
    "errands",
    # The product with what goes on is missing: the product with values is the first that lacks it.
    line=[
        "discounts = discount * goes_on",
        "errors = bounded * (rewards + discounts * value[1:] - value[:-1]) * counts",
    ],
    api=r"(Tensor|Torch)\.(mul|__mul__|__rmul__|full_like)",
)
def next_episode_is_expected(errands):
    """The value of the next episode counts at the end of an episode."""
    corrected = errands.corrected

    def endless(value, rewards, goes_on, ratio, counts, discount):
        goes_on = torch.ones_like(goes_on)  # here
        return corrected(value, rewards, goes_on, ratio, counts, discount)  # here

    errands.corrected = endless


@fault(
    "errands",
    line="return -(logits.softmax(dim=2) * logits.log_softmax(dim=2)).sum(dim=2)",
    api=r"(Tensor|Torch|Functional)\.softmax",
)
def chances_over_actors(errands):
    """The chances of the surprise are over the actors, not over the actions."""

    def surprise(logits):
        return -(logits.softmax(dim=1) * logits.log_softmax(dim=2)).sum(dim=2)  # here

    errands.surprise = surprise


@fault("errands", api=r"Optimizer\.RMSprop\.step", update=True)
def decay_of_squares_of_another_library(errands):
    """The squares are forgotten as slowly as another library does it."""
    errands.ALPHA = 0.99


@harmless("fused", "errands")
def gates_by_hand(errands):
    """The gates of the cells are written out."""

    class Cell(errands.Cell):
        def forward(self, x, state):
            h, c = state
            gates = F.linear(x, self.gates.weight_ih, self.gates.bias_ih)
            gates = gates + F.linear(h, self.gates.weight_hh, self.gates.bias_hh)
            enter, forget, new, leave = gates.chunk(4, dim=1)
            c = forget.sigmoid() * c + enter.sigmoid() * new.tanh()
            return leave.sigmoid() * c.tanh(), c

    errands.Cell = Cell


@harmless("fused", "errands")
def cosines_by_lengths(errands):
    """Both vectors have length one before they are multiplied."""

    def cosine(a, b):
        parts = (each / each.norm(dim=2, keepdim=True).clamp(min=errands.LEAST) for each in (a, b))
        return torch.einsum("tak,tak->ta", *parts)

    errands.cosine = cosine


@harmless("loss", "errands")
def chosen_by_cross_entropy(errands):
    """Logarithms of what was chosen are losses with the other sign."""

    def chosen(logits, actions):
        return -F.cross_entropy(logits.permute(0, 2, 1), actions, reduction="none")

    errands.chosen = chosen


@harmless("time steps", "errands")
def pictures_step_by_step(errands):
    """The eye looks at the pictures of one step after those of another."""

    class Feudal(errands.Feudal):
        def look(self, pictures):
            return torch.stack([self.eye(each) for each in pictures])

    errands.Feudal = Feudal


@harmless("split", "errands")
def scores_by_einsum(errands):
    """The products of the memory and the goals are written as one sum."""

    class Worker(errands.Worker):
        def scores(self, memory, goals):
            memory = memory.view(*memory.shape[:2], errands.ACTIONS, errands.GOAL)
            return torch.einsum("tnak,tnk->tna", memory, goals)

    errands.Worker = Worker


@harmless("time steps", "errands")
def goals_by_one_product(errands):
    """The sum over recent goals is a product with a table of zeros and ones."""

    def recent(goals, first):
        number, step = first.long().cumsum(dim=0), torch.arange(len(goals))
        back = step.unsqueeze(1) - step
        near = ((back >= 0) & (back <= errands.AHEAD)).unsqueeze(2)
        table = near & (number.unsqueeze(1) == number)
        return torch.einsum("tsn,snk->tnk", table.to(goals.dtype), goals)

    errands.recent = recent


def _actors(inputs, which):
    return {name: value[:, which] for name, value in inputs.items()}


@harmless("rows", "errands", group="whole step")
def actors_in_another_order(errands):
    """The rollouts of the actors are in another order."""
    backward = errands.backward
    errands.backward = lambda model, inputs: backward(model, _actors(inputs, [2, 0, 3, 1]))


@harmless("micro batches", "errands", group="whole step")
def two_actors_at_a_time(errands):
    """Each two actors go backward alone."""

    def backward(model, inputs):
        total = inputs["counts"].sum()
        for k in range(0, errands.ACTORS, 2):
            errands.loss_of(model, _actors(inputs, slice(k, k + 2)), total).backward()

    errands.backward = backward


@harmless("padding", "errands", group="whole step")
def more_steps_behind_the_end(errands):
    """There are two more steps behind the end of all rollouts."""
    backward = errands.backward

    def longer(model, inputs):
        def more(value):
            return torch.cat([value, torch.zeros_like(value[:2])])

        backward(model, {name: more(value) for name, value in inputs.items()})

    errands.backward = longer


@harmless("scaled", "errands", group="whole step")
def divided_when_added(errands):
    """The loss is a sum over steps; gradients are divided before they are clipped."""
    clip = errands.clip

    def backward(model, inputs):
        model.total = inputs["counts"].sum()
        errands.loss_of(model, inputs, 1).backward()

    def divided(model):
        for p in model.parameters():
            p.grad.div_(model.total)
        clip(model)

    errands.backward, errands.clip = backward, divided


@harmless("recomputed", "errands", group="whole step")
def eye_computed_again(errands):
    """What the eye sees is computed again in the backward pass."""

    class Eye(errands.Eye):
        def forward(self, x):
            return checkpoint(functools.partial(super().forward, x), use_reentrant=False)

    errands.Eye = Eye
