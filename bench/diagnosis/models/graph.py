"""A graph network: attention over edges, sums over neighbours, pooling of each graph."""

import torch
from torch import nn
from torch.nn import functional as F

FEATURES, WIDTH, HEADS, CLASSES, NODES, EDGES, GRAPHS = 6, 16, 2, 4, 24, 60, 3
SLOPE = 0.2


def add_up(values, index, count):
    """The sum of the values of each index."""
    return values.new_zeros(count, *values.shape[1:]).index_add(0, index, values)


def softmax_of_edges(scores, index, count):
    """A softmax over the edges that end in the same node."""
    largest = scores.new_full((count, HEADS), -1e9)
    places = index[:, None].expand_as(scores)
    largest = largest.scatter_reduce(0, places, scores.detach(), reduce="amax")
    exponents = (scores - largest[index]).exp()
    return exponents / add_up(exponents, index, count)[index]


def with_loops(edges):
    loops = torch.arange(NODES).expand(2, -1)
    return torch.cat([edges, loops], dim=1)


class Attention(nn.Module):
    """A graph attention as of GAT."""

    def __init__(self, inner):
        super().__init__()
        self.linear = nn.Linear(inner, HEADS * WIDTH, bias=False)
        self.source = nn.Parameter(torch.empty(HEADS, WIDTH))
        self.target = nn.Parameter(torch.empty(HEADS, WIDTH))
        self.bias = nn.Parameter(torch.zeros(HEADS * WIDTH))

    def scores(self, x, edges):
        a, b = (x * self.source).sum(-1), (x * self.target).sum(-1)
        return F.leaky_relu(a[edges[0]] + b[edges[1]], SLOPE)

    def forward(self, x, edges):
        x = self.linear(x).view(len(x), HEADS, WIDTH)
        weights = softmax_of_edges(self.scores(x, edges), edges[1], len(x))
        messages = x[edges[0]] * weights[..., None]
        return add_up(messages, edges[1], len(x)).flatten(1) + self.bias


class Convolution(nn.Module):
    """A convolution with symmetric normalisation, as of GCN."""

    def __init__(self, inner):
        super().__init__()
        self.linear = nn.Linear(inner, WIDTH)

    def norm(self, edges, count):
        degree = add_up(torch.ones(edges.shape[1]), edges[1], count)
        root = degree.rsqrt()
        return root[edges[0]] * root[edges[1]]

    def forward(self, x, edges):
        x = self.linear(x)
        messages = x[edges[0]] * self.norm(edges, len(x))[:, None]
        return add_up(messages, edges[1], len(x))  # of the convolution


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Attention(FEATURES)
        self.second = Convolution(HEADS * WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, CLASSES)

    def pool(self, x, graphs):
        count = add_up(torch.ones(len(x), 1), graphs, GRAPHS)
        return add_up(x, graphs, GRAPHS) / count

    def forward(self, x, edges, graphs):
        edges = with_loops(edges)
        x = F.elu(self.first(x, edges))
        x = F.relu(self.norm(self.second(x, edges)))
        return self.head(self.pool(x, graphs))


def build():
    model = Network()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.xavier_uniform_(parameter)
    return model


def optimizer(model):
    return torch.optim.Adam(model.parameters(), lr=5e-3, weight_decay=5e-4)


def batch(generator):
    x = torch.randn(NODES, FEATURES, generator=generator)
    edges = torch.randint(NODES, (2, EDGES), generator=generator)
    graphs = (torch.arange(NODES) * GRAPHS) // NODES
    return x, edges, graphs, torch.randint(CLASSES, (GRAPHS,), generator=generator)


def loss(logits, labels):
    return F.nll_loss(F.log_softmax(logits, dim=-1), labels)


def step(model, optimizer, batch):
    x, edges, graphs, labels = batch
    optimizer.zero_grad()
    loss(model(x, edges, graphs), labels).backward()
    optimizer.step()
