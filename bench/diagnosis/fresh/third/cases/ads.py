"""Cases of the advertisements."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "ads",
    line=["shares = torch.exp(-ages / HALF) * known", "return shares / shares.sum(dim=-1"],
)
def empty_places_share(ads):
    """What an empty place would weigh is in the sum that the others are divided by."""

    def shares_of(items, ages):
        shares = torch.exp(-ages / ads.HALF)  # here
        shares = shares / shares.sum(dim=-1, keepdim=True).clamp(min=1e-6)  # here
        return shares * (items != 0)

    ads.shares_of = shares_of


@fault(
    "ads",
    line=[
        "return 0.5 * (total - own).sum(dim=1, keepdim=True)",
        "own = fields.square().sum(dim=1)",
    ],
)
def products_with_itself_stay(ads):
    """The squares of the fields are not taken off."""

    def pairs_of(fields):
        total = fields.sum(dim=1).square()
        return 0.5 * total.sum(dim=1, keepdim=True)  # here

    ads.pairs_of = pairs_of


@fault("ads", module=r"crosses\.1", line="return first * self.wide(self.narrow(x)) + x")
def crossed_with_the_layer_before(ads):
    """A layer crosses its own input with itself, not with the first one."""

    class Cross(ads.Cross):
        def forward(self, first, x):
            return x * self.wide(self.narrow(x)) + x  # here

    ads.Cross = Cross


@fault(
    "ads",
    line=[
        "probability = torch.sigmoid(click) * torch.sigmoid(sale)",
        "return F.binary_cross_entropy(probability, sold)",
    ],
)
def sale_without_a_click(ads):
    """The probability of a sale is not multiplied by that of a click."""

    def sale_loss(click, sale, sold):
        return F.binary_cross_entropy(torch.sigmoid(sale), sold)  # here

    ads.sale_loss = sale_loss


@fault(
    "ads",
    api=r"Functional\.batch_norm|Tensor\.add_",
    module="norm",
    line="first = x = torch.cat([self.norm(dense), fields.flatten(1)], dim=1)",
)
def norm_never_trains(ads):
    """The norm of the dense features stays in evaluation mode: it takes its first statistics."""

    class Model(ads.Model):
        def forward(self, dense, items, weights):
            self.norm.eval()
            return super().forward(dense, items, weights)

    ads.Model = Model


@fault("ads", line="weight = torch.where(clicked > 0, 1.0, 1 / NEGATIVES)")
def thinned_twice(ads):
    """Rows without a click weigh the rate itself, not its inverse."""

    def click_loss(logits, clicked):
        weight = torch.where(clicked > 0, 1.0, ads.NEGATIVES)  # here
        each = F.binary_cross_entropy_with_logits(logits, clicked, reduction="none")
        return (weight * each).sum() / weight.sum()

    ads.click_loss = click_loss


@fault("ads", api="Optimizer.SGD.step", update=True)
def biases_decayed(ads):
    """Biases and norms are decayed, matrices are not."""
    ads.decayed = lambda name, weight: weight.dim() <= 1


@fault("ads", api="Optimizer.SGD.step", update=True, line="self.rest.step()")
def schedule_before_the_step(ads):
    """The schedule is stepped before the optimizer: the first step has the second rate."""

    class Both(ads.Both):
        def step(self):
            self.schedule.step()
            self.tables.step()
            self.rest.step()  # here

    ads.Both = Both


@fault(
    "ads",
    api=r"Functional\.linear",
    module="click|sale",
    line="return self.click(x).squeeze(1), self.sale(x).squeeze(1)",
)
def one_head_for_both(ads):
    """Sales are predicted by the head of the clicks."""

    class Model(ads.Model):
        def __init__(self):
            super().__init__()
            self.sale = self.click

    ads.Model = Model


@harmless("fused", "ads")
def bags_by_einsum(ads):
    """Items are looked up, weighed and added by einsum."""

    class Tables(ads.Tables):
        def forward(self, items, weights):
            sides = zip(self.bags, items.unbind(1), strict=True)
            rows = [F.embedding(i, bag.weight) for bag, i in sides]
            return torch.einsum("bfi,bfiw->bfw", weights * (items != 0), torch.stack(rows, dim=1))

    ads.Tables = Tables


@harmless("split", "ads")
def pair_by_pair(ads):
    """Each pair of fields is a product of its own."""

    def pairs_of(fields):
        a, b, c = fields.unbind(1)
        made = [(x * y).sum(dim=-1) for x, y in ((a, b), (a, c), (b, c))]
        return torch.stack(made).sum(dim=0)[:, None]

    ads.pairs_of = pairs_of


@harmless("loss", "ads")
def losses_of_logarithms(ads):
    """Both losses by softplus; the product of two probabilities is a sum of logarithms."""

    def click_loss(logits, clicked):
        each = F.softplus(logits) - logits * clicked
        weight = clicked + (1 - clicked) / ads.NEGATIVES
        return torch.dot(weight, each) / weight.sum()

    def sale_loss(click, sale, sold):
        log_p = F.logsigmoid(click) + F.logsigmoid(sale)
        return -torch.where(sold > 0, log_p, torch.log1p(-log_p.exp())).mean()

    ads.click_loss, ads.sale_loss = click_loss, sale_loss


@harmless("split", "ads")
def cross_by_one_matrix(ads):
    """The two matrices of a cross are multiplied first; its bias is added later."""

    class Cross(ads.Cross):
        def forward(self, first, x):
            made = x @ (self.wide.weight @ self.narrow.weight).T
            return torch.addcmul(x, first, made + self.wide.bias)

    ads.Cross = Cross


@harmless("fused", "ads")
def optimizers_of_one_kernel(ads):
    """Both optimizers are fused."""
    Both = ads.Both
    ads.Both = lambda model: Both(model, fused=True)


@harmless("rows", "ads", group="whole step")
def rows_rolled(ads):
    """The rows of the batch are rolled by three."""
    step = ads.step
    ads.step = lambda model, optimizer, batch: step(
        model, optimizer, {name: value.roll(3, 0) for name, value in batch.items()}
    )


@harmless("padding", "ads", group="whole step")
def two_more_empty_places(ads):
    """Each bag has two more empty places, in front."""
    step = ads.step

    def padded(model, optimizer, batch):
        wider = {name: F.pad(batch[name], (2, 0)) for name in ("items", "ages")}
        step(model, optimizer, batch | wider)

    ads.step = padded


@harmless("scaled", "ads", group="whole step")
def sales_backward_first(ads):
    """The two losses go backward one after the other, 64 times as large."""

    def backward(model, data):
        click, sale = ads.losses_of(model, data)
        (64 * sale).backward(retain_graph=True)
        (64 * click).backward()
        torch._foreach_mul_([weight.grad for weight in model.parameters()], 1 / 64)

    ads.backward = backward


@harmless("recomputed", "ads", group="whole step")
def crosses_computed_again(ads):
    """The cross network is computed again in the backward pass."""

    class Cross(ads.Cross):
        def __call__(self, first, x):
            return checkpoint(super().__call__, first, x, use_reentrant=False)

    ads.Cross = Cross
