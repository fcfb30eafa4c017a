"""Cases of the patients who come back."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "patients",
    # Bins that are open are chosen by a mask: what it fills is the first float that differs.
    line=[
        "return torch.arange(BINS) > time.unsqueeze(1)",
        "open_bins = found.masked_fill(~later(time).unsqueeze(1), NEVER)",
    ],
    api=r"(Tensor|Torch)\.masked_fill",
)
def bin_of_the_loss_is_open(patients):
    """Patients who were lost may come back in the bin in which they were lost."""

    def later(time):
        return torch.arange(patients.BINS) >= time.unsqueeze(1)  # here

    patients.later = later


@fault(
    "patients",
    line="found = F.log_softmax(logits, dim=1)",
    api=r"(Functional|Tensor|Torch)\.log_softmax",
)
def softmax_over_patients(patients):
    """The softmax is over the patients of the batch."""

    def chances(logits):
        found = F.log_softmax(logits, dim=0)  # here
        bins = found[:, :-1].unflatten(1, (patients.RISKS, patients.BINS))
        return bins, found[:, -1]

    patients.chances = chances


@fault(
    "patients",
    # Pairs are chosen by a mask: the product of weights with it is the first float that differs.
    line=[
        "return (risk == k).unsqueeze(1) & (time.unsqueeze(1) < time)",
        "weights = weight.unsqueeze(1) * weight * pairs",
    ],
    api=r"(Tensor|Torch)\.(mul|__mul__)",
)
def lost_patients_are_ranked(patients):
    """Patients of all risks, and those who were lost, are ranked by each risk."""

    def comparable(time, risk, k):
        return time.unsqueeze(1) < time  # here

    patients.comparable = comparable


@fault(
    "patients",
    # The table is turned: the difference is the first call that computes with it.
    line=[
        "return until[:, time].T",
        "at = at_times_of_rows(until, time)",
        "gains = at.diagonal().unsqueeze(1) - at",
    ],
    api=r"Tensor\.(__getitem__|diagonal|sub|__sub__)|Torch\.(sub|diagonal)",
)
def times_of_the_columns(patients):
    """Each chance is that at the time of the other patient."""

    def at_times_of_rows(until, time):
        return until[:, time]  # here

    patients.at_times_of_rows = at_times_of_rows


@fault(
    "patients",
    # The bounds are missing: the product with the weights is the first call that lacks them.
    line=[
        "return ((x.unsqueeze(2) - self.low) / (self.high - self.low)).clamp(0, 1)",
        'tokens = torch.einsum("rnp,npw->rnw", pieces, self.weight) + self.bias',
    ],
    api=r"Torch\.einsum|Functional\.einsum",
    module=r"net\.numbers",
    module_only=r"net\.numbers",
)
def pieces_without_bounds(patients):
    """Numbers beside a piece fill it by more than all, or by less than nothing."""

    class Numbers(patients.Numbers):
        def pieces(self, x):
            return (x.unsqueeze(2) - self.low) / (self.high - self.low)  # here

    patients.Numbers = Numbers


@fault(
    "patients",
    # What chooses is missing: what reads the tokens is the first that lacks it.
    line=[
        "return torch.where(known.unsqueeze(2), tokens, self.absent)",
        "return torch.cat([self.numbers(numbers), self.categories(categories)], dim=1)",
    ],
    api=r"Torch\.cat",
    module=r"net(\.numbers)?",
    module_only=r"net(\.numbers)?",
)
def unknown_numbers_are_zero(patients):
    """Numbers that are not known are read as zeros."""

    class Numbers(patients.Numbers):
        def forward(self, x):
            pieces = self.pieces(x.nan_to_num(0.0))
            return torch.einsum("rnp,npw->rnw", pieces, self.weight) + self.bias  # here

    patients.Numbers = Numbers


@fault(
    "patients",
    # Indices are integers: the table is the first call with floats.
    line=[
        "return sizes.cumsum(0) - sizes",
        "return self.table(x + beginnings()) + self.bias",
    ],
    api=r"Functional\.embedding|Module\.net\.categories\.table\..*",
    module=r"net\.categories(\.table)?",
    module_only=r"net\.categories(\.table)?",
)
def categories_share_rows(patients):
    """The rows of all categories begin with the first one of the table."""

    def beginnings():
        return torch.zeros(len(patients.CATEGORIES), dtype=torch.long)  # here

    patients.beginnings = beginnings


@fault(
    "patients",
    # What is compared is no float: the product with the weights is the first one.
    line=[
        "lost = (risk == LOST).to(weight.dtype) * weight",
        "gone = torch.zeros(BINS, dtype=weight.dtype).index_add(0, time, lost)",
    ],
    api=r"(Tensor|Torch)\.(mul|__mul__|to)",
)
def curve_of_those_who_come_back(patients):
    """The curve falls where patients come back, not where they are lost."""

    def still_followed(time, risk, weight):
        bins = torch.arange(patients.BINS)
        at_risk = (weight.unsqueeze(1) * (time.unsqueeze(1) >= bins)).sum(dim=0)
        lost = (risk != patients.LOST).to(weight.dtype) * weight  # here
        gone = torch.zeros(patients.BINS, dtype=weight.dtype).index_add(0, time, lost)
        left = 1 - gone / at_risk.clamp(min=patients.LEAST)
        return left.cumprod(dim=0).clamp(min=patients.LEAST)

    patients.still_followed = still_followed


@fault(
    "patients",
    # The rest is missing in what is joined.
    line="lost = torch.cat([open_bins.flatten(1), rest.unsqueeze(1)], dim=1).logsumexp(dim=1)",
    api=r"(Tensor|Torch)\.(logsumexp|cat)",
)
def all_come_back(patients):
    """Patients who were lost come back in one of the bins: the rest is left out."""

    def likelihoods(found, rest, time, risk):
        place = risk.clamp(min=0) * patients.BINS + time
        seen = found.flatten(1).gather(1, place.unsqueeze(1)).squeeze(1)
        open_bins = found.masked_fill(~patients.later(time).unsqueeze(1), patients.NEVER)
        lost = open_bins.flatten(1).logsumexp(dim=1)  # here
        return torch.where(risk == patients.LOST, lost, seen)

    patients.likelihoods = likelihoods


@fault("patients", api=r"Optimizer\.AdamW\.step", update=True)
def tokens_decay(patients):
    """What makes tokens of columns decays like other weights."""

    def decays(name):
        return "norm" not in name and not name.endswith("bias")

    patients.decays = decays


@fault(
    "patients",
    line=[
        "keep = torch.clamp((1 + model.moves) / (4 + model.moves), max=KEEP)",
        "slow.mul_(keep).add_((1 - keep) * mine)",
    ],
)
def slow_weights_remember_their_start(patients):
    """The first moves of the slow weights are as small as later ones."""

    @torch.no_grad()
    def move_slow(model):
        model.moves += 1
        for slow, mine in zip(model.slow.parameters(), model.net.parameters(), strict=True):
            slow.mul_(patients.KEEP).add_((1 - patients.KEEP) * mine)  # here

    patients.move_slow = move_slow


@harmless("fused", "patients")
def attention_by_products(patients):
    """The attention is two products and a softmax."""

    class Attention(patients.Attention):
        def attend(self, query, key, value):
            return (query @ key.mT / query.shape[-1] ** 0.5).softmax(dim=3) @ value

    patients.Attention = Attention


@harmless("split", "patients")
def projections_joined(patients):
    """Queries, keys and values come from one product."""

    class Attention(patients.Attention):
        def projections(self, x):
            layers = (self.query, self.key, self.value)
            weight = torch.cat([layer.weight for layer in layers])
            bias = torch.cat([layer.bias for layer in layers])
            return F.linear(x, weight, bias).chunk(3, dim=2)

    patients.Attention = Attention


@harmless("inserted", "patients")
def pieces_between_bounds(patients):
    """Numbers are bounded by each piece before they are divided by its length."""

    class Numbers(patients.Numbers):
        def pieces(self, x):
            inner = torch.minimum(torch.maximum(x.unsqueeze(2), self.low), self.high)
            return (inner - self.low) / (self.high - self.low)

    patients.Numbers = Numbers


@harmless("fused", "patients")
def incidence_by_a_product(patients):
    """Sums that grow are a product with a triangle of ones."""

    def incidence(found):
        return found.exp() @ torch.ones(patients.BINS, patients.BINS, dtype=found.dtype).triu()

    patients.incidence = incidence


@harmless("loss", "patients")
def losses_of_pairs_that_are_picked(patients):
    """Pairs that can be compared are picked, and their losses are added."""

    def ranking_of(until, time, weight, pairs):
        row, column = pairs.nonzero(as_tuple=True)
        gains = until[row, time[row]] - until[column, time[row]]
        weights = weight[row] * weight[column]
        losses = torch.dot(weights, torch.exp(gains / -patients.SIGMA))
        return losses / weights.sum().clamp(min=patients.LEAST)

    patients.ranking_of = ranking_of


@harmless("rows", "patients", group="whole step")
def patients_in_another_order(patients):
    """The patients are in another order."""
    backward = patients.backward
    order = [(3 * k + 4) % patients.ROWS for k in range(patients.ROWS)]

    def shuffled(model, inputs):
        backward(model, {name: value[order] for name, value in inputs.items()})

    patients.backward = shuffled


@harmless("rows", "patients", group="whole step")
def columns_in_another_order(patients):
    """Tokens of categories stand before those of numbers."""

    class Net(patients.Net):
        def columns(self, numbers, categories):
            parts = [self.categories(categories), self.numbers(numbers)]
            return torch.cat(parts, dim=1).flip(1)

    patients.Net = Net


@harmless("padding", "patients", group="whole step")
def more_patients_without_weight(patients):
    """The batch is filled up with two patients who have no weight."""
    backward = patients.backward

    def filled(model, inputs):
        more = {name: torch.cat([value, value[:2]]) for name, value in inputs.items()}
        backward(model, more | {"weight": F.pad(inputs["weight"], (0, 2))})

    patients.backward = filled


@harmless("scaled", "patients", group="whole step")
def loss_is_scaled(patients):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = patients.loss_of, patients.clip
    patients.loss_of = lambda *given: 256.0 * loss_of(*given)

    def unscaled(model):
        for p in model.net.parameters():
            p.grad.mul_(1 / 256.0)
        clip(model)

    patients.clip = unscaled


@harmless("recomputed", "patients", group="whole step")
def layers_computed_again(patients):
    """The layers are computed again in the backward pass."""

    class Layer(patients.Layer):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    patients.Layer = Layer
