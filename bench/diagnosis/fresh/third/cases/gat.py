"""Cases of the graph attention."""

import itertools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LAYERS = "first"


@fault(
    "gat",
    module=LAYERS,
    line=[
        "wide = target[:, None].expand_as(scores)",
        "largest = scores.new_full((count, HEADS)",
        'largest = largest.scatter_reduce(0, wide, scores.detach(), "amax")',
        "raised = torch.exp(scores - largest[target])",
        "total = raised.new_zeros(count, HEADS).index_add(0, target, raised)",
        "return raised / total[target]",
    ],
)
def softmax_for_each_source(gat):
    """The shares of one source add up to one, not those of one target."""

    class Layer(gat.Layer):
        def forward(self, x, edges, attributes, count):
            source, target, attributes = self.with_loops(edges, attributes, count)
            h = self.values(x).view(-1, gat.HEADS, gat.WIDTH)
            scores = self.scores(h, source, target, attributes)
            shares = self.shares(scores, source, len(x))  # here
            heads = self.gathered(shares, h, source, target, count)
            return self.joined(heads) + self.skip(x[:count])

    gat.Layer = Layer


@fault("gat", api=r"Functional\.leaky_relu", module=LAYERS, line="return F.leaky_relu(ours[source]")
def slope_of_pytorch(gat):
    """The scores have PyTorch's slope, 0.01."""

    class Layer(gat.Layer):
        def scores(self, h, source, target, attributes):
            ours = (h * self.of_source).sum(dim=-1)
            theirs = (h * self.of_target).sum(dim=-1)
            return F.leaky_relu(ours[source] + theirs[target] + self.edge(attributes))  # here

    gat.Layer = Layer


@fault(
    "gat",
    module=LAYERS,
    line=["theirs = (h * self.of_target).sum(dim=-1)", "return F.leaky_relu(ours[source]"],
)
def one_vector_for_both_sides(gat):
    """The vector of the sources scores the targets, too."""

    class Layer(gat.Layer):
        def scores(self, h, source, target, attributes):
            ours = (h * self.of_source).sum(dim=-1)
            made = ours[source] + ours[target] + self.edge(attributes)  # here
            return F.leaky_relu(made, gat.SLOPE)  # here

    gat.Layer = Layer


@fault(
    "gat",
    module=LAYERS,
    line=[
        "source = torch.cat([edges[0], loops])",
        "target = torch.cat([edges[1], loops])",
        "loops = torch.arange(count)",
        "return source, target, torch.cat([attributes",
        "return F.leaky_relu(ours[source] + theirs[target] + self.edge(attributes), SLOPE)",
    ],
)
def no_loops(gat):
    """A target is no neighbour of its own."""

    class Layer(gat.Layer):
        def with_loops(self, edges, attributes, count):
            return edges[0], edges[1], attributes  # here

    gat.Layer = Layer


@fault(
    "gat", module="second", line="return heads.flatten(1) if self.together else heads.mean(dim=1)"
)
def heads_added_up(gat):
    """The heads of the last layer are added up, not averaged."""

    class Layer(gat.Layer):
        def joined(self, heads):
            return heads.flatten(1) if self.together else heads.sum(dim=1)  # here

    gat.Layer = Layer


@fault("gat", module="", line="return x * kept / (1 - DROPPED)")
def dropped_without_scale(gat):
    """What is left of the features is not scaled up."""
    gat.dropped = lambda x, kept: x * kept  # here


@fault(
    "gat",
    line="return (each * labelled).sum() / (weight[kinds] * labelled).sum()",
)
def divided_by_all_seeds(gat):
    """The loss is a mean over all seeds, labelled or not."""

    def kind_loss(logits, kinds, labelled, weight):
        each = F.cross_entropy(logits, kinds, weight, reduction="none")
        return (each * labelled).mean()  # here

    gat.kind_loss = kind_loss


@fault(
    "gat",
    module="first",
    line=["source = torch.cat([edges[0], loops])", "return F.leaky_relu(ours[source]"],
)
def places_of_neighbours_shifted(gat):
    """The sources of the outer edges are the places before those of the sampled nodes."""
    backward = gat.backward

    def shifted(model, data):
        edges = data["outer"]["edges"].clone()  # here
        edges[0] = (edges[0] - 1) % gat.NODES  # here
        backward(model, data | {"outer": data["outer"] | {"edges": edges}})

    gat.backward = shifted


@fault(
    "gat",
    line=[
        "return -(F.logsigmoid(near).mean() + F.logsigmoid(-far).mean())",
    ],
)
def far_ones_drawn_near(gat):
    """Seeds that are not linked are drawn near, too."""

    def smoothness(h, links, apart):
        near = (h[links[0]] * h[links[1]]).sum(dim=-1)
        far = (h[apart[0]] * h[apart[1]]).sum(dim=-1)
        return -(F.logsigmoid(near).mean() + F.logsigmoid(far).mean())  # here

    gat.smoothness = smoothness


@fault("gat", api="Optimizer.RMSprop.step", update=True)
def attention_decayed(gat):
    """The vectors of the attention are decayed with the matrices."""
    gat.decayed = lambda name, weight: weight.dim() > 1


@harmless("fused", "gat")
def softmax_of_a_table(gat):
    """The softmax is that of a table with a column for each edge, and nothing elsewhere."""

    class Layer(gat.Layer):
        def shares(self, scores, target, count):
            own = target == torch.arange(count)[:, None]
            table = torch.where(own[..., None], scores, float("-inf")).softmax(dim=1)
            return table[target, torch.arange(len(target))]

    gat.Layer = Layer


@harmless("fused", "gat")
def gathered_by_a_product(gat):
    """The targets add up by a product with a matrix of shares."""

    class Layer(gat.Layer):
        def gathered(self, shares, h, source, target, count):
            matrix = shares.new_zeros(count, len(h), gat.HEADS)
            matrix = matrix.index_put((target, source), shares, accumulate=True)
            return torch.einsum("tsh,shw->thw", matrix, h)

    gat.Layer = Layer


@harmless("split", "gat")
def scores_by_einsum(gat):
    """Both scores of a node are one product; the sums of an edge are in another order."""

    class Layer(gat.Layer):
        def scores(self, h, source, target, attributes):
            both = torch.einsum("nhw,khw->knh", h, torch.stack([self.of_target, self.of_source]))
            sums = attributes @ self.edge.weight.T + both[1].index_select(0, source)
            sums = sums + both[0].index_select(0, target)
            return torch.maximum(sums, gat.SLOPE * sums)

    gat.Layer = Layer


@harmless("loss", "gat")
def labelled_seeds_picked(gat):
    """The labelled seeds are picked first; the linked pairs are entropies of logits."""

    def kind_loss(logits, kinds, labelled, weight):
        chosen = labelled > 0
        return F.cross_entropy(logits[chosen], kinds[chosen], weight)

    def smoothness(h, links, apart):
        table = h @ h.T
        near, far = table[links[0], links[1]], table[apart[0], apart[1]]
        return F.binary_cross_entropy_with_logits(
            near, torch.ones_like(near)
        ) + F.binary_cross_entropy_with_logits(far, torch.zeros_like(far))

    gat.kind_loss, gat.smoothness = kind_loss, smoothness


@harmless("fused", "gat")
def optimizer_of_lists(gat):
    """The optimizer updates all weights at once."""
    gat.optimizer = lambda model: torch.optim.RMSprop(
        gat.groups_of(model), lr=gat.RATE, alpha=0.9, momentum=0.5, foreach=True
    )


@harmless("rows", "gat", group="whole step")
def edges_of_other_order(gat):
    """The edges of both layers stand in the other order."""
    backward = gat.backward

    def turned(model, data):
        def flipped(block):
            return {name: value.flip(-1 if name == "edges" else 0) for name, value in block.items()}

        both = {name: flipped(data[name]) for name in ("outer", "inner")}
        backward(model, data | both)

    gat.backward = turned


@harmless("rows", "gat", group="whole step")
def nodes_of_other_order(gat):
    """The nodes stand in another order: seeds, those of the middle, and the others."""
    backward = gat.backward

    def other(model, data):
        ends = (0, gat.SEEDS, gat.MIDDLE, gat.NODES)
        parts = [torch.arange(*pair).flip(0) for pair in itertools.pairwise(ends)]
        order = torch.cat(parts)
        place = order.argsort()
        made = {name: data[name][order] for name in ("x", "kept")}
        made |= {name: data[name][order[: gat.SEEDS]] for name in ("kinds", "labelled")}
        made |= {name: place[data[name]] for name in ("links", "apart")}
        for name in ("outer", "inner"):
            made[name] = data[name] | {"edges": place[data[name]["edges"]]}
        backward(model, data | made)

    gat.backward = other


@harmless("padding", "gat", group="whole step")
def three_lonely_nodes(gat):
    """Three more nodes, of which no edge begins, stand behind the others."""
    backward = gat.backward
    gat.backward = lambda model, data: backward(
        model, data | {name: F.pad(data[name], (0, 0, 0, 3), value=1.0) for name in ("x", "kept")}
    )


@harmless("recomputed", "gat", group="whole step")
def layers_computed_again(gat):
    """The layers are computed again in the backward pass."""

    class Layer(gat.Layer):
        def __call__(self, *inputs):
            return checkpoint(super().__call__, *inputs, use_reentrant=False)

    gat.Layer = Layer


@harmless("scaled", "gat", group="whole step")
def smoothness_backward_apart(gat):
    """The second loss goes backward first; both are eight times as large."""

    def backward(model, data):
        known, smooth = gat.losses_of(model, data)
        (8 * smooth).backward(retain_graph=True)
        (8 * known).backward()
        for weight in model.parameters():
            weight.grad.div_(8)

    gat.backward = backward
