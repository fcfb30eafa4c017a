"""Cases of the electrocardiograms."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "heart",
    line=[
        "slow = F.avg_pool1d(signal, cfg.window, 1, padding=half, count_include_pad=False)",
    ],
)
def zeros_at_the_ends(heart):
    """The mean of a window counts the zeros beyond the ends of a record: the default."""

    def remove_wander(signal):
        half = heart.cfg.window // 2
        return signal - F.avg_pool1d(signal, heart.cfg.window, 1, padding=half)  # here

    heart.remove_wander = remove_wander


@fault("heart", line="std = signal.std(dim=2, keepdim=True)")
def one_spread_for_all_leads(heart):
    """The spread is that of all leads of a record together."""

    def standardize(signal):
        mean = signal.mean(dim=2, keepdim=True)
        std = signal.std(dim=(1, 2), keepdim=True)  # here
        return (signal - mean) / (std + heart.cfg.eps)

    heart.standardize = standardize


@fault(
    "heart",
    line="return torch.sigmoid(self.up(squeezed))",
    api=r"Torch\.(softmax|sigmoid)|Functional\.softmax|Tensor\.softmax",
    module=r"block1\.se",
    module_only=r"block1\.se",
)
def gates_add_up_to_one(heart):
    """The gates of channels are a softmax."""

    class SqueezeExcite(heart.SqueezeExcite):
        def gates(self, x):
            squeezed = F.relu(self.down(x.mean(dim=2)))
            return torch.softmax(self.up(squeezed), dim=1)  # here

    heart.SqueezeExcite = SqueezeExcite


@fault(
    "heart",
    line=[
        "h = self.conv1(F.relu(self.norm1(x)))",
        "return self.se(h) + self.shortcut(x)",
    ],
    api=r"Module\.block1\.shortcut\..*|Functional\.conv1d|Torch\.conv1d",
    module=r"block1\.shortcut",
    module_only=r"block1(\.shortcut)?",
)
def shortcut_after_the_activation(heart):
    """The shortcut gets what was normalized and cut: the name is used for both."""

    class ResBlock(heart.ResBlock):
        def forward(self, x):
            x = F.relu(self.norm1(x))  # here
            h = self.conv1(x)
            h = self.conv2(F.relu(self.norm2(h)))
            return self.se(h) + self.shortcut(x)  # here

    heart.ResBlock = ResBlock


@fault(
    "heart",
    line="weights = torch.softmax(self.score(x), dim=1)",
    api=r"Torch\.softmax|Functional\.softmax|Tensor\.softmax",
    module="pool",
    module_only="pool",
)
def weights_of_moments_are_one(heart):
    """The softmax is over the last axis, which has one element: moments are just summed."""

    class AttentionPool(heart.AttentionPool):
        def forward(self, x):
            x = x.transpose(1, 2)
            weights = torch.softmax(self.score(x), dim=-1)  # here
            return (weights * x).sum(dim=1)

    heart.AttentionPool = AttentionPool


@fault(
    "heart",
    line=[
        "losses = F.binary_cross_entropy_with_logits(",
        'logits, batch["labels"], pos_weight=pos_weight, reduction="none"',
    ],
    api=r"Functional\.binary_cross_entropy_with_logits|Torch\.binary_cross_entropy_with_logits",
)
def healthy_people_weigh_more_too(heart):
    """The weights of diseases are given for all labels, not for those that are true."""

    def label_losses(logits, batch):
        weight = torch.tensor(heart.cfg.pos_weight, dtype=logits.dtype)
        losses = F.binary_cross_entropy_with_logits(  # here
            logits,
            batch["labels"],
            weight=weight,
            reduction="none",  # here
        )
        return losses * batch["known"]

    heart.label_losses = label_losses


@fault(
    "heart",
    line='return F.smooth_l1_loss(rate.squeeze(1), target, beta=cfg.beta, reduction="none")',
)
def each_rate_against_all(heart):
    """A column is compared with a row: each rate is compared with those of all records."""

    def rate_losses(rate, batch):
        target = (batch["bpm"] - 75) / 25
        losses = F.smooth_l1_loss(  # here
            rate,
            target,
            beta=heart.cfg.beta,
            reduction="none",  # here
        )
        return losses.mean(dim=1)

    heart.rate_losses = rate_losses


@fault(
    "heart",
    # The count is no tensor any more; the quotient is the first to use it.
    line=[
        'return batch["known"].sum(), len(batch["signal"])',
        "loss = label_losses(logits, batch).sum() / counts[0]",
    ],
)
def unknown_labels_count(heart):
    """The loss is divided by the number of all labels, known or not."""

    def counts_of(batch):
        return batch["known"].numel(), len(batch["signal"])  # here

    heart.counts_of = counts_of


@fault("heart", api=r"Optimizer\.AdamW\.step", update=True)
def norms_and_biases_decay(heart):
    """All weights decay."""

    def parameter_groups(model):
        return [{"params": list(model.parameters()), "weight_decay": heart.cfg.weight_decay}]

    heart.parameter_groups = parameter_groups


@harmless("split", "heart")
def stem_lead_by_lead(heart):
    """The first convolution is a sum over leads."""

    class HeartNet(heart.HeartNet):
        def describe(self, signal, people):
            stem = self.stem
            leads = [
                F.conv1d(signal[:, i : i + 1], stem.weight[:, i : i + 1], None, 2, 3)
                for i in range(heart.cfg.leads)
            ]
            x = self.block2(self.block1(sum(leads) + stem.bias[:, None]))
            pooled = self.pool(F.relu(self.norm(x)))
            return torch.cat([pooled, torch.tanh(self.person(people))], dim=1)

    heart.HeartNet = HeartNet


@harmless("fused", "heart")
def pool_by_a_product(heart):
    """The mean of moments is a product of weights and moments."""

    class AttentionPool(heart.AttentionPool):
        def forward(self, x):
            weights = torch.softmax(self.score(x.transpose(1, 2)), dim=1)
            return torch.bmm(x, weights).squeeze(2)

    heart.AttentionPool = AttentionPool


@harmless("loss", "heart")
def losses_by_softplus(heart):
    """The losses of labels are two terms, for what is true and for what is not."""

    def label_losses(logits, batch):
        pos_weight = torch.tensor(heart.cfg.pos_weight, dtype=logits.dtype)
        true = pos_weight * batch["labels"] * F.softplus(-logits)
        return (true + (1 - batch["labels"]) * F.softplus(logits)) * batch["known"]

    heart.label_losses = label_losses


@harmless("reordered", "heart")
def rate_before_labels(heart):
    """The head of the rate is called first."""

    class HeartNet(heart.HeartNet):
        def forward(self, signal, people):
            x = self.describe(signal, people)
            rate = self.rate_head(x)
            return self.label_head(x), rate

    heart.HeartNet = HeartNet


@harmless("inserted", "heart")
def gates_by_small_kernels(heart):
    """The gates are made by convolutions with kernels of size one."""

    class SqueezeExcite(heart.SqueezeExcite):
        def gates(self, x):
            mean = F.adaptive_avg_pool1d(x, 1)
            squeezed = F.relu(F.conv1d(mean, self.down.weight[:, :, None], self.down.bias))
            made = F.conv1d(squeezed, self.up.weight[:, :, None], self.up.bias)
            return torch.sigmoid(made).squeeze(2)

    heart.SqueezeExcite = SqueezeExcite


@harmless("rows", "heart", group="whole step")
def records_in_another_order(heart):
    """The records are in another order."""
    backward = heart.backward

    def shuffled(model, batch):
        order = torch.tensor([4, 0, 5, 2, 1, 3])
        backward(model, {name: value[order] for name, value in batch.items()})

    heart.backward = shuffled


@harmless("micro batches", "heart", group="whole step")
def three_records_at_a_time(heart):
    """Three records go backward at a time; sums are divided by counts of all."""

    def backward(model, batch):
        counts = heart.counts_of(batch)
        for rows in (slice(0, 3), slice(3, 6)):
            part = {name: value[rows] for name, value in batch.items()}
            heart.loss_of(model, part, counts).backward()

    heart.backward = backward


@harmless("scaled", "heart", group="whole step")
def loss_times_a_number(heart):
    """The loss is scaled for the backward pass; gradients are unscaled before they are clipped."""
    clip = heart.clip

    def backward(model, batch):
        (heart.loss_of(model, batch, heart.counts_of(batch)) * 256).backward()

    def unscaled(model):
        for p in model.parameters():
            p.grad.div_(256)
        clip(model)

    heart.backward, heart.clip = backward, unscaled


@harmless("recomputed", "heart", group="whole step")
def blocks_computed_again(heart):
    """The blocks are computed again in the backward pass."""

    class ResBlock(heart.ResBlock):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    heart.ResBlock = ResBlock
