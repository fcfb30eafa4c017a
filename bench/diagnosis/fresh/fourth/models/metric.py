"""Metric learning: a cross-batch memory, mined pairs, triplets, proxies, shards, lookahead."""

import torch
import torch.nn as nn
import torch.nn.functional as F

CLASSES, PER_CLASS, SIZE, WIDTH, DIM, QUEUE, SHARDS, EMPTY = 4, 3, 8, 8, 8, 24, 2, -1
ALPHA, BASE, MINING_EPS, MARGIN = 2.0, 0.5, 0.05, 0.3
PROXY_ALPHA, PROXY_MARGIN, PROXY_WEIGHT, TRIPLET_WEIGHT = 16.0, 0.1, 0.3, 0.5
SLOW_EVERY, SLOW_RATE = 2, 0.5


class GeM(nn.Module):
    """Generalised mean pooling; the power is learned."""

    def __init__(self, p=3.0, eps=1e-4):
        super().__init__()
        self.p = nn.Parameter(torch.ones(1) * p)
        self.eps = eps

    def forward(self, x):
        x = x.clamp(min=self.eps).pow(self.p)
        return x.mean(dim=(-2, -1)).pow(1.0 / self.p)


class Embedder(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, WIDTH, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(2, WIDTH)
        self.conv2 = nn.Conv2d(WIDTH, 2 * WIDTH, 3, stride=2, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, 2 * WIDTH)
        self.pool = GeM()
        self.fc = nn.Linear(2 * WIDTH, DIM)
        self.neck = nn.LayerNorm(DIM)

    def forward(self, x):
        x = F.relu(self.norm1(self.conv1(x)), inplace=True)
        x = F.relu(self.norm2(self.conv2(x)), inplace=True)
        return F.normalize(self.neck(self.fc(self.pool(x))), dim=1)


class Memory(nn.Module):
    """The last embeddings and their labels, in a ring. It begins half empty."""

    def __init__(self):
        super().__init__()
        gen = torch.Generator().manual_seed(3)
        feats = F.normalize(torch.randn(QUEUE, DIM, generator=gen), dim=1)
        labels = torch.randint(0, CLASSES, (QUEUE,), generator=gen)
        labels[QUEUE // 2 :] = EMPTY
        self.register_buffer("feats", feats * (labels != EMPTY)[:, None])
        self.register_buffer("labels", labels)
        self.ptr = QUEUE // 2

    def get(self):
        return self.feats.clone(), self.labels.clone()

    @torch.no_grad()
    def enqueue(self, feats, labels):
        where = (self.ptr + torch.arange(len(feats))) % QUEUE
        self.feats[where] = feats
        self.labels[where] = labels
        self.ptr = (self.ptr + len(feats)) % QUEUE


class MetricModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Embedder()
        self.memory = Memory()
        self.proxies = nn.Parameter(torch.randn(CLASSES + 2, DIM))
        self.log_scale = nn.Parameter(torch.tensor(10.0).log())

    def forward(self, x):
        return self.net(x)


def gather(parts, rank):
    """What all_gather with a gradient gives on each rank: here all shards are in one process."""
    return torch.cat(parts, dim=0)


def similarities(local, gathered, queued):
    return local @ torch.cat([gathered, queued]).t()


def masks(local_labels, labels, rank):
    """Pairs of one class, without the anchor itself, and pairs of two; empty places are neither."""
    same = local_labels[:, None] == labels[None]
    known = (labels != EMPTY)[None]
    own = torch.zeros_like(same)
    own.diagonal(offset=rank * len(local_labels)).fill_(True)
    return same & ~own & known, ~same & known


def mine(sim, pos, neg):
    """Positives that are farther than the nearest negative, and the other way about."""
    sim = sim.detach()
    nearest = sim.masked_fill(~neg, -2).max(dim=1, keepdim=True).values
    farthest = sim.masked_fill(~pos, 2).min(dim=1, keepdim=True).values
    return pos & (sim - MINING_EPS < nearest), neg & (sim + MINING_EPS > farthest)


def log_one_plus(x, mask):
    """log(1 + sum exp x) of the pairs of each row."""
    return torch.log1p((x.exp() * mask).sum(dim=1))


def learned_scale(model):
    return model.log_scale.exp()


def multi_similarity(model, sim, pos, neg):
    pos, neg = mine(sim, pos, neg)
    scale = learned_scale(model)
    pull = log_one_plus(-ALPHA * (sim - BASE), pos) / ALPHA
    push = log_one_plus(scale * (sim - BASE), neg) / scale
    return (pull + push).mean()


def hardest(dist, pos, neg):
    """Of each anchor, the farthest positive and the nearest negative."""
    far = dist.masked_fill(~pos, -1.0).max(dim=1)[0]
    near = dist.masked_fill(~neg, 4.0).min(dim=1)[0]
    return far, near


def triplet(sim, pos, neg):
    dist = (2 - 2 * sim).clamp(min=1e-6).sqrt()
    far, near = hardest(dist, pos, neg)
    return F.relu(far - near + MARGIN).mean()


def proxy_anchor(model, feats, labels):
    cos = F.linear(feats, F.normalize(model.proxies, dim=1))
    hot = F.one_hot(labels, len(model.proxies)).bool()
    pos_exp = torch.exp(-PROXY_ALPHA * (cos - PROXY_MARGIN)).masked_fill(~hot, 0.0)
    neg_exp = torch.exp(PROXY_ALPHA * (cos + PROXY_MARGIN)).masked_fill(hot, 0.0)
    with_pos = hot.any(dim=0).sum()
    pull = torch.log1p(pos_exp.sum(dim=0)).sum() / with_pos
    return pull + torch.log1p(neg_exp.sum(dim=0)).sum() / len(model.proxies)


def losses_of(model, feats, labels):
    """Each shard has its own anchors; the losses of shards are averaged."""
    parts, own_labels = feats.chunk(SHARDS), labels.chunk(SHARDS)
    queued, queued_labels = model.memory.get()
    every = torch.cat([labels, queued_labels])
    pairs, triplets = [], []
    for rank, local in enumerate(parts):
        gathered = gather(parts, rank)
        sim = similarities(local, gathered, queued)
        pos, neg = masks(own_labels[rank], every, rank)
        pairs.append(multi_similarity(model, sim, pos, neg))
        count = len(labels)
        triplets.append(triplet(sim[:, :count], pos[:, :count], neg[:, :count]))
    pair_loss, triplet_loss = torch.stack(pairs).mean(), torch.stack(triplets).mean()
    proxy_loss = proxy_anchor(model, feats, labels)
    return pair_loss, TRIPLET_WEIGHT * triplet_loss, PROXY_WEIGHT * proxy_loss


def backward(model, x, labels):
    feats = model(x)
    sum(losses_of(model, feats, labels)).backward()
    return feats.detach()


class Lookahead:
    """k steps of the optimizer, then one step of slow weights towards the fast ones."""

    def __init__(self, base, k, alpha):
        self.base, self.k, self.alpha, self.count = base, k, alpha, 0
        self.fast = [p for group in base.param_groups for p in group["params"]]
        self.slow = self.copies()

    def copies(self):
        return [p.detach().clone() for p in self.fast]

    def zero_grad(self):
        self.base.zero_grad()

    @torch.no_grad()
    def follow(self):
        for slow, fast in zip(self.slow, self.fast, strict=True):
            slow.add_(fast - slow, alpha=self.alpha)
            fast.copy_(slow)

    def step(self):
        self.base.step()
        self.count += 1
        if self.count % self.k == 0:
            self.follow()


def build():
    return MetricModel()


def optimizer(model):
    groups = [
        {"params": list(model.net.parameters()), "weight_decay": 1e-3},
        {"params": [model.proxies], "lr": 0.2},
        {"params": [model.log_scale], "lr": 0.05},
    ]
    base = torch.optim.SGD(groups, lr=0.02, momentum=0.9, nesterov=True)
    return Lookahead(base, SLOW_EVERY, SLOW_RATE)


def batch(generator):
    """Some pictures of each class, in random order."""
    labels = torch.arange(CLASSES).repeat_interleave(PER_CLASS)
    labels = labels[torch.randperm(len(labels), generator=generator)]
    noise = torch.randn(len(labels), 3, SIZE, SIZE, generator=generator)
    return noise + 0.5 * torch.sin(labels[:, None, None, None] + torch.arange(SIZE)), labels


def step(model, optimizer, batch):
    optimizer.zero_grad()
    feats = backward(model, *batch)
    optimizer.step()
    model.memory.enqueue(feats, batch[1])
