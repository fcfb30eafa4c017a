"""Cases of the three tasks."""

import torch
from case import fault, harmless
from torch.nn import functional as F

ENCODER = r"encoder"


@fault(
    "multitask",
    module=ENCODER,
    line=[
        "share = score.masked_fill(~known",
        "known = torch.arange(x.shape[1]) < lengths[:, None]",
    ],
)
def one_time_too_many(multitask):
    """The mask lets the first unknown time in."""

    class Encoder(multitask.Encoder):
        def forward(self, x, lengths):
            states, _ = self.gru(torch.tanh(self.embed(x)))
            known = torch.arange(x.shape[1]) <= lengths[:, None]  # here
            score = self.score(torch.tanh(states)).squeeze(-1) / multitask.TEMPERATURE
            share = score.masked_fill(~known, float("-inf")).softmax(dim=1)  # here
            return (share[..., None] * states).sum(dim=1)

    multitask.Encoder = Encoder


@fault(
    "multitask",
    module=ENCODER,
    line=["share = score.masked_fill(~known", "return (share[..., None] * states).sum(dim=1)"],
)
def known_times_by_multiplication(multitask):
    """Unknown scores are set to zero before the softmax, not to minus infinity."""

    class Encoder(multitask.Encoder):
        def forward(self, x, lengths):
            states, _ = self.gru(torch.tanh(self.embed(x)))
            known = torch.arange(x.shape[1]) < lengths[:, None]
            score = self.score(torch.tanh(states)).squeeze(-1) / multitask.TEMPERATURE
            share = (score * known).softmax(dim=1)  # here
            return (share[..., None] * states).sum(dim=1)

    multitask.Encoder = Encoder


@fault(
    "multitask", line=["weight = len(kinds) / (KINDS * counts.clamp(min=1))", "own = weight[kinds]"]
)
def frequent_kinds_weigh_more(multitask):
    """The weight of a kind is its count, not the inverse."""

    def kind_loss(logits, kinds):
        counts = torch.bincount(kinds, minlength=multitask.KINDS)
        weight = multitask.KINDS * counts / len(kinds)  # here
        log_p = logits.log_softmax(dim=-1)
        chosen = log_p.gather(1, kinds[:, None]).squeeze(1)
        own = weight[kinds]
        return -(own * chosen).sum() / own.sum()

    multitask.kind_loss = kind_loss


@fault("multitask", line="return -(own * chosen).sum() / own.sum()")
def divided_by_the_kinds(multitask):
    """The weighted entropy is divided by the number of kinds, not by the sum of their weights."""

    def kind_loss(logits, kinds):
        counts = torch.bincount(kinds, minlength=multitask.KINDS)
        weight = len(kinds) / (multitask.KINDS * counts.clamp(min=1))
        log_p = logits.log_softmax(dim=-1)
        chosen = log_p.gather(1, kinds[:, None]).squeeze(1)
        return -(weight[kinds] * chosen).sum() / multitask.KINDS  # here

    multitask.kind_loss = kind_loss


@fault(
    "multitask", line=["return 0.5 * (variance.log() + (truth - mean).square() / variance).mean()"]
)
def deviation_for_variance(multitask):
    """The distance is divided by the square of the predicted variance."""

    def value_loss(predicted, truth):
        mean, raw = predicted.unbind(-1)
        variance = F.softplus(raw) + 1e-3
        return 0.5 * (variance.log() + ((truth - mean) / variance).square()).mean()  # here

    multitask.value_loss = value_loss


@fault(
    "multitask",
    line=[
        "before = order[:, None] > order[None, :]",
        "apart = scores[:, None] - scores[None, :]",
        "hinge = F.relu(MARGIN - apart) * before",
    ],
)
def order_transposed(multitask):
    """The pairs are compared the other way round."""

    def rank_loss(scores, order):
        apart = scores[:, None] - scores[None, :]
        before = order[:, None] < order[None, :]  # here
        hinge = F.relu(multitask.MARGIN - apart) * before  # here
        return hinge.sum() / before.sum()

    multitask.rank_loss = rank_loss


@fault("multitask", line=["own = own - dot / other.square().sum() * other", "dot = own @ other"])
def projection_by_the_norm(multitask):
    """What is taken off a gradient is divided by the norm, not by its square."""

    def without_conflicts(gradients):
        made = []
        for i, own in enumerate(gradients):
            for j, other in enumerate(gradients):
                dot = own @ other
                if i != j and dot < 0:
                    own = own - dot / other.norm() * other  # here
            made.append(own)
        return torch.stack(made)

    multitask.without_conflicts = without_conflicts


@fault(
    "multitask",
    line=["return [loss * torch.exp(-s) + 0.5 * s for loss, s in zip(losses, noise, strict=True)]"],
)
def noise_not_penalised(multitask):
    """The learned noise has no penalty that holds it."""

    def losses_of(model, data):
        kind, value, rank = model(data["x"], data["lengths"])
        losses = [
            multitask.kind_loss(kind, data["kind"]),
            multitask.value_loss(value, data["value"]),
            multitask.rank_loss(rank, data["order"]),
        ]
        noise = model.log_noise
        return [loss * torch.exp(-s) for loss, s in zip(losses, noise, strict=True)]  # here

    multitask.losses_of = losses_of


@fault("multitask", line=["slow.add_(fast - slow, alpha=SLOW)", "fast.copy_(slow)"], update=True)
def fast_weights_stay(multitask):
    """The slow weights are updated, and the fast ones do not begin there again."""

    class Lookahead(multitask.Lookahead):
        @torch.no_grad()
        def update(self):
            for slow, fast in zip(self.slow, self.weights, strict=True):
                slow.add_(fast - slow, alpha=multitask.SLOW)  # here

    multitask.Lookahead = Lookahead


@harmless("loss", "multitask")
def kind_loss_of_pytorch(multitask):
    """cross_entropy weighs the kinds; it divides by the weights itself."""

    def kind_loss(logits, kinds):
        counts = F.one_hot(kinds, multitask.KINDS).sum(0)
        return F.cross_entropy(logits, kinds, weight=1 / counts.clamp(min=1).to(logits.dtype))

    multitask.kind_loss = kind_loss


@harmless("loss", "multitask")
def likelihood_of_pytorch(multitask):
    """gaussian_nll_loss is the likelihood."""

    def value_loss(predicted, truth):
        variance = F.softplus(predicted[:, 1]) + 1e-3
        return F.gaussian_nll_loss(predicted[:, 0], truth, variance, eps=1e-12)

    multitask.value_loss = value_loss


@harmless("time steps", "multitask")
def recurrence_written_out(multitask):
    """The GRU's cells are computed time after time, in both directions."""

    def one_way(x, w, u, b, c):
        h, states = x.new_zeros(len(x), multitask.WIDTH // 2), []
        inside = x @ w.T + b
        for each in inside.unbind(1):
            r, z, n = each.chunk(3, dim=-1)
            hr, hz, hn = F.linear(h, u, c).chunk(3, dim=-1)
            z = torch.sigmoid(z + hz)
            n = torch.tanh(n + torch.sigmoid(r + hr) * hn)
            h = (1 - z) * n + z * h
            states.append(h)
        return torch.stack(states, dim=1)

    class Encoder(multitask.Encoder):
        def forward(self, x, lengths):
            x = torch.tanh(self.embed(x))
            weights = list(self.gru.parameters())
            ahead = one_way(x, *weights[:4])
            back = one_way(x.flip(1), *weights[4:]).flip(1)
            states = torch.cat([ahead, back], dim=-1)
            known = torch.arange(x.shape[1]) < lengths[:, None]
            score = self.score(torch.tanh(states)).squeeze(-1) / multitask.TEMPERATURE
            share = score.masked_fill(~known, float("-inf")).softmax(dim=1)
            return torch.bmm(share[:, None], states)[:, 0]

    multitask.Encoder = Encoder


@harmless("reordered", "multitask")
def surgery_by_a_list(multitask):
    """The surgery of each task is a loop over the others, last task first."""

    def without_conflicts(gradients):
        made = {}
        for i in (2, 1, 0):
            own = gradients[i].clone()
            for j in range(len(gradients)):
                if j != i:
                    dot = torch.dot(own, gradients[j])
                    factor = torch.clamp(dot, max=0) / gradients[j].dot(gradients[j])
                    own = torch.addcmul(own, factor, gradients[j], value=-1)
            made[i] = own
        return torch.stack([made[0], made[1], made[2]])

    multitask.without_conflicts = without_conflicts


@harmless("rows", "multitask", group="whole step")
def rows_turned(multitask):
    """The rows of the batch stand in the other order."""
    step = multitask.step
    multitask.step = lambda model, optimizer, batch: step(
        model, optimizer, {name: value.flip(0) for name, value in batch.items()}
    )


@harmless("scaled", "multitask", group="whole step")
def each_task_backward(multitask):
    """Each task goes backward as a whole, last task first; gradients are taken from the weights."""

    def backward(model, data):
        shared = list(model.encoder.parameters())
        losses, rows = multitask.losses_of(model, data), {}
        for number in (2, 1, 0):
            for weight in shared:
                weight.grad = None
            losses[number].backward(retain_graph=number > 0)
            rows[number] = torch.cat([weight.grad.flatten() for weight in shared])
        flat = multitask.without_conflicts(torch.stack([rows[0], rows[1], rows[2]])).sum(dim=0)
        start = 0
        for weight in shared:
            weight.grad = flat[start : start + weight.numel()].view_as(weight).clone()
            start += weight.numel()

    multitask.backward = backward


@harmless("recomputed", "multitask", group="whole step")
def encoder_for_each_task(multitask):
    """The encoder is computed three times, once for each task; each head sees its own."""

    class Model(multitask.Model):
        def forward(self, x, lengths):
            heads = self.heads
            return (
                heads.kind(self.encoder(x, lengths)),
                heads.value(self.encoder(x, lengths)),
                heads.rank(self.encoder(x, lengths)).squeeze(-1),
            )

    multitask.Model = Model

    def gradients_of(losses, shared):
        rows = [torch.autograd.grad(loss, shared, retain_graph=True) for loss in losses]
        return torch.stack([torch.cat([part.flatten() for part in row]) for row in rows])

    multitask.gradients_of = gradients_of


@harmless("rows", "multitask", group="whole step")
def longest_row_first(multitask):
    """Rows stand by their length, the longest first."""
    step = multitask.step

    def by_length(model, optimizer, batch):
        order = batch["lengths"].argsort(descending=True, stable=True)
        step(model, optimizer, {name: value[order] for name, value in batch.items()})

    multitask.step = by_length
