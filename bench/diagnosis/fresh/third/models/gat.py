"""Graph attention on sampled neighbours: a softmax for each target, by scattered sums."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, ATTRIBUTES, WIDTH, HEADS, KINDS, DROPPED = 6, 2, 5, 2, 4, 0.25
SEEDS, MIDDLE, NODES, FANOUT = 6, 11, 18, (3, 2)
SLOPE, SMOOTHNESS, RATE = 0.2, 0.3, 6e-3


class Layer(nn.Module):
    """Targets are the first of the sources; each is a neighbour of its own, too."""

    def __init__(self, width, together):
        super().__init__()
        self.together = together  # heads are joined, else averaged
        self.values = nn.Linear(width, HEADS * WIDTH, bias=False)
        self.edge = nn.Linear(ATTRIBUTES, HEADS, bias=False)
        self.of_source = nn.Parameter(torch.randn(HEADS, WIDTH) * 0.5)
        self.of_target = nn.Parameter(torch.randn(HEADS, WIDTH) * 0.5)
        self.skip = nn.Linear(width, (HEADS if together else 1) * WIDTH)

    def with_loops(self, edges, attributes, count):
        loops = torch.arange(count)
        source = torch.cat([edges[0], loops])
        target = torch.cat([edges[1], loops])
        return source, target, torch.cat([attributes, attributes.new_zeros(count, ATTRIBUTES)])

    def scores(self, h, source, target, attributes):
        ours = (h * self.of_source).sum(dim=-1)
        theirs = (h * self.of_target).sum(dim=-1)
        return F.leaky_relu(ours[source] + theirs[target] + self.edge(attributes), SLOPE)

    def shares(self, scores, target, count):
        """The softmax over the edges of each target."""
        wide = target[:, None].expand_as(scores)
        largest = scores.new_full((count, HEADS), float("-inf"))
        largest = largest.scatter_reduce(0, wide, scores.detach(), "amax")
        raised = torch.exp(scores - largest[target])
        total = raised.new_zeros(count, HEADS).index_add(0, target, raised)
        return raised / total[target]

    def gathered(self, shares, h, source, target, count):
        """What the sources send, added up at the targets."""
        sent = shares[..., None] * h[source]
        return h.new_zeros(count, HEADS, WIDTH).index_add(0, target, sent)

    def joined(self, heads):
        return heads.flatten(1) if self.together else heads.mean(dim=1)

    def forward(self, x, edges, attributes, count):
        source, target, attributes = self.with_loops(edges, attributes, count)
        h = self.values(x).view(-1, HEADS, WIDTH)
        shares = self.shares(self.scores(h, source, target, attributes), target, count)
        heads = self.gathered(shares, h, source, target, count)
        return self.joined(heads) + self.skip(x[:count])


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Layer(FEATURES, True)
        self.norm = nn.LayerNorm(HEADS * WIDTH)
        self.second = Layer(HEADS * WIDTH, False)
        self.kinds = nn.Linear(WIDTH, KINDS)

    def forward(self, x, outer, inner):
        h = F.elu(self.norm(self.first(x, outer["edges"], outer["attributes"], MIDDLE)))
        h = self.second(h, inner["edges"], inner["attributes"], SEEDS)
        return h, self.kinds(h)


def dropped(x, kept):
    return x * kept / (1 - DROPPED)


def kind_loss(logits, kinds, labelled, weight):
    """Of the seeds whose kind is known; rare kinds weigh more."""
    each = F.cross_entropy(logits, kinds, weight, reduction="none")
    return (each * labelled).sum() / (weight[kinds] * labelled).sum()


def smoothness(h, links, apart):
    """Linked seeds are near each other, others are not."""
    near = (h[links[0]] * h[links[1]]).sum(dim=-1)
    far = (h[apart[0]] * h[apart[1]]).sum(dim=-1)
    return -(F.logsigmoid(near).mean() + F.logsigmoid(-far).mean())


def losses_of(model, data):
    x = dropped(data["x"], data["kept"])
    h, logits = model(x, data["outer"], data["inner"])
    known = kind_loss(logits, data["kinds"], data["labelled"], data["weight"])
    return known, SMOOTHNESS * smoothness(h, data["links"], data["apart"])


def backward(model, data):
    sum(losses_of(model, data)).backward()


def decayed(name, weight):
    return name.endswith(".weight") and weight.dim() > 1


def groups_of(model):
    named = list(model.named_parameters())
    return [
        {"params": [w for n, w in named if decayed(n, w)], "weight_decay": 0.1},
        {"params": [w for n, w in named if not decayed(n, w)], "weight_decay": 0.0},
    ]


def build():
    return Model()


def optimizer(model):
    return torch.optim.RMSprop(groups_of(model), lr=RATE, alpha=0.9, momentum=0.5)


def sampled(generator, nodes, count, fanout):
    """Edges from `fanout` other nodes to each of the first `count`."""
    sources = [torch.randperm(nodes - 1, generator=generator)[:fanout] for _ in range(count)]
    targets = torch.arange(count).repeat_interleave(fanout)
    sources = torch.cat(sources)
    edges = torch.stack([sources + (sources >= targets), targets])
    attributes = torch.randn(edges.shape[1], ATTRIBUTES, generator=generator)
    return {"edges": edges, "attributes": attributes}


def batch(generator):
    dtype = torch.get_default_dtype()
    kinds = torch.randint(0, KINDS, (SEEDS,), generator=generator)
    labelled = torch.tensor([1, 0, 1, 1, 0, 1])
    links = torch.stack([torch.arange(SEEDS), torch.arange(SEEDS).roll(1)])
    apart = torch.stack([torch.arange(SEEDS), torch.randperm(SEEDS, generator=generator)])
    return {
        "x": torch.randn(NODES, FEATURES, generator=generator),
        "kept": (torch.rand(NODES, FEATURES, generator=generator) >= DROPPED).to(dtype),
        "outer": sampled(generator, NODES, MIDDLE, FANOUT[0]),
        "inner": sampled(generator, MIDDLE, SEEDS, FANOUT[1]),
        "kinds": kinds,
        "labelled": labelled.to(dtype),
        "weight": torch.rand(KINDS, generator=generator) + 0.5,
        "links": links,
        "apart": apart[:, apart[0] != apart[1]],
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    optimizer.step()
