"""Cases of the links between readers and books."""

import torch
from case import fault, harmless
from torch.nn import functional as F

FIRST = r"(first.*)?"


def nodes_and_edges_in_another_order(links):
    """Readers, books, and both kinds of edges stand in other orders."""
    descend = links.descend

    def reordered(model, readers, books, edges, negatives):
        order, place = torch.arange(links.READERS).flip(0), torch.arange(links.BOOKS).roll(5)
        back = place.argsort()
        edges = torch.stack([order[edges[0]], back[edges[1]]])
        messages, ranked = links.split(edges)
        ranked = ranked.flip(1)
        negatives = back[negatives].view(links.KNOWN, -1).flip(0).flatten()
        edges = torch.cat([messages.roll(7, 1), ranked], dim=1)
        descend(model, readers[order], books[place], edges, negatives)

    links.descend = reordered


def nodes_without_edges(links):
    """There are more readers and books, as of fixed sizes: no edge reaches them."""
    descend = links.descend

    def padded(model, readers, books, edges, negatives):
        more = F.pad(readers, (0, 0, 0, 4)), F.pad(books, (0, 0, 3, 0), value=1.0)
        edges = edges + torch.tensor([[0], [3]])
        descend(model, *more, edges, negatives + 3)

    links.descend = padded


@fault(
    "links",
    module_only=FIRST,
    line=["return {READS: edges, READ_BY: edges.flip(0)}"],
    module=FIRST,
    api=r"Tensor\.(flip|index_select)",
)
def edges_back_not_turned(links):
    """The edges from books to readers are not turned: books' numbers are taken for readers'."""
    links.both_ways = lambda edges: {links.READS: edges, links.READ_BY: edges}  # here


@fault(
    "links",
    module_only=FIRST,
    line=[
        "return edges[:, :-KNOWN], edges[:, -KNOWN:]",
        "return {READS: edges, READ_BY: edges.flip(0)}",  # takes them first
    ],
    module=FIRST,
    api=r"Tensor\.(__getitem__|index_select)",
)
def messages_take_ranked_edges(links):
    """The edges that are ranked are among those that messages take."""
    links.split = lambda edges: (edges, edges[:, -links.KNOWN :])  # here


@fault(
    "links",
    module=r"first\.convs\.[^.]*(\.aggr_module)?",
    api=r".*",
)
def messages_are_summed(links):
    """Messages are summed, in place of their mean."""
    from torch_geometric.nn import SumAggregation

    convolution = links.convolution

    def summed(inside):
        made = convolution(inside)
        for each in made.convs.values():
            each.aggr_module = SumAggregation()
        return made

    links.convolution = summed


@fault(
    "links",
    line=["return torch.stack([ranked[0].repeat_interleave(NEGATIVES), negatives])"],
    module_only=r"second.*|",
)
def negatives_of_other_readers(links):
    """Readers are repeated as a whole, in place of one by one: negatives go to other readers."""

    def against(ranked, negatives):
        return torch.stack([ranked[0].repeat(links.NEGATIVES), negatives])  # here

    links.against = against


@fault(
    "links",
    beside=nodes_and_edges_in_another_order,
    line=["return F.normalize(x, dim=-1)"],
    api="Functional.normalize",
    module_only=r"second.*|",
)
def normalised_over_the_nodes(links):
    """Features are normalised over the nodes."""

    class Network(links.Network):
        def unit(self, x):
            return F.normalize(x, dim=0)  # here

    links.Network = Network


@fault(
    "links",
    beside=nodes_without_edges,
    line=["return -F.logsigmoid(read.repeat_interleave(NEGATIVES) - unread).mean()"],
    module_only=r"second.*|",
)
def difference_broadcast_to_all_pairs(links):
    """Every book that was read is ranked before every one that was not, of all readers."""

    def loss_of(read, unread):
        return -F.logsigmoid(read[:, None] - unread).mean()  # here

    links.loss_of = loss_of


harmless("rows", "links")(nodes_and_edges_in_another_order)
harmless("padding", "links")(nodes_without_edges)


@harmless("fused", "links")
def means_by_a_product(links):
    """The means of the messages are a product with a sparse matrix of shares."""
    from torch_geometric.nn import SAGEConv

    class Product(SAGEConv):
        def forward(self, x, edge_index, size=None):
            source, target = x
            ones = torch.ones(edge_index.shape[1])
            shape = (len(target), len(source))
            shares = torch.sparse_coo_tensor(edge_index.flip(0), ones, shape).to_dense()
            shares = shares / shares.sum(dim=1, keepdim=True).clamp(min=1)
            return self.lin_l(shares @ source) + self.lin_r(target)

    convolution = links.convolution

    def with_products(inside):
        made = convolution(inside)
        for each in made.convs.values():
            each.__class__ = Product
        return made

    links.convolution = with_products


@harmless("loss", "links")
def ranks_by_softplus(links):
    """Scores by einsum, the loss by softplus, the penalty by the norm of all weights."""

    def scores_of(readers, books, pairs):
        left, right = readers.index_select(0, pairs[0]), books.index_select(0, pairs[1])
        return torch.einsum("nw,nw->n", left, right) * (1 / links.HEAT)

    def loss_of(read, unread):
        apart = unread.unflatten(0, (-1, links.NEGATIVES)) - read[:, None]
        return F.softplus(apart).mean()

    def penalty(model):
        every = torch.cat([weight.flatten() for weight in model.parameters()])
        return links.NORM_DECAY * torch.dot(every, every)

    links.scores_of, links.loss_of, links.penalty = scores_of, loss_of, penalty
