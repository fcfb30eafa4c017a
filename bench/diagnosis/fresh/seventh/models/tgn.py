"""A temporal graph network of torch_geometric: memories of nodes, the last neighbours, links."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastNeighborLoader

SOURCES, TARGETS, EVENTS, MESSAGE, MEMORY, TIME, WIDTH, HEADS = 8, 10, 9, 4, 8, 6, 8, 2
NODES, NEIGHBOURS, NEGATIVES, MARGIN_WEIGHT, MARGIN = SOURCES + TARGETS, 4, 3, 0.3, 0.5
LR_MEMORY, LR_REST, WARMUP, MAX_NORM, CENTRE_RATE = 4e-3, 1e-2, 3, 1.0, 0.3


class LastAggregator(nn.Module):
    """The latest message of each node, zero where there is none; times differ."""

    def forward(self, msg, index, t, dim_size):
        latest = torch.full((dim_size,), -1).scatter_reduce(0, index, t, reduce="amax")
        chosen = t == latest[index]
        out = msg.new_zeros(dim_size, msg.shape[-1])
        out[index[chosen]] = msg[chosen]
        return out


class Embedding(nn.Module):
    """Attention to the last neighbours: what was said, and how long ago."""

    def __init__(self, time_enc):
        super().__init__()
        self.time_enc = time_enc
        self.conv = TransformerConv(
            MEMORY, WIDTH // HEADS, heads=HEADS, edge_dim=MESSAGE + TIME, beta=True
        )
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x, last_update, edge_index, t, msg):
        ago = (last_update[edge_index[0]] - t).to(x.dtype)
        attributes = torch.cat([self.time_enc(ago), msg], dim=-1)
        return self.norm(F.elu(self.conv(x, edge_index, attributes)))


class LinkPredictor(nn.Module):
    def __init__(self):
        super().__init__()
        self.src = nn.Linear(WIDTH, WIDTH)
        self.dst = nn.Linear(WIDTH, WIDTH)
        self.final = nn.Linear(WIDTH, 1)

    def forward(self, z_src, z_dst):
        return self.final(F.relu(self.src(z_src) + self.dst(z_dst))).squeeze(-1)


def make_memory():
    return TGNMemory(
        NODES,
        MESSAGE,
        MEMORY,
        TIME,
        message_module=IdentityMessage(MESSAGE, MEMORY, TIME),
        aggregator_module=LastAggregator(),
    )


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.memory = make_memory()
        self.gnn = Embedding(self.memory.time_enc)
        self.predictor = LinkPredictor()
        self.register_buffer("centre", torch.zeros(MESSAGE))
        self.neighbours = LastNeighborLoader(NODES, size=NEIGHBOURS)
        self.all_t, self.all_msg, self.begin = [], [], 0


def centred(model, msg):
    """Messages without the mean of the messages so far."""
    return msg - model.centre


@torch.no_grad()
def update_centre(model, msg):
    model.centre.lerp_(msg.mean(dim=0), CENTRE_RATE)


def timed(model, events):
    """Events with times since the first step; the next batch begins where this one ends."""
    t = model.begin + events["t"]
    model.begin = int(t[-1])
    return events | {"t": t}


def nodes_of(events):
    return torch.cat([events["src"], events["dst"], events["negative"].flatten()]).unique()


def history(model):
    """Times and messages of all events that are past, by their number."""
    if not model.all_t:
        return torch.empty(0, dtype=torch.long), torch.empty(0, MESSAGE)
    return torch.cat(model.all_t), torch.cat(model.all_msg)


def embed(model, nodes):
    """Embeddings of these nodes and their neighbours, and the place of each node among them."""
    n_id, edge_index, e_id = model.neighbours(nodes)
    z, last_update = model.memory(n_id)
    t, msg = history(model)
    z = model.gnn(z, last_update, edge_index, t[e_id], msg[e_id])
    place = torch.empty(NODES, dtype=torch.long)
    place[n_id] = torch.arange(len(n_id))
    return z, place


def scores_of(model, z, place, events):
    """Of the events that happened, (E,), and of those that did not, (E, K)."""
    z_src = z[place[events["src"]]]
    positive = model.predictor(z_src, z[place[events["dst"]]])
    z_src = z_src[:, None].expand(-1, NEGATIVES, -1)
    return positive, model.predictor(z_src, z[place[events["negative"]]])


def loss_of(positive, negative):
    loss = F.binary_cross_entropy_with_logits(positive, torch.ones_like(positive))
    loss = loss + F.binary_cross_entropy_with_logits(negative, torch.zeros_like(negative))
    return loss + MARGIN_WEIGHT * F.softplus(MARGIN - positive[:, None] + negative).mean()


def backward(model, events):
    z, place = embed(model, nodes_of(events))
    loss_of(*scores_of(model, z, place, events)).backward()


@torch.no_grad()
def remember(model, events):
    """Memories hear of the events that were predicted, and so do the neighbours."""
    msg = centred(model, events["msg"])
    model.memory.update_state(events["src"], events["dst"], events["t"], msg)
    model.neighbours.insert(events["src"], events["dst"])
    model.all_t.append(events["t"])
    model.all_msg.append(msg)
    update_centre(model, events["msg"])
    model.memory.detach()


def build():
    return Network().train()


def param_groups(model):
    of_memory = list(model.memory.parameters())
    known = {id(p) for p in of_memory}
    rest = [p for p in model.parameters() if id(p) not in known]
    return [{"params": of_memory, "lr": LR_MEMORY}, {"params": rest, "lr": LR_REST}]


def optimizer(model, **more):
    made = torch.optim.Adam(param_groups(model), eps=1e-7, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda t: min(1, (t + 1) / WARMUP))
    return made


def batch(generator):
    """Events in the order of their times, which count from the first of the batch."""
    t = torch.randint(1, 4, (EVENTS,), generator=generator).cumsum(dim=0)
    targets = (EVENTS, 1 + NEGATIVES)
    dst = SOURCES + torch.randint(0, TARGETS, targets, generator=generator)
    return {
        "src": torch.randint(0, SOURCES, (EVENTS,), generator=generator),
        "dst": dst[:, 0],
        "negative": dst[:, 1:],
        "t": t,
        "msg": 0.5 + torch.randn(EVENTS, MESSAGE, generator=generator),
    }


def step(model, optimizer, batch):
    events = timed(model, batch)
    optimizer.zero_grad()
    backward(model, events)
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    model.scheduler.step()
    remember(model, events)
