"""Set prediction as of DETR: queries, Hungarian matching in each layer, losses of all layers."""

import torch
from scipy.optimize import linear_sum_assignment
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, HEADS, LAYERS, QUERIES, KINDS, PLACES, BATCH, MOST = 6, 16, 2, 2, 5, 4, 9, 4, 3
NOTHING, OF_KIND, OF_DISTANCE, OF_OVERLAP, AUXILIARY = 0.2, 1.0, 5.0, 2.0, 0.6
CLIP, RATE, RATE_BELOW = 0.5, 4e-3, 4e-4


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def heads(self, x):
        return x.unflatten(-1, (HEADS, -1)).transpose(1, 2)

    def mix(self, q, k, v, known):
        score = q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5
        if known is not None:
            score = score.masked_fill(~known[:, None, None], float("-inf"))
        return score.softmax(dim=-1) @ v

    def forward(self, q, k, v, known=None):
        mixed = self.mix(self.heads(self.q(q)), self.heads(self.k(k)), self.heads(self.v(v)), known)
        return self.out(mixed.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """Queries see each other, then the picture; their places are added to queries and keys."""

    def __init__(self):
        super().__init__()
        self.own, self.other = Attention(), Attention()
        self.feed = nn.Sequential(
            nn.Linear(WIDTH, 2 * WIDTH), nn.ReLU(), nn.Linear(2 * WIDTH, WIDTH)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(3))

    def forward(self, x, asked, memory, places, known):
        q = x + asked
        x = self.norms[0](x + self.own(q, q, x))
        x = self.norms[1](x + self.other(x + asked, memory + places, memory, known))
        return self.norms[2](x + self.feed(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.below = nn.Sequential(nn.Linear(FEATURES, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.row, self.column = nn.Embedding(4, WIDTH // 2), nn.Embedding(4, WIDTH // 2)
        self.queries = nn.Embedding(QUERIES, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.kind = nn.Linear(WIDTH, KINDS + 1)
        self.box = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 4))

    def places(self, where):
        return torch.cat([self.row(where[..., 0]), self.column(where[..., 1])], dim=-1)

    def forward(self, x, where, known):
        """Kinds and boxes after each layer."""
        memory, places = self.below(x), self.places(where)
        asked = self.queries.weight.expand(len(x), -1, -1)
        h, made = torch.zeros_like(asked), []
        for layer in self.layers:
            h = layer(h, asked, memory, places, known)
            top = self.norm(h)
            made.append((self.kind(top), self.box(top).sigmoid()))
        return made


def corners(boxes):
    middle, size = boxes.split(2, dim=-1)
    return torch.cat([middle - 0.5 * size, middle + 0.5 * size], dim=-1)


def area(boxes):
    return (boxes[..., 2:] - boxes[..., :2]).clamp(min=0).prod(dim=-1)


def generalised_overlap(a, b):
    """Of corners that broadcast: the overlap, less what both leave of the box around them."""
    common = torch.cat([torch.maximum(a, b)[..., :2], torch.minimum(a, b)[..., 2:]], dim=-1)
    around = torch.cat([torch.minimum(a, b)[..., :2], torch.maximum(a, b)[..., 2:]], dim=-1)
    inside, whole = area(common), area(around)
    union = area(a) + area(b) - inside
    return inside / union - (whole - union) / whole


def cost_of(kinds, boxes, true_kinds, true_boxes):
    """What it costs to give each box of a picture to each query."""
    share = kinds.softmax(dim=-1)[:, true_kinds]
    distance = (boxes[:, None] - true_boxes[None]).abs().sum(dim=-1)
    overlap = generalised_overlap(corners(boxes)[:, None], corners(true_boxes)[None])
    return OF_DISTANCE * distance - OF_KIND * share - OF_OVERLAP * overlap


@torch.no_grad()
def matched(kinds, boxes, truth):
    """For each picture: the queries, and the boxes that they are given."""
    pairs = []
    for row, (true_kinds, true_boxes) in enumerate(truth):
        cost = cost_of(kinds[row], boxes[row], true_kinds, true_boxes)
        pairs.append([torch.as_tensor(side) for side in linear_sum_assignment(cost.double())])
    return pairs


def kind_loss(kinds, truth, pairs):
    """Cross entropy; a query without a box is of no kind, and weighs less."""
    wanted = torch.full(kinds.shape[:2], KINDS)
    for row, (queries, given) in enumerate(pairs):
        wanted[row, queries] = truth[row][0][given]
    weight = torch.ones(KINDS + 1)
    weight[KINDS] = NOTHING
    return F.cross_entropy(kinds.flatten(0, 1), wanted.flatten(), weight)


def box_loss(boxes, truth, pairs):
    """The distance and the overlap of what is matched, for each true box."""
    ours = torch.cat([boxes[row][queries] for row, (queries, _) in enumerate(pairs)])
    wanted = torch.cat([truth[row][1][given] for row, (_, given) in enumerate(pairs)])
    distance = F.l1_loss(ours, wanted, reduction="sum")
    overlap = generalised_overlap(corners(ours), corners(wanted))
    return (OF_DISTANCE * distance + OF_OVERLAP * (1 - overlap).sum()) / len(wanted)


def layer_loss(kinds, boxes, truth):
    pairs = matched(kinds, boxes, truth)
    return OF_KIND * kind_loss(kinds, truth, pairs) + box_loss(boxes, truth, pairs)


def losses_of(made, truth):
    """The loss of each layer; those before the last count less."""
    each = [layer_loss(kinds, boxes, truth) for kinds, boxes in made]
    return [AUXILIARY * loss for loss in each[:-1]] + each[-1:]


def backward(model, data):
    made = model(data["x"], data["where"], data["known"])
    sum(losses_of(made, data["truth"])).backward()


def below(name):
    return name.startswith("below.")


def groups_of(model):
    named = list(model.named_parameters())
    return [
        {"params": [w for n, w in named if not below(n)], "lr": RATE},
        {"params": [w for n, w in named if below(n)], "lr": RATE_BELOW},
    ]


def build():
    return Model()


def optimizer(model):
    return torch.optim.AdamW(groups_of(model), weight_decay=0.05)


def batch(generator):
    truth = []
    for count in (2, 3, 1, 3):
        middle = torch.rand(count, 2, generator=generator) * 0.6 + 0.2
        size = torch.rand(count, 2, generator=generator) * 0.3 + 0.1
        kinds = torch.randint(0, KINDS, (count,), generator=generator)
        truth.append((kinds, torch.cat([middle, size], dim=1)))
    return {
        "x": torch.randn(BATCH, PLACES, FEATURES, generator=generator),
        "where": torch.randint(0, 4, (BATCH, PLACES, 2), generator=generator),
        "known": torch.arange(PLACES) < torch.tensor([PLACES, 7, 8, 6])[:, None],
        "truth": truth,
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), CLIP)
    optimizer.step()
