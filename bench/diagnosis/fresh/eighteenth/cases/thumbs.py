"""Cases of the answers with thumbs."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

LAYER = r"lm\.base_model\.model\.model\.layers\.0"


@fault(
    "thumbs",
    line=[
        "logits, labels = logits[:, :-1], labels[:, 1:]",
        "words = logits.log_softmax(dim=2).gather(2, chosen).squeeze(2)",
    ],
)
def words_told_by_themselves(thumbs):
    """The chance of a word is read where the model has already seen it."""
    log_chances = thumbs.log_chances

    def late(logits, labels):
        return log_chances(F.pad(logits[:, 1:], (0, 0, 0, 1)), labels)  # here

    thumbs.log_chances = late


@fault("thumbs", line="return (words * real).sum(dim=1)")
def mean_of_words(thumbs):
    """The chance of an answer is the mean of its words, not their sum."""

    def log_chances(logits, labels):
        logits, labels = logits[:, :-1], labels[:, 1:]
        real = labels != thumbs.IGNORE
        chosen = labels.masked_fill(~real, 0).unsqueeze(2)
        words = logits.log_softmax(dim=2).gather(2, chosen).squeeze(2)
        return (words * real).sum(dim=1) / real.sum(dim=1)  # here

    thumbs.log_chances = log_chances


@fault(
    "thumbs",
    # The forward pass is the same; the drift has a gradient from where it is read.
    line=[
        "above = of_policy(model, inputs) - of_reference(model, inputs)",
        "return above.mean().clamp(min=0)",
        "up = WEIGHT_UP * (1 - torch.sigmoid(BETA * (ratios - drift)))",
        "down = WEIGHT_DOWN * (1 - torch.sigmoid(BETA * (drift - ratios)))",
    ],
    module_only=r"(lm\..*)?",
)
def drift_learns(thumbs):
    """The drift has a gradient: answers to other questions are learned, too."""

    def drift_of(model, inputs):
        inputs = thumbs.others(inputs)
        above = thumbs.of_policy(model, inputs) - thumbs.of_reference(model, inputs)  # here
        return above.mean().clamp(min=0)  # here

    thumbs.drift_of = drift_of


@fault(
    "thumbs",
    # Words are no numbers that learn: what reads them first embeds them.
    line=[
        'return {name: inputs[f"other_{name}"] for name in ("tokens", "mask", "labels")}',
        'return log_chances(model(inputs["tokens"], inputs["mask"]), inputs["labels"])',
        "return self.lm(input_ids=tokens, attention_mask=mask).logits",
    ],
    api=r"Functional\.embedding|Torch\.embedding"
    r"|Module\.lm\.base_model\.model\.model\.embed_tokens\..*",
    module=r"lm\.base_model\.model\.model(\.embed_tokens)?",
    module_only=r"(lm(\.base_model(\.model(\.model(\.embed_tokens)?)?)?)?)?",
)
def drift_by_own_answers(thumbs):
    """The drift is found with the answers that belong to the questions."""
    thumbs.others = lambda inputs: inputs  # here


@fault(
    "thumbs",
    # The adapters of the first layer are the first that should not be there.
    line=["with model.lm.disable_adapter():", "        return of_policy(model, inputs)"],
    api=rf"Module\.{LAYER}\.self_attn\.q_proj\..*|Functional\.linear|Torch\.linear|Functional\.dropout",
    module=rf"{LAYER}\.self_attn\.q_proj(\.lora_(A|B|dropout)\.default)?",
    module_only=rf"{LAYER}\.self_attn(\.q_proj(\.lora_(A|B|dropout)\.default)?)?",
)
def reference_has_adapters(thumbs):
    """The reference is the policy itself: adapters are not turned off."""

    @torch.no_grad()
    def of_reference(model, inputs):
        return thumbs.of_policy(model, inputs)  # here

    thumbs.of_reference = of_reference


@fault(
    "thumbs",
    line=[
        "up = WEIGHT_UP * (1 - torch.sigmoid(BETA * (ratios - drift)))",
        "down = WEIGHT_DOWN * (1 - torch.sigmoid(BETA * (drift - ratios)))",
    ],
)
def thumbs_down_weigh_less(thumbs):
    """The weights of what is liked and of what is not are exchanged."""
    thumbs.WEIGHT_UP, thumbs.WEIGHT_DOWN = thumbs.WEIGHT_DOWN, thumbs.WEIGHT_UP


@fault(
    "thumbs",
    # The scale is a number of Python: the product, or the sum with it, is the first call with it.
    api=rf"Tensor\.(mul|__mul__|__rmul__|add|__add__)|Torch\.(mul|add)"
    rf"|Module\.{LAYER}\.self_attn\.q_proj\..*",
    module=rf"{LAYER}\.self_attn(\.q_proj)?",
    module_only=rf"{LAYER}\.self_attn(\.q_proj)?",
)
def scale_of_plain_adapters(thumbs):
    """What adapters add is divided by the rank, not by its root."""
    lora_settings = thumbs.lora_settings
    thumbs.lora_settings = lambda: lora_settings() | {"use_rslora": False}


@fault(
    "thumbs",
    line=[
        "up = WEIGHT_UP * (1 - torch.sigmoid(BETA * (ratios - drift)))",
        "down = WEIGHT_DOWN * (1 - torch.sigmoid(BETA * (drift - ratios)))",
    ],
)
def drift_is_not_softened(thumbs):
    """Beta is multiplied with the ratio alone, not with its distance to the drift."""

    def kto_losses(ratios, drift, liked):
        above = thumbs.BETA * ratios - drift  # here
        up = thumbs.WEIGHT_UP * (1 - torch.sigmoid(above))  # here
        down = thumbs.WEIGHT_DOWN * (1 - torch.sigmoid(-above))  # here
        return torch.where(liked, up, down)

    thumbs.kto_losses = kto_losses


@fault(
    "thumbs",
    # The mask is missing; the first attention is the first that lacks it.
    line="return self.lm(input_ids=tokens, attention_mask=mask).logits",
    api=r"Functional\.scaled_dot_product_attention|Torch\.scaled_dot_product_attention",
    module=rf"{LAYER}\.self_attn",
    module_only=rf"(lm(\.base_model(\.model(\.model)?)?)?)?|{LAYER}(\.self_attn)?",
)
def padding_is_seen(thumbs):
    """Questions look at the padding before them."""

    class Policy(thumbs.Policy):
        def forward(self, tokens, mask):
            return self.lm(input_ids=tokens).logits  # here

    thumbs.Policy = Policy


@fault("thumbs", api=r"Optimizer\.AdamW\.step", update=True)
def matrices_learn_alike(thumbs):
    """The groups have the names of another library: all matrices have one rate."""
    optimizer = thumbs.optimizer

    def alike(model, **more):
        adamw = optimizer(model, **more)
        for group in adamw.param_groups:
            group["lr"] = group["initial_lr"] = thumbs.LR
        model.schedule.base_lrs = [thumbs.LR] * len(adamw.param_groups)
        return adamw

    thumbs.optimizer = alike


@harmless("fused", "thumbs")
def attention_by_products(thumbs):
    """The attention is two products and a softmax."""
    make_base = thumbs.make_base
    thumbs.make_base = lambda: make_base(attn_implementation="eager")


@harmless("loss", "thumbs")
def chances_by_cross_entropy(thumbs):
    """The chances of words are losses with another sign."""

    def log_chances(logits, labels):
        losses = F.cross_entropy(
            logits[:, :-1].mT, labels[:, 1:], ignore_index=thumbs.IGNORE, reduction="none"
        )
        return -losses.sum(dim=1)

    thumbs.log_chances = log_chances


@harmless("fused", "thumbs")
def one_sigmoid_for_both(thumbs):
    """A sign says whether an answer is liked; what is not is on the other side of the sigmoid."""

    def kto_losses(ratios, drift, liked):
        sign = liked.to(ratios.dtype) * 2 - 1
        weight = torch.where(liked, thumbs.WEIGHT_UP, thumbs.WEIGHT_DOWN).to(ratios.dtype)
        return weight * torch.sigmoid(thumbs.BETA * sign * (drift - ratios))

    thumbs.kto_losses = kto_losses


@harmless("reordered", "thumbs")
def reference_before_policy(thumbs):
    """The reference is asked first."""

    def loss_of(model, inputs, drift, count):
        reference = thumbs.of_reference(model, inputs)
        ratios = thumbs.of_policy(model, inputs) - reference
        return thumbs.kto_losses(ratios, drift, inputs["liked"]).sum() / count

    thumbs.loss_of = loss_of


@harmless("inserted", "thumbs")
def words_embedded_before(thumbs):
    """Words are embedded before the model is called."""

    class Policy(thumbs.Policy):
        def forward(self, tokens, mask):
            words = self.lm.get_input_embeddings()(tokens)
            return self.lm(inputs_embeds=words, attention_mask=mask).logits

    thumbs.Policy = Policy


@harmless("rows", "thumbs", group="whole step")
def answers_in_another_order(thumbs):
    """The answers are in another order, when those to other questions have been found."""
    collate = thumbs.collate

    def shuffled(rows):
        order = [4, 1, 5, 0, 3, 2]
        return {name: value[order] for name, value in collate(rows).items()}

    thumbs.collate = shuffled


@harmless("micro batches", "thumbs", group="whole step")
def two_answers_at_a_time(thumbs):
    """Two answers go backward at a time; the drift is that of all."""

    def backward(model, inputs):
        drift, count = thumbs.drift_of(model, inputs), len(inputs["liked"])
        for k in range(0, count, 2):
            part = {name: value[k : k + 2] for name, value in inputs.items()}
            thumbs.loss_of(model, part, drift, count).backward()

    thumbs.backward = backward


@harmless("padding", "thumbs", group="whole step")
def longer_padding(thumbs):
    """There are three more places of padding before all questions."""
    pad_left = thumbs.pad_left
    thumbs.pad_left = lambda rows, value: F.pad(pad_left(rows, value), (3, 0), value=value)


@harmless("scaled", "thumbs", group="whole step")
def loss_is_scaled(thumbs):
    """The losses are scaled, and gradients are unscaled before they are clipped."""
    kto_losses, clip = thumbs.kto_losses, thumbs.clip
    thumbs.kto_losses = lambda *given: 512.0 * kto_losses(*given)

    def unscaled(model):
        for p in model.parameters():
            if p.grad is not None:
                p.grad.mul_(1 / 512.0)
        clip(model)

    thumbs.clip = unscaled


@harmless("recomputed", "thumbs", group="whole step")
def wide_layers_computed_again(thumbs):
    """The wide layers, with their adapters, are computed again in the backward pass."""
    make_base = thumbs.make_base

    def made(**more):
        base = make_base(**more)
        for layer in base.model.layers:
            layer.mlp.forward = functools.partial(
                checkpoint, layer.mlp.forward, use_reentrant=False
            )
        return base

    thumbs.make_base = made
