"""Cases of the graph network."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("graph", module="first", api="Functional.leaky_relu")
def slope(graph):
    """The slope of the attention's activation is 0.01, the default, for 0.2."""
    graph.SLOPE = 0.01


@fault(
    "graph",
    module="first",
    api="Tensor.expand_as",
    line="weights = softmax_of_edges(self.scores(x, edges)",
)
def softmax_over_sources(graph):
    """The weights add up to one over the edges that leave a node; the first recorded call that gets
    the wrong index is expand_as."""

    class Attention(graph.Attention):
        def forward(self, x, edges):
            x = self.linear(x).view(len(x), graph.HEADS, graph.WIDTH)
            scores = self.scores(x, edges)
            weights = graph.softmax_of_edges(scores, edges[0], len(x))  # here
            messages = x[edges[0]] * weights[..., None]
            return graph.add_up(messages, edges[1], len(x)).flatten(1) + self.bias

    graph.Attention = Attention


@fault("graph", module="first", line="a, b = (x * self.source)")
def source_and_target_swapped(graph):
    """The vectors of the attention for both ends of an edge are exchanged."""

    class Attention(graph.Attention):
        def scores(self, x, edges):
            a, b = (x * self.target).sum(-1), (x * self.source).sum(-1)  # here
            return F.leaky_relu(a[edges[0]] + b[edges[1]], graph.SLOPE)

    graph.Attention = Attention


@fault(
    "graph", line="return torch.cat([edges, loops], dim=1)", api="Torch.cat", module_only="first"
)
def loops_missing(graph):
    """Nodes are not their own neighbours: the edges lack the loops."""

    def with_loops(edges):
        return edges  # here

    graph.with_loops = with_loops


@fault("graph", line="return add_up(x, graphs, GRAPHS) / count")
def pooled_to_the_sum(graph):
    """Graphs are pooled to the sum of their nodes."""

    class Network(graph.Network):
        def pool(self, x, graphs):
            return graph.add_up(x, graphs, graph.GRAPHS)

    graph.Network = Network


@fault("graph", module="second", line="root = degree.rsqrt()")
def normalised_by_the_degree(graph):
    """Messages are divided by the degree of the target alone."""

    class Convolution(graph.Convolution):
        def norm(self, edges, count):
            degree = graph.add_up(torch.ones(edges.shape[1]), edges[1], count)
            return 1 / degree[edges[1]]  # here

    graph.Convolution = Convolution


@fault(
    "graph",
    module="second",
    line="return add_up(messages, edges[1], len(x))  # of the convolution",
    api="Tensor.index_add",
)
def messages_flow_back(graph):
    """Messages are added at the source instead of the target of an edge."""

    class Convolution(graph.Convolution):
        def forward(self, x, edges):
            x = self.linear(x)
            messages = x[edges[0]] * self.norm(edges, len(x))[:, None]
            return graph.add_up(messages, edges[0], len(x))  # here

    graph.Convolution = Convolution


@fault("graph", line="return F.nll_loss(F.log_softmax(logits, dim=-1)")
def softmax_without_logarithm(graph):
    """nll_loss gets probabilities."""

    def loss(logits, labels):
        return F.nll_loss(F.softmax(logits, dim=-1), labels)  # here

    graph.loss = loss


@fault("graph", api="Optimizer.Adam(W)?.step", update=True)
def decoupled_decay(graph):
    """AdamW for Adam: the decay is not part of the gradients."""
    graph.optimizer = lambda m: torch.optim.AdamW(m.parameters(), lr=5e-3, weight_decay=5e-4)


@fault("graph", api="Optimizer.Adam.step", update=True)
def bias_without_updates(graph):
    """The bias of the attention is not among the weights of the optimizer."""

    def optimizer(model):
        chosen = [p for name, p in model.named_parameters() if name != "first.bias"]
        return torch.optim.Adam(chosen, lr=5e-3, weight_decay=5e-4)

    graph.optimizer = optimizer


@harmless("fused", "graph")
def scatter_for_index_add(graph):
    """Sums by scatter_add."""

    def add_up(values, index, count):
        places = index.view(-1, *([1] * (values.dim() - 1))).expand_as(values)
        return values.new_zeros(count, *values.shape[1:]).scatter_add(0, places, values)

    graph.add_up = add_up


@harmless("split", "graph")
def product_with_a_matrix_of_edges(graph):
    """Messages are added up by a product with the matrix of all edges."""

    class Convolution(graph.Convolution):
        def forward(self, x, edges):
            x = self.linear(x)
            full = torch.zeros(len(x), len(x))
            full.index_put_((edges[1], edges[0]), self.norm(edges, len(x)), accumulate=True)
            return full @ x

    graph.Convolution = Convolution


@harmless("reordered", "graph")
def edges_sorted(graph):
    """The edges are sorted by their target: sums run in another order."""
    right = graph.with_loops

    def with_loops(edges):
        edges = right(edges)
        return edges[:, edges[1].argsort(stable=True)]

    graph.with_loops = with_loops


@harmless("loss", "graph")
def cross_entropy_at_once(graph):
    """The loss by cross_entropy."""
    graph.loss = lambda logits, labels: F.cross_entropy(logits, labels)


@harmless("zero in theory", "graph")
def largest_not_subtracted(graph):
    """The softmax of edges without subtracting the largest score."""

    def softmax_of_edges(scores, index, count):
        exponents = scores.exp()
        return exponents / graph.add_up(exponents, index, count)[index]

    graph.softmax_of_edges = softmax_of_edges


@harmless("fused", "graph")
def scores_by_einsum(graph):
    """The scores of nodes by einsum."""

    class Attention(graph.Attention):
        def scores(self, x, edges):
            a = torch.einsum("nhw,hw->nh", x, self.source)
            b = torch.einsum("nhw,hw->nh", x, self.target)
            return F.leaky_relu(a[edges[0]] + b[edges[1]], graph.SLOPE)

    graph.Attention = Attention
