"""Cases of the masked autoencoder."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def two_halves(mae):
    """The batch goes backward in two halves, the second one first; each counts one half."""
    descend, loss_of = mae.descend, mae.loss_of
    mae.loss_of = lambda *arguments: loss_of(*arguments) / 2

    def halves(model, pictures, noise):
        for part in (slice(mae.BATCH // 2, None), slice(mae.BATCH // 2)):
            descend(model, pictures[part], noise[part])

    mae.descend = halves


def seen_in_order_of_places(mae):
    """The seen patches stand in the order of their places, as of a mask of booleans; the pictures
    are in another order."""
    chosen, descend = mae.chosen, mae.descend

    def sorted_places(noise):
        restore = chosen(noise)[1]
        order = (restore >= mae.SEEN).to(torch.int64).argsort(dim=1, stable=True)
        return order[:, : mae.SEEN], order.argsort(dim=1)

    mae.chosen = sorted_places
    mae.descend = lambda model, pictures, noise: descend(model, pictures.flip(0), noise.flip(0))


@fault("mae", line=["return (each * hidden).sum() / hidden.sum()", "hidden = (restore >= SEEN)"])
def seen_patches_count(mae):
    """The loss is the mean over all patches, those that the encoder has seen included."""

    def loss_of(predicted, pixels, restore):
        return (predicted - mae.wanted(pixels)).square().mean(dim=-1).mean()  # here

    mae.loss_of = loss_of


@fault(
    "mae",
    module_only=r"(decoder\.0.*)?",
    line=[
        "return x.gather(1, places[..., None].expand",
        "return pick(torch.cat([x, hidden], dim=1), restore)",
        "return order[:, :SEEN], order.argsort(dim=1)",
    ],
)
def restored_by_the_order(mae):
    """Places are restored by the order of the noise, in place of its inverse; the loss is right."""

    class Autoencoder(mae.Autoencoder):
        def restored(self, x, restore):
            hidden = self.mask_token.expand(len(x), mae.PLACES - x.shape[1], -1)
            order = restore.argsort(dim=1)  # here
            return mae.pick(torch.cat([x, hidden], dim=1), order)  # here

    mae.Autoencoder = Autoencoder


@fault(
    "mae",
    module_only=r"(encoder\.0.*)?",
    line=["x = self.embed(x) + waves(WIDTH)", "x = pick(x, seen)"],
)
def positions_of_the_first_places(mae):
    """Positions are added after the choice: the first ones, in place of those of the seen."""

    class Autoencoder(mae.Autoencoder):
        def encode(self, x, seen):
            x = mae.pick(self.embed(x), seen)  # here
            x = x + mae.waves(mae.WIDTH)[: x.shape[1]]  # here
            x = torch.cat([self.class_token.expand(len(x), -1, -1), x], dim=1)
            for block in self.encoder:
                x = block(x)
            return self.norm(x)

    mae.Autoencoder = Autoencoder


@fault("mae", api="Optimizer.AdamW.step", update=True)
def tokens_decay(mae):
    """The tokens of class and mask are decayed, because they have more than one dimension."""
    mae.is_decayed = lambda name, parameter: parameter.dim() > 1


@fault(
    "mae",
    beside=two_halves,
    line=[
        "mean, variance = pixels.mean(dim=-1, keepdim=True)",
        "return (pixels - mean) / (variance + EPS).sqrt()",
    ],
)
def normalised_over_the_picture(mae):
    """Pixels are normalised by the mean and variance of the picture, in place of the patch."""

    def wanted(pixels):
        mean = pixels.mean(dim=(1, 2), keepdim=True)  # here
        variance = pixels.var(dim=(1, 2), keepdim=True)  # here
        return (pixels - mean) / (variance + mae.EPS).sqrt()  # here

    mae.wanted = wanted


@fault(
    "mae",
    beside=seen_in_order_of_places,
    module=r"decoder\.0\.attention",
    module_only=r"decoder\.0\.attention(\.out)?",
    line="scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5",
)
def scale_of_the_encoders_heads(mae):
    """The decoder's scores are scaled by the size of the encoder's heads."""

    class Attention(mae.Attention):
        def attend(self, q, k, v):
            scale = (mae.WIDTH // mae.HEADS) ** -0.5
            scores = q @ k.transpose(-1, -2) * scale  # here
            return scores.softmax(dim=-1) @ v

    mae.Attention = Attention


harmless("micro batches", "mae")(two_halves)
harmless("rows", "mae")(seen_in_order_of_places)


@harmless("fused", "mae")
def attention_of_pytorch(mae):
    """scaled_dot_product_attention, on parts of the joined product by chunk."""

    class Attention(mae.Attention):
        def project(self, x):
            parts = self.qkv(x).chunk(3, dim=-1)
            return [each.unflatten(-1, (mae.HEADS, -1)).transpose(1, 2) for each in parts]

        def attend(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v)

    mae.Attention = Attention


@harmless("loss", "mae")
def loss_of_the_hidden_alone(mae):
    """The hidden patches are picked first; their variance is written out."""

    def loss_of(predicted, pixels, restore):
        hidden = restore >= mae.SEEN
        left = pixels[hidden]
        centred = left - left.mean(dim=-1, keepdim=True)
        variance = (centred * centred).sum(dim=-1, keepdim=True) / (mae.PIXELS - 1)
        return F.mse_loss(predicted[hidden], centred * (variance + mae.EPS).rsqrt())

    mae.loss_of = loss_of
