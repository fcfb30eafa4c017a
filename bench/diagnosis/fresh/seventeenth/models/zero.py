"""A game whose rules nobody tells: a MuZero learns from searches in recorded games."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZE, PLANES, CHANNELS = 4, 4, 10
MOVES = SIZE * SIZE + 1  # each field, and to pass
SUPPORT, SLOPE, RANGE_EPS = 6, 1e-2, 1e-5
UNROLL, AHEAD, DISCOUNT = 3, 3, 0.97
# Lengths of the games, and the positions that are learned.
LENGTHS, STARTS = (9, 6, 11, 5, 8, 7), (2, 4, 7, 0, 5, 6)
VALUE_WEIGHT, ALIKE_WEIGHT, PRIORITY_EPS, SHARE = 0.25, 0.5, 1e-3, 0.5
LR, MOMENTUM, DECAY, MAX_NORM = 0.03, 0.9, 1e-3, 4.0


class ScaleGradient(torch.autograd.Function):
    """Does nothing but make the gradient smaller."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


def squash(x):
    """Large numbers become smaller: about a root."""
    return x.sign() * ((x.abs() + 1).sqrt() - 1) + SLOPE * x


def unsquash(x):
    root = (1 + 4 * SLOPE * (x.abs() + 1 + SLOPE)).sqrt()
    return x.sign() * (((root - 1) / (2 * SLOPE)).square() - 1)


def to_chances(x):
    """A number as chances of the two whole numbers next to it."""
    x = squash(x).clamp(-SUPPORT, SUPPORT) + SUPPORT
    low = x.floor()
    share = (x - low).unsqueeze(-1)
    index = low.long().unsqueeze(-1)
    chances = x.new_zeros(*x.shape, 2 * SUPPORT + 2)
    chances = chances.scatter(-1, index, 1 - share).scatter(-1, index + 1, share)
    return chances[..., :-1]


def to_number(logits):
    numbers = torch.arange(-SUPPORT, SUPPORT + 1, dtype=logits.dtype)
    return unsquash((logits.softmax(dim=-1) * numbers).sum(dim=-1))


def ranged(state):
    """Each channel of a state goes from zero to one."""
    low = state.amin(dim=(2, 3), keepdim=True)
    high = state.amax(dim=(2, 3), keepdim=True)
    return (state - low) / (high - low + RANGE_EPS)


def move_plane(moves):
    """A board with a one where the move is; to pass has none."""
    moves = moves.view(-1, 1, 1)
    row = torch.arange(SIZE).view(1, -1, 1) == moves // SIZE
    column = torch.arange(SIZE).view(1, 1, -1) == moves % SIZE
    return (row & column).unsqueeze(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm1 = nn.LayerNorm([CHANNELS, SIZE, SIZE])
        self.conv2 = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False)
        self.norm2 = nn.LayerNorm([CHANNELS, SIZE, SIZE])

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))


class Head(nn.Module):
    """Few channels of the board, and a hidden layer."""

    def __init__(self, outputs):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, 4, 1)
        self.hidden = nn.Linear(4 * SIZE * SIZE, 24)
        self.out = nn.Linear(24, outputs)

    def forward(self, x):
        return self.out(F.elu(self.hidden(F.relu(self.conv(x)).flatten(1))))


class Dynamics(nn.Module):
    """The state after a move, and what the move has earned."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS + 1, CHANNELS, 3, padding=1)
        self.block = Block()
        self.reward = Head(2 * SUPPORT + 1)

    def join(self, state, plane):
        return self.conv(torch.cat([state, plane], dim=1))

    def forward(self, state, moves):
        x = F.relu(self.join(state, move_plane(moves).to(state.dtype)) + state)
        x = self.block(x)
        return ranged(x), self.reward(x)


class MuZero(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(PLANES, CHANNELS, 3, padding=1)
        self.block = Block()
        self.dynamics = Dynamics()
        self.policy = Head(MOVES)
        self.value = Head(2 * SUPPORT + 1)
        self.project = nn.Linear(CHANNELS * SIZE * SIZE, 16)
        self.foresee = nn.Linear(16, 16)
        self.register_buffer("priorities", torch.zeros(len(LENGTHS)))

    def represent(self, planes):
        return ranged(self.block(F.relu(self.conv(planes))))

    def predict(self, state):
        return self.policy(state), self.value(state)

    def alike(self, state, seen):
        """Minus the cosine of what is foreseen and of what is really seen, which is fixed."""
        mine = self.foresee(self.project(state.flatten(1)))
        with torch.no_grad():
            right = self.project(self.represent(seen).flatten(1))
        return -F.cosine_similarity(mine, right, dim=1)


def value_at(game, moment):
    """What is earned in the next moves, and what the search thinks of the position after them.

    The players take turns: what the other one earns is lost.
    """
    length = len(game["rewards"])
    value = torch.zeros(())
    for k, reward in enumerate(game["rewards"][moment : moment + AHEAD]):
        value = value + (-DISCOUNT) ** k * reward
    if moment + AHEAD < length:
        value = value + (-DISCOUNT) ** AHEAD * game["searched"][moment + AHEAD]
    return value


def reward_at(game, moment):
    """What the move before this moment has earned."""
    if 0 < moment <= len(game["rewards"]):
        return game["rewards"][moment - 1]
    return torch.zeros(())


def policy_at(game, moment):
    """How often the search has tried each move; nothing is known when the game is over."""
    if moment < len(game["rewards"]):
        visits = game["visits"][moment]
        return visits / visits.sum(), torch.ones(())
    return torch.full((MOVES,), 1 / MOVES), torch.zeros(())


def move_at(game, moment):
    """After the end, all pass."""
    over = moment >= len(game["rewards"])
    return torch.tensor(MOVES - 1) if over else game["moves"][moment]


def targets_of(game, start):
    moments = range(start, start + UNROLL + 1)
    policies, known = zip(*(policy_at(game, m) for m in moments), strict=True)
    return {
        "planes": torch.stack([game["planes"][min(m, len(game["rewards"]))] for m in moments]),
        "moves": torch.stack([move_at(game, m) for m in moments[:-1]]),
        "values": torch.stack([value_at(game, m) for m in moments]),
        "rewards": torch.stack([reward_at(game, m) for m in moments]),
        "policies": torch.stack(policies),
        "known": torch.stack(known),
    }


def collate(games):
    made = [targets_of(game, start) for game, start in zip(games, STARTS, strict=True)]
    inputs = {name: torch.stack([each[name] for each in made]) for name in made[0]}
    chances = torch.stack([game["chance"] for game in games])
    weights = 1 / (len(games) * chances)
    return inputs | {"weights": weights / weights.max()}


def scores_loss(logits, target):
    return F.cross_entropy(logits, target, reduction="none")


def unroll(model, inputs):
    """Policies, values, rewards and states of all moments."""
    state = model.represent(inputs["planes"][:, 0])
    found = [(*model.predict(state), None, state)]
    for k in range(UNROLL):
        state, reward = model.dynamics(state, inputs["moves"][:, k])
        found.append((*model.predict(state), reward, state))
        state = ScaleGradient.apply(state, SHARE)
    return found


def losses_of(model, inputs):
    """One loss for each position; the moments that are unrolled count like one."""
    values, rewards = to_chances(inputs["values"]), to_chances(inputs["rewards"])
    total = 0.0
    found = unroll(model, inputs)
    for k, (policy, value, reward, state) in enumerate(found):
        loss = inputs["known"][:, k] * scores_loss(policy, inputs["policies"][:, k])
        loss = loss + VALUE_WEIGHT * scores_loss(value, values[:, k])
        if k > 0:
            loss = loss + scores_loss(reward, rewards[:, k])
            loss = loss + ALIKE_WEIGHT * model.alike(state, inputs["planes"][:, k])
            loss = ScaleGradient.apply(loss, 1 / UNROLL)
        total = total + loss
    return total, found[0][1]


def weighted(losses, weights, count):
    return (losses * weights).sum() / count


@torch.no_grad()
def set_priorities(model, logits, inputs, rows=slice(None)):
    """Positions whose value was a surprise are drawn more often."""
    away = (to_number(logits) - inputs["values"][:, 0]).abs()
    model.priorities[rows] = away + PRIORITY_EPS


def backward(model, inputs):
    losses, first = losses_of(model, inputs)
    weighted(losses, inputs["weights"], len(losses)).backward()
    set_priorities(model, first, inputs)


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return MuZero().train()


def optimizer(model, **more):
    sgd = torch.optim.SGD(
        model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY, nesterov=True, **more
    )
    model.schedule = torch.optim.lr_scheduler.StepLR(sgd, 3, 0.3)
    return sgd


def batch(generator):
    """Games in which fields are filled; each move earns something."""
    games = []
    for length in LENGTHS:
        visits = torch.randint(0, 12, (length, MOVES), generator=generator)
        moves = torch.randperm(MOVES, generator=generator)[:length]
        games.append(
            {
                "planes": torch.rand(length + 1, PLANES, SIZE, SIZE, generator=generator).round(),
                "moves": moves,
                "rewards": 3 * torch.randn(length, generator=generator),
                "searched": 8 * torch.randn(length, generator=generator),
                "visits": visits.to(torch.get_default_dtype()),
                "chance": 0.1 + torch.rand((), generator=generator),
            }
        )
    return games


def step(model, optimizer, batch):
    inputs = collate(batch)
    optimizer.zero_grad()
    backward(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
