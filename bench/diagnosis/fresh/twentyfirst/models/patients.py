"""When patients come back and why: a transformer over columns with risks that compete (DeepHit).

Numbers are split into pieces, categories have a table, and each column is a token. Patients who
were lost are known not to have come back until then; they have a part in all three losses.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F

ROWS, REAL, NUMBERS, CATEGORIES, PIECES = 10, 9, 3, (3, 4), 4
WIDTH, HEADS, LAYERS, HIDDEN = 16, 2, 2, 24
RISKS, BINS, LOST = 2, 6, -1
RANKING, SIGMA, BRIER, HORIZON, NEVER, LEAST = 0.4, 0.3, 0.5, 3, -1e4, 0.05
LR, DECAY, WARMUP, TOTAL, MAX_NORM, KEEP = 4e-3, 0.2, 4, 20, 2.0, 0.9


class Numbers(nn.Module):
    """How much of each piece lies below a number; what is not known has a token of its own."""

    def __init__(self, edges):
        super().__init__()
        self.register_buffer("low", edges[:, :-1].clone())
        self.register_buffer("high", edges[:, 1:].clone())
        self.weight = nn.Parameter(0.4 * torch.randn(NUMBERS, PIECES, WIDTH))
        self.bias = nn.Parameter(0.2 * torch.randn(NUMBERS, WIDTH))
        self.absent = nn.Parameter(0.4 * torch.randn(NUMBERS, WIDTH))

    def pieces(self, x):
        return ((x.unsqueeze(2) - self.low) / (self.high - self.low)).clamp(0, 1)

    def forward(self, x):
        known = ~x.isnan()
        pieces = self.pieces(x.nan_to_num(0.0))
        tokens = torch.einsum("rnp,npw->rnw", pieces, self.weight) + self.bias
        return torch.where(known.unsqueeze(2), tokens, self.absent)


def beginnings():
    """Where the rows of each category begin in the table."""
    sizes = torch.tensor(CATEGORIES)
    return sizes.cumsum(0) - sizes


class Categories(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(sum(CATEGORIES), WIDTH)
        self.bias = nn.Parameter(0.2 * torch.randn(len(CATEGORIES), WIDTH))

    def forward(self, x):
        return self.table(x + beginnings()) + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def projections(self, x):
        return self.query(x), self.key(x), self.value(x)

    def attend(self, query, key, value):
        return F.scaled_dot_product_attention(query, key, value)

    def forward(self, x):
        heads = [p.unflatten(2, (HEADS, -1)).transpose(1, 2) for p in self.projections(x)]
        return self.out(self.attend(*heads).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """The first one has no norm before its attention."""

    def __init__(self, first):
        super().__init__()
        self.norm = nn.Identity() if first else nn.LayerNorm(WIDTH)
        self.attention, self.norm_wide = Attention(), nn.LayerNorm(WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 2 * HIDDEN), nn.Linear(HIDDEN, WIDTH)

    def gated(self, x):
        value, gate = self.wide(x).chunk(2, dim=2)
        return value * F.relu(gate)

    def forward(self, x):
        x = x + self.attention(self.norm(x))
        return x + self.narrow(self.gated(self.norm_wide(x)))


class Net(nn.Module):
    def __init__(self, edges):
        super().__init__()
        self.numbers, self.categories = Numbers(edges), Categories()
        self.whole = nn.Parameter(0.4 * torch.randn(1, WIDTH))
        self.layers = nn.ModuleList(Layer(first=k == 0) for k in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, RISKS * BINS + 1)

    def columns(self, numbers, categories):
        return torch.cat([self.numbers(numbers), self.categories(categories)], dim=1)

    def forward(self, numbers, categories):
        """Logits of each risk in each bin, and of coming back after all of them."""
        columns = self.columns(numbers, categories)
        x = torch.cat([self.whole.expand(len(columns), 1, WIDTH), columns], dim=1)
        for layer in self.layers:
            x = layer(x)
        return self.head(F.relu(self.norm(x[:, 0])))


class Study(nn.Module):
    """The net, and a slow copy of it that is used later."""

    def __init__(self):
        super().__init__()
        self.net = Net(edges_of(earlier_patients()))
        self.slow = copy.deepcopy(self.net).requires_grad_(False)
        self.register_buffer("moves", torch.zeros(()))


def earlier_patients():
    """Numbers of patients of earlier years, from which the pieces are made."""
    generator = torch.Generator().manual_seed(7)
    found = torch.randn(60, NUMBERS, generator=generator)
    return torch.cat([found[:, :2], found[:, 2:].exp()], dim=1)


def edges_of(numbers):
    """Quantiles of each column: there are as many patients in all of its pieces."""
    shares = torch.linspace(0, 1, PIECES + 1)
    return torch.quantile(numbers, shares, dim=0).T.contiguous()


def chances(logits):
    """Logarithms: all risks and bins and the rest compete in one softmax."""
    found = F.log_softmax(logits, dim=1)
    return found[:, :-1].unflatten(1, (RISKS, BINS)), found[:, -1]


def incidence(found):
    """The chance of each risk until the end of each bin."""
    return found.exp().cumsum(dim=2)


def later(time):
    """Bins behind that of each patient: (rows, bins)."""
    return torch.arange(BINS) > time.unsqueeze(1)


def likelihoods(found, rest, time, risk):
    """Of what was seen: a risk in a bin, or nothing until the patient was lost."""
    seen = found.flatten(1).gather(1, (risk.clamp(min=0) * BINS + time).unsqueeze(1)).squeeze(1)
    open_bins = found.masked_fill(~later(time).unsqueeze(1), NEVER)
    lost = torch.cat([open_bins.flatten(1), rest.unsqueeze(1)], dim=1).logsumexp(dim=1)
    return torch.where(risk == LOST, lost, seen)


def comparable(time, risk, k):
    """Pairs of a patient with this risk, and another one who was still at home after it."""
    return (risk == k).unsqueeze(1) & (time.unsqueeze(1) < time)


def at_times_of_rows(until, time):
    """What the chances of all patients (columns) were at the times of the rows."""
    return until[:, time].T


def ranking_of(until, time, weight, pairs):
    """The patient of a row should have had the higher chance at that time."""
    at = at_times_of_rows(until, time)
    gains = at.diagonal().unsqueeze(1) - at
    weights = weight.unsqueeze(1) * weight * pairs
    return (weights * torch.exp(-gains / SIGMA)).sum() / weights.sum().clamp(min=LEAST)


def ranking_loss(until, time, risk, weight):
    losses = [
        ranking_of(until[:, k], time, weight, comparable(time, risk, k)) for k in range(RISKS)
    ]
    return torch.stack(losses).mean()


def still_followed(time, risk, weight):
    """By Kaplan and Meier: the chance not to be lost before the end of each bin."""
    at_risk = (weight.unsqueeze(1) * (time.unsqueeze(1) >= torch.arange(BINS))).sum(dim=0)
    lost = (risk == LOST).to(weight.dtype) * weight
    gone = torch.zeros(BINS, dtype=weight.dtype).index_add(0, time, lost)
    return (1 - gone / at_risk.clamp(min=LEAST)).cumprod(dim=0).clamp(min=LEAST)


def brier_loss(until, time, risk, weight):
    """Squared errors at the horizon; those who are known stand for those who were lost."""
    followed = still_followed(time, risk, weight)
    back = (time <= HORIZON) & (risk != LOST)
    before = torch.cat([torch.ones(1, dtype=weight.dtype), followed])[time]
    stands = torch.where(back, 1 / before, (time > HORIZON) / followed[HORIZON])
    error = until[:, :, HORIZON].sum(dim=1) - back.to(weight.dtype)
    return (weight * stands * error.square()).sum() / weight.sum()


def loss_of(model, inputs):
    time, risk, weight = inputs["time"], inputs["risk"], inputs["weight"]
    found, rest = chances(model.net(inputs["numbers"], inputs["categories"]))
    likely = likelihoods(found, rest, time, risk)
    until = incidence(found)
    loss = -(weight * likely).sum() / weight.sum()
    loss = loss + RANKING * ranking_loss(until, time, risk, weight)
    return loss + BRIER * brier_loss(until, time, risk, weight)


def backward(model, inputs):
    loss_of(model, inputs).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.net.parameters(), MAX_NORM)


@torch.no_grad()
def move_slow(model):
    """The first moves are larger: the slow weights do not remember how they began."""
    model.moves += 1
    keep = torch.clamp((1 + model.moves) / (4 + model.moves), max=KEEP)
    for slow, mine in zip(model.slow.parameters(), model.net.parameters(), strict=True):
        slow.mul_(keep).add_((1 - keep) * mine)


def build():
    return Study().train()


def rate(step):
    """Up in WARMUP steps, then down to nothing."""
    return min((1 + step) / WARMUP, (TOTAL - step) / (TOTAL - WARMUP))


def decays(name):
    """Neither what makes tokens, nor biases and norms."""
    tokens = name.startswith(("numbers.", "categories.", "whole"))
    return not tokens and "norm" not in name and not name.endswith("bias")


def optimizer(model, **more):
    named = list(model.net.named_parameters())
    groups = [
        {"params": [p for name, p in named if decays(name)], "weight_decay": DECAY},
        {"params": [p for name, p in named if not decays(name)], "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, **more)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(adamw, rate)
    return adamw


def batch(generator):
    """The last row is padding: it has no weight."""

    def randint(most, *shape):
        return torch.randint(most, shape, generator=generator)

    numbers = torch.randn(ROWS, NUMBERS, generator=generator)
    numbers = torch.cat([numbers[:, :2], numbers[:, 2:].exp()], dim=1)
    missing = torch.rand(ROWS, NUMBERS, generator=generator) < 0.2
    missing[0, 1], missing[1, 2] = True, True
    risk = torch.arange(ROWS) % (RISKS + 1) - 1
    weight = 0.5 + torch.rand(ROWS, generator=generator)
    return {
        "numbers": numbers.masked_fill(missing, torch.nan),
        "categories": torch.stack([randint(size, ROWS) for size in CATEGORIES], dim=1),
        "time": (randint(BINS - 1, ROWS) + randint(2, ROWS)),
        "risk": risk,
        "weight": weight * (torch.arange(ROWS) < REAL),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    move_slow(model)
    model.schedule.step()
