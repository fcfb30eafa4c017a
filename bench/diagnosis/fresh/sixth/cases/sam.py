"""Cases of the Segment Anything."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "sam",
    line=[
        "boxes = torch.stack([left, top, right, bottom], dim=-1)",
        "return (boxes + jitter).clamp(0, SIZE - 1)",
    ],
)
def rows_before_columns(sam):
    """Boxes are given as y1, x1, y2, x2."""

    def boxes_of(masks, jitter):
        left, right = sam.ends(masks.any(dim=-2))
        top, bottom = sam.ends(masks.any(dim=-1))
        boxes = torch.stack([top, left, bottom, right], dim=-1)  # here
        return (boxes + jitter).clamp(0, sam.SIZE - 1)

    sam.boxes_of = boxes_of


@fault(
    "sam",
    line=[
        "both = (p * wanted).sum(dim=-1)",
        "return 1 - (2 * both + 1) / (p.sum(dim=-1) + wanted.sum(dim=-1) + 1)",
    ],
)
def dice_of_all_objects(sam):
    """Dice sums over all objects of the micro-batch, as for one large picture."""

    def dice(logits, wanted):
        p = logits.sigmoid()
        both = (p * wanted).sum(dim=(0, 1, 3))  # here
        total = p.sum(dim=(0, 1, 3)) + wanted.sum(dim=(0, 1, 3))  # here
        return (1 - (2 * both + 1) / (total + 1)).expand(logits.shape[:-1])  # here

    sam.dice = dice


@fault(
    "sam",
    line=[
        "where = mask_losses.argmin(dim=-1, keepdim=True)",
        "return mask_losses.gather(-1, where).squeeze(-1)",
    ],
)
def best_by_the_scores(sam):
    """The mask that is trained is the one that the model likes best, as when it is used."""

    def best(mask_losses, iou_scores):
        where = iou_scores.argmax(dim=-1, keepdim=True)  # here
        return mask_losses.gather(-1, where).squeeze(-1)  # here

    sam.best = best


@fault("sam", line=["inside = logits > 0.0", "both = (inside & wanted).sum(dim=-1)"])
def logits_as_probabilities(sam):
    """Logits are compared with one half, as if they were probabilities."""

    @torch.no_grad()
    def true_iou(logits, wanted):
        inside = logits > 0.5  # here
        wanted = wanted > 0.5
        both = (inside & wanted).sum(dim=-1)  # here
        return both / (inside | wanted).sum(dim=-1).clamp(min=1)

    sam.true_iou = true_iou


@fault(
    "sam",
    api=r"Functional\.conv2d",
    module=r"vision_encoder\.patch_embed(\.projection)?",
    line=[
        "return (images - mean) / std",
        "out = model(pixel_values=normalised(data",
    ],
)
def normalised_twice(sam):
    """Pictures are normalised by the loader, and by the processor again."""
    normalised = sam.normalised
    sam.normalised = lambda images: normalised(
        normalised(images)  # here
    )


@fault(
    "sam",
    api=r"Tensor\.(__r?mul__|mul|__add__|add)",
    module=r"vision_encoder\.layers\.0\.attn\.qkv",
)
def adapters_by_the_root(sam):
    """Adapters are divided by the root of their rank, not by the rank."""
    adapter_config = sam.adapter_config
    sam.adapter_config = lambda: adapter_config(use_rslora=True)


@fault(
    "sam",
    line=[
        'return data["there"].sum()',
        "count = object_count(data)",
        "(loss_sum(model, part) / count).backward()",
    ],
)
def missing_objects_counted(sam):
    """The loss is divided by the number of places for objects, some of which are empty."""
    sam.object_count = lambda data: data["there"].numel()  # here


@fault("sam", api=r"Optimizer\.AdamW\.step", update=True)
def heads_are_in_no_group(sam):
    """Of the decoder only the transformer is in a group: its heads are never updated."""
    sam.is_decoder = lambda name: name.startswith("mask_decoder.transformer.")


@harmless("fused", "sam")
def attention_written_out(sam):
    """The attention of encoder and decoder is the eager one."""
    make_config = sam.make_config
    sam.make_config = lambda: make_config(attn_implementation="eager")


@harmless("loss", "sam")
def focal_by_softplus(sam):
    """The probability of what is right is that of a logit with a sign; its entropy a softplus."""

    def focal(logits, wanted):
        signed = logits * (2 * wanted - 1)
        alpha = torch.lerp(torch.full_like(wanted, 1 - sam.ALPHA), torch.tensor(sam.ALPHA), wanted)
        each = alpha * torch.sigmoid(-signed).square() * F.softplus(-signed)
        return each.sum(dim=-1) / each.shape[-1]

    sam.focal = focal


@harmless("fused", "sam")
def dice_by_products(sam):
    """The sums of Dice are products of vectors."""

    def dice(logits, wanted):
        p = torch.sigmoid(logits)
        both = torch.einsum("...n,...n->...", p, wanted)
        total = torch.einsum("...n->...", p + wanted)
        return (total - 2 * both) / (total + 1)

    sam.dice = dice


@harmless("fused", "sam")
def adapters_in_the_weight(sam):
    """The product of an adapter is added to the weight, and then there is one product."""
    build = sam.build

    def built():
        model = build()
        for module in model.vision_encoder.modules():
            if hasattr(module, "lora_A"):

                def forward(x, layer=module):
                    delta = layer.lora_B["default"].weight @ layer.lora_A["default"].weight
                    weight = layer.base_layer.weight + layer.scaling["default"] * delta
                    return F.linear(x, weight, layer.base_layer.bias)

                module.forward = forward
        return model

    sam.build = built


@harmless("micro batches", "sam", group="whole step")
def picture_by_picture(sam):
    """Each picture is a micro-batch."""
    sam.ACCUMULATION = 4


@harmless("rows", "sam", group="whole step")
def pictures_and_objects_turned(sam):
    """Pictures come in another order, and in each of them the objects do."""
    backward = sam.backward

    def turned(model, data):
        order, objects = torch.tensor([2, 0, 3, 1]), torch.tensor([1, 2, 0])
        moved = {name: value[order] for name, value in data.items()}
        named = {name: moved[name][:, objects] for name in ("masks", "there", "jitter")}
        backward(model, moved | named)

    sam.backward = turned


@harmless("padding", "sam", group="whole step")
def five_places_for_objects(sam):
    """There are five places for objects in each picture, two more of which are empty."""
    backward = sam.backward

    def filled(model, data):
        more = {
            "masks": F.pad(data["masks"], (0, 0, 0, 0, 0, 2)),
            "there": F.pad(data["there"], (0, 2)),
            "jitter": F.pad(data["jitter"], (0, 0, 0, 2)),
        }
        backward(model, data | more)

    sam.backward = filled


@harmless("scaled", "sam", group="whole step")
def divided_behind_the_passes(sam):
    """The sums go backward as they are; gradients are multiplied by the share of an object."""

    def backward(model, data):
        for part in sam.micro_batches(data):
            sam.loss_sum(model, part).backward()
        share = 1 / sam.object_count(data)
        for p in sam.trained(model):
            p.grad = p.grad * share if p.grad is not None else None

    sam.backward = backward


@harmless("recomputed", "sam", group="whole step")
def encoder_computed_again(sam):
    """The layers of the encoder are computed again in the backward pass."""
    build = sam.build

    def built():
        model = build()
        model.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    sam.build = built
