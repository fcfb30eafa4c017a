"""Cases of the endings of stories."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "endings",
    line=[
        "return self.score(pooled).view(count, choices)",
        'scores = hide_absent(model(**{name: batch[name] for name in names}), batch["present"])',
        "return scores.masked_fill(~present, ABSENT)",
    ],
)
def scores_of_other_stories(endings):
    """Scores are laid out with the endings first, and turned: they belong to other stories."""

    class Chooser(endings.Chooser):
        def forward(self, input_ids, token_type_ids, attention_mask):
            scores = super().forward(input_ids, token_type_ids, attention_mask)
            count, choices = scores.shape
            return scores.reshape(choices, count).t()  # here

    endings.Chooser = Chooser


@fault(
    "endings",
    line=[
        "return (states * words).sum(dim=1) / words.sum(dim=1)",
        "words = words[:, :, None].to(states.dtype)",
        "pooled = torch.tanh(self.dense(self.pool(states, words_of_ending(ids, types))))",
    ],
)
def divided_by_the_whole_length(endings):
    """The sum over the words of an ending is divided by the length of the row."""

    class Chooser(endings.Chooser):
        def pool(self, states, words):
            return (states * words[:, :, None].to(states.dtype)).mean(dim=1)  # here

    endings.Chooser = Chooser


@fault(
    "endings",
    line=[
        "output = self.deberta(input_ids=ids, token_type_ids=types, attention_mask=mask)",
        "states = self.encode(ids, types, mask)",
    ],
    api=r"Module\.deberta\..*|Torch\.ones|Tensor\.(__r?mul__|mul|masked_fill|bool|to|unsqueeze)",
    module=r"deberta(\.embeddings|\.encoder)?(\.layer\.0\.attention\.self)?",
)
def mask_not_given(endings):
    """The model is not told which words are padding."""

    class Chooser(endings.Chooser):
        def encode(self, ids, types, mask):
            output = self.deberta(input_ids=ids, token_type_ids=types)  # here
            return output.last_hidden_state

    endings.Chooser = Chooser


@fault(
    "endings",
    api=r"Module\.deberta\.encoder\.layer\.0\.attention(\.self)?\..*"
    r"|Torch\.(sqrt|bmm|gather|tensor)|Tensor\.(sqrt|bmm|to|__r?mul__|mul|__r?truediv__|div)"
    r"|Tensor\.(__i?add__|__radd__|gather|transpose)",
    module=r"deberta\.encoder\.layer\.0\.attention(\.self)?",
    line="output = self.deberta(input_ids=ids, token_type_ids=types, attention_mask=mask)",
)
def words_do_not_ask_for_places(endings):
    """Of the two kinds of attention between words and places one is left out."""
    make_config = endings.make_config
    endings.make_config = lambda: make_config(pos_att_type=["c2p"])


@fault(
    "endings",
    line=["loss = losses(model, part).sum() / stories", "loss.backward()"],
)
def mean_of_unequal_parts(endings):
    """The mean of each micro-batch has the same weight, but the last one is smaller."""

    def accumulate(model, batch):
        parts = list(endings.micro_batches(batch))
        for part in parts:
            loss = endings.losses(model, part).mean() / len(parts)  # here
            loss.backward()  # here

    endings.accumulate = accumulate


@fault(
    "endings",
    line=[
        "others = scores.scatter(1, label[:, None], ABSENT)",
        "return F.relu(MARGIN - right + others.amax(dim=1))",
    ],
)
def better_than_itself(endings):
    """The right ending is among those that it has to be better than."""

    def margin_loss(scores, label):
        right = scores.gather(1, label[:, None])[:, 0]
        return F.relu(endings.MARGIN - right + scores.amax(dim=1))  # here

    endings.margin_loss = margin_loss


@fault(
    "endings",
    line=[
        "return (types == 1) & (ids != SEP)",
        "return (states * words).sum(dim=1) / words.sum(dim=1)",
        "words = words[:, :, None].to(states.dtype)",
        "pooled = torch.tanh(self.dense(self.pool(states, words_of_ending(ids, types))))",
    ],
)
def separator_is_a_word(endings):
    """The mark behind an ending is taken for one of its words."""

    def words_of_ending(ids, types):
        return types == 1  # here

    endings.words_of_ending = words_of_ending


@fault("endings", api=r"Optimizer\.AdamW\.step", update=True)
def deep_layers_learn_fastest(endings):
    """The rates of layers fall in the wrong direction."""

    def rate_of(name):
        return endings.LR * endings.DECAY_OF_RATE ** endings.depth_of(name)

    endings.rate_of = rate_of


@fault(
    "endings",
    line=[
        "share = present / present.sum(dim=1, keepdim=True)",
        "return (1 - SMOOTHING) * hot + SMOOTHING * share",
        "targets = smooth_targets(label, present)",
    ],
)
def absent_endings_have_a_share(endings):
    """What is smoothed away from the right ending is shared by absent ones, too."""

    def smooth_targets(label, present):
        hot = F.one_hot(label, endings.CHOICES)
        share = endings.SMOOTHING / endings.CHOICES  # here
        return (1 - endings.SMOOTHING) * hot + share  # here

    endings.smooth_targets = smooth_targets


@harmless("fused", "endings")
def mean_by_a_product(endings):
    """The mean over words is a batched product with weights."""

    class Chooser(endings.Chooser):
        def pool(self, states, words):
            weights = words.to(states.dtype)
            weights = weights / weights.sum(dim=1, keepdim=True)
            return torch.bmm(weights[:, None], states)[:, 0]

    endings.Chooser = Chooser


@harmless("fused", "endings")
def gelu_composed(endings):
    """The GELU is composed of an error function and products."""

    def gelu(x):
        return 0.5 * x * (1 + torch.erf(x * 0.5**0.5))

    class Chooser(endings.Chooser):
        def __init__(self):
            super().__init__()
            for layer in self.deberta.encoder.layer:
                layer.intermediate.intermediate_act_fn.forward = gelu

    endings.Chooser = Chooser


@harmless("loss", "endings")
def entropy_by_pytorch(endings):
    """The entropy is PyTorch's, with chances for targets."""

    def choice_loss(scores, label, present):
        targets = endings.smooth_targets(label, present)
        return F.cross_entropy(scores, targets, reduction="none")

    endings.choice_loss = choice_loss


@harmless("reordered", "endings")
def margin_before_the_choice(endings):
    """The loss of the margin is computed before that of the choice."""
    names = ("input_ids", "token_type_ids", "attention_mask")

    def losses(model, batch):
        scores = model(**{name: batch[name] for name in names})
        scores = endings.hide_absent(scores, batch["present"])
        margin = endings.MARGIN_WEIGHT * endings.margin_loss(scores, batch["label"])
        return margin + endings.choice_loss(scores, batch["label"], batch["present"])

    endings.losses = losses


@harmless("inserted", "endings")
def words_are_looked_up_before(endings):
    """The model is given the embeddings of words, and not their numbers."""

    class Chooser(endings.Chooser):
        def encode(self, ids, types, mask):
            words = self.deberta.get_input_embeddings()(ids)
            output = self.deberta(inputs_embeds=words, token_type_ids=types, attention_mask=mask)
            return output.last_hidden_state

    endings.Chooser = Chooser


@harmless("rows", "endings", group="whole step")
def stories_in_another_order(endings):
    """The stories are in another order, and in other micro-batches."""
    accumulate = endings.accumulate

    def shuffled(model, batch):
        order = torch.tensor([4, 2, 0, 1, 3])
        accumulate(model, {name: value[order] for name, value in batch.items()})

    endings.accumulate = shuffled


@harmless("rows", "endings", group="whole step")
def endings_turned_round(endings):
    """The endings of a story are in the opposite order, and its label with them."""
    losses = endings.losses

    def turned(model, batch):
        names = ("input_ids", "token_type_ids", "attention_mask", "present")
        other = {name: batch[name].flip(1) for name in names}
        return losses(model, batch | other | {"label": endings.CHOICES - 1 - batch["label"]})

    endings.losses = turned


@harmless("micro batches", "endings", group="whole step")
def one_batch_for_three(endings):
    """All stories are in one batch."""
    endings.MICRO_BATCH = 5


@harmless("padding", "endings", group="whole step")
def three_more_columns(endings):
    """Rows have three more words of padding."""
    names = ("input_ids", "token_type_ids", "attention_mask")
    accumulate = endings.accumulate

    def padded(model, batch):
        accumulate(model, batch | {name: F.pad(batch[name], (0, 3)) for name in names})

    endings.accumulate = padded


@harmless("scaled", "endings", group="whole step")
def divided_before_clipping(endings):
    """Sums over stories go backward; gradients are divided before they are clipped."""
    clip = endings.clip

    def accumulate(model, batch):
        for part in endings.micro_batches(batch):
            endings.losses(model, part).sum().backward()

    def divided(model):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(len(endings.STORIES))
        clip(model)

    endings.accumulate, endings.clip = accumulate, divided
