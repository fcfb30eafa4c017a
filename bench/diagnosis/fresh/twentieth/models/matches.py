"""Points of two pictures that match: attention within and between them, Sinkhorn, under autocast.

Which points match is found from a projection that is known, as for pictures that were warped.
"""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, ROUNDS, POINTS = 16, 2, 2, 9
# How many points the pictures of each pair have, and their sizes: wide, high.
COUNTS = ((9, 7), (6, 8), (7, 9), (8, 6))
SIZES = ((60.0, 40.0), (48.0, 64.0), (64.0, 48.0), (40.0, 56.0))
NEAR, FAR, UNMATCHED, IGNORE, NEVER = 2.0, 3.5, -1, -2, -1e4
ITERATIONS, POSITIVE, SURE = 6, 0.6, 0.3
LR, DECAY, GAMMA, MAX_NORM = 3e-3, 0.01, 0.7, 2.0


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.value, self.out = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x):
        return x.unflatten(2, (HEADS, -1)).transpose(1, 2)

    def attend(self, query, key, value, seen):
        mask = seen[:, None, None, :]
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    def forward(self, x, source, seen):
        query, key, value = self.query(x), self.key(source), self.value(source)
        found = self.attend(self.heads(query), self.heads(key), self.heads(value), seen)
        return self.out(found.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """A message from other points, and what a point makes of it."""

    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.wide, self.norm = nn.Linear(2 * WIDTH, 2 * WIDTH), nn.LayerNorm(2 * WIDTH)
        self.narrow = nn.Linear(2 * WIDTH, WIDTH)

    def mixed(self, x, message):
        return self.wide(torch.cat([x, message], dim=2))

    def forward(self, x, source, seen):
        message = self.attention(x, source, seen)
        return x + self.narrow(F.gelu(self.norm(self.mixed(x, message))))


class Round(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.across = Block(), Block()

    def forward(self, a, b, seen_a, seen_b):
        a, b = self.inner(a, a, seen_a), self.inner(b, b, seen_b)
        return self.across(a, b, seen_b), self.across(b, a, seen_a)


class Places(nn.Module):
    """What a place in a picture and the strength of a point add to its descriptor."""

    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Linear(3, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, places, strength):
        return self.narrow(F.relu(self.wide(torch.cat([places, strength], dim=2))))


class Matcher(nn.Module):
    def __init__(self):
        super().__init__()
        self.places = Places()
        self.rounds = nn.ModuleList(Round() for _ in range(ROUNDS))
        self.project, self.sure = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)
        self.bin = nn.Parameter(torch.tensor(0.5))  # the likeness to nothing

    def embed(self, picture):
        places = centred(picture["points"], picture["size"])
        return picture["descriptors"] + self.places(places, picture["strength"])

    def likeness(self, a, b):
        return (self.project(a) / WIDTH**0.5) @ self.project(b).mT

    def forward(self, one, other):
        a, b = self.embed(one), self.embed(other)
        for each in self.rounds:
            a, b = each(a, b, one["seen"], other["seen"])
        return self.likeness(a, b), self.sure(a).squeeze(2), self.sure(b).squeeze(2)


def centred(points, size):
    """From the middle of the picture, in units of its longer side."""
    longer = size.max(dim=1).values.view(-1, 1, 1)
    return (points - 0.5 * size.unsqueeze(1)) / (0.7 * longer)


def with_bins(scores, bin, seen_a, seen_b):
    """One more row and column for what matches nothing; points of padding match nothing at all."""
    rows, columns = scores.shape[1:]
    right = bin.expand(len(scores), rows, 1)
    below = bin.expand(len(scores), 1, columns + 1)
    whole = torch.cat([torch.cat([scores, right], dim=2), below], dim=1)
    seen_a, seen_b = F.pad(seen_a, (0, 1), value=True), F.pad(seen_b, (0, 1), value=True)
    return whole.masked_fill(~(seen_a.unsqueeze(2) & seen_b.unsqueeze(1)), NEVER)


def shares(seen_a, seen_b):
    """Logarithms of what each point may give away, and of what the bins may take."""
    many_a, many_b = seen_a.sum(dim=1, keepdim=True), seen_b.sum(dim=1, keepdim=True)
    each = -(many_a + many_b).to(torch.get_default_dtype()).log()
    of_a = torch.cat([torch.where(seen_a, each, NEVER), many_b.log() + each], dim=1)
    of_b = torch.cat([torch.where(seen_b, each, NEVER), many_a.log() + each], dim=1)
    return of_a, of_b, each


def sinkhorn(scores, of_a, of_b):
    """Rows and columns get their shares in turn."""
    u, v = torch.zeros_like(of_a), torch.zeros_like(of_b)
    for _ in range(ITERATIONS):
        u = of_a - torch.logsumexp(scores + v.unsqueeze(1), dim=2)
        v = of_b - torch.logsumexp(scores + u.unsqueeze(2), dim=1)
    return scores + u.unsqueeze(2) + v.unsqueeze(1)


def chances(likeness, bin, seen_a, seen_b):
    """Logarithms, in full precision: of points and bins in both pictures."""
    of_a, of_b, each = shares(seen_a, seen_b)
    scores = with_bins(likeness.float(), bin, seen_a, seen_b)
    return sinkhorn(scores, of_a, of_b) - each.unsqueeze(2)


def projected(points, projection):
    """By a matrix of three rows, and a division."""
    ones = torch.ones_like(points[..., :1])
    found = torch.cat([points, ones], dim=2) @ projection.mT
    return found[..., :2] / found[..., 2:]


def nearest(far, seen_b):
    return far.masked_fill(~seen_b.unsqueeze(1), torch.inf).min(dim=2)


def matched(one, other, projection):
    """For each point of both pictures: which one it matches, UNMATCHED, or IGNORE."""
    far = torch.cdist(projected(one["points"], projection), other["points"])
    least_a, of_a = nearest(far, other["seen"])
    least_b, of_b = nearest(far.mT, one["seen"])
    mutual = of_b.gather(1, of_a) == torch.arange(of_a.shape[1])
    right = mutual & (least_a < NEAR) & one["seen"]
    wanted_a = torch.where(least_a > FAR, UNMATCHED, IGNORE)
    wanted_a = torch.where(right, of_a, wanted_a).masked_fill(~one["seen"], IGNORE)
    wanted_b = torch.where(least_b > FAR, UNMATCHED, IGNORE).masked_fill(~other["seen"], IGNORE)
    pair, row = right.nonzero(as_tuple=True)
    wanted_b[pair, of_a[pair, row]] = row
    return wanted_a, wanted_b


def match_losses(chances, wanted_a, wanted_b):
    """Of each pair of pictures: of points that match, and of those that match nothing."""
    right = wanted_a >= 0
    found = chances[:, :-1].gather(2, wanted_a.clamp(min=0).unsqueeze(2)).squeeze(2)
    positive = -(found * right).sum(dim=1) / right.sum(dim=1).clamp(min=1)
    alone_a, alone_b = wanted_a == UNMATCHED, wanted_b == UNMATCHED
    negative = (chances[:, :-1, -1] * alone_a).sum(dim=1) + (chances[:, -1, :-1] * alone_b).sum(1)
    alone = (alone_a.sum(dim=1) + alone_b.sum(dim=1)).clamp(min=1)
    return POSITIVE * positive - (1 - POSITIVE) * negative / alone


def sure_loss(logits, wanted):
    """Whether a point matches any other."""
    losses = F.binary_cross_entropy_with_logits(
        logits.float(), (wanted >= 0).to(torch.get_default_dtype()), reduction="none"
    )
    return (losses * (wanted != IGNORE)).sum()


def answered(model, inputs):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(inputs["one"], inputs["other"])


def loss_of(model, inputs, pairs, points):
    one, other = inputs["one"], inputs["other"]
    likeness, sure_a, sure_b = answered(model, inputs)
    wanted_a, wanted_b = matched(one, other, inputs["projection"])
    found = chances(likeness, model.bin, one["seen"], other["seen"])
    loss = match_losses(found, wanted_a, wanted_b).sum() / pairs
    return loss + SURE * (sure_loss(sure_a, wanted_a) + sure_loss(sure_b, wanted_b)) / points


def points_of(inputs):
    return inputs["one"]["seen"].sum() + inputs["other"]["seen"].sum()


def backward(model, inputs):
    loss_of(model, inputs, len(inputs["projection"]), points_of(inputs)).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Matcher().train()


def optimizer(model, **more):
    adam = torch.optim.Adam(model.parameters(), lr=LR, weight_decay=DECAY, **more)
    model.schedule = torch.optim.lr_scheduler.ExponentialLR(adam, GAMMA)
    return adam


def pair_of_pictures(counts, size, generator):
    """Half of the points of the second picture are seen in the first one, too."""

    def rand(*shape):
        return torch.rand(*shape, generator=generator)

    def randn(*shape):
        return torch.randn(*shape, generator=generator)

    many_a, many_b = counts
    size = torch.tensor(size)
    projection = torch.eye(3) + 0.05 * randn(3, 3)
    projection[:2, 2], projection[2, :2] = 3 * randn(2), 0.001 * randn(2)
    one, other = rand(many_a, 2) * size, rand(many_b, 2) * size
    common = (min(counts) + 1) // 2
    moved = F.pad(one[:common], (0, 1), value=1.0) @ projection.T
    other[:common] = moved[:, :2] / moved[:, 2:] + 0.3 * randn(common, 2)
    like = randn(common, WIDTH)
    of_one, of_other = randn(many_a, WIDTH), randn(many_b, WIDTH)
    of_one[:common], of_other[:common] = like, like + 0.4 * randn(common, WIDTH)
    order = torch.randperm(many_b, generator=generator)
    return {
        "one": (one, of_one, rand(many_a, 1), size),
        "other": (other[order], of_other[order], rand(many_b, 1), size.flip(0)),
        "projection": projection,
    }


def collate(pictures):
    """Each has POINTS points; those of padding are not seen."""
    names = ("points", "descriptors", "strength")
    found = {}
    for k, name in enumerate(names):
        found[name] = torch.stack([F.pad(p[k], (0, 0, 0, POINTS - len(p[k]))) for p in pictures])
    counts = torch.tensor([len(p[0]) for p in pictures])
    seen = torch.arange(POINTS) < counts.unsqueeze(1)
    return found | {"seen": seen, "size": torch.stack([p[3] for p in pictures])}


def batch(generator):
    made = zip(COUNTS, SIZES, strict=True)
    pairs = [pair_of_pictures(counts, size, generator) for counts, size in made]
    return {
        "one": collate([pair["one"] for pair in pairs]),
        "other": collate([pair["other"] for pair in pairs]),
        "projection": torch.stack([pair["projection"] for pair in pairs]),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    model.schedule.step()
