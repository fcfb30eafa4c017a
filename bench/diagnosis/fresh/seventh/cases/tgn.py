"""Cases of the temporal graph network."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "tgn",
    api=r"Torch\.(cat|sub)|Tensor\.(__getitem__|__sub__|to|sub)|Functional\.linear"
    r"|Module\.(gnn|memory)\.time_enc.*",
    module=r"gnn|(gnn|memory)\.time_enc(\.lin)?",
    steps=3,
    line=[
        "ago = (last_update[edge_index[0]] - t).to(x.dtype)",
        "attributes = torch.cat([self.time_enc(ago), msg], dim=-1)",
    ],
)
def time_of_the_centre(tgn):
    """How long ago is measured from the node that listens, not from the one that speaks."""

    class Embedding(tgn.Embedding):
        def forward(self, x, last_update, edge_index, t, msg):
            ago = (last_update[edge_index[1]] - t).to(x.dtype)  # here
            attributes = torch.cat([self.time_enc(ago), msg], dim=-1)  # here
            return self.norm(F.elu(self.conv(x, edge_index, attributes)))

    tgn.Embedding = Embedding


@fault(
    "tgn",
    api=r"Tensor\.(new_zeros|scatter_reduce.*|scatter_.*|index_put_|__setitem__|__getitem__"
    r"|__truediv__|div|expand|clamp)|Torch\.(scatter.*|full|div)|Module\.memory\.aggr_module\..*",
    module=r"memory(\.aggr_module)?",
    steps=3,
    line=[
        'latest = torch.full((dim_size,), -1).scatter_reduce(0, index, t, reduce="amax")',
        "chosen = t == latest[index]",
        "out = msg.new_zeros(dim_size, msg.shape[-1])",
        "out[index[chosen]] = msg[chosen]",
    ],
)
def mean_of_the_messages(tgn):
    """The memory gets the mean of all messages of a batch, not the last one."""
    from torch_geometric.nn.models.tgn import MeanAggregator

    tgn.LastAggregator = MeanAggregator


@fault(
    "tgn",
    steps=3,
    line=[
        'model.memory.update_state(events["src"], events["dst"], events["t"], msg)',
        "z, place = embed(model, nodes_of(events))",
        "    backward(model, events)",
        "    remember(model, events)",
        "z, last_update = model.memory(n_id)",
        "n_id, edge_index, e_id = model.neighbours(nodes)",
    ],
)
def events_known_before(tgn):
    """The memory hears of the events before they are predicted: the future leaks."""
    backward, remember = tgn.backward, tgn.remember

    def late(model, events):
        remember(model, events)  # here
        backward(model, events)  # here

    tgn.backward = late
    tgn.remember = lambda model, events: None


@fault(
    "tgn",
    steps=3,
    line=[
        "model.centre.lerp_(msg.mean(dim=0), CENTRE_RATE)",
        'update_centre(model, events["msg"])',
        "return msg - model.centre",
    ],
)
def centre_of_centred_messages(tgn):
    """The mean follows the messages that are centred already."""
    update_centre = tgn.update_centre

    def twice(model, msg):
        update_centre(model, tgn.centred(model, msg))  # here

    tgn.update_centre = twice


@fault(
    "tgn",
    line=[
        "return loss + MARGIN_WEIGHT * F.softplus(MARGIN - positive[:, None] + negative).mean()",
    ],
)
def margin_of_another_event(tgn):
    """The scores are spread along the wrong axis: margins are between different events."""

    def loss_of(positive, negative):
        loss = F.binary_cross_entropy_with_logits(positive, torch.ones_like(positive))
        loss = loss + F.binary_cross_entropy_with_logits(negative, torch.zeros_like(negative))
        spread = positive.repeat(tgn.NEGATIVES).view_as(negative)  # here
        margin = F.softplus(tgn.MARGIN - spread + negative).mean()  # here
        return loss + tgn.MARGIN_WEIGHT * margin

    tgn.loss_of = loss_of


@fault(
    "tgn",
    steps=3,
    # The attention of the second step gets messages of other events.
    api=r"Tensor\.__getitem__|Torch\.cat",
    line=[
        "z = model.gnn(z, last_update, edge_index, t[e_id], msg[e_id])",
        "return torch.cat(model.all_t), torch.cat(model.all_msg)",
        "t, msg = history(model)",
    ],
)
def latest_events_first(tgn):
    """The history is put together with the latest batch in front: numbers point to others."""

    def history(model):
        if not model.all_t:
            return torch.empty(0, dtype=torch.long), torch.empty(0, tgn.MESSAGE)
        return torch.cat(model.all_t), torch.cat(model.all_msg[::-1])  # here

    tgn.history = history


@fault("tgn", api=r"Optimizer\.Adam\.step", update=True)
def memory_learns_like_the_rest(tgn):
    """The memory's own rate is not looked up: all weights are in one group."""

    def param_groups(model):
        return [{"params": list(model.parameters()), "lr": tgn.LR_REST}]

    tgn.param_groups = param_groups


@fault(
    "tgn",
    line=[
        'z_src = z[place[events["src"]]]',
        'positive = model.predictor(z_src, z[place[events["dst"]]])',
        'return positive, model.predictor(z_src, z[place[events["negative"]]])',
    ],
    api=r"Functional\.linear|Module\.predictor\.(src|dst)\..*|Tensor\.__getitem__",
    module=r"|predictor(\.(src|dst))?",
)
def ends_of_negatives_swapped(tgn):
    """Of events that did not happen, source and target are swapped."""

    def scores_of(model, z, place, events):
        z_src = z[place[events["src"]]]
        positive = model.predictor(z_src, z[place[events["dst"]]])
        z_src = z_src[:, None].expand(-1, tgn.NEGATIVES, -1)
        return positive, model.predictor(z[place[events["negative"]]], z_src)  # here

    tgn.scores_of = scores_of


@fault(
    "tgn",
    api=r"Tensor\.(__i?add__|__r?mul__|__r?sub__|add|mul|sigmoid)|Torch\.cat|Functional\.linear"
    r"|Module\.gnn\.conv\.(lin_beta|no_beta|TransformerConv).*",
    module=r"gnn(\.conv(\.(lin|no)_beta)?)?",
)
def skip_without_its_gate(tgn):
    """The attention is added to the skip connection; the gate between them is not used."""
    build = tgn.build

    def built():
        model = build()
        conv = model.gnn.conv
        conv.no_beta, conv.lin_beta = conv.lin_beta, None
        return model

    tgn.build = built


@harmless("fused", "tgn")
def last_message_by_sorting(tgn):
    """The last message of a node is the last one after sorting by time, and copied there."""

    class LastAggregator(tgn.LastAggregator):
        def forward(self, msg, index, t, dim_size):
            order = t.argsort(stable=True, descending=True)
            order = order[index[order].argsort(stable=True)]
            index = index[order]
            first = torch.ones_like(index, dtype=torch.bool)
            first[1:] = index[1:] != index[:-1]
            order, index = order[first], index[first]
            out = torch.zeros(dim_size, msg.shape[1], dtype=msg.dtype)
            return out.index_copy(0, index, msg.index_select(0, order))

    tgn.LastAggregator = LastAggregator


@harmless("fused", "tgn")
def memory_cell_written_out(tgn):
    """The cell of the memory is written out, with one product for both states."""
    make_memory = tgn.make_memory

    def made():
        memory = make_memory()
        gru = memory.gru

        def cell(x, h):
            of_x = x @ gru.weight_ih.t() + gru.bias_ih
            of_h = h @ gru.weight_hh.t() + gru.bias_hh
            both, size = of_x + of_h, 2 * h.shape[1]
            reset, update = torch.sigmoid(both[:, :size]).chunk(2, dim=1)
            new = torch.tanh(of_x[:, size:] + reset * of_h[:, size:])
            return torch.lerp(new, h, update)

        gru.forward = cell
        return memory

    tgn.make_memory = made


@harmless("loss", "tgn")
def losses_by_softplus(tgn):
    """The losses by softplus, and the margin by logarithms of sigmoids."""

    def loss_of(positive, negative):
        loss = F.softplus(-positive).mean() + F.softplus(negative).mean()
        first = positive.repeat_interleave(negative.shape[1])
        margin = -F.logsigmoid(first - negative.flatten() - tgn.MARGIN).mean()
        return loss + tgn.MARGIN_WEIGHT * margin

    tgn.loss_of = loss_of


@harmless("split", "tgn")
def ends_before_their_nodes(tgn):
    """The predictor's first layers are computed once for each node, and looked up then."""

    def scores_of(model, z, place, events):
        net = model.predictor
        as_src, as_dst = F.linear(z, net.src.weight, net.src.bias), net.dst(z)
        dst = torch.cat([events["dst"][:, None], events["negative"]], dim=1)
        hidden = F.relu(as_src[place[events["src"]], None] + as_dst[place[dst]])
        scores = hidden @ net.final.weight[0] + net.final.bias
        return scores[:, 0], scores[:, 1:]

    tgn.scores_of = scores_of


@harmless("fused", "tgn")
def attention_by_a_matrix(tgn):
    """The attention is a dense one of all pairs, with the edges as rows of a one-hot matrix."""

    class Embedding(tgn.Embedding):
        def forward(self, x, last_update, edge_index, t, msg):
            ago = last_update.index_select(0, edge_index[0]).sub(t).to(x.dtype)
            edges = self.conv.lin_edge(torch.cat([self.time_enc(ago), msg], dim=-1))
            src, dst = edge_index
            query, key, value = (
                layer(x).unflatten(-1, (tgn.HEADS, -1))
                for layer in (self.conv.lin_query, self.conv.lin_key, self.conv.lin_value)
            )
            edges = edges.view(-1, tgn.HEADS, query.shape[-1])
            scores = torch.einsum("ehc,ehc->he", query[dst], key[src] + edges)
            scores = scores * query.shape[-1] ** -0.5
            to = F.one_hot(dst, len(x)).t().bool()
            alpha = scores[:, None].masked_fill(~to, float("-inf"))
            shares = alpha.softmax(dim=-1).masked_fill(~to.any(dim=1)[:, None], 0.0)
            out = torch.einsum("hne,ehc->nhc", shares, value[src] + edges).flatten(1)
            skip = self.conv.lin_skip(x)
            gate = self.conv.lin_beta(torch.cat([out, skip, out - skip], dim=-1)).sigmoid()
            return self.norm(F.elu(gate * skip + (1 - gate) * out))

    tgn.Embedding = Embedding


@harmless("rows", "tgn", group="whole step")
def nodes_numbered_backwards(tgn):
    """The nodes of a step are numbered from the last to the first."""

    class LastNeighborLoader(tgn.LastNeighborLoader):
        def __call__(self, n_id):
            n_id, edge_index, e_id = super().__call__(n_id)
            last = len(n_id) - 1
            return n_id.flip(0), (last - edge_index).flip(1), e_id.flip(0)

    tgn.LastNeighborLoader = LastNeighborLoader


@harmless("padding", "tgn", group="whole step")
def all_nodes_at_each_step(tgn):
    """Each step embeds all nodes, whether events need them or not."""
    tgn.nodes_of = lambda events: torch.arange(tgn.NODES)


@harmless("micro batches", "tgn", group="whole step")
def events_in_two_parts(tgn):
    """The events go through in two parts; the memory hears of them afterwards."""

    def backward(model, events):
        count = len(events["src"])
        for chosen in (slice(0, 5), slice(5, None)):
            part = {name: value[chosen] for name, value in events.items()}
            z, place = tgn.embed(model, tgn.nodes_of(part))
            loss = tgn.loss_of(*tgn.scores_of(model, z, place, part))
            (loss * (len(part["src"]) / count)).backward()

    tgn.backward = backward


@harmless("scaled", "tgn", group="whole step")
def loss_sixty_four_times(tgn):
    """The loss is 64 times as large; hooks of the weights divide their gradients."""
    loss_of, build = tgn.loss_of, tgn.build
    tgn.loss_of = lambda *scores: 64 * loss_of(*scores)

    def built():
        model = build()
        for p in model.parameters():
            p.register_hook(lambda grad: grad / 64)
        return model

    tgn.build = built


@harmless("recomputed", "tgn", group="whole step")
def attention_computed_again(tgn):
    """The attention is computed again in the backward pass."""

    class Embedding(tgn.Embedding):
        def forward(self, *inputs):
            return checkpoint(super().forward, *inputs, use_reentrant=False)

    tgn.Embedding = Embedding
