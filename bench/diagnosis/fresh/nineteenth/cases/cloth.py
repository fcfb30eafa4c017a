"""Cases of the cloth that moves."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "cloth",
    # Ends of edges are integers: the differences between them are the first calls with them.
    line=[
        "sides = torch.cat([face[:2], face[1:], face[::2]], dim=1)",
        "return to_undirected(sides)",
        "here, flat = now[source] - now[target], graph.flat[source] - graph.flat[target]",
    ],
)
def edges_lead_one_way(cloth):
    """Each side of a triangle is an edge in one direction alone."""

    def edges_of(face):
        sides = torch.cat([face[:2], face[1:], face[::2]], dim=1)
        return sides.unique(dim=1)  # here

    cloth.edges_of = edges_of


@fault(
    "cloth",
    # The numbers are the same in other columns: what joins them is the first that differs.
    line=[
        "lengths = (here.norm(dim=1, keepdim=True), flat.norm(dim=1, keepdim=True))",
        "return torch.cat([here, lengths[0], flat, lengths[1]], dim=1)",
    ],
)
def lengths_exchanged(cloth):
    """The length in the world stands beside the flat vector, and the other way round."""

    def edge_features(graph, now, edge_index):
        source, target = edge_index
        here, flat = now[source] - now[target], graph.flat[source] - graph.flat[target]
        lengths = (here.norm(dim=1, keepdim=True), flat.norm(dim=1, keepdim=True))
        return torch.cat([here, lengths[1], flat, lengths[0]], dim=1)  # here

    cloth.edge_features = edge_features


@fault(
    "cloth",
    # What chooses is missing: the sum is the first call with the noise of all nodes.
    line="return graph.now + torch.where((graph.kind == FREE).unsqueeze(1), noise, 0.0)",
)
def noise_on_all_nodes(cloth):
    """Nodes that are held and obstacles have noise, too."""

    def disturbed(graph):
        return graph.now + cloth.NOISE * graph.noise  # here

    cloth.disturbed = disturbed


@fault("cloth", line="return (graph.after - now) - (now - graph.before)")
def noise_is_not_corrected(cloth):
    """The change that is wanted is that of the nodes without noise."""

    def wanted_change(graph, now):
        return (graph.after - graph.now) - (graph.now - graph.before)  # here

    cloth.wanted_change = wanted_change


@fault(
    "cloth",
    # The product is missing: the sum of both kinds is the first that lacks it.
    line=[
        "return free.to(torch.get_default_dtype()) + TIED * held.to(torch.get_default_dtype())",
        "free, held = kind == FREE, kind == HELD",
        'loss_of(model, inputs, weights_of(inputs["kind"]).sum()).backward()',
        'return (errors * weights_of(inputs["kind"])).sum() / count',
    ],
)
def obstacles_count(cloth):
    """All nodes that are not held count, obstacles as well."""

    def weights_of(kind):
        held = (kind == cloth.HELD).to(torch.get_default_dtype())  # here
        return (1 - held) + cloth.TIED * held  # here

    cloth.weights_of = weights_of


@fault(
    "cloth",
    # The difference is missing: what bounds the variance is the first that lacks it.
    line=[
        "variance = self.squares / self.count - self.mean().square()",
        "return variance.clamp(min=LEAST**2).sqrt()",
    ],
    api=r"Tensor\.(clamp|sqrt)|Torch\.(clamp|sqrt)",
    module="of_nodes",
    module_only="of_nodes",
)
def spread_around_zero(cloth):
    """The spread is the root of the mean of squares, from which nothing is taken away."""

    class Scaler(cloth.Scaler):
        def spread(self):
            variance = self.squares / self.count
            return variance.clamp(min=cloth.LEAST**2).sqrt()  # here

    cloth.Scaler = Scaler


@fault(
    "cloth",
    # What is counted is a number: the quotients are the first calls with it, if not the sum.
    line=[
        "self.count += len(x)",
        "return self.total / self.count",
        "variance = self.squares / self.count - self.mean().square()",
    ],
    module_only=r"(of_nodes)?",
)
def batches_are_counted(cloth):
    """The sums of all nodes are divided by how often they were added to."""

    class Scaler(cloth.Scaler):
        @torch.no_grad()
        def observe(self, x):
            self.count += 1  # here
            self.total += x.sum(dim=0)
            self.squares += x.square().sum(dim=0)

    cloth.Scaler = Scaler


@fault(
    "cloth",
    line="arrived = self.propagate(edge_index, x=x, edges=edges)",
    module_only=r"net\.rounds\.0(\.aggr_module)?",
    module=r"net\.rounds\.0(\.aggr_module)?",
    api=r"Tensor\.(scatter_add_?|index_add_?|scatter_reduce_?)|Torch\.(scatter_add|index_add)"
    r"|Module\.net\.rounds\.0\.aggr_module\..*",
)
def nodes_hear_old_edges(cloth):
    """What arrives at a node are the edges of before the round."""

    class Round(cloth.Round):
        def forward(self, x, edges, edge_index):
            arrived = self.propagate(edge_index, x=x, edges=edges)  # here
            edges = cloth.new_edges(self.of_edges, x, edges, edge_index)
            return x + self.of_nodes(torch.cat([x, arrived], dim=1)), edges

    cloth.Round = Round


@fault(
    "cloth",
    # The sum is divided: what divides it is the first call that should not be there.
    line="arrived = self.propagate(edge_index, x=x, edges=edges)",
    api=r"Tensor\.(div_?|__truediv__|scatter_add_?|clamp|scatter_reduce_?)"
    r"|Torch\.(div|scatter_add)|Module\.net\.rounds\.0\.aggr_module\..*",
    module=r"net\.rounds\.0(\.aggr_module)?",
    module_only=r"net\.rounds\.0(\.aggr_module)?",
)
def mean_of_what_arrives(cloth):
    """The default of another layer: edges that arrive are averaged, not added."""
    cloth.AGGREGATION = "mean"


@fault("cloth", line="slow.lerp_(mine, 1 - KEEP)")
def slow_follows_too_early(cloth):
    """The slow weights follow before the others have moved."""

    def step(model, optimizer, batch):
        inputs = cloth.prepare(cloth.Batch.from_data_list(batch))
        cloth.observe(model, inputs)
        optimizer.zero_grad()
        cloth.backward(model, inputs)
        cloth.clip(model)
        cloth.update_slow(model)  # here
        optimizer.step()
        model.schedule.step()

    cloth.step = step


@fault(
    "cloth",
    settings={"float32": True},
    line=[
        'wanted = model.of_change(inputs["change"])',
        "errors = (predicted(model, inputs) - wanted).square().sum(dim=1)",
    ],
    api=r"Tensor\.(bfloat16|to)",
)
def wanted_in_bfloat16(cloth):
    """What is wanted has the type of autocast: it is rounded to eight bits."""

    def loss_of(model, inputs, count):
        wanted = model.of_change(inputs["change"]).bfloat16()  # here
        errors = (cloth.predicted(model, inputs) - wanted).square().sum(dim=1)
        return (errors * cloth.weights_of(inputs["kind"])).sum() / count

    cloth.loss_of = loss_of


@harmless("split", "cloth")
def ends_have_products_of_their_own(cloth):
    """The first layer of edges is a product for edges, and one for each end."""

    def new_edges(layers, x, edges, edge_index):
        source, target = edge_index
        of_edge, of_source, of_target = layers.wide.weight.chunk(3, dim=1)
        hidden = F.linear(edges, of_edge, layers.wide.bias)
        hidden = hidden + F.linear(x, of_source)[source] + F.linear(x, of_target)[target]
        return edges + layers.norm(layers.narrow(F.relu(hidden)))

    cloth.new_edges = new_edges


@harmless("inserted", "cloth")
def arrived_by_index(cloth):
    """Edges are added to rows of zeros, without the machinery of messages."""

    class Round(cloth.Round):
        def forward(self, x, edges, edge_index):
            edges = cloth.new_edges(self.of_edges, x, edges, edge_index)
            zeros = edges.new_zeros(len(x), edges.shape[1])
            arrived = zeros.index_add(0, edge_index[1], edges)
            return x + self.of_nodes(torch.cat([x, arrived], dim=1)), edges

    cloth.Round = Round


@harmless("fused", "cloth")
def scaled_by_a_root(cloth):
    """Sums are joined before they are divided; the spread is a root that is multiplied."""

    class Scaler(cloth.Scaler):
        def forward(self, x):
            variance = (self.squares - self.total.square() / self.count) / self.count
            root = variance.clamp(min=cloth.LEAST**2).rsqrt()
            return x * root - self.mean() * root

    cloth.Scaler = Scaler


@harmless("loss", "cloth")
def errors_in_one_product(cloth):
    """Weights and squares are multiplied in one product."""

    def loss_of(model, inputs, count):
        wanted = model.of_change(inputs["change"])
        errors = wanted - cloth.predicted(model, inputs)
        weights = cloth.weights_of(inputs["kind"]) / count
        return torch.einsum("nd,nd,n->", errors, errors, weights)

    cloth.loss_of = loss_of


@harmless("inserted", "cloth")
def kinds_by_comparing(cloth):
    """Kinds are compared with all kinds, and what moved is written in place."""

    def node_features(graph, now):
        found = now.new_empty(len(now), cloth.NODE)
        torch.sub(now, graph.before, out=found[:, :3])
        found[:, 3:].copy_(graph.kind.unsqueeze(1) == torch.arange(cloth.KINDS))
        return found

    cloth.node_features = node_features


@harmless("rows", "cloth", group="whole step")
def sheets_in_another_order(cloth):
    """The sheets are joined in another order."""
    prepare, from_list = cloth.prepare, cloth.Batch.from_data_list

    def shuffled(graph):
        sheets = graph.to_data_list()
        return prepare(from_list([sheets[k] for k in (2, 0, 1)]))

    cloth.prepare = shuffled


@harmless("rows", "cloth", group="whole step")
def edges_in_another_order(cloth):
    """The edges are in the opposite order."""
    edges_of = cloth.edges_of
    cloth.edges_of = lambda face: edges_of(face).flip(1)


@harmless("micro batches", "cloth", group="whole step")
def one_sheet_at_a_time(cloth):
    """Each sheet goes backward alone, when the scalers have seen all."""

    def backward(model, inputs):
        count, begin = cloth.weights_of(inputs["kind"]).sum(), 0
        for high, wide in cloth.SHEETS:
            end = begin + high * wide
            source = inputs["edge_index"][0]
            own = (source >= begin) & (source < end)
            part = {name: inputs[name][begin:end] for name in ("nodes", "change", "kind")}
            part["edges"] = inputs["edges"][own]
            part["edge_index"] = inputs["edge_index"][:, own] - begin
            cloth.loss_of(model, part, count).backward()
            begin = end

    cloth.backward = backward


@harmless("scaled", "cloth", group="whole step")
def loss_is_scaled(cloth):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    backward_loss, clip = cloth.loss_of, cloth.clip
    cloth.loss_of = lambda *given: 512.0 * backward_loss(*given)

    def unscaled(model):
        for p in model.net.parameters():
            p.grad.mul_(1 / 512.0)
        clip(model)

    cloth.clip = unscaled


@harmless("recomputed", "cloth", group="whole step")
def edges_computed_again(cloth):
    """What edges learn is computed again in the backward pass."""
    new_edges = cloth.new_edges
    cloth.new_edges = lambda *given: checkpoint(new_edges, *given, use_reentrant=False)


@harmless("precision", "cloth", group="whole step")
def casts_of_the_head(cloth):
    """The casts of the last layers are written out, where autocast made them."""

    class Net(cloth.Net):
        def decode(self, x):
            with torch.autocast("cpu", enabled=False):
                layers = ((each.weight, each.bias) for each in (self.head.wide, self.head.narrow))
                first, last = ([p.bfloat16() for p in layer] for layer in layers)
                return F.linear(F.relu(F.linear(x.bfloat16(), *first)), *last)

    cloth.Net = Net
