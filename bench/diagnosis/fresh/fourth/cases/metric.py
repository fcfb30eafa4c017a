"""Cases of the metric learning."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "metric",
    update=True,
    steps=3,
    line=[
        "slow.add_(fast - slow, alpha=self.alpha)",
        "fast.copy_(slow)",
        "            self.follow()",
        "return [p.detach().clone() for p in self.fast]",
    ],
)
def slow_weights_not_copied(metric):
    """The slow weights share the memory of the fast ones: following does nothing."""

    class Lookahead(metric.Lookahead):
        def copies(self):
            return [p.detach() for p in self.fast]  # here

    metric.Lookahead = Lookahead


@fault(
    "metric",
    # The pairs of the second step: labels of the memory are wrong where they are first read.
    steps=3,
    line=[
        "self.labels[where] = labels",
        "return self.feats.clone(), self.labels.clone()",
        "queued, queued_labels = model.memory.get()",
        "every = torch.cat([labels, queued_labels])",
    ],
)
def labels_in_memory_stay(metric):
    """New embeddings are written into the memory, their labels only into a copy."""

    class Memory(metric.Memory):
        @torch.no_grad()
        def enqueue(self, feats, labels):
            where = (self.ptr + torch.arange(len(feats))) % metric.QUEUE
            self.feats[where] = feats
            _, own = self.get()
            own[where] = labels  # here
            self.ptr = (self.ptr + len(feats)) % metric.QUEUE

    metric.Memory = Memory


@fault(
    "metric",
    line=[
        "own.diagonal(offset=rank * len(local_labels)).fill_(True)",
        "return same & ~own & known, ~same & known",
    ],
)
def first_shard_for_all(metric):
    """Each shard hides the diagonal of the first: anchors of the second are their own positives."""

    def masks(local_labels, labels, rank):
        same = local_labels[:, None] == labels[None]
        known = (labels != metric.EMPTY)[None]
        own = torch.zeros_like(same)
        own.diagonal().fill_(True)  # here
        return same & ~own & known, ~same & known  # here

    metric.masks = masks


@fault(
    "metric",
    line=[
        "far = dist.masked_fill(~pos, -1.0).max(dim=1)[0]",
        "near = dist.masked_fill(~neg, 4.0).min(dim=1)[0]",
    ],
)
def mined_as_similarities(metric):
    """Distances are mined as if they were similarities: the easiest triplets are taken."""

    def hardest(dist, pos, neg):
        far = dist.masked_fill(~pos, 4.0).min(dim=1)[0]  # here
        near = dist.masked_fill(~neg, -1.0).max(dim=1)[0]  # here
        return far, near

    metric.hardest = hardest


@fault(
    "metric",
    # Forward, nothing is wrong. Backward, the scale has no gradient.
    api=r"Optimizer\.SGD\.step",
    line=[
        "return model.log_scale.exp()",
        "scale = learned_scale(model)",
        "push = log_one_plus(scale * (sim - BASE), neg) / scale",
    ],
)
def scale_as_a_number(metric):
    """The learned scale is taken out as a number: it is never trained."""
    metric.learned_scale = lambda model: model.log_scale.exp().item()  # here


@fault(
    "metric",
    api=r"Tensor\.(mean|pow|__pow__|clamp)",
    module=r"net\.pool",
    line=[
        "return x.mean(dim=(-2, -1)).pow(1.0 / self.p)",
        "x = x.clamp(min=self.eps).pow(self.p)",
    ],
)
def averaged_before_the_power(metric):
    """Pixels are averaged first, and the powers undo each other: a plain mean."""

    class GeM(metric.GeM):
        def forward(self, x):
            x = x.clamp(min=self.eps).mean(dim=(-2, -1))  # here
            return x.pow(self.p).pow(1.0 / self.p)  # here

    metric.GeM = GeM


@fault(
    "metric",
    api=r"Tensor\.any",
    line=[
        "with_pos = hot.any(dim=0).sum()",
        "pull = torch.log1p(pos_exp.sum(dim=0)).sum() / with_pos",
    ],
)
def pictures_for_proxies(metric):
    """The pull is divided by the pictures, not by the proxies that have some: the wrong axis."""

    def proxy_anchor(model, feats, labels):
        cos = F.linear(feats, F.normalize(model.proxies, dim=1))
        hot = F.one_hot(labels, len(model.proxies)).bool()
        pos_exp = torch.exp(-metric.PROXY_ALPHA * (cos - metric.PROXY_MARGIN))
        pos_exp = pos_exp.masked_fill(~hot, 0.0)
        neg_exp = torch.exp(metric.PROXY_ALPHA * (cos + metric.PROXY_MARGIN))
        neg_exp = neg_exp.masked_fill(hot, 0.0)
        with_pos = hot.any(dim=1).sum()  # here
        pull = torch.log1p(pos_exp.sum(dim=0)).sum() / with_pos  # here
        return pull + torch.log1p(neg_exp.sum(dim=0)).sum() / len(model.proxies)

    metric.proxy_anchor = proxy_anchor


@fault(
    "metric",
    # Forward, nothing is wrong. Backward, what joins the shards gives some of them no gradient.
    api=r"Torch\.(cat|chunk|split)|Tensor\.(chunk|split)",
    line=[
        "return torch.cat(parts, dim=0)",
        "gathered = gather(parts, rank)",
        "return local @ torch.cat([gathered, queued]).t()",
        "parts, own_labels = feats.chunk(SHARDS), labels.chunk(SHARDS)",
    ],
)
def gathered_without_gradient(metric):
    """Embeddings of other shards have no gradient, as all_gather gives them."""

    def gather(parts, rank):
        return torch.cat([p if i == rank else p.detach() for i, p in enumerate(parts)])  # here

    metric.gather = gather


@harmless("split", "metric")
def memory_compared_apart(metric):
    """The similarities to the batch and to the memory are two products."""

    def similarities(local, gathered, queued):
        near = torch.einsum("id,jd->ij", local, gathered)
        return torch.cat([near, torch.mm(local, queued.t())], dim=1)

    metric.similarities = similarities


@harmless("loss", "metric")
def pairs_by_logsumexp(metric):
    """The sum of exponentials is a logsumexp beside a zero; other pairs are at minus infinity."""

    def log_one_plus(x, mask):
        x = x.masked_fill(~mask, float("-inf"))
        return torch.logsumexp(F.pad(x, (1, 0)), dim=1)

    metric.log_one_plus = log_one_plus


@harmless("fused", "metric")
def pooled_by_avg_pool(metric):
    """The pooling is avg_pool2d, and the powers are exponentials of logarithms."""

    class GeM(metric.GeM):
        def forward(self, x):
            x = (self.p * x.clamp(min=self.eps).log()).exp()
            x = F.avg_pool2d(x, (x.size(-2), x.size(-1)))
            return (x.flatten(1).log() / self.p).exp()

    metric.GeM = GeM


@harmless("fused", "metric")
def followed_by_lists(metric):
    """The slow weights follow by operations on lists."""

    class Lookahead(metric.Lookahead):
        @torch.no_grad()
        def follow(self):
            torch._foreach_lerp_(self.slow, self.fast, self.alpha)
            torch._foreach_copy_(self.fast, self.slow)

    metric.Lookahead = Lookahead


@harmless("rows", "metric", group="whole step")
def pictures_dealt_anew(metric):
    """The pictures stand in another order: the shards have others of them."""
    step = metric.step

    def dealt(model, optimizer, batch):
        x, labels = batch
        order = torch.arange(len(x)).view(3, -1).t().flatten()
        step(model, optimizer, (x[order], labels[order]))

    metric.step = dealt


@harmless("micro batches", "metric", group="whole step")
def gradients_of_embeddings_cached(metric):
    """Embeddings are computed without a graph, and again chunk by chunk for their gradients."""

    def backward(model, x, labels):
        with torch.no_grad():
            feats = torch.cat([model(part) for part in x.split(4)])
        feats.requires_grad_()
        sum(metric.losses_of(model, feats, labels)).backward()
        for part, grad in zip(x.split(4), feats.grad.split(4), strict=True):
            model(part).backward(gradient=grad)
        return feats.detach()

    metric.backward = backward


@harmless("padding", "metric", group="whole step")
def more_empty_places(metric):
    """The memory has six more places, always empty, before the others."""

    class Memory(metric.Memory):
        def get(self):
            feats, labels = super().get()
            return F.pad(feats, (0, 0, 6, 0)), F.pad(labels, (6, 0), value=metric.EMPTY)

    metric.Memory = Memory


@harmless("scaled", "metric", group="whole step")
def losses_one_after_the_other(metric):
    """The losses go backward apart, the last one first, 32 times as large."""

    def backward(model, x, labels):
        feats = model(x)
        losses = metric.losses_of(model, feats, labels)
        for each in losses[::-1]:
            (32 * each).backward(retain_graph=True)
        for p in model.parameters():
            p.grad.mul_(1 / 32)
        return feats.detach()

    metric.backward = backward
