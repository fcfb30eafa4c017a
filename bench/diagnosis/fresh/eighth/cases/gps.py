"""Cases of the molecules."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "gps",
    line=["known = ~labels.isnan()", "return (losses * known).sum()"],
)
def missing_labels_are_negative(gps):
    """A label that is missing counts as a negative one."""

    def task_loss(model, logits, labels):
        losses = gps.entropy(logits, labels.nan_to_num(), gps.balance(model))
        return losses.sum()  # here

    gps.task_loss = task_loss


@fault(
    "gps",
    line=[
        "power, found = once, []",
        "found.append(power.diagonal())",
        "power = power @ once",
        "return torch.stack(found, dim=1)",
    ],
)
def walks_begin_with_no_step(gps):
    """The first walk has no step, and is always back: all are one step too short."""

    def returns(edges, count):
        once = gps.walk_matrix(edges, count)
        power, found = torch.eye(count), []  # here
        for _ in range(gps.WALKS):
            found.append(power.diagonal())  # here
            power = power @ once  # here
        return torch.stack(found, dim=1)  # here

    gps.returns = returns


@fault(
    "gps",
    line="return torch.cat([bonds, bonds.flip(0)], dim=1), torch.cat([kinds, kinds])",
)
def kinds_of_other_bonds(gps):
    """The kinds of bonds are repeated one by one, the bonds as a whole."""

    def both_ways(bonds, kinds):
        return torch.cat([bonds, bonds.flip(0)], dim=1), kinds.repeat_interleave(2)  # here

    gps.both_ways = both_ways


@fault(
    "gps",
    # The norm behind the messages is the first that reads it.
    api=r"Tensor\.(mean|__sub__|sub|new_zeros|scatter_add_?|index_select)|Torch\.(scatter.*|zeros)"
    r"|Module\.layers\.0(\.norm1)?\..*|Functional\.layer_norm",
    module=r"layers\.0(\.norm1)?",
    line="x = layer(x, edges, graph, edge_attr=bonds)",
)
def one_large_molecule(gps):
    """The layers are not told which atom belongs to which molecule."""

    class Molecules(gps.Molecules):
        def forward(self, atoms, edges, kinds, graph):
            x = self.atoms(atoms) + self.walks(gps.returns(edges, len(atoms)))
            bonds = self.bonds(kinds)
            for layer in self.layers:
                x = layer(x, edges, edge_attr=bonds)  # here
            return x

    gps.Molecules = Molecules


@fault(
    "gps",
    api=r"Tensor\.(scatter_add_?|scatter_reduce_?|index_add_?|new_zeros|__r?truediv__|div)"
    r"|Torch\.scatter.*",
    line=[
        "return global_add_pool(x, graph, size=graphs)",
        'logits = model.tasks(pooled(x, data["graph"], len(data["labels"])))',
    ],
)
def atoms_averaged(gps):
    """The atoms of a molecule are averaged, not added up."""

    def pooled(x, graph, graphs):
        from torch_geometric.nn import global_mean_pool

        return global_mean_pool(x, graph, size=graphs)  # here

    gps.pooled = pooled


@fault("gps", line='return F.cross_entropy(logits[where], atoms[where], reduction="sum")')
def atoms_that_are_seen(gps):
    """The atoms that were not hidden are guessed, too."""

    def atom_loss(logits, atoms, where):
        return F.cross_entropy(logits, atoms, reduction="sum")  # here

    gps.atom_loss = atom_loss


@fault(
    "gps",
    line=[
        "return model.negative / model.positive",
        "losses = entropy(logits, labels.nan_to_num(), balance(model))",
    ],
)
def frequent_labels_weigh_more(gps):
    """The weight of positive labels is turned over."""

    def balance(model):
        return model.positive / model.negative  # here

    gps.balance = balance


@fault(
    "gps",
    line=[
        "return model.negative / model.positive",
        "losses = entropy(logits, labels.nan_to_num(), balance(model))",
        '    count_labels(model, batch["labels"])',
        "model.positive.mul_(FORGET).add_((labels == 1).sum(dim=0))",
        "model.negative.mul_(FORGET).add_((labels == 0).sum(dim=0))",
    ],
)
def labels_counted_afterwards(gps):
    """Labels are counted behind the update: the weights are those of the step before."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        gps.backward(model, batch)  # here
        optimizer.step()
        model.scheduler.step()
        gps.count_labels(model, batch["labels"])  # here

    gps.step = step


@harmless("fused", "gps")
def messages_by_index_add(gps):
    """The convolution is written out: its messages are added to their atoms by index_add."""

    class Conv(gps.GINEConv):
        def forward(self, x, edge_index, edge_attr=None):
            source, target = edge_index
            sent = F.relu(x.index_select(0, source) + self.lin(edge_attr))
            return self.nn(((1 + self.eps) * x).index_add(0, target, sent))

    gps.GINEConv = Conv


@harmless("fused", "gps")
def walks_of_a_symmetric_matrix(gps):
    """The matrix of a step is divided by roots of both degrees: diagonals of powers are equal."""

    def walk_matrix(edges, count):
        near = torch.zeros(count * count).index_fill(0, edges[0] * count + edges[1], 1.0)
        near = near.view(count, count)
        root = near.sum(dim=1).rsqrt()
        return root[:, None] * near * root

    gps.walk_matrix = walk_matrix


@harmless("loss", "gps")
def entropies_by_softplus(gps):
    """The entropies by softplus of both signs."""

    def entropy(logits, labels, weight):
        return weight * labels * F.softplus(-logits) + (1 - labels) * F.softplus(logits)

    gps.entropy = entropy


@harmless("split", "gps")
def pooled_by_a_product(gps):
    """Atoms are added up by a product with a matrix of zeros and ones."""

    def pooled(x, graph, graphs):
        return F.one_hot(graph, graphs).to(x.dtype).t() @ x

    gps.pooled = pooled


def _some(data, graphs):
    """The molecules of these numbers, in this order."""
    nodes = torch.cat([(data["graph"] == g).nonzero().squeeze(1) for g in graphs])
    place = torch.full((len(data["graph"]),), -1)
    place[nodes] = torch.arange(len(nodes))
    number = torch.full((len(data["labels"]),), -1)
    number[graphs] = torch.arange(len(graphs))
    bonds = place[data["bonds"]]
    there = (bonds >= 0).all(dim=0)
    return {
        "atoms": data["atoms"][nodes],
        "bonds": bonds[:, there],
        "kinds": data["kinds"][there],
        "graph": number[data["graph"][nodes]],
        "labels": data["labels"][graphs],
        "draw": data["draw"][nodes],
    }


@harmless("rows", "gps", group="whole step")
def last_molecule_first(gps):
    """The molecules stand in the opposite order, and the bonds, too."""
    backward = gps.backward

    def turned(model, data):
        data = _some(data, torch.arange(len(data["labels"])).flip(0))
        backward(model, data | {"bonds": data["bonds"].flip(1), "kinds": data["kinds"].flip(0)})

    gps.backward = turned


@harmless("micro batches", "gps", group="whole step")
def two_molecules_and_four(gps):
    """Two molecules are a micro-batch, the other four another one."""

    def backward(model, data):
        for graphs in (torch.arange(2), torch.arange(2, 6)):
            sums = gps.losses(model, _some(data, graphs))
            gps.total_loss(*sums, *gps.counts(data)).backward()

    gps.backward = backward


@harmless("padding", "gps", group="whole step")
def a_molecule_without_labels(gps):
    """One more molecule, of which nothing is asked, fills the batch up."""
    backward = gps.backward

    def filled(model, data):
        atoms, ring = len(data["atoms"]), torch.arange(3)
        more = {
            "atoms": ring,
            "bonds": atoms + torch.stack([ring, (ring + 1) % 3]),
            "kinds": torch.zeros_like(ring),
            "graph": torch.full((3,), len(data["labels"])),
            "labels": torch.full((1, gps.TASKS), float("nan")),
            "draw": torch.ones(3),
        }
        backward(
            model,
            {
                name: torch.cat([value, more[name]], -1 if name == "bonds" else 0)
                for name, value in data.items()
            },
        )

    gps.backward = filled


@harmless("scaled", "gps", group="whole step")
def sums_over_labels(gps):
    """The loss is multiplied by the number of labels, and the gradients are divided by it."""

    def backward(model, data):
        labels = gps.counts(data)[0]
        (gps.total_loss(*gps.losses(model, data), *gps.counts(data)) * labels).backward()
        torch._foreach_div_([p.grad for p in model.parameters()], float(labels))

    gps.backward = backward


@harmless("recomputed", "gps", group="whole step")
def layers_computed_again(gps):
    """Each layer is computed again in the backward pass."""

    class Layer(gps.GPSConv):
        def forward(self, *args, **kwargs):
            return checkpoint(super().forward, *args, use_reentrant=False, **kwargs)

    gps.GPSConv = Layer
