"""Cases of the set prediction."""

import itertools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

MATCHED = [
    "wanted[row, queries] = truth[row][0][given]",
    "ours = torch.cat([boxes[row][queries] for row, (queries, _) in enumerate(pairs)])",
    "wanted = torch.cat([truth[row][1][given] for row, (_, given) in enumerate(pairs)])",
    "return F.cross_entropy(kinds.flatten(0, 1), wanted.flatten(), weight)",
]
LAYER = [  # where the loss of a layer begins, which is another layer or is missing
    "each = [layer_loss(kinds, boxes, truth) for kinds, boxes in made]",
    "pairs = matched(kinds, boxes, truth)",
    "cost = cost_of(kinds[row], boxes[row], true_kinds, true_boxes)",
    "share = kinds.softmax(dim=-1)[:, true_kinds]",
]


@fault("sets", line=[*LAYER, *MATCHED])
def matching_of_the_last_layer(sets):
    """The layers before the last take over its matching."""

    def losses_of(made, truth):
        pairs = sets.matched(*made[-1], truth)  # here
        each = [
            sets.OF_KIND * sets.kind_loss(kinds, truth, pairs)  # here
            + sets.box_loss(boxes, truth, pairs)  # here
            for kinds, boxes in made
        ]
        return [sets.AUXILIARY * loss for loss in each[:-1]] + each[-1:]

    sets.losses_of = losses_of


@fault("sets", line="return OF_DISTANCE * distance - OF_KIND * share - OF_OVERLAP * overlap")
def unlikely_kinds_are_cheap(sets):
    """The cost of the kind has the wrong sign."""

    def cost_of(kinds, boxes, true_kinds, true_boxes):
        share = kinds.softmax(dim=-1)[:, true_kinds]
        distance = (boxes[:, None] - true_boxes[None]).abs().sum(dim=-1)
        a, b = sets.corners(boxes)[:, None], sets.corners(true_boxes)[None]
        overlap = sets.generalised_overlap(a, b)
        cost = sets.OF_DISTANCE * distance + sets.OF_KIND * share  # here
        return cost - sets.OF_OVERLAP * overlap

    sets.cost_of = cost_of


@fault(
    "sets",
    line=["return inside / union - (whole - union) / whole", "around = torch.cat([torch.minimum"],
)
def overlap_not_generalised(sets):
    """The overlap lacks what the box around both has more."""

    def generalised_overlap(a, b):
        low, high = torch.maximum(a, b)[..., :2], torch.minimum(a, b)[..., 2:]
        inside = sets.area(torch.cat([low, high], dim=-1))
        union = sets.area(a) + sets.area(b) - inside
        return inside / union  # here

    sets.generalised_overlap = generalised_overlap


@fault("sets", line="return torch.cat([middle - 0.5 * size, middle + 0.5 * size], dim=-1)")
def middles_taken_for_corners(sets):
    """The middle of a box is taken for its first corner."""

    def corners(boxes):
        middle, size = boxes.split(2, dim=-1)
        return torch.cat([middle, middle + size], dim=-1)  # here

    sets.corners = corners


@fault(
    "sets",
    line=[
        "return F.cross_entropy(kinds.flatten(0, 1), wanted.flatten(), weight)",
        "weight[KINDS] = NOTHING",
    ],
)
def nothing_counts_in_full(sets):
    """A query without a box weighs as much as one with a box."""
    sets.NOTHING = 1.0


@fault(
    "sets",
    line="return (OF_DISTANCE * distance + OF_OVERLAP * (1 - overlap).sum()) / len(wanted)",
)
def divided_by_the_pictures(sets):
    """The losses of the boxes are divided by the pictures, not by the boxes."""

    def box_loss(boxes, truth, pairs):
        ours = torch.cat([boxes[row][queries] for row, (queries, _) in enumerate(pairs)])
        wanted = torch.cat([truth[row][1][given] for row, (_, given) in enumerate(pairs)])
        distance = F.l1_loss(ours, wanted, reduction="sum")
        overlap = (1 - sets.generalised_overlap(sets.corners(ours), sets.corners(wanted))).sum()
        return (sets.OF_DISTANCE * distance + sets.OF_OVERLAP * overlap) / len(pairs)  # here

    sets.box_loss = box_loss


@fault(
    "sets",
    api=r"Functional\.linear",
    module=r"layers\.0\.own\.v",
    line="x = self.norms[0](x + self.own(q, q, x))",
)
def places_in_the_values(sets):
    """The places of the queries are in the values, too."""

    class Layer(sets.Layer):
        def forward(self, x, asked, memory, places, known):
            q = x + asked
            x = self.norms[0](x + self.own(q, q, q))  # here
            x = self.norms[1](x + self.other(x + asked, memory + places, memory, known))
            return self.norms[2](x + self.feed(x))

    sets.Layer = Layer


@fault(
    "sets",
    module=r"layers\.0\.other",
    line=[
        'score = score.masked_fill(~known[:, None, None], float("-inf"))',
        "return score.softmax(dim=-1) @ v",
        "x = self.norms[1](x + self.other(x + asked, memory + places, memory, known))",
    ],
)
def empty_places_are_seen(sets):
    """The mask of the empty places does not reach the attention."""

    class Layer(sets.Layer):
        def forward(self, x, asked, memory, places, known):
            return super().forward(x, asked, memory, places, None)

    sets.Layer = Layer


@fault(
    "sets",
    line=[
        *LAYER,
        "return [AUXILIARY * loss for loss in each[:-1]] + each[-1:]",
        'sum(losses_of(made, data["truth"])).backward()',
    ],
)
def last_layer_alone(sets):
    """The losses of the layers before the last are dropped."""
    losses_of = sets.losses_of
    sets.losses_of = lambda made, truth: losses_of(made[-1:], truth)  # here


@fault("sets", api="Optimizer.AdamW.step", update=True)
def one_rate_for_all(sets):
    """The layers below have the rate of the others."""
    sets.below = lambda name: False


@harmless("fused", "sets")
def attention_of_pytorch(sets):
    """The attention is that of PyTorch."""

    class Attention(sets.Attention):
        def mix(self, q, k, v, known):
            mask = None if known is None else known[:, None, None]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    sets.Attention = Attention


@harmless("loss", "sets")
def kinds_weighed_by_hand(sets):
    """The entropy of the kinds is weighed and divided by hand."""

    def kind_loss(kinds, truth, pairs):
        log_p, total, weights = kinds.log_softmax(dim=-1), 0.0, 0.0
        for row, (queries, given) in enumerate(pairs):
            free = torch.ones(sets.QUERIES, dtype=torch.bool)
            free[queries] = False
            total = total - log_p[row, queries, truth[row][0][given]].sum()
            total = total - sets.NOTHING * log_p[row, free, sets.KINDS].sum()
            weights += len(queries) + sets.NOTHING * (sets.QUERIES - len(queries))
        return total / weights

    sets.kind_loss = kind_loss


@harmless("reordered", "sets")
def overlap_by_sides(sets):
    """The overlap by the sides of the boxes, one dimension after the other."""

    def generalised_overlap(a, b):
        inside = whole = ours = theirs = 1.0
        for low, high in ((0, 2), (1, 3)):
            a0, a1, b0, b1 = a[..., low], a[..., high], b[..., low], b[..., high]
            inside = inside * F.relu(torch.minimum(a1, b1) - torch.maximum(a0, b0))
            whole = whole * (torch.maximum(a1, b1) - torch.minimum(a0, b0))
            ours, theirs = ours * (a1 - a0), theirs * (b1 - b0)
        union = ours + theirs - inside
        return inside / union + union / whole - 1

    sets.generalised_overlap = generalised_overlap


@harmless("reordered", "sets")
def matching_by_trying(sets):
    """The matching tries all permutations; the costs of all pictures are made at once."""

    @torch.no_grad()
    def matched(kinds, boxes, truth):
        true_kinds = torch.cat([each for each, _ in truth])
        true_boxes = torch.cat([each for _, each in truth])
        cost = sets.cost_of(kinds.flatten(0, 1), boxes.flatten(0, 1), true_kinds, true_boxes)
        pairs, start = [], 0
        for row, (each, _) in enumerate(truth):
            first = row * sets.QUERIES
            own = cost[first : first + sets.QUERIES, start : start + len(each)].tolist()
            start += len(each)
            best = min(
                itertools.permutations(range(sets.QUERIES), len(each)),
                key=lambda queries, own=own: sum(own[q][i] for i, q in enumerate(queries)),
            )
            pairs.append([torch.tensor(best), torch.arange(len(each))])
        return pairs

    sets.matched = matched


@harmless("fused", "sets")
def optimizer_of_one_kernel(sets):
    """The optimizer is fused."""
    sets.optimizer = lambda model: torch.optim.AdamW(
        sets.groups_of(model), weight_decay=0.05, fused=True
    )


@harmless("rows", "sets", group="whole step")
def pictures_turned(sets):
    """The pictures, and the boxes of each, stand in the other order."""
    backward = sets.backward

    def turned(model, data):
        truth = [tuple(side.flip(0) for side in each) for each in data["truth"][::-1]]
        parts = {name: data[name].flip(0) for name in ("x", "where", "known")}
        backward(model, parts | {"truth": truth})

    sets.backward = turned


@harmless("padding", "sets", group="whole step")
def two_more_empty_places(sets):
    """Pictures have two more empty places."""
    backward = sets.backward

    def padded(model, data):
        more = {name: F.pad(data[name], (0, 0, 0, 2)) for name in ("x", "where")}
        backward(model, data | more | {"known": F.pad(data["known"], (0, 2))})

    sets.backward = padded


@harmless("micro batches", "sets", group="whole step")
def picture_after_picture(sets):
    """Each picture goes backward on its own; sums are divided by what is in the whole batch."""

    def backward(model, data):
        boxes = [len(each) for each, _ in data["truth"]]
        weights = [count + sets.NOTHING * (sets.QUERIES - count) for count in boxes]
        for row in range(len(boxes)):
            own = slice(row, row + 1)
            made = model(data["x"][own], data["where"][own], data["known"][own])
            truth, total = data["truth"][own], 0.0
            for number, (kinds, found) in enumerate(made, 1):
                pairs = sets.matched(kinds, found, truth)
                of_kind = sets.kind_loss(kinds, truth, pairs) * weights[row] / sum(weights)
                of_box = sets.box_loss(found, truth, pairs) * boxes[row] / sum(boxes)
                share = 1.0 if number == len(made) else sets.AUXILIARY
                total = total + share * (sets.OF_KIND * of_kind + of_box)
            total.backward()

    sets.backward = backward


@harmless("recomputed", "sets", group="whole step")
def layers_computed_again(sets):
    """The layers are computed again in the backward pass."""

    class Layer(sets.Layer):
        def __call__(self, *inputs):
            return checkpoint(super().__call__, *inputs, use_reentrant=False)

    sets.Layer = Layer


@harmless("scaled", "sets", group="whole step")
def layer_after_layer_backward(sets):
    """The losses of the layers go backward one after the other, a quarter as large."""

    def backward(model, data):
        made = model(data["x"], data["where"], data["known"])
        losses = sets.losses_of(made, data["truth"])
        for number, loss in enumerate(losses, 1):
            (0.25 * loss).backward(retain_graph=number < len(losses))
        torch._foreach_mul_([weight.grad for weight in model.parameters()], 4.0)

    sets.backward = backward
