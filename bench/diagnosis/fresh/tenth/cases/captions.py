"""Cases of pictures and captions."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "captions",
    # The division is missing; the similarity is the first that lacks it.
    line=[
        "features = model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output",
        "return normalize(features)",
        "return F.normalize(features, dim=-1)",
        "return scale * images @ texts.t()",
    ],
)
def captions_of_any_length(captions):
    """The features of captions are not divided by their length."""

    def encode_texts(model, ids, mask):
        return model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output  # here

    captions.encode_texts = encode_texts


@fault("captions", line="text_loss = cross_entropy(logits[:, :count].t(), targets)")
def pictures_choose_twice(captions):
    """The loss of captions is not of the transposed similarities."""

    def contrastive_loss(logits, group):
        count = len(group)
        targets = captions.targets_of(group)
        image_loss = captions.cross_entropy(logits, F.pad(targets, (0, count)))
        text_loss = captions.cross_entropy(logits[:, :count], targets)  # here
        return (image_loss + text_loss) / 2

    captions.contrastive_loss = contrastive_loss


@fault(
    "captions",
    line=[
        "same = (group[:, None] == group).to(torch.get_default_dtype())",
        "return same / same.sum(dim=1, keepdim=True)",
        "targets = targets_of(group)",
    ],
)
def twins_are_wrong(captions):
    """Captions of pictures of the same thing are wrong answers for each other."""
    captions.targets_of = lambda group: torch.eye(len(group))  # here


@fault(
    "captions",
    line="features = model.get_text_features(input_ids=ids, attention_mask=mask).pooler_output",
    api=r"Tensor\.(to|int|argmax|__eq__|eq|__getitem__)|Torch\.(arange|argmax|eq)"
    r"|Module\.text_model\.CLIPTextModel",
    module=r"text_model",
)
def largest_word_is_pooled(captions):
    """The number of the last word is that of an old configuration: the largest word is pooled."""
    build = captions.build

    def built():
        model = build()
        model.text_model.eos_token_id = 2  # here
        return model

    captions.build = built


@fault("captions", api=r"Optimizer\.AdamW\.step", update=True)
def temperature_decays(captions):
    """Only biases and norms are without decay: the temperature is none of them."""

    def decays(name, parameter):
        return not (name.endswith("bias") or "norm" in name)

    captions.decays = decays


@fault("captions", line="return (pixels.float() / 255 - mean[:, None, None]) / std[:, None, None]")
def blue_comes_first(captions):
    """The channels of pictures are in the opposite order, as another library reads them."""
    preprocess = captions.preprocess
    captions.preprocess = lambda pixels: preprocess(pixels.flip(1))  # here


@fault(
    "captions",
    # Forward nothing is wrong; backward the scale has no gradient.
    line=["scale = model.logit_scale.exp()", "return scale * images @ texts.t()"],
    api=r"Tensor\.(exp|detach|__r?mul__)|Torch\.(exp|mul)",
)
def temperature_stands_still(captions):
    """The scale of similarities is detached, and is never learned."""

    def similarity(model, images, texts):
        scale = model.logit_scale.detach().exp()  # here
        return scale * images @ texts.t()  # here

    captions.similarity = similarity


@fault(
    "captions",
    api=r"Module\..*\.activation_fn\..*|Functional\.gelu|Torch\.sigmoid|Tensor\.(sigmoid|__r?mul__)",
    module=r"(vision|text)_model\.encoder\.layers\.0\.mlp(\.activation_fn)?",
)
def gelu_that_is_not_quick(captions):
    """The activation is the exact GELU, and not the quick one of the weights."""
    make_model = captions.make_model
    captions.make_model = lambda: make_model(hidden_act="gelu")


@fault(
    "captions",
    api=r".*clip_grad_norm_|.*clip_grad_value_|.*get_total_norm|.*clip_grads_with_norm_"
    r"|Torch\._foreach_.*(norm|clamp).*|Torch\.linalg.*norm|Optimizer\.AdamW\.step",
    update=True,
    line="nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)",
)
def clipped_value_by_value(captions):
    """Each value of the gradients is clipped, and not their norm."""

    def clip_gradients(model):
        torch.nn.utils.clip_grad_value_(model.parameters(), captions.MAX_GRAD_NORM)  # here

    captions.clip_gradients = clip_gradients


@harmless("fused", "captions")
def quick_gelu_by_silu(captions):
    """The quick GELU is a SiLU of scaled numbers."""
    build = captions.build

    def built():
        model = build()
        for module in model.modules():
            if hasattr(module, "activation_fn"):
                module.activation_fn.forward = lambda x: F.silu(1.702 * x) / 1.702
        return model

    captions.build = built


@harmless("loss", "captions")
def entropy_written_out(captions):
    """The smoothed entropy is a sum of targets times logarithms of chances."""

    def cross_entropy(logits, targets):
        share = captions.SMOOTHING
        smooth = (1 - share) * targets + share / logits.shape[1]
        return -(smooth * logits.log_softmax(dim=1)).sum(dim=1).mean()

    captions.cross_entropy = cross_entropy


@harmless("fused", "captions")
def divided_by_the_norm(captions):
    """Features are divided by their norm."""
    captions.normalize = lambda features: features / features.norm(dim=-1, keepdim=True)


@harmless("split", "captions")
def wrong_captions_apart(captions):
    """The captions that are almost right are coded in a call of their own."""

    def encode_captions(model, batch):
        names = ("captions", "negatives")
        coded = [captions.encode_texts(model, batch[name], batch["mask"]) for name in names]
        return torch.cat(coded)

    captions.encode_captions = encode_captions


@harmless("reordered", "captions")
def captions_before_pictures(captions):
    """Captions are coded before the pictures."""

    def encode(model, batch):
        texts = captions.encode_captions(model, batch)
        return captions.encode_images(model, batch["pixels"]), texts

    captions.encode = encode


@harmless("rows", "captions", group="whole step")
def pairs_in_another_order(captions):
    """Pictures and their captions are in another order."""
    train = captions.train

    def shuffled(model, batch):
        order = torch.tensor([3, 5, 0, 4, 1, 2])
        train(model, {name: value[order] for name, value in batch.items()})

    captions.train = shuffled


@harmless("micro batches", "captions", group="whole step")
def towers_in_two_parts(captions):
    """Both towers code one half of their rows after the other."""
    encode_images, encode_texts = captions.encode_images, captions.encode_texts

    def images(model, pixels):
        return torch.cat([encode_images(model, half) for half in pixels.chunk(2)])

    def texts(model, ids, mask):
        halves = zip(ids.chunk(2), mask.chunk(2), strict=True)
        return torch.cat([encode_texts(model, *half) for half in halves])

    captions.encode_images, captions.encode_texts = images, texts


@harmless("padding", "captions", group="whole step")
def four_more_words(captions):
    """Captions are filled up to a greater length."""
    encode_texts = captions.encode_texts

    def padded(model, ids, mask):
        return encode_texts(model, F.pad(ids, (0, 4), value=captions.PAD), F.pad(mask, (0, 4)))

    captions.encode_texts = padded


@harmless("recomputed", "captions", group="whole step", settings={"float32": True})
def layers_computed_again(captions):
    """The layers of both towers are computed again in the backward pass."""
    build = captions.build

    def built():
        model = build()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    captions.build = built


@harmless("scaled", "captions", group="whole step")
def loss_is_scaled(captions):
    """The loss is scaled, and its gradients are unscaled before they are clipped."""
    contrastive_loss, clip_gradients = captions.contrastive_loss, captions.clip_gradients
    captions.contrastive_loss = lambda *inputs: 4096 * contrastive_loss(*inputs)

    def unscaled(model):
        torch._foreach_mul_([p.grad for p in model.parameters() if p.grad is not None], 1 / 4096)
        clip_gradients(model)

    captions.clip_gradients = unscaled
