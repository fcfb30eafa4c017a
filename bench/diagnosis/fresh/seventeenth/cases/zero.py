"""Cases of the game whose rules nobody tells."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "zero",
    # The sign is a number of Python: the products are the first calls with it.
    line=[
        "value = value + (-DISCOUNT) ** k * reward",
        'value = value + (-DISCOUNT) ** AHEAD * game["searched"][moment + AHEAD]',
    ],
)
def turns_are_forgotten(zero):
    """What the other player earns counts as one's own."""

    def value_at(game, moment):
        value, end = torch.zeros(()), moment + zero.AHEAD
        for k, reward in enumerate(game["rewards"][moment:end]):
            value = value + zero.DISCOUNT**k * reward  # here
        if end < len(game["rewards"]):
            value = value + zero.DISCOUNT**zero.AHEAD * game["searched"][end]  # here
        return value

    zero.value_at = value_at


@fault(
    "zero",
    # A number of a tensor may not be recorded: the stack is the first call with it.
    line=[
        'return game["rewards"][moment - 1]',
        '"rewards": torch.stack([reward_at(game, m) for m in moments]),',
    ],
)
def reward_of_the_next_move(zero):
    """The reward of a moment is that of the move after it."""

    def reward_at(game, moment):
        if 0 < moment < len(game["rewards"]):
            return game["rewards"][moment]  # here
        return torch.zeros(())

    zero.reward_at = reward_at


@fault(
    "zero",
    # The forward pass is the same; gradients differ from where moments are joined.
    line=[
        "state = ScaleGradient.apply(state, SHARE)",
        'state, reward = model.dynamics(state, inputs["moves"][:, k])',
        "found.append((*model.predict(state), reward, state))",
        "return (state - low) / (high - low + RANGE_EPS)",
    ],
    api=r".*ScaleGradient.*|Module\.dynamics\..*",
    module=r"(dynamics)?",
    module_only=r"dynamics",
)
def gradients_of_states_are_whole(zero):
    """The gradient of each state is not halved on its way back."""

    def unroll(model, inputs):
        state = model.represent(inputs["planes"][:, 0])
        found = [(*model.predict(state), None, state)]
        for k in range(zero.UNROLL):
            state, reward = model.dynamics(state, inputs["moves"][:, k])  # here
            found.append((*model.predict(state), reward, state))  # here
        return found

    zero.unroll = unroll


@fault(
    "zero",
    line=[
        "low = state.amin(dim=(2, 3), keepdim=True)",
        "high = state.amax(dim=(2, 3), keepdim=True)",
    ],
)
def one_range_for_all_channels(zero):
    """The range of a state is that of all its channels together."""

    def ranged(state):
        low = state.amin(dim=(1, 2, 3), keepdim=True)  # here
        high = state.amax(dim=(1, 2, 3), keepdim=True)  # here
        return (state - low) / (high - low + zero.RANGE_EPS)

    zero.ranged = ranged


@fault(
    "zero",
    # What is made from numbers alone may not be recorded: the stack has it.
    line=[
        "return torch.full((MOVES,), 1 / MOVES), torch.zeros(())",
        '"known": torch.stack(known),',
        "inputs = {name: torch.stack([each[name] for each in made]) for name in made[0]}",
    ],
)
def moves_after_the_end_are_learned(zero):
    """When the game is over, all moves are learned to be equally good."""
    policy_at = zero.policy_at

    def known(game, moment):
        return policy_at(game, moment)[0], torch.ones(())  # here

    zero.policy_at = known


@fault(
    "zero",
    line="chances = chances.scatter(-1, index, 1 - share).scatter(-1, index + 1, share)",
)
def the_farther_number_gets_more(zero):
    """The shares of the two numbers next to a value are exchanged."""

    def to_chances(x):
        x = zero.squash(x).clamp(-zero.SUPPORT, zero.SUPPORT) + zero.SUPPORT
        low = x.floor()
        share = (x - low).unsqueeze(-1)
        index = low.long().unsqueeze(-1)
        chances = x.new_zeros(*x.shape, 2 * zero.SUPPORT + 2)
        chances = chances.scatter(-1, index, share).scatter(-1, index + 1, 1 - share)  # here
        return chances[..., :-1]

    zero.to_chances = to_chances


@fault(
    "zero",
    line=[
        "row = torch.arange(SIZE).view(1, -1, 1) == moves // SIZE",
        "column = torch.arange(SIZE).view(1, 1, -1) == moves % SIZE",
    ],
)
def rows_are_columns(zero):
    """The field of a move is mirrored: fields are numbered along columns."""

    def move_plane(moves):
        moves = moves.view(-1, 1, 1)
        row = torch.arange(zero.SIZE).view(1, -1, 1) == moves % zero.SIZE  # here
        column = torch.arange(zero.SIZE).view(1, 1, -1) == moves // zero.SIZE  # here
        return (row & column).unsqueeze(1)

    zero.move_plane = move_plane


@fault("zero", line="return (losses * weights).sum() / count")
def each_loss_by_all_weights(zero):
    """A row of losses is multiplied with a column of weights."""

    def weighted(losses, weights, count):
        return (losses * weights.unsqueeze(1)).mean()  # here

    zero.weighted = weighted


@fault("zero", api=r"Optimizer\.SGD\.step", update=True)
def momentum_does_not_look_ahead(zero):
    """The momentum is the plain one, not that of Nesterov."""
    optimizer = zero.optimizer

    def plain(model, **more):
        sgd = optimizer(model, **more)
        for group in sgd.param_groups:
            group["nesterov"] = False
        return sgd

    zero.optimizer = plain


@harmless("fused", "zero")
def chances_by_hats(zero):
    """The chance of a number is one minus how far it is, if that is positive."""

    def to_chances(x):
        most = zero.SUPPORT
        numbers = torch.arange(-most, most + 1, dtype=x.dtype)
        x = zero.squash(x).clamp(-most, most)
        return F.relu(1 - (x.unsqueeze(-1) - numbers).abs())

    zero.to_chances = to_chances


@harmless("loss", "zero")
def losses_by_log_chances(zero):
    """The losses are products with logarithms of chances."""

    def scores_loss(logits, target):
        return -torch.einsum("bn,bn->b", target, logits.log_softmax(dim=1))

    zero.scores_loss = scores_loss


@harmless("reordered", "zero")
def value_before_policy(zero):
    """The head of values is called first."""

    class MuZero(zero.MuZero):
        def predict(self, state):
            value = self.value(state)
            return self.policy(state), value

    zero.MuZero = MuZero


@harmless("split", "zero")
def state_and_move_apart(zero):
    """The convolution of state and move is a sum of two."""

    class Dynamics(zero.Dynamics):
        def join(self, state, plane):
            of_state, of_move = self.conv.weight.split([zero.CHANNELS, 1], dim=1)
            of_state = F.conv2d(state, of_state, self.conv.bias, padding=1)
            return of_state + F.conv2d(plane, of_move, padding=1)

    zero.Dynamics = Dynamics


@harmless("inserted", "zero")
def moves_by_one_hot(zero):
    """The board of a move is a row of zeros and a one, without what stands for a pass."""

    def move_plane(moves):
        chosen = F.one_hot(moves, zero.MOVES)[:, :-1]
        return chosen.view(-1, 1, zero.SIZE, zero.SIZE)

    zero.move_plane = move_plane


@harmless("time steps", "zero")
def values_by_powers(zero):
    """What the next moves earn is one product with powers of the discount."""

    def value_at(game, moment):
        earned = game["rewards"][moment : moment + zero.AHEAD]
        if moment + zero.AHEAD < len(game["rewards"]):
            earned = torch.cat([earned, game["searched"][moment + zero.AHEAD].view(1)])
        exponents = torch.arange(len(earned), dtype=earned.dtype)
        signs = 1 - 2 * (exponents % 2)
        return (signs * zero.DISCOUNT**exponents) @ earned

    zero.value_at = value_at


@harmless("rows", "zero", group="whole step")
def positions_in_another_order(zero):
    """The positions are in another order."""

    def backward(model, inputs):
        order = torch.tensor([3, 0, 5, 1, 4, 2])
        inputs = {name: value[order] for name, value in inputs.items()}
        losses, first = zero.losses_of(model, inputs)
        zero.weighted(losses, inputs["weights"], len(losses)).backward()
        zero.set_priorities(model, first, inputs, order)

    zero.backward = backward


@harmless("micro batches", "zero", group="whole step")
def two_positions_at_a_time(zero):
    """Two positions go backward at a time; the sum is divided by the number of all."""

    def backward(model, inputs):
        count = len(inputs["weights"])
        for rows in (slice(0, 2), slice(2, 4), slice(4, 6)):
            part = {name: value[rows] for name, value in inputs.items()}
            losses, first = zero.losses_of(model, part)
            zero.weighted(losses, part["weights"], count).backward()
            zero.set_priorities(model, first, part, rows)

    zero.backward = backward


@harmless("padding", "zero", group="whole step")
def a_position_of_no_weight(zero):
    """The first position stands there a second time, with the weight zero."""

    def backward(model, inputs):
        longer = {name: torch.cat([value, value[:1]]) for name, value in inputs.items()}
        longer["weights"][-1] = 0.0
        losses, first = zero.losses_of(model, longer)
        zero.weighted(losses, longer["weights"], len(losses) - 1).backward()
        zero.set_priorities(model, first[:-1], inputs)

    zero.backward = backward


@harmless("scaled", "zero", group="whole step")
def divided_at_the_end(zero):
    """The sum goes backward; gradients are divided by the number of positions."""
    weighted, clip = zero.weighted, zero.clip
    zero.weighted = lambda losses, weights, count: weighted(losses, weights, 1.0)

    def divided(model):
        for p in model.parameters():
            p.grad.div_(len(zero.LENGTHS))
        clip(model)

    zero.clip = divided


@harmless("recomputed", "zero", group="whole step")
def dynamics_computed_again(zero):
    """The states after moves are computed again in the backward pass."""

    class Dynamics(zero.Dynamics):
        def forward(self, state, moves):
            return checkpoint(super().forward, state, moves, use_reentrant=False)

    zero.Dynamics = Dynamics
