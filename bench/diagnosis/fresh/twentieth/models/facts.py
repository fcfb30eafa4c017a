"""What is known about things: relations that turn complex numbers, as in RotatE, beside names."""

import math

import torch
from torch import nn
from torch.nn import functional as F

THINGS, RELATIONS, DIM, WORDS, NAME, KINDS = 30, 5, 8, 20, 6, 3
ROWS, REAL, WRONG = 10, 8, 6
GAMMA, RANGE, SHARP, CUBES, KIND_WEIGHT, IGNORE = 4.0, 2.0, 0.8, 0.02, 0.3, -100
CLASS_WEIGHTS = (1.0, 0.5, 2.0)
LR, LR_TURNS, MOMENTUM, BEGUN, BOUND, PATIENCE, FALL = 0.08, 0.05, 0.8, 0.1, 2.5, 2, 0.5


class Names(nn.Module):
    """The mean of the words of a name, which has one to three of them."""

    def __init__(self):
        super().__init__()
        self.words = nn.EmbeddingBag(WORDS, NAME, mode="mean", padding_idx=0)
        self.lift = nn.Linear(NAME, 2 * DIM, bias=False)

    def mean(self, words):
        return self.words(words)

    def forward(self, words):
        return self.lift(self.mean(words.flatten(0, -2))).unflatten(0, words.shape[:-1])


class Facts(nn.Module):
    def __init__(self):
        super().__init__()
        self.things, self.names = nn.Embedding(THINGS, 2 * DIM), Names()
        self.turns = nn.Embedding(RELATIONS, DIM)
        self.kind = nn.Linear(DIM, KINDS)
        nn.init.normal_(self.things.weight, std=0.6)
        nn.init.uniform_(self.turns.weight, -RANGE, RANGE)

    def thing(self, index):
        """Complex numbers: of the thing itself, and of its name."""
        found = self.things(index) + self.names(words_of(index))
        return torch.view_as_complex(found.unflatten(-1, (DIM, 2)))

    def turn(self, relation):
        angle = self.turns(relation) * (math.pi / RANGE)
        return torch.polar(torch.ones_like(angle), angle)

    def forward(self, head, relation, tail):
        """How far the turned head is from the tail; scores are higher for what is nearer."""
        return GAMMA - distance(head, self.turn(relation), tail)


def words_of(index):
    """The words of each name; zero is padding."""
    more = torch.where(index % 3 == 0, 0, 1 + (7 * index) % (WORDS - 1))
    most = torch.where(index % 2 == 0, 0, 1 + (11 * index + 3) % (WORDS - 1))
    return torch.stack([1 + (5 * index) % (WORDS - 1), more, most], dim=-1)


def distance(head, turn, tail):
    return (head * turn - tail).abs().sum(dim=-1)


def rarity(head, relation, tail):
    """Facts of which there are many count less: both their sides are counted in the batch."""
    of_head = (head.unsqueeze(1) == head) & (relation.unsqueeze(1) == relation)
    of_tail = (tail.unsqueeze(1) == tail) & (relation.unsqueeze(1) == relation)
    counts = of_head.sum(dim=1) + of_tail.sum(dim=1)
    return counts.to(torch.get_default_dtype()).rsqrt()


def replaced(inputs):
    """Heads and tails of what is wrong: one of both is another thing."""
    of_heads = inputs["of_heads"].unsqueeze(1)
    heads = torch.where(of_heads, inputs["others"], inputs["head"].unsqueeze(1))
    tails = torch.where(of_heads, inputs["tail"].unsqueeze(1), inputs["others"])
    return heads, tails


def hardness(scores, known):
    """What is wrong counts more the likelier it looks; what is known to be right does not."""
    scores = scores.detach().masked_fill(known, -torch.inf)
    return (SHARP * scores).softmax(dim=1)


def right_losses(scores):
    return -F.logsigmoid(scores)


def wrong_losses(scores, known):
    return -(hardness(scores, known) * F.logsigmoid(-scores)).sum(dim=1)


def cubes(head, tail):
    return (head.abs() ** 3).sum(dim=1) + (tail.abs() ** 3).sum(dim=1)


def kind_loss(model, head, inputs):
    """What kind of thing a head is, where that is known: a sum with the weights of kinds."""
    weights = torch.tensor(CLASS_WEIGHTS)
    logits, kinds = model.kind(head.abs()), inputs["kinds"]
    return F.cross_entropy(logits, kinds, weights, ignore_index=IGNORE, reduction="sum")


def totals_of(inputs):
    """What the sums of losses are divided by: weights, facts, weights of kinds."""
    known = inputs["kinds"][inputs["kinds"] != IGNORE]
    return inputs["weight"].sum(), inputs["real"].sum(), torch.tensor(CLASS_WEIGHTS)[known].sum()


def loss_of(model, inputs, totals):
    weights, facts, kinds = totals
    head, tail = model.thing(inputs["head"]), model.thing(inputs["tail"])
    right = right_losses(model(head, inputs["relation"], tail))
    heads, tails = (model.thing(index) for index in replaced(inputs))
    scores = model(heads, inputs["relation"].unsqueeze(1), tails)
    wrong = wrong_losses(scores, inputs["known"])
    loss = (inputs["weight"] * (right + wrong)).sum() / (2 * weights)
    loss = loss + CUBES * (cubes(head, tail) * inputs["real"]).sum() / facts
    return loss + KIND_WEIGHT * kind_loss(model, head, inputs) / kinds


def backward(model, inputs):
    loss_of(model, inputs, totals_of(inputs)).backward()


@torch.no_grad()
def keep_in_bounds(model):
    """Things may not grow, and angles stay between minus and plus a half turn."""
    model.things.weight.renorm_(2, 0, BOUND)
    turns = model.turns.weight
    turns.add_(RANGE).remainder_(2 * RANGE).sub_(RANGE)


def build():
    return Facts().train()


def make_adagrad(parameters, **more):
    return torch.optim.Adagrad(parameters, lr=LR, initial_accumulator_value=BEGUN, **more)


def optimizer(model, **more):
    """The turns have an optimizer of their own."""
    others = [p for name, p in model.named_parameters() if not name.startswith("turns")]
    adagrad = make_adagrad(others, **more)
    turns = model.turns.parameters()
    model.turner = torch.optim.SGD(turns, lr=LR_TURNS, momentum=MOMENTUM, nesterov=True, **more)
    model.schedule = torch.optim.lr_scheduler.StepLR(adagrad, PATIENCE, FALL)
    return adagrad


def batch(generator):
    """The last rows are padding: they have no weight."""

    def randint(most, *shape):
        return torch.randint(most, shape, generator=generator)

    head, tail = randint(THINGS // 3, ROWS), randint(THINGS, ROWS)
    relation = randint(2, ROWS) + 2 * (torch.arange(ROWS) % 2)
    real = torch.arange(ROWS) < REAL
    kinds = torch.where(real & (head % 4 != 0), head % KINDS, IGNORE)
    kinds[0] = 1
    known = torch.rand(ROWS, WRONG, generator=generator) < 0.2
    known[:, 0] = False
    weight = torch.zeros(ROWS)
    weight[:REAL] = rarity(head[:REAL], relation[:REAL], tail[:REAL])
    return {
        "head": head,
        "relation": relation,
        "tail": tail,
        "others": randint(THINGS, ROWS, WRONG),
        "known": known,
        "of_heads": torch.arange(ROWS) % 3 == 0,
        "weight": weight,
        "real": real,
        "kinds": kinds,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    model.turner.zero_grad()
    backward(model, batch)
    optimizer.step()
    model.turner.step()
    keep_in_bounds(model)
    model.schedule.step()
