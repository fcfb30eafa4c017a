"""Cases of the recommendations."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def users_sorted(recommender):
    """The rows are sorted by user, and the items of each bag are in the opposite order."""
    descend = recommender.descend

    def in_order(model, dense, users, items, counts, weights, clicks):
        order = users.argsort(stable=True)
        places = torch.arange(recommender.LARGEST).expand_as(items)
        places = torch.where(places < counts[..., None], counts[..., None] - 1 - places, places)
        items, weights = items.gather(-1, places), weights.gather(-1, places)
        batch = (dense, users, items, counts, weights, clicks)
        descend(model, *(each[order] for each in batch))

    recommender.descend = in_order


def sum_in_three_parts(recommender):
    """Three micro batches of unlike sizes; sums go backward, gradients are divided at the end."""

    def descend(model, *batch):
        for part in zip(*(each.split([3, 4, 1]) for each in batch), strict=True):
            dense, users, items, counts, weights, clicks = part
            logits = model(dense, users, recommender.bags_of(items, counts, weights))
            recommender.losses(logits, clicks).sum().backward()
        for parameter in model.parameters():
            parameter.grad.div_(len(batch[0]))

    recommender.descend = descend


@fault("recommender", line="offsets = F.pad(counts[:, kind].cumsum(0), (1, 0))")
def offsets_off_by_one_bag(recommender):
    """The bags of one kind begin where the ones before them end, with the counts of another kind:
    the offsets are made of sorted counts."""
    right = recommender.bags_of

    def bags_of(items, counts, weights):
        made = right(items, counts, weights)
        sizes = counts[:, 1].sort().values  # here
        made[1] = (made[1][0], F.pad(sizes.cumsum(0), (1, 0)), made[1][2])  # here
        return made

    recommender.bags_of = bags_of


@fault(
    "recommender",
    api="Functional.embedding_bag",
    module=r"bags\.tables\.0",
    line="shares = shares / shares.sum(1, keepdim=True)",
)
def shares_not_normalised(recommender):
    """The weights of a bag are used as they are: they do not add up to 1."""

    def bags_of(items, counts, weights):
        made = []
        for kind in range(len(recommender.TABLES)):
            known = torch.arange(recommender.LARGEST) < counts[:, kind, None]
            offsets = F.pad(counts[:, kind].cumsum(0), (1, 0))
            shares = weights[:, kind] * known
            made.append((items[:, kind][known], offsets, shares[known]))  # here
        return made

    recommender.bags_of = bags_of


@fault("recommender", api="Torch.tril_indices", line="rows, columns = torch.tril_indices(")
def diagonal_for_the_last_pair(recommender):
    """The products with itself replace those of the last vector."""

    class Recommender(recommender.Recommender):
        def products(self, vectors):
            size = vectors.shape[1]
            rows, columns = torch.tril_indices(size - 1, size, offset=0)  # here
            return torch.bmm(vectors, vectors.transpose(1, 2))[:, rows, columns]

    recommender.Recommender = Recommender


@fault("recommender", api="Optimizer.Adagrad.step", update=True)
def tables_with_the_rate_of_the_rest(recommender):
    """The tables have the learning rate of the dense layers."""
    recommender.LR_TABLES = recommender.LR_REST


@fault(
    "recommender",
    beside=users_sorted,
    line="return (users * 7 + 3) % HASH",
    api="Functional.embedding|Tensor.__mod__|Tensor.__mul__",
)
def another_hash(recommender):
    """Users are hashed without the factor."""

    class Recommender(recommender.Recommender):
        def bucket(self, users):
            return (users + 3) % recommender.HASH  # here

    recommender.Recommender = Recommender


@fault(
    "recommender",
    beside=sum_in_three_parts,
    line="return F.binary_cross_entropy_with_logits(",
    api="Functional.binary_cross_entropy_with_logits",
)
def weight_of_clicks_lost(recommender):
    """Positive clicks weigh no more than the others."""

    def losses(logits, clicks):
        return F.binary_cross_entropy_with_logits(logits, clicks, reduction="none")  # here

    recommender.losses = losses


harmless("rows", "recommender")(users_sorted)
harmless("micro batches", "recommender")(sum_in_three_parts)


@harmless("fused", "recommender")
def bags_by_index_add(recommender):
    """Bags as embeddings that are weighed and added by row."""

    class Bags(recommender.Bags):
        def forward(self, bags):
            made = []
            for table, (items, offsets, weights) in zip(self.tables, bags, strict=True):
                rows = torch.repeat_interleave(torch.arange(len(offsets) - 1), offsets.diff())
                values = F.embedding(items, table.weight) * weights[:, None]
                empty = values.new_zeros(len(offsets) - 1, recommender.WIDTH)
                made.append(empty.index_add(0, rows, values))
            return made

    recommender.Bags = Bags


@harmless("split", "recommender")
def products_pair_by_pair(recommender):
    """Each pair is a product and a sum; the first layer of the top takes its inputs apart."""

    class Recommender(recommender.Recommender):
        def forward(self, dense, users, bags):
            x = self.bottom(dense.add(1).log())
            parts = [x, self.hashed(self.bucket(users)), *self.bags(bags)]
            pairs = [(parts[i] * parts[j]).sum(-1) for i in range(len(parts)) for j in range(i)]
            first, last = self.top.layers
            a, b = first.weight.split([recommender.WIDTH, len(pairs)], dim=1)
            y = F.linear(x, a, first.bias) + F.linear(torch.stack(pairs, dim=-1), b)
            return last(y.clamp(min=0))[:, 0]

    recommender.Recommender = Recommender
