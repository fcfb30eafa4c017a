"""Errands in a maze: a manager that sets directions and a worker that takes steps (FeUdal nets).

Both learn from rollouts of actors that ran with older weights, which V-trace corrects. Rollouts
have several lengths: steps behind the end of one do not count.
"""

import torch
from torch import nn
from torch.nn import functional as F

ACTORS, STEPS, LENGTHS, HELD, SIDE = 4, 6, (6, 5, 6, 4), 3, 5
WIDTH, GOAL, ACTIONS, AHEAD, RADIUS, CHANNELS = 12, 6, 4, 2, 2, 5
FAR, NEAR, INNER, MOST, LEAST = 0.98, 0.9, 0.5, 1.0, 1e-6
VALUES, SURPRISE, LR, ALPHA, MAX_NORM, TOTAL = 0.5, 0.02, 3e-3, 0.95, 1.5, 10


class Eye(nn.Module):
    def __init__(self):
        super().__init__()
        self.near = nn.Conv2d(HELD, CHANNELS, 3, padding=1)
        self.wide = nn.Conv2d(CHANNELS, CHANNELS, 3, 2, padding=1)
        self.out = nn.Linear(CHANNELS * ((SIDE + 1) // 2) ** 2, WIDTH)

    def forward(self, x):
        x = F.elu(self.wide(F.elu(self.near(x))))
        return F.elu(self.out(x.flatten(1)))


class Cell(nn.Module):
    """A cell of an LSTM: states of two tensors."""

    def __init__(self, inputs, width):
        super().__init__()
        self.gates = nn.LSTMCell(inputs, width)

    def forward(self, x, state):
        return self.gates(x, state)


class Manager(nn.Module):
    """Its memory has RADIUS parts, which take turns; its goals are directions."""

    def __init__(self):
        super().__init__()
        self.space, self.cell = nn.Linear(WIDTH, GOAL), Cell(GOAL, GOAL)
        self.value = nn.Linear(GOAL, 1)

    def remember(self, x, first):
        """The states of all steps; an episode begins without memory."""
        none = x.new_zeros(x.shape[1], GOAL)
        parts, found = [(none, none) for _ in range(RADIUS)], []
        for t in range(len(x)):
            kept = ~first[t].unsqueeze(1)
            parts = [(h * kept, c * kept) for h, c in parts]
            parts[t % RADIUS] = self.cell(x[t], parts[t % RADIUS])
            found.append(torch.stack([h for h, _ in parts]).mean(dim=0))
        return torch.stack(found)

    def forward(self, seen, first):
        """Where things are for the manager, its goals, and what it expects."""
        places = F.elu(self.space(seen))
        memory = self.remember(places, first)
        return places, F.normalize(memory, dim=2), self.value(memory).squeeze(2)


class Worker(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell(WIDTH, ACTIONS * GOAL)
        self.bend, self.value = nn.Linear(GOAL, GOAL, bias=False), nn.Linear(ACTIONS * GOAL, 1)

    def remember(self, x, first):
        h = c = x.new_zeros(x.shape[1], ACTIONS * GOAL)
        found = []
        for t in range(len(x)):
            kept = ~first[t].unsqueeze(1)
            h, c = self.cell(x[t], (h * kept, c * kept))
            found.append(h)
        return torch.stack(found)

    def scores(self, memory, goals):
        return (memory.unflatten(2, (ACTIONS, GOAL)) @ goals.unsqueeze(3)).squeeze(3)

    def forward(self, seen, goals, first):
        """Logits of actions, and what it expects; the manager does not learn from them."""
        memory = self.remember(seen, first)
        pooled = self.bend(recent(goals.detach(), first))
        return self.scores(memory, pooled), self.value(memory).squeeze(2)


class Feudal(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye, self.manager, self.worker = Eye(), Manager(), Worker()

    def look(self, pictures):
        return self.eye(pictures.flatten(0, 1)).unflatten(0, pictures.shape[:2])

    def forward(self, pictures, first):
        seen = self.look(pictures)
        places, goals, far_value = self.manager(seen, first)
        logits, near_value = self.worker(seen, goals, first)
        return places, goals, far_value, logits, near_value


def same_episode(first, steps):
    """Whether no episode began in the last steps: [t] is for t - steps and t."""
    number = first.long().cumsum(dim=0)
    return number[steps:] == number[: len(number) - steps]


def recent(goals, first):
    """The sum of this goal and of those of the AHEAD steps before, in the same episode."""
    total = goals
    for back in range(1, AHEAD + 1):
        own = same_episode(first, back).unsqueeze(2)
        total = total + F.pad(goals[:-back] * own, (0, 0, 0, 0, back, 0))
    return total


def cosine(a, b):
    return F.cosine_similarity(a, b, dim=2, eps=LEAST)


def obeyed(places, goals, first):
    """The worker's own reward: how far it went where it was sent in the last steps."""
    places, total = places.detach(), 0.0
    for back in range(1, AHEAD + 1):
        moved = places[back:] - places[:-back]
        found = cosine(moved, goals[:-back].detach()) * same_episode(first, back)
        total = total + F.pad(found, (0, 0, back, 0))
    return total / AHEAD


def directions(places, goals):
    """How well goals point to where the worker was AHEAD steps later."""
    moved = places[AHEAD:] - places[:-AHEAD]
    return cosine(moved.detach(), goals[:-AHEAD])


def ratios(logits, actions, old):
    """How much likelier actions are now than for the actors."""
    return (chosen(logits, actions).detach() - old).exp()


def chosen(logits, actions):
    return logits.log_softmax(dim=2).gather(2, actions.unsqueeze(2)).squeeze(2)


def corrected(value, rewards, goes_on, ratio, counts, discount):
    """V-trace: what values should have been, and advantages. Values have one step more."""
    value = value.detach()
    bounded = ratio.clamp(max=MOST)
    discounts = discount * goes_on
    errors = bounded * (rewards + discounts * value[1:] - value[:-1]) * counts
    found, error = [], torch.zeros_like(errors[0])
    for t in reversed(range(len(errors))):
        error = errors[t] + discounts[t] * bounded[t] * error
        found.append(error)
    wanted = value[:-1] + torch.stack(found[::-1])
    later = torch.cat([wanted[1:], value[-1:]])
    later = torch.where(ends(counts), value[1:], later)
    return wanted, bounded * (rewards + discounts * later - value[:-1])


def ends(counts):
    """The last step of each rollout."""
    return counts > F.pad(counts[1:], (0, 0, 0, 1))


def manager_loss(found, inputs, ratio, counts):
    """Goals that led to more than was expected should point where the worker went."""
    places, goals, value = found
    wanted, gains = corrected(
        value, inputs["rewards"], inputs["goes_on"], ratio, counts, discount=FAR
    )
    steps = len(counts) + 1 - AHEAD
    own = same_episode(inputs["first"], AHEAD) * counts[AHEAD - 1 :]
    policy = -(directions(places, goals) * gains[:steps] * own).sum()
    return policy + VALUES * ((value[:-1] - wanted).square() * counts).sum()


def surprise(logits):
    return -(logits.softmax(dim=2) * logits.log_softmax(dim=2)).sum(dim=2)


def worker_loss(logits, value, rewards, inputs, ratio, counts):
    wanted, gains = corrected(value, rewards, inputs["goes_on"], ratio, counts, discount=NEAR)
    policy = -(chosen(logits, inputs["actions"]) * gains * counts).sum()
    policy = policy - SURPRISE * (surprise(logits) * counts).sum()
    return policy + VALUES * ((value[:-1] - wanted).square() * counts).sum()


def loss_of(model, inputs, total):
    first, counts = inputs["first"], inputs["counts"]
    places, goals, far_value, logits, near_value = model(inputs["pictures"], first)
    logits = logits[:-1]
    ratio = ratios(logits, inputs["actions"], inputs["old"])
    loss = manager_loss((places, goals, far_value), inputs, ratio, counts)
    rewards = inputs["rewards"] + INNER * obeyed(places, goals, first)[1:]
    loss = loss + worker_loss(logits, near_value, rewards, inputs, ratio, counts)
    return loss / total


def backward(model, inputs):
    loss_of(model, inputs, inputs["counts"].sum()).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Feudal().train()


def optimizer(model, **more):
    rms = torch.optim.RMSprop(model.parameters(), lr=LR, alpha=ALPHA, eps=1e-4, **more)
    model.schedule = torch.optim.lr_scheduler.PolynomialLR(rms, TOTAL)
    return rms


def batch(generator):
    """Steps first, then actors; there is one picture more than actions."""

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    pictures = torch.randn(STEPS + 1, ACTORS, HELD, SIDE, SIDE, generator=generator)
    counts = torch.arange(STEPS).unsqueeze(1) < torch.tensor(LENGTHS)
    over = rand(STEPS, ACTORS) < 0.1
    over[2, 1], over[3, 2] = True, True
    over &= counts
    first = F.pad(over, (0, 0, 1, 0))
    first[0, ::2] = True
    actions = torch.randint(ACTIONS, (STEPS, ACTORS), generator=generator)
    old = torch.randn(STEPS, ACTORS, ACTIONS, generator=generator).log_softmax(dim=2)
    old = old.gather(2, actions.unsqueeze(2)).squeeze(2)
    return {
        "pictures": pictures,
        "first": first,
        "actions": actions,
        "old": old,
        "rewards": (rand(STEPS, ACTORS) < 0.4).to(pictures.dtype) + 0.1 * rand(STEPS, ACTORS),
        "goes_on": (~over).to(pictures.dtype),
        "counts": counts.to(pictures.dtype),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.schedule.step()
