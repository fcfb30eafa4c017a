"""Three tasks of one recurrent encoder, with surgery of their gradients, and Lookahead."""

import torch
from torch import nn
from torch.nn import functional as F

SENSORS, WIDTH, TIMES, BATCH, KINDS = 4, 12, 7, 6, 4
MARGIN, TEMPERATURE, SLOW, EVERY = 0.3, 0.7, 0.5, 1


class Encoder(nn.Module):
    """A bidirectional GRU, whose states are pooled by attention over known times."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(SENSORS, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.score = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, x, lengths):
        states, _ = self.gru(torch.tanh(self.embed(x)))
        known = torch.arange(x.shape[1]) < lengths[:, None]
        score = self.score(torch.tanh(states)).squeeze(-1) / TEMPERATURE
        share = score.masked_fill(~known, float("-inf")).softmax(dim=1)
        return (share[..., None] * states).sum(dim=1)


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.kind = nn.Linear(WIDTH, KINDS)
        self.value = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Softplus(), nn.Linear(WIDTH, 2))
        self.rank = nn.Linear(WIDTH, 1, bias=False)

    def forward(self, h):
        return self.kind(h), self.value(h), self.rank(h).squeeze(-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = Encoder()
        self.heads = Heads()
        self.log_noise = nn.Parameter(torch.tensor([0.1, -0.2, 0.3]))

    def forward(self, x, lengths):
        return self.heads(self.encoder(x, lengths))


def kind_loss(logits, kinds):
    """Cross entropy, weighted by how rare a kind is in the batch."""
    counts = torch.bincount(kinds, minlength=KINDS)
    weight = len(kinds) / (KINDS * counts.clamp(min=1))
    log_p = logits.log_softmax(dim=-1)
    chosen = log_p.gather(1, kinds[:, None]).squeeze(1)
    own = weight[kinds]
    return -(own * chosen).sum() / own.sum()


def value_loss(predicted, truth):
    """The likelihood of a normal distribution whose deviation is predicted, too."""
    mean, raw = predicted.unbind(-1)
    variance = F.softplus(raw) + 1e-3
    return 0.5 * (variance.log() + (truth - mean).square() / variance).mean()


def rank_loss(scores, order):
    """A margin between all pairs of which one has to stand before the other."""
    apart = scores[:, None] - scores[None, :]
    before = order[:, None] > order[None, :]
    hinge = F.relu(MARGIN - apart) * before
    return hinge.sum() / before.sum()


def losses_of(model, data):
    kind, value, rank = model(data["x"], data["lengths"])
    losses = [
        kind_loss(kind, data["kind"]),
        value_loss(value, data["value"]),
        rank_loss(rank, data["order"]),
    ]
    noise = model.log_noise
    return [loss * torch.exp(-s) + 0.5 * s for loss, s in zip(losses, noise, strict=True)]


def gradients_of(losses, shared):
    """One flat gradient of the shared weights for each task."""
    flat = []
    for number, loss in enumerate(losses):
        parts = torch.autograd.grad(loss, shared, retain_graph=number < len(losses))
        flat.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(flat)


def without_conflicts(gradients):
    """Each task's gradient loses what points against the gradient of another task."""
    made = []
    for i, own in enumerate(gradients):
        for j, other in enumerate(gradients):
            dot = own @ other
            if i != j and dot < 0:
                own = own - dot / other.square().sum() * other
        made.append(own)
    return torch.stack(made)


def backward(model, data):
    shared = list(model.encoder.parameters())
    losses = losses_of(model, data)
    flat = without_conflicts(gradients_of(losses, shared)).sum(dim=0)
    sum(losses).backward()
    parts = flat.split([weight.numel() for weight in shared])
    for weight, part in zip(shared, parts, strict=True):
        weight.grad = part.view_as(weight)


class Lookahead:
    """Slow weights go a part of the way of the fast ones, which begin there again."""

    def __init__(self, weights):
        self.weights = list(weights)
        self.slow = [weight.detach().clone() for weight in self.weights]
        self.steps = 0

    @torch.no_grad()
    def update(self):
        self.steps += 1
        if self.steps % EVERY:
            return
        for slow, fast in zip(self.slow, self.weights, strict=True):
            slow.add_(fast - slow, alpha=SLOW)
            fast.copy_(slow)


def build():
    return Model()


def optimizer(model):
    model.lookahead = Lookahead(model.parameters())
    return torch.optim.NAdam(model.parameters(), lr=4e-3, weight_decay=0.01)


def batch(generator):
    data = {
        "x": torch.randn(BATCH, TIMES, SENSORS, generator=generator),
        "lengths": torch.randint(3, TIMES + 1, (BATCH,), generator=generator),
        "kind": torch.randint(0, KINDS, (BATCH,), generator=generator),
        "value": torch.randn(BATCH, generator=generator) * 2,
        "order": torch.randperm(BATCH, generator=generator),
    }
    data["lengths"][0] = TIMES
    return data


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    optimizer.step()
    model.lookahead.update()
