"""Cases of the towers in bfloat16 and float16."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def another_scale(precision):
    """The loss scale is 2048 for 512."""
    precision.SCALE = 2048.0


def casts_by_hand(precision):
    """No autocast around the feed-forward parts: weights and inputs are cast by hand."""

    class Tower(precision.Tower):
        def feed(self, x):
            kind = torch.get_autocast_dtype("cpu")
            parameters = [self.up.weight, self.up.bias, self.down.weight, self.down.bias]
            a, b, c, d = (each.to(kind) for each in parameters)
            with torch.autocast("cpu", enabled=False):
                return F.linear(F.silu(F.linear(x.to(kind), a, b)), c, d)

    precision.Tower = Tower


@fault(
    "precision",
    module=r"brain",
    line="return torch.softmax(scores.float(), dim=-1)",
    api="Torch.softmax|Tensor.softmax",
)
def softmax_in_low_precision(precision):
    """The softmax runs in the dtype of the scores."""

    class Tower(precision.Tower):
        def weights(self, scores):
            with torch.autocast("cpu", enabled=False):
                return torch.softmax(scores, dim=-1)  # here

    precision.Tower = Tower


@fault(
    "precision",
    module=r"brain\.norm1",
    line="y = F.layer_norm(x.float(), self.weight.shape",
    api="Functional.layer_norm|Tensor.float|Tensor.(to|bfloat16)",
)
def norm_in_low_precision(precision):
    """The norm takes values, weights and epsilon in the dtype that comes in."""

    class FloatNorm(precision.FloatNorm):
        def forward(self, x):
            x = x.bfloat16()  # here
            weight, bias = self.weight.bfloat16(), self.bias.bfloat16()  # here
            with torch.autocast("cpu", enabled=False):
                return F.layer_norm(x, weight.shape, weight, bias, self.eps)  # here

    precision.FloatNorm = FloatNorm


@fault(
    "precision",
    api="Optimizer.clip_grad_norm_",
    update=True,
    line="nn.utils.clip_grad_norm_(model.parameters(), CLIP)",
)
def clipped_before_unscaled(precision):
    """The scaled gradients are clipped, and unscaled then: they are 512 times too small."""

    def step(model, optimizer, batch):
        x, labels = batch
        optimizer.zero_grad()
        precision.backward(precision.loss(model(x), labels))
        precision.clip(model)  # here
        precision.unscale(model)
        optimizer.step()

    precision.step = step


@fault(
    "precision", line="scores = left @ right.t() / TEMPERATURE", api="Tensor.__matmul__|Tensor.t"
)
def contrast_under_autocast(precision):
    """The contrast of both towers is computed under autocast, so that its product is rounded."""

    def contrast(left, right):
        left, right = F.normalize(left.float(), dim=-1), F.normalize(right.float(), dim=-1)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            scores = left @ right.t() / precision.TEMPERATURE  # here
        return F.cross_entropy(scores.float(), torch.arange(len(scores)))

    precision.contrast = contrast


@fault(
    "precision",
    beside=casts_by_hand,
    line="parameter.grad.mul_(1.0 / SCALE)",
    api="Tensor.mul_|Optimizer.clip_grad_norm_",
    update=True,
)
def one_tower_not_unscaled(precision):
    """The gradients of the classifier's head stay scaled, as of parameters that the scaler does not
    know."""

    def unscale(model):
        for name, parameter in model.named_parameters():
            if not name.startswith("head"):
                parameter.grad.mul_(1.0 / precision.SCALE)  # here

    precision.unscale = unscale


@fault(
    "precision",
    beside=another_scale,
    line="left, right = F.normalize(left.float(), dim=-1)",
    api="Functional.normalize",
)
def normalised_over_the_batch(precision):
    """Rows are normalised over the batch in place of the features."""

    def contrast(left, right):
        left, right = F.normalize(left.float(), dim=0), F.normalize(right.float(), dim=0)  # here
        scores = left @ right.t() / precision.TEMPERATURE
        return F.cross_entropy(scores, torch.arange(len(scores)))

    precision.contrast = contrast


harmless("scaled", "precision")(another_scale)
harmless("precision", "precision")(casts_by_hand)


@harmless("loss", "precision")
def contrast_by_log_softmax(precision):
    """The contrast by norms written out and the diagonal of a log_softmax."""

    def contrast(left, right):
        left, right = left.float(), right.float()
        left = left / left.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        right = right / right.norm(dim=-1, keepdim=True).clamp(min=1e-12)
        scores = torch.einsum("iw,jw->ij", left, right) / precision.TEMPERATURE
        return -scores.log_softmax(-1).diagonal().mean()

    precision.contrast = contrast


@harmless("reordered", "precision")
def half_before_brain(precision):
    """The towers run in the other order."""

    class Towers(precision.Towers):
        def encode(self, x):
            with torch.autocast("cpu", dtype=torch.float16):
                right = self.small(x)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return self.brain(x), right

    precision.Towers = Towers
