"""Cases of the reviews of other goods."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "reviews",
    line=["return -ctx.strength * gradient, None", "return Reversed.apply(x, strength)"],
    module_only=r"(origin)?",
)
def gradient_is_not_reversed(reviews):
    """The sign is missing: features learn to tell where reviews come from."""

    class Reversed(reviews.Reversed):
        @staticmethod
        def backward(ctx, gradient):
            return ctx.strength * gradient, None  # here

    reviews.Reversed = Reversed


@fault(
    "reviews",
    # The strength is a number, which the gradient is multiplied by.
    line=[
        "features, moods, origins = model(inputs, strength_of(model.progress.item()))",
        "return -ctx.strength * gradient, None",
        "return Reversed.apply(x, strength)",
        "model.progress += 1",
    ],
    module_only=r"(origin)?",
)
def strength_grows_with_each_part(reviews):
    """The progress is that of micro-batches, not of steps."""
    loss_of = reviews.loss_of

    def counted(model, inputs, counts):
        answer = loss_of(model, inputs, counts)
        model.progress += 1  # here
        return answer

    reviews.loss_of = counted


@fault(
    "reviews",
    # The mask is missing: the mean is the first that lacks it.
    line="return (states * mask).sum(dim=1) / mask.sum(dim=1)",
    api=r"(Tensor|Torch)\.mean",
)
def padding_is_in_the_mean(reviews):
    """The mean is over all places, padding as well."""

    def pooled(states, mask):
        return states.mean(dim=1)  # here

    reviews.pooled = pooled


@fault(
    "reviews",
    line="return self.bert(input_ids=tokens, attention_mask=mask).last_hidden_state",
    api=r"Functional\.embedding|Module\.bert\.embeddings\.position_embeddings\..*",
    module=r"bert\.embeddings(\.position_embeddings)?",
    module_only=r"bert(\.embeddings(\.position_embeddings)?)?",
)
def positions_begin_behind_padding(reviews):
    """Positions begin behind the number of the padding, as in another model."""

    class Reader(reviews.Reader):
        def read(self, tokens, mask):
            places = mask.cumsum(dim=1) * mask + reviews.PAD  # here
            answer = self.bert(input_ids=tokens, attention_mask=mask, position_ids=places)  # here
            return answer.last_hidden_state

    reviews.Reader = Reader


@fault(
    "reviews",
    # Labels are integers, which the loss reads.
    line="return F.cross_entropy(logits, labels, ignore_index=IGNORE, reduction=",
    api=r"Functional\.cross_entropy|(Tensor|Torch)\.clamp",
)
def unknown_moods_are_bad(reviews):
    """Reviews without a label are learned with the first one."""

    def mood_loss(logits, labels):
        return F.cross_entropy(logits, labels.clamp(min=0), reduction="sum")  # here

    reviews.mood_loss = mood_loss


@fault(
    "reviews",
    # The forward pass is the same; the gradient of the features lacks a part.
    line=[
        "return features, self.mood(features), self.origin(features, strength)",
        "hidden = F.leaky_relu(self.wide(reversed_gradient(features, strength)), 0.2)",
        "return -ctx.strength * gradient, None",
        "return Reversed.apply(x, strength)",
    ],
    module_only=r"(origin)?",
)
def origin_learns_alone(reviews):
    """The features are detached before the origin is guessed: they forget nothing."""

    class Reader(reviews.Reader):
        def forward(self, inputs, strength):
            features = reviews.pooled(self.read(inputs["tokens"], inputs["mask"]), inputs["mask"])
            origins = self.origin(features.detach(), strength)  # here
            return features, self.mood(features), origins

    reviews.Reader = Reader


@fault(
    "reviews",
    # A choice is missing: the sum of the features is the first float that lacks it.
    line=[
        "own = labels != IGNORE",
        "sums = features.new_zeros(MOODS, WIDTH).index_add_(0, labels[own], features[own])",
    ],
    api=r"Tensor\.index_add_?",
)
def all_reviews_move_centres(reviews):
    """Reviews without labels move the centre of the first mood."""

    def means_of(features, labels):
        labels = labels.clamp(min=0)  # here
        zeros = features.new_zeros(reviews.MOODS, reviews.WIDTH)
        sums = zeros.index_add_(0, labels, features)  # here
        return sums, torch.bincount(labels, minlength=reviews.MOODS)

    reviews.means_of = means_of


@fault(
    "reviews",
    # The forward pass is the same: gradients that should not be there are those of the softmax.
    line=[
        "likely = (logits.detach() / WARM).softmax(dim=1)",
        "return ((features - likely @ centres).square().mean(dim=1) * foreign).sum()",
    ],
    api=r"(Tensor|Torch|Functional)\.softmax|Tensor\.(matmul|__matmul__)|Torch\.matmul",
)
def moods_learn_from_centres(reviews):
    """The moods that are pulled to have a gradient."""

    def pull_loss(features, logits, centres, foreign):
        likely = (logits / reviews.WARM).softmax(dim=1)  # here
        return ((features - likely @ centres).square().mean(dim=1) * foreign).sum()  # here

    reviews.pull_loss = pull_loss


@fault("reviews", api=r"Optimizer\.AdamW\.step", update=True)
def norms_decay(reviews):
    """Norms are looked for by a name that only one of them has."""

    def decays(name):
        return not name.endswith("bias") and "LayerNorm" not in name

    reviews.decays = decays


@fault(
    "reviews",
    # What the micro-batches before it left is gone.
    line="loss.backward()",
)
def last_part_alone_counts(reviews):
    """Gradients are set to zero before each micro-batch."""
    loss_of = reviews.loss_of

    def forgotten(model, inputs, counts):
        for p in model.parameters():
            p.grad = None  # here
        return loss_of(model, inputs, counts)

    reviews.loss_of = forgotten


@harmless("fused", "reviews")
def mean_in_one_product(reviews):
    """The mean is a product of the states with shares."""

    def pooled(states, mask):
        shares = mask / mask.sum(dim=1, keepdim=True)
        return torch.einsum("rtw,rt->rw", states, shares.to(states.dtype))

    reviews.pooled = pooled


@harmless("inserted", "reviews")
def reversed_without_a_function(reviews):
    """What has the gradient is taken away from what has none."""

    def reversed_gradient(x, strength):
        return (1 + strength) * x.detach() - strength * x

    reviews.reversed_gradient = reversed_gradient


@harmless("loss", "reviews")
def origins_by_softplus(reviews):
    """The loss of the origin is a softplus, and a part of the logit is taken away."""

    def origin_loss(logits, foreign):
        wanted = torch.where(foreign, 1 - 0.5 * reviews.SMOOTH, 0.5 * reviews.SMOOTH)
        return F.softplus(logits).sum() - torch.dot(wanted.to(logits.dtype), logits)

    reviews.origin_loss = origin_loss


@harmless("loss", "reviews")
def moods_by_picking(reviews):
    """The losses of moods are logarithms that are picked."""

    def mood_loss(logits, labels):
        own = (labels != reviews.IGNORE).nonzero().squeeze(1)
        logarithms = logits - torch.logsumexp(logits, dim=1, keepdim=True)
        return -logarithms[own, labels[own]].sum()

    reviews.mood_loss = mood_loss


@harmless("fused", "reviews")
def centres_by_a_product(reviews):
    """Sums of features are a product with zeros and ones."""

    def means_of(features, labels):
        own = labels.unsqueeze(1) == torch.arange(reviews.MOODS)
        return own.to(features.dtype).mT @ features, own.sum(dim=0)

    reviews.means_of = means_of


@harmless("micro batches", "reviews", group="whole step")
def three_reviews_at_a_time(reviews):
    """Three reviews are a micro-batch."""
    reviews.PER_DEVICE = 3


@harmless("rows", "reviews", group="whole step")
def reviews_in_another_order(reviews):
    """The reviews are in another order, so that others are together in a micro-batch."""
    accumulate = reviews.accumulate
    order = (3, 0, 4, 2, 5, 1)
    reviews.accumulate = lambda model, rows: accumulate(model, [rows[k] for k in order])


@harmless("padding", "reviews", group="whole step")
def longer_padding(reviews):
    """There are three more places of padding behind all reviews."""
    collate = reviews.collate

    def longer(rows):
        inputs = collate(rows)
        values = {"tokens": reviews.PAD, "mask": 0}
        more = {name: F.pad(inputs[name], (0, 3), value=value) for name, value in values.items()}
        return inputs | more

    reviews.collate = longer


@harmless("scaled", "reviews", group="whole step")
def divided_when_added(reviews):
    """The losses are multiplied by the reviews, and gradients are divided before the clipping."""
    loss_of, clip = reviews.loss_of, reviews.clip

    def multiplied(model, inputs, counts):
        loss, features = loss_of(model, inputs, counts)
        return counts[1] * loss, features

    def divided(model):
        for p in model.parameters():
            p.grad.div_(len(reviews.LABELS))
        clip(model)

    reviews.loss_of, reviews.clip = multiplied, divided


@harmless("recomputed", "reviews", group="whole step")
def layers_computed_again(reviews):
    """The layers are computed again in the backward pass."""
    make_bert = reviews.make_bert

    def made(**more):
        bert = make_bert(**more)
        for layer in bert.transformer.layer:
            layer.forward = functools.partial(checkpoint, layer.forward, use_reentrant=False)
        return bert

    reviews.make_bert = made
