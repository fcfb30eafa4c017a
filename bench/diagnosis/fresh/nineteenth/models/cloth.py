"""How cloth moves: messages along the edges of its mesh, under autocast (torch_geometric)."""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from torch_geometric.data import Batch, Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import to_undirected

FREE, HELD, KINDS = 0, 1, 3  # the third kind of nodes is that of obstacles
SHEETS = ((3, 4), (4, 4), (3, 3))  # nodes along both sides
WIDTH, ROUNDS, NODE, EDGE = 16, 2, 3 + KINDS, 7
NOISE, TIED, LEAST, AGGREGATION = 0.03, 0.1, 1e-3, "add"
LR, GAMMA, FLOOR, KEEP, MAX_NORM = 4e-3, 0.7, 1e-5, 0.9, 4.0


class Scaler(nn.Module):
    """Means and spreads of all that it has seen."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("total", torch.zeros(width))
        self.register_buffer("squares", torch.zeros(width))

    @torch.no_grad()
    def observe(self, x):
        self.count += len(x)
        self.total += x.sum(dim=0)
        self.squares += x.square().sum(dim=0)

    def mean(self):
        return self.total / self.count

    def spread(self):
        variance = self.squares / self.count - self.mean().square()
        return variance.clamp(min=LEAST**2).sqrt()

    def forward(self, x):
        return (x - self.mean()) / self.spread()

    def inverse(self, x):
        return x * self.spread() + self.mean()


class Layers(nn.Module):
    def __init__(self, inputs, outputs, norm=True):
        super().__init__()
        self.wide, self.narrow = nn.Linear(inputs, WIDTH), nn.Linear(WIDTH, outputs)
        self.norm = nn.LayerNorm(outputs) if norm else nn.Identity()

    def forward(self, x):
        return self.norm(self.narrow(F.relu(self.wide(x))))


def new_edges(layers, x, edges, edge_index):
    source, target = edge_index
    return edges + layers(torch.cat([edges, x[source], x[target]], dim=1))


class Round(MessagePassing):
    """Edges learn from both their ends, then nodes from the edges that arrive."""

    def __init__(self):
        super().__init__(aggr=AGGREGATION)
        self.of_edges, self.of_nodes = Layers(3 * WIDTH, WIDTH), Layers(2 * WIDTH, WIDTH)

    def forward(self, x, edges, edge_index):
        edges = new_edges(self.of_edges, x, edges, edge_index)
        arrived = self.propagate(edge_index, x=x, edges=edges)
        return x + self.of_nodes(torch.cat([x, arrived], dim=1)), edges

    def message(self, edges):
        return edges


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.edges = Layers(NODE, WIDTH), Layers(EDGE, WIDTH)
        self.rounds = nn.ModuleList(Round() for _ in range(ROUNDS))
        self.head = Layers(WIDTH, 3, norm=False)

    def decode(self, x):
        return self.head(x)

    def forward(self, nodes, edges, edge_index):
        x, edges = self.nodes(nodes), self.edges(edges)
        for each in self.rounds:
            x, edges = each(x, edges, edge_index)
        return self.decode(x)


class Simulator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Net()
        self.slow = copy.deepcopy(self.net).requires_grad_(False)
        self.of_nodes, self.of_edges, self.of_change = Scaler(NODE), Scaler(EDGE), Scaler(3)


def edges_of(face):
    """Each side of a triangle, in both directions."""
    sides = torch.cat([face[:2], face[1:], face[::2]], dim=1)
    return to_undirected(sides)


def disturbed(graph):
    """Where nodes are, with noise; those that are held stay where they are."""
    noise = NOISE * graph.noise
    return graph.now + torch.where((graph.kind == FREE).unsqueeze(1), noise, 0.0)


def node_features(graph, now):
    kinds = F.one_hot(graph.kind, KINDS).to(now.dtype)
    return torch.cat([now - graph.before, kinds], dim=1)


def edge_features(graph, now, edge_index):
    """Vectors and lengths in the world, and on the sheet when it was flat (two numbers)."""
    source, target = edge_index
    here, flat = now[source] - now[target], graph.flat[source] - graph.flat[target]
    lengths = (here.norm(dim=1, keepdim=True), flat.norm(dim=1, keepdim=True))
    return torch.cat([here, lengths[0], flat, lengths[1]], dim=1)


def wanted_change(graph, now):
    """How the velocity changes: from where the node is thought to be to where it goes."""
    return (graph.after - now) - (now - graph.before)


def prepare(graph):
    """What the net is given, and what it should answer, before they are scaled."""
    now = disturbed(graph)
    edge_index = edges_of(graph.face)
    return {
        "nodes": node_features(graph, now),
        "edges": edge_features(graph, now, edge_index),
        "edge_index": edge_index,
        "change": wanted_change(graph, now),
        "kind": graph.kind,
    }


def observe(model, inputs):
    model.of_nodes.observe(inputs["nodes"])
    model.of_edges.observe(inputs["edges"])
    model.of_change.observe(inputs["change"])


def predicted(model, inputs):
    nodes, edges = model.of_nodes(inputs["nodes"]), model.of_edges(inputs["edges"])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = model.net(nodes, edges, inputs["edge_index"])
    return found.float()


def weights_of(kind):
    """Free nodes count, held ones a little, obstacles not at all."""
    free, held = kind == FREE, kind == HELD
    return free.to(torch.get_default_dtype()) + TIED * held.to(torch.get_default_dtype())


def loss_of(model, inputs, count):
    wanted = model.of_change(inputs["change"])
    errors = (predicted(model, inputs) - wanted).square().sum(dim=1)
    return (errors * weights_of(inputs["kind"])).sum() / count


def backward(model, inputs):
    loss_of(model, inputs, weights_of(inputs["kind"]).sum()).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.net.parameters(), MAX_NORM)


@torch.no_grad()
def update_slow(model):
    for slow, mine in zip(model.slow.parameters(), model.net.parameters(), strict=True):
        slow.lerp_(mine, 1 - KEEP)


def build():
    return Simulator().train()


def rate(step):
    """It falls to a floor."""
    return GAMMA**step + FLOOR / LR


def optimizer(model, **more):
    adamax = torch.optim.Adamax(model.net.parameters(), lr=LR, **more)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(adamax, rate)
    return adamax


def triangles(high, wide):
    """Each square of the sheet is two triangles."""
    node = torch.arange(high * wide).view(high, wide)
    a, b, c, d = node[:-1, :-1], node[:-1, 1:], node[1:, :-1], node[1:, 1:]
    upper = torch.stack([a.flatten(), b.flatten(), c.flatten()])
    lower = torch.stack([b.flatten(), d.flatten(), c.flatten()])
    return torch.cat([upper, lower], dim=1)


def sheet(high, wide, generator):
    def randn(*size):
        return torch.randn(*size, generator=generator)

    nodes = high * wide
    row, column = torch.arange(nodes) // wide, torch.arange(nodes) % wide
    flat = torch.stack([0.3 * row, 0.2 * column], dim=1).to(torch.get_default_dtype())
    flat = flat + 0.03 * randn(nodes, 2)
    now = torch.cat([flat, 0.1 * randn(nodes, 1)], dim=1)
    kind = torch.full((nodes,), FREE)
    kind[:wide], kind[-1] = HELD, KINDS - 1
    moves = (kind != HELD).unsqueeze(1)
    before = now - moves * (0.05 * randn(1, 3) + 0.02 * randn(nodes, 3))
    after = now + moves * (0.05 * randn(1, 3) + 0.03 * randn(nodes, 3))
    return Data(
        face=triangles(high, wide),
        num_nodes=nodes,
        flat=flat,
        before=before,
        now=now,
        after=after,
        kind=kind,
        noise=randn(nodes, 3),
    )


def batch(generator):
    return [sheet(high, wide, generator) for high, wide in SHEETS]


def step(model, optimizer, batch):
    inputs = prepare(Batch.from_data_list(batch))
    observe(model, inputs)
    optimizer.zero_grad()
    backward(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
    update_slow(model)
