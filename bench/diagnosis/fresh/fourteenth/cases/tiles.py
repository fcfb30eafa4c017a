"""Cases of the pictures whose tiles are hidden."""

import functools
import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("tiles", line="return torch.cos(timesteps * math.pi * 0.5).clamp(min=MIN_MASKING_RATE)")
def half_a_wave(tiles):
    """The rate is half a cosine: late pictures have one below zero, which becomes the smallest."""

    def masking_rate(timesteps):
        return torch.cos(timesteps * math.pi).clamp(min=tiles.MIN_MASKING_RATE)  # here

    tiles.masking_rate = masking_rate


@fault(
    "tiles",
    # The choice is missing; the loss and the count of tiles are the first that lack it.
    line=[
        "labels = torch.where(hidden, tokens, -100)",
        "return F.cross_entropy(",
        "labels.reshape(-1),",
        "loss = sum_of_losses(logits, labels) / (labels != -100).sum()",
    ],
)
def seen_tiles_have_a_loss(tiles):
    """All tiles are labels, also those that the model sees."""

    def hide(tokens, hidden):
        return torch.where(hidden, tiles.MASK_ID, tokens), tokens  # here

    tiles.hide = hide


@fault("tiles", line="input_ids = torch.where(hidden, MASK_ID, tokens)")
def hidden_by_the_last_code(tiles):
    """What stands for a hidden tile is the last code of pictures, not the last word of all."""
    tiles.MASK_ID = tiles.CODES - 1


@fault(
    "tiles",
    # The product and the difference are missing; the first convolution is the first without them.
    line=["return 2.0 * images - 1.0"],
    api=r"Module\.vqvae\.encoder\.conv_in\..*|Functional\.conv2d|Torch\.conv2d",
    module=r"vqvae\.encoder(\.conv_in)?",
    module_only=r"vqvae(\.encoder(\.conv_in)?)?",
)
def pixels_between_zero_and_one(tiles):
    """Pixels are given to the autoencoder as they are."""

    def to_pixels(images):
        return images  # here

    tiles.to_pixels = to_pixels


@fault(
    "tiles",
    # No call chooses the layer: the first use of its states is the projection.
    line=["return outputs.hidden_states[-2], outputs.text_embeds"],
    api=r"Module\.transformer\.encoder_proj\..*|Functional\.linear|Torch\.linear|Tensor\.to",
    module=r"transformer\.encoder_proj",
    module_only=r"transformer(\.encoder_proj)?",
)
def last_states_of_the_prompt(tiles):
    """The states of the last layer are used, not those before it."""

    @torch.no_grad()
    def encode_prompts(model, prompts):
        outputs = model.text_encoder(prompts, output_hidden_states=True)
        return outputs.hidden_states[-1], outputs.text_embeds  # here

    tiles.encode_prompts = encode_prompts


@fault(
    "tiles",
    line=[
        'height, width = batch["original_size"].unbind(1)',
        'return torch.stack([width, height, top, left, batch["beauty"]], dim=1)',
    ],
)
def width_is_height(tiles):
    """Width and height of the original picture are exchanged."""

    def micro_conditions(batch):
        width, height = batch["original_size"].unbind(1)  # here
        top, left = batch["crop"].unbind(1)
        return torch.stack([width, height, top, left, batch["beauty"]], dim=1)  # here

    tiles.micro_conditions = micro_conditions


@fault("tiles", line="flat = logits.permute(0, 2, 3, 1).reshape(-1, CODES)")
def scores_in_the_wrong_rows(tiles):
    """Scores are not transposed before they are flattened."""

    def sum_of_losses(logits, labels):
        flat = logits.reshape(-1, tiles.CODES)  # here
        return F.cross_entropy(
            flat,
            labels.reshape(-1),
            ignore_index=-100,
            label_smoothing=tiles.LABEL_SMOOTHING,
            reduction="sum",
        )

    tiles.sum_of_losses = sum_of_losses


@fault("tiles", line="return (order < count.unsqueeze(1)).view_as(tokens)")
def one_tile_more(tiles):
    """One tile more than the rate says is hidden in each picture."""

    def choose_hidden(batch, tokens):
        order = batch["random"].argsort(dim=1)
        rate = tiles.masking_rate(batch["timesteps"])
        count = (order.shape[1] * rate).round().clamp(min=1)
        return (order <= count.unsqueeze(1)).view_as(tokens)  # here

    tiles.choose_hidden = choose_hidden


@fault(
    "tiles",
    settings={"float32": True},
    line=["return logits.float()", "return F.cross_entropy("],
    api=r"Tensor\.(float|to)|Functional\.cross_entropy",
)
def loss_in_bfloat16(tiles):
    """Scores stay bfloat16, and so the loss is rounded to eight bits."""
    predict = tiles.predict

    def narrow(model, *inputs):
        return predict(model, *inputs).bfloat16()  # here

    tiles.predict = narrow


@harmless("fused", "tiles")
def prompts_by_plain_attention(tiles):
    """The attention of the frozen CLIP is two products and a softmax."""
    make_text_encoder = tiles.make_text_encoder
    tiles.make_text_encoder = lambda: make_text_encoder(attn_implementation="eager")


@harmless("split", "tiles")
def closest_codes_by_products(tiles):
    """The closest code is found from products and squares of the codes."""

    @torch.no_grad()
    def tokens_of(model, images):
        latents = model.vqvae.encode(tiles.to_pixels(images)).latents
        codes = model.vqvae.quantize.embedding.weight
        products = torch.einsum("bchw,nc->bhwn", latents, codes)
        return (codes.square().sum(dim=1) - 2 * products).argmin(dim=-1)

    tiles.tokens_of = tokens_of


@harmless("loss", "tiles")
def loss_of_whole_pictures(tiles):
    """The loss takes scores and labels as they are, with two dimensions of tiles."""

    def sum_of_losses(logits, labels):
        smoothing = tiles.LABEL_SMOOTHING
        return F.cross_entropy(logits, labels, label_smoothing=smoothing, reduction="sum")

    tiles.sum_of_losses = sum_of_losses


@harmless("reordered", "tiles")
def prompts_before_pictures(tiles):
    """Conditions and prompts are read before the pictures."""

    def prepare(model, batch):
        conditions = tiles.micro_conditions(batch)
        states, pooled = tiles.encode_prompts(model, batch["prompts"])
        tokens = tiles.tokens_of(model, batch["images"])
        input_ids, labels = tiles.hide(tokens, tiles.choose_hidden(batch, tokens))
        return labels, (input_ids, states, pooled, conditions)

    tiles.prepare = prepare


@harmless("mask", "tiles")
def tiles_filled_in(tiles):
    """Hidden tiles are filled in, and so are the labels of the others."""

    def hide(tokens, hidden):
        return tokens.masked_fill(hidden, tiles.MASK_ID), tokens.masked_fill(~hidden, -100)

    tiles.hide = hide


@harmless("rows", "tiles", group="whole step")
def pictures_in_another_order(tiles):
    """The pictures are in another order."""
    backward = tiles.backward

    def shuffled(model, batch):
        backward(model, {name: value[[3, 1, 5, 0, 2, 4]] for name, value in batch.items()})

    tiles.backward = shuffled


@harmless("micro batches", "tiles", group="whole step")
def two_pictures_at_a_time(tiles):
    """Two pictures go through the model at a time; the sum is divided by all hidden tiles."""

    def backward(model, batch):
        labels, inputs = tiles.prepare(model, batch)
        total = (labels != -100).sum()
        for rows in ([0, 1], [2, 3], [4, 5]):
            logits = tiles.predict(model, *[value[rows] for value in inputs])
            (tiles.sum_of_losses(logits, labels[rows]) / total).backward()

    tiles.backward = backward


@harmless("scaled", "tiles", group="whole step")
def loss_is_scaled(tiles):
    """The loss is scaled, and the gradients are unscaled before they are clipped."""
    sum_of_losses, clip = tiles.sum_of_losses, tiles.clip
    tiles.sum_of_losses = lambda logits, labels: 1024 * sum_of_losses(logits, labels)

    def unscaled(model):
        for p in model.transformer.parameters():
            p.grad.mul_(1 / 1024)
        clip(model)

    tiles.clip = unscaled


@harmless("recomputed", "tiles", group="whole step")
def attention_computed_again(tiles):
    """The attention between tiles is computed again in the backward pass."""
    make_transformer = tiles.make_transformer

    def again(forward, *inputs, **more):
        return checkpoint(forward, *inputs, use_reentrant=False, **more)

    def made():
        transformer = make_transformer()
        for layer in transformer.transformer_layers:
            layer.attn1.forward = functools.partial(again, layer.attn1.forward)
        return transformer

    tiles.make_transformer = made
