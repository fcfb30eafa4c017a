"""Cases of the ViTMAE."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "mae",
    # Forward, nothing is wrong. Backward, a second gradient arrives at the last states.
    api=r"Functional\.layer_norm|Module\.mae\.vit\.layernorm\.LayerNorm|Tensor\.(mean|__getitem__)",
    module=r"|mae\.vit(\.layernorm)?",
    line=[
        "features = states.last_hidden_state[:, 1:].mean(dim=1).detach()",
        'return F.cross_entropy(model.probe(features), labels, reduction="sum")',
    ],
)
def probe_teaches_the_encoder(mae):
    """The states are not detached for the probe."""

    def probe_loss(model, states, labels):
        features = states.last_hidden_state[:, 1:].mean(dim=1)  # here
        return F.cross_entropy(model.probe(features), labels, reduction="sum")  # here

    mae.probe_loss = probe_loss


@fault("mae", line="return (error * mask).sum()")
def loss_of_what_is_seen(mae):
    """The mask is read the other way: the loss is that of the patches that are seen."""

    def patch_loss(predicted, target, mask):
        error = (predicted - target).square().mean(dim=-1)
        return (error * (1 - mask)).sum()  # here

    mae.patch_loss = patch_loss


@fault(
    "mae",
    line=[
        "mean = patches.mean(dim=-1, keepdim=True)",
        "variance = patches.var(dim=-1, keepdim=True)",
    ],
)
def normalized_over_patches(mae):
    """Targets are normalised over the patches of a picture, not over the pixels of a patch."""

    def targets(net, pixels):
        patches = mae.patches_of(net, pixels)
        mean = patches.mean(dim=1, keepdim=True)  # here
        variance = patches.var(dim=1, keepdim=True)  # here
        return (patches - mean) / (variance + mae.EPS).sqrt()

    mae.targets = targets


@fault(
    "mae",
    line=[
        "mirrored = pictures.flip(3)",
        "return torch.where(flip[:, None, None, None], mirrored, pictures)",
    ],
)
def upside_down(mae):
    """Pictures are flipped along the height."""

    def flipped(pictures, flip):
        mirrored = pictures.flip(2)  # here
        return torch.where(flip[:, None, None, None], mirrored, pictures)

    mae.flipped = flipped


@fault(
    "mae",
    line=[
        "target = targets(model.mae, pixels)",
        "return (pictures - mean[:, None, None]) / deviation[:, None, None]",
        "patches = patches_of(net, pixels)",
        "return net.patchify(pixels)",
    ],
    api=r"Tensor\.(reshape|permute)",
)
def target_is_not_flipped(mae):
    """The target is made of the pictures as they were before they were flipped."""

    def losses(model, data):
        pixels = mae.normalized(mae.flipped(data["pictures"], data["flip"]))
        states = model.mae.vit(pixels, noise=data["noise"])
        target = mae.targets(model.mae, mae.normalized(data["pictures"]))  # here
        drawn = mae.patch_loss(mae.decoded(model.mae, states), target, states.mask)
        return drawn, mae.probe_loss(model, states, data["labels"])

    mae.losses = losses


@fault(
    "mae",
    api=r"Torch\.gather|Tensor\.(unsqueeze|repeat|gather|argsort)",
    module=r"|mae\.decoder",
    line="return net.decoder(states.last_hidden_state, states.ids_restore).logits",
)
def shuffled_once_more(mae):
    """The decoder gets the order in which patches were shuffled, not the way back."""

    def decoded(net, states):
        shuffle = states.ids_restore.argsort(dim=1)  # here
        return net.decoder(states.last_hidden_state, shuffle).logits  # here

    mae.decoded = decoded


@fault("mae", api=r"Optimizer\.AdamW\.step", update=True)
def biases_decay(mae):
    """All weights decay, biases and those of norms as well."""
    right = mae.param_groups

    def param_groups(model):
        return [group | {"weight_decay": mae.DECAY} for group in right(model)]

    mae.param_groups = param_groups


@fault("mae", api=r"Optimizer\.AdamW\.step", update=True, steps=3)
def schedule_of_micro_batches(mae):
    """The schedule moves once for each micro-batch: the warm-up is over too soon."""

    def advance(model, optimizer):
        optimizer.step()
        for _ in range(mae.ACCUMULATION):
            model.scheduler.step()
        optimizer.zero_grad()

    mae.advance = advance


@harmless("fused", "mae")
def patches_by_unfold(mae):
    """The patches of the target are cut by unfold."""

    def patches_of(net, pixels):
        columns = F.unfold(pixels, mae.PATCH, stride=mae.PATCH).transpose(1, 2)
        split = columns.unflatten(2, (3, mae.PATCH**2))
        return split.transpose(2, 3).flatten(2)

    mae.patches_of = patches_of


@harmless("loss", "mae")
def masked_patches_picked(mae):
    """Only the masked patches are compared."""

    def patch_loss(predicted, target, mask):
        chosen = mask.bool()
        error = F.mse_loss(predicted[chosen], target[chosen], reduction="sum")
        return error / predicted.shape[-1]

    mae.patch_loss = patch_loss


@harmless("fused", "mae")
def attention_of_products(mae):
    """The attention is the eager one."""
    make_config = mae.make_config
    mae.make_config = lambda **changes: make_config(attn_implementation="eager", **changes)


@harmless("split", "mae")
def patches_embedded_by_a_product(mae):
    """The convolution of the patches is a product."""

    class Model(mae.ViTMAEForPreTraining):
        def __init__(self, config):
            super().__init__(config)
            patches = self.vit.embeddings.patch_embeddings

            def embedded(pixels):
                rows = F.unfold(pixels, mae.PATCH, stride=mae.PATCH).transpose(1, 2)
                weight = patches.projection.weight.flatten(1)
                return torch.matmul(rows, weight.t()) + patches.projection.bias

            patches.forward = embedded

    mae.ViTMAEForPreTraining = Model


@harmless("micro batches", "mae", group="whole step")
def all_pictures_at_once(mae):
    """There is one batch in place of two micro-batches."""
    mae.ACCUMULATION = 1


@harmless("rows", "mae", group="whole step")
def pictures_dealt_anew(mae):
    """Every second picture is in the first micro-batch."""
    backward = mae.backward

    def dealt(model, data):
        order = torch.arange(mae.BATCH).view(-1, 2).t().flatten()
        backward(model, {name: value[order] for name, value in data.items()})

    mae.backward = dealt


@harmless("recomputed", "mae", group="whole step")
def layers_computed_again(mae):
    """The layers of the encoder are computed again in the backward pass."""
    build = mae.build

    def built():
        model = build()
        model.mae.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    mae.build = built


@harmless("scaled", "mae", group="whole step")
def gradients_divided_before_the_update(mae):
    """Sums of micro-batches go backward; the gradients are divided before the update."""
    advance = mae.advance

    def backward(model, data):
        for part in mae.micro_batches(data):
            (mae.total_loss(*mae.losses(model, part), *mae.counts(part)) * 64.0).backward()

    def divided(model, optimizer):
        for p in model.parameters():
            if p.grad is not None:
                p.grad /= 64.0 * mae.ACCUMULATION
        advance(model, optimizer)

    mae.backward, mae.advance = backward, divided
