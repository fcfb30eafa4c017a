"""A Segment Anything of transformers: adapters of peft, prompts of boxes, three masks."""

import torch
from peft import LoraConfig, inject_adapter_in_model
from torch import nn
from torch.nn import functional as F
from transformers import SamConfig, SamModel

SIZE, PATCH, WIDTH, IMAGES, OBJECTS, ACCUMULATION = 32, 4, 16, 4, 3, 2
MEAN, STD = (0.45, 0.4, 0.5), (0.25, 0.2, 0.3)
ALPHA, GAMMA, FOCAL_WEIGHT, DICE_WEIGHT, IOU_WEIGHT = 0.25, 2.0, 20.0, 1.0, 1.0
ADAPTER_LR, DECODER_LR, MAX_NORM, TOTAL_STEPS = 1e-2, 3e-3, 1.0, 8


def make_config(**changes):
    return SamConfig(
        vision_config={
            "hidden_size": WIDTH,
            "output_channels": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": SIZE,
            "patch_size": PATCH,
            "window_size": 4,
            "global_attn_indexes": [1],
            "num_pos_feats": WIDTH // 2,
            "mlp_dim": 2 * WIDTH,
            "initializer_range": 0.2,
        },
        prompt_encoder_config={
            "hidden_size": WIDTH,
            "image_size": SIZE,
            "patch_size": PATCH,
            "mask_input_channels": 4,
        },
        mask_decoder_config={
            "hidden_size": WIDTH,
            "mlp_dim": 2 * WIDTH,
            "num_attention_heads": 2,
            "iou_head_hidden_dim": WIDTH,
        },
        initializer_range=0.2,
        **changes,
    )


def adapter_config(**changes):
    return LoraConfig(r=4, lora_alpha=8, target_modules=["qkv"], **changes)


def build():
    """The encoder learns by adapters alone, the decoder as a whole, the prompts not at all."""
    model = SamModel(make_config())
    for name, p in model.named_parameters():
        if name.endswith(("pos_embed", "rel_pos_h", "rel_pos_w")):  # made as zeros
            nn.init.normal_(p, std=0.2)
    model.requires_grad_(False)
    inject_adapter_in_model(adapter_config(), model.vision_encoder)
    for name, p in model.named_parameters():
        if "lora_B" in name:  # made as zeros; these have been trained before
            nn.init.normal_(p, std=0.2)
    model.mask_decoder.requires_grad_(True)
    return model.train()


def normalised(images):
    mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
    return (images - mean) / std


def ends(present):
    """The first and the last place that is true."""
    place = torch.arange(SIZE)
    first = torch.where(present, place, SIZE).amin(dim=-1)
    last = torch.where(present, place, -1).amax(dim=-1)
    return first, last


def boxes_of(masks, jitter):
    """x1, y1, x2, y2 of each mask, moved a little, as a user draws them."""
    left, right = ends(masks.any(dim=-2))
    top, bottom = ends(masks.any(dim=-1))
    boxes = torch.stack([left, top, right, bottom], dim=-1)
    return (boxes + jitter).clamp(0, SIZE - 1)


def focal(logits, wanted):
    """The mean over the pixels of each mask."""
    entropy = F.binary_cross_entropy_with_logits(logits, wanted, reduction="none")
    p = logits.sigmoid()
    right = p * wanted + (1 - p) * (1 - wanted)
    alpha = ALPHA * wanted + (1 - ALPHA) * (1 - wanted)
    return (alpha * (1 - right) ** GAMMA * entropy).mean(dim=-1)


def dice(logits, wanted):
    p = logits.sigmoid()
    both = (p * wanted).sum(dim=-1)
    return 1 - (2 * both + 1) / (p.sum(dim=-1) + wanted.sum(dim=-1) + 1)


@torch.no_grad()
def true_iou(logits, wanted):
    """How well the masks cover the objects: a pixel belongs to a mask if its logit is positive."""
    inside = logits > 0.0
    wanted = wanted > 0.5
    both = (inside & wanted).sum(dim=-1)
    return both / (inside | wanted).sum(dim=-1).clamp(min=1)


def best(mask_losses, iou_scores):
    """Of the three masks of an object, only the one with the least loss is trained."""
    where = mask_losses.argmin(dim=-1, keepdim=True)
    return mask_losses.gather(-1, where).squeeze(-1)


def object_losses(masks, iou_scores, data):
    """One for each object."""
    logits = masks.flatten(-2)
    wanted = data["masks"].flatten(-2)[:, :, None].expand_as(logits).to(logits.dtype)
    mask_losses = FOCAL_WEIGHT * focal(logits, wanted) + DICE_WEIGHT * dice(logits, wanted)
    iou_losses = F.mse_loss(iou_scores, true_iou(logits, wanted), reduction="none").mean(dim=-1)
    return best(mask_losses, iou_scores) + IOU_WEIGHT * iou_losses


def loss_sum(model, data):
    """The sum over the objects that are there."""
    boxes = boxes_of(data["masks"], data["jitter"])
    out = model(pixel_values=normalised(data["images"]), input_boxes=boxes, multimask_output=True)
    each = object_losses(out.pred_masks, out.iou_scores, data)
    return each.masked_fill(~data["there"], 0.0).sum()


def object_count(data):
    return data["there"].sum()


def micro_batches(data):
    for values in zip(*(value.chunk(ACCUMULATION) for value in data.values()), strict=True):
        yield dict(zip(data, values, strict=True))


def backward(model, data):
    count = object_count(data)
    for part in micro_batches(data):
        (loss_sum(model, part) / count).backward()


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def is_adapter(name):
    return "lora_" in name


def is_decoder(name):
    return name.startswith("mask_decoder.")


def optimizer(model, **more):
    named = list(model.named_parameters())
    groups = [
        {"params": [p for n, p in named if is_adapter(n)], "lr": ADAPTER_LR, "weight_decay": 0.0},
        {"params": [p for n, p in named if is_decoder(n)], "lr": DECODER_LR},
    ]
    made = torch.optim.AdamW(groups, weight_decay=0.05, **more)
    model.schedule = torch.optim.lr_scheduler.PolynomialLR(made, TOTAL_STEPS, power=0.9)
    return made


def batch(generator):
    """Rectangles of two colours before noise; the last object of two pictures is missing."""
    shape = (IMAGES, OBJECTS)
    corner = torch.randint(1, 14, (*shape, 2), generator=generator)
    extent = torch.randint(4, 16, (*shape, 2), generator=generator)
    place = torch.arange(SIZE)
    inside = (place >= corner[..., None]) & (place < (corner + extent)[..., None])
    masks = inside[:, :, 0, :, None] & inside[:, :, 1, None, :]
    there = torch.ones(shape, dtype=torch.bool)
    there[1::2, -1] = False
    masks = masks & there[:, :, None, None]
    colours = torch.rand(*shape, 3, 1, 1, generator=generator)
    images = torch.rand(IMAGES, 3, SIZE, SIZE, generator=generator) * 0.5
    return {
        "images": images + 0.5 * (masks[:, :, None] * colours).amax(dim=1),
        "masks": masks,
        "there": there,
        "jitter": torch.randn(*shape, 4, generator=generator),
    }


def step(model, optimizer, batch):
    backward(model, batch)
    nn.utils.clip_grad_norm_(trained(model), MAX_NORM)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad()
