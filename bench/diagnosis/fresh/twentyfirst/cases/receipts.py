"""Cases of the receipts."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "receipts",
    # Numbers are integers: what joins them with the pixels is the first call with floats.
    line=[
        "return torch.stack([row, column], dim=1)",
        "return torch.cat([numbers_of(rows, columns).to(pixels.dtype), pixels], dim=1)",
    ],
)
def columns_before_rows(receipts):
    """Patches give their column first, and then their row."""

    def numbers_of(rows, columns):
        row = torch.arange(1, rows + 1).repeat_interleave(columns)
        column = torch.arange(1, columns + 1).repeat(rows)
        return torch.stack([column, row], dim=1)  # here

    receipts.numbers_of = numbers_of


@fault(
    "receipts",
    line=[
        "row = torch.arange(1, rows + 1).repeat_interleave(columns)",
        "column = torch.arange(1, columns + 1).repeat(rows)",
        "return torch.stack([row, column], dim=1)",
        "return torch.cat([numbers_of(rows, columns).to(pixels.dtype), pixels], dim=1)",
    ],
)
def rows_begin_with_padding(receipts):
    """Rows and columns are counted from zero, which is the number of padding."""

    def numbers_of(rows, columns):
        row = torch.arange(rows).repeat_interleave(columns)  # here
        column = torch.arange(columns).repeat(rows)  # here
        return torch.stack([row, column], dim=1)  # here

    receipts.numbers_of = numbers_of


@fault(
    "receipts",
    # The first call of both is another one: the picture is resized as it is.
    line=[
        "pixels = cut(resized(normalised(picture), rows, columns))",
        'return F.interpolate(picture, size, mode="bilinear", antialias=True)[0, 0]',
        "spread = picture.std().clamp(min=1 / math.sqrt(picture.numel()))",
        "return (picture - picture.mean()) / spread",
    ],
)
def resized_before_it_is_normalised(receipts):
    """Pictures are resized first, and then normalised."""

    def patches_of(picture):
        rows, columns = receipts.grid(*picture.shape)
        pixels = receipts.cut(receipts.normalised(receipts.resized(picture, rows, columns)))  # here
        numbers = receipts.numbers_of(rows, columns).to(pixels.dtype)
        return torch.cat([numbers, pixels], dim=1)

    receipts.patches_of = patches_of


@fault(
    "receipts",
    # A part of an integer mask: the attention is the first call with floats that reads it.
    line='"patch_mask": (torch.arange(PATCHES) < counts.unsqueeze(1)).long(),',
    api=r"(Functional|Torch)\.scaled_dot_product_attention",
    module=r"net\.encoder\.encoder\.layer\.0\.attention",
    module_only=r"net(\.encoder(\.encoder\.layer\.0(\.attention)?)?)?",
)
def patches_of_padding_are_read(receipts):
    """The net reads all patches, those of padding as well."""

    class Reader(receipts.Reader):
        def forward(self, inputs):
            answer = self.net(
                flattened_patches=inputs["patches"],
                attention_mask=torch.ones_like(inputs["patch_mask"]),  # here
                decoder_input_ids=inputs["before"],
                decoder_attention_mask=inputs["text_mask"],
            )
            return answer.logits, self.point(answer.encoder_last_hidden_state).squeeze(2)

    receipts.Reader = Reader


@fault(
    "receipts",
    # Words are integers: the table of the decoder is the first call with floats.
    line=[
        "return F.pad(texts[:, :-1], (1, 0), value=PAD)",
        '"before": shifted(texts),',
    ],
    api=r"Functional\.embedding|Module\.net\.decoder\.embed_tokens\..*",
    module=r"net\.decoder(\.embed_tokens)?",
    module_only=r"net\.decoder(\.embed_tokens)?",
)
def words_are_given_away(receipts):
    """The decoder is given the word that it should write."""

    def shifted(texts):
        return texts  # here

    receipts.shifted = shifted


@fault(
    "receipts",
    # The product with the mask is missing: the sum of the weights is the first that lacks it.
    line=[
        "return weights * (torch.arange(texts.shape[1]) < lengths.unsqueeze(1))",
        'return inputs["weights"].sum(), len(inputs["totals"])',
        'return (word_losses(logits.float(), inputs["texts"]) * inputs["weights"]).sum()',
    ],
    api=r"(Tensor|Torch)\.(sum|where|mul|__mul__)",
)
def padding_is_written(receipts):
    """The padding of texts counts as words do."""

    def weights_of(texts, lengths):
        figures = (texts > receipts.EOS) & (texts < receipts.EOS + 1 + receipts.FIGURES)
        return torch.where(figures, receipts.OF_FIGURES, 1.0)  # here

    receipts.weights_of = weights_of


@fault(
    "receipts",
    # The mask is missing: the loss is the first call that lacks it.
    line=[
        "logits = logits.float().masked_fill(mask == 0, NEVER)",
        'return F.cross_entropy(logits, totals, reduction="sum")',
    ],
    api=r"Functional\.cross_entropy",
)
def padding_is_pointed_at(receipts):
    """The total may stand in a patch of padding."""

    def point_loss(logits, mask, totals):
        return F.cross_entropy(logits.float(), totals, reduction="sum")  # here

    receipts.point_loss = point_loss


@fault(
    "receipts",
    # A product is missing: the sum is the first call that lacks it.
    line="losses = (1 - SMOOTH) * right + SMOOTH * (whole - logits.mean(dim=2))",
    api=r"(Tensor|Torch)\.(add|__add__)",
)
def right_words_are_not_smoothed(receipts):
    """The share of the other words is added, and not taken away from the right one."""

    def word_losses(logits, texts):
        whole = logits.logsumexp(dim=2)
        right = whole - logits.gather(2, texts.unsqueeze(2)).squeeze(2)
        losses = right + receipts.SMOOTH * (whole - logits.mean(dim=2))  # here
        return losses + receipts.NORMALIZER * whole.square()

    receipts.word_losses = word_losses


@fault(
    "receipts",
    settings={"float32": True},
    line='return (word_losses(logits.float(), inputs["texts"]) * inputs["weights"]).sum()',
    api=r"(Tensor|Torch)\.(logsumexp|float|to)",
)
def losses_in_bfloat16(receipts):
    """Logits keep the type of autocast: losses are made with eight bits."""

    def text_loss(logits, inputs):
        losses = receipts.word_losses(logits, inputs["texts"])  # here
        return (losses * inputs["weights"]).sum()

    receipts.text_loss = text_loss


@fault("receipts", api=r"Optimizer\.NAdam\.step", update=True)
def decoder_is_slower(receipts):
    """The decoder learns slower, not the encoder."""

    def rate_of(name):
        slower = name.startswith("net.decoder.")
        return receipts.SLOWER * receipts.LR if slower else receipts.LR

    receipts.rate_of = rate_of


@harmless("fused", "receipts")
def attention_by_products(receipts):
    """The attention of the library is two products and a softmax."""
    receipts.make_net = functools.partial(receipts.make_net, attn_implementation="eager")


def _changed(receipts, change):
    """Each module of the net is given to a function, which may change its forward pass."""
    make_net = receipts.make_net

    def made(**more):
        net = make_net(**more)
        for module in net.modules():
            change(module)
        return net

    receipts.make_net = made


@harmless("fused", "receipts")
def norms_by_pytorch(receipts):
    """The norms of the library are those of PyTorch."""

    def change(module):
        if type(module).__name__ == "Pix2StructLayerNorm":
            module.forward = functools.partial(_norm, module)

    def _norm(norm, x):
        return F.rms_norm(x.float(), norm.weight.shape, norm.weight, norm.variance_epsilon)

    _changed(receipts, change)


@harmless("split", "receipts")
def gates_joined(receipts):
    """Values and gates of the encoder come from one product."""

    def change(module):
        if type(module).__name__ == "Pix2StructVisionMlp":
            module.forward = functools.partial(_gated, module)

    def _gated(layers, x):
        both = F.linear(x, torch.cat([layers.wi_0.weight, layers.wi_1.weight]))
        gate, value = both.chunk(2, dim=2)
        return layers.wo((layers.act(gate) * value).to(layers.wo.weight.dtype))

    _changed(receipts, change)


@harmless("inserted", "receipts")
def patches_by_unfolding(receipts):
    """Patches are cut by the function for convolutions."""

    def cut(picture):
        size = receipts.PATCH
        return F.unfold(picture[None, None], size, stride=size)[0].T

    receipts.cut = cut


@harmless("loss", "receipts")
def words_by_cross_entropy(receipts):
    """Smoothed losses are those of PyTorch."""

    def word_losses(logits, texts):
        losses = F.cross_entropy(
            logits.flatten(0, 1),
            texts.flatten(),
            reduction="none",
            label_smoothing=receipts.SMOOTH,
        ).view(texts.shape)
        return losses + receipts.NORMALIZER * logits.logsumexp(dim=2).square()

    receipts.word_losses = word_losses


def _of(inputs, rows):
    return {name: value[rows] for name, value in inputs.items()}


@harmless("rows", "receipts", group="whole step")
def receipts_in_another_order(receipts):
    """The receipts are in another order."""
    backward = receipts.backward
    receipts.backward = lambda model, inputs: backward(model, _of(inputs, [3, 0, 2, 1]))


@harmless("rows", "receipts", group="whole step")
def patches_in_another_order(receipts):
    """The patches of all pictures are in the opposite order, behind their padding."""
    backward = receipts.backward

    def turned(model, inputs):
        moved = {name: inputs[name].flip(1) for name in ("patches", "patch_mask")}
        backward(model, inputs | moved | {"totals": receipts.PATCHES - 1 - inputs["totals"]})

    receipts.backward = turned


@harmless("padding", "receipts", group="whole step")
def longer_padding(receipts):
    """There are three more patches and two more words of padding."""
    backward = receipts.backward

    def padded(model, inputs):
        more = {"patches": F.pad(inputs["patches"], (0, 0, 0, 3))}
        more["patch_mask"] = F.pad(inputs["patch_mask"], (0, 3))
        for name in ("texts", "before", "text_mask", "weights"):
            more[name] = F.pad(inputs[name], (0, 2))
        backward(model, inputs | more)

    receipts.backward = padded


@harmless("micro batches", "receipts", group="whole step")
def two_receipts_at_a_time(receipts):
    """Each two receipts go backward alone."""

    def backward(model, inputs):
        sizes = receipts.sizes_of(inputs)
        for k in range(0, sizes[1], 2):
            receipts.loss_of(model, _of(inputs, slice(k, k + 2)), sizes).backward()

    receipts.backward = backward


@harmless("scaled", "receipts", group="whole step")
def loss_is_scaled(receipts):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = receipts.loss_of, receipts.clip
    receipts.loss_of = lambda *given: 128.0 * loss_of(*given)

    def unscaled(model):
        for p in model.parameters():
            p.grad.mul_(1 / 128.0)
        clip(model)

    receipts.clip = unscaled


@harmless("recomputed", "receipts", group="whole step")
def attention_computed_again(receipts):
    """The attention of the encoder is computed again in the backward pass."""

    def change(module):
        if type(module).__name__ == "Pix2StructVisionAttention":
            module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)

    _changed(receipts, change)


@harmless("precision", "receipts", group="whole step")
def casts_of_the_head(receipts):
    """The casts of the last product are written out, where autocast made them."""

    def change(module):
        if type(module).__name__ == "Pix2StructTextModel":
            module.lm_head.forward = functools.partial(_product, module.lm_head)

    def _product(head, x):
        with torch.autocast("cpu", enabled=False):
            return F.linear(x.bfloat16(), head.weight.bfloat16())

    _changed(receipts, change)
