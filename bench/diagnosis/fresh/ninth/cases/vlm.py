"""Cases of the questions about pictures."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("vlm", line='return data["ids"].masked_fill(~data["answer"], IGNORED)')
def questions_are_learned(vlm):
    """All words are learned, also those of questions and the places of pictures."""

    def labels_of(data):
        return data["ids"].masked_fill(~data["mask"], vlm.IGNORED)  # here

    vlm.labels_of = labels_of


@fault(
    "vlm",
    line=[
        "return states[:, :-1], labels[:, 1:]",
        # Slices are not recorded: the line that calls the function and takes its result. It was
        # added after the first look.
        'return sum((following(part["ids"], labels_of(part))[1] != IGNORED).sum() for part in parts)',
    ],
)
def two_words_ahead(vlm):
    """The labels are shifted twice."""

    def following(states, labels):
        return states[:, :-2], labels[:, 2:]  # here

    vlm.following = following


@fault(
    "vlm",
    line=[
        "x = x.reshape(FRAMES, 3, rows // MERGE, MERGE, PATCH, columns // MERGE, MERGE, PATCH)",
        "return x.permute(2, 5, 3, 6, 1, 0, 4, 7).reshape(rows * columns, -1)",
    ],
)
def patches_row_by_row(vlm):
    """Patches stand row by row: four that are no neighbours are merged."""

    def patches_of(picture):
        rows, columns = picture.shape[1] // vlm.PATCH, picture.shape[2] // vlm.PATCH
        x = vlm.normalized(picture).expand(vlm.FRAMES, -1, -1, -1)
        x = x.reshape(vlm.FRAMES, 3, rows, vlm.PATCH, columns, vlm.PATCH)  # here
        return x.permute(2, 4, 1, 0, 3, 5).reshape(rows * columns, -1)  # here

    vlm.patches_of = patches_of


@fault(
    "vlm",
    # Positions are made inside of the model, and are first used by the rotation.
    line=[
        "return (ids == IMAGE).int()",
        'mm_token_type_ids=kinds_of(data["ids"]),',
        "outputs = net.model(",
    ],
    api=r"Module\.model\.language_model\.rotary_emb\..*"
    r"|Tensor\.(view|expand|__r?add__|add|max|reshape|to|float|__getitem__|__setitem__|tolist)"
    r"|Torch\.(arange|cat|stack|zeros|tensor)",
    module=r"model(\.language_model(\.rotary_emb)?)?",
)
def pictures_on_a_line(vlm):
    """The positions of a picture are on a line, as those of words, not in a plane."""

    def kinds_of(ids):
        return torch.zeros_like(ids).int()  # here

    vlm.kinds_of = kinds_of


@fault(
    "vlm",
    line=[
        "words = words_in(micro_batches(data))",
        "total_loss(*losses(net, part), words).backward()",
        "return (answers + Z_WEIGHT * sizes) / words",
        'return sum((following(part["ids"], labels_of(part))[1] != IGNORED).sum()',
    ],
)
def means_of_micro_batches(vlm):
    """Each micro-batch is divided by its own words, so that short answers count more."""

    def backward(net, data):
        for part in vlm.micro_batches(data):
            words = vlm.words_in([part]) * vlm.ACCUMULATION  # here
            vlm.total_loss(*vlm.losses(net, part), words).backward()  # here

    vlm.backward = backward


@fault(
    "vlm",
    # Positions count the padding, too, and the mask lets it be seen.
    line=['mask = data["mask"].long()', "attention_mask=mask,", "outputs = net.model("],
    api=r"Module\.model\.language_model\.(rotary_emb|layers\.0\.self_attn)\..*"
    r"|Functional\.scaled_dot_product_attention"
    r"|Tensor\.(long|bool|to|view|expand|max|reshape|float|__\w+__)"
    r"|Torch\.(arange|cat|stack|zeros|where)",
    module=r"|model(\.language_model(\.rotary_emb|\.layers\.0\.self_attn)?)?",
)
def padding_is_seen(vlm):
    """The mask that the model is given has no padding."""
    states_of = vlm.states_of

    def unmasked(net, data):
        right = net.model.forward

        def forward(attention_mask, **inputs):
            return right(attention_mask=torch.ones_like(attention_mask), **inputs)  # here

        net.model.forward = forward
        states = states_of(net, data)  # here
        del net.model.forward
        return states

    vlm.states_of = unmasked


@fault("vlm", api=r"Optimizer\.AdamW\.step", update=True)
def tower_is_not_slow(vlm):
    """The beginning of the names is another one: the tower learns as fast as the text."""
    vlm.is_tower = lambda name: name.startswith("visual.") and ".merger." not in name


@fault(
    "vlm",
    line=[
        "scale = NOISE / (mask.sum(dim=1) * DIM).sqrt()",
        "return words + scale[:, None, None] * noise * mask[:, :, None]",
    ],
)
def noise_of_the_padded_length(vlm):
    """The noise becomes smaller with the length of the padded row."""

    def embedded(net, ids, mask, noise):
        words = net.get_input_embeddings()(ids)
        scale = vlm.NOISE / (torch.ones_like(mask).sum(dim=1) * vlm.DIM).sqrt()  # here
        return words + scale[:, None, None] * noise * mask[:, :, None]  # here

    vlm.embedded = embedded


@fault(
    "vlm",
    settings={"float32": True},
    line='return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")',
    api=r"Tensor\.(bfloat16|to)|Functional\.cross_entropy",
)
def logits_in_bfloat16(vlm):
    """The entropy of the answers is computed of logits in bfloat16."""

    def answer_sum(logits, labels):
        logits = logits.flatten(0, 1).bfloat16()  # here
        return F.cross_entropy(logits, labels.flatten(), reduction="sum").to(torch.float32)  # here

    vlm.answer_sum = answer_sum


@harmless("fused", "vlm")
def attention_of_products(vlm):
    """The attention of the tower and of the text is the eager one."""
    make_config = vlm.make_config
    vlm.make_config = lambda **changes: make_config(attn_implementation="eager", **changes)


@harmless("loss", "vlm")
def words_of_answers_picked(vlm):
    """The entropy is computed of the words of answers alone."""

    def answer_sum(logits, labels):
        chosen = labels != vlm.IGNORED
        logits, labels = logits[chosen], labels[chosen]
        return (logits.logsumexp(dim=-1) - logits.gather(1, labels[:, None])[:, 0]).sum()

    vlm.answer_sum = answer_sum


@harmless("split", "vlm")
def patches_by_a_product(vlm):
    """The convolution over patches is a product."""
    build = vlm.build

    def built():
        net = build()
        conv = net.model.visual.patch_embed.proj
        net.model.visual.patch_embed.forward = lambda x: F.linear(x, conv.weight.flatten(1))
        return net

    vlm.build = built


@harmless("fused", "vlm")
def norms_of_pytorch(vlm):
    """The norms of the text are PyTorch's."""
    build = vlm.build

    def built():
        net = build()
        for name, module in net.model.language_model.named_modules():
            if name.endswith("norm"):

                def norm(x, module=module):
                    return F.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)

                module.forward = norm
        return net

    vlm.build = built


@harmless("micro batches", "vlm", group="whole step")
def all_questions_at_once(vlm):
    """There is one batch in place of two micro-batches."""
    vlm.ACCUMULATION = 1


def _rows(data, order):
    return {
        name: [value[i] for i in order] if name == "pictures" else value[torch.tensor(order)]
        for name, value in data.items()
    }


@harmless("rows", "vlm", group="whole step")
def questions_dealt_anew(vlm):
    """The questions are in another order, and in other micro-batches."""
    backward = vlm.backward
    vlm.backward = lambda net, data: backward(net, _rows(data, [3, 1, 0, 2]))


@harmless("padding", "vlm", group="whole step")
def three_more_columns(vlm):
    """Texts have three more words of padding on the left."""
    backward = vlm.backward

    def padded(net, data):
        wide = {name: F.pad(data[name], (3, 0)) for name in ("ids", "mask", "answer")}
        backward(net, data | wide | {"noise": F.pad(data["noise"], (0, 0, 3, 0))})

    vlm.backward = padded


@harmless("recomputed", "vlm", group="whole step", settings={"float32": True})
def layers_computed_again(vlm):
    """The layers of tower and text are computed again in the backward pass."""
    build = vlm.build

    def built():
        net = build()
        net.gradient_checkpointing_enable({"use_reentrant": False})
        return net.train()

    vlm.build = built


@harmless("scaled", "vlm", group="whole step")
def divided_by_words_before_clipping(vlm):
    """Sums go backward; gradients are divided by the words before they are clipped."""
    clip, found = vlm.clip, {}

    def backward(net, data):
        found["words"] = vlm.words_in(vlm.micro_batches(data))
        for part in vlm.micro_batches(data):
            vlm.total_loss(*vlm.losses(net, part), 1).backward()

    def divided(net):
        for p in net.parameters():
            if p.grad is not None:
                p.grad /= found["words"]
        clip(net)

    vlm.backward, vlm.clip = backward, divided
