"""Cases of the diffusion transformer."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


def two_micro_batches(diffusion):
    """The batch goes backward in two halves, interleaved; each loss counts one half."""
    descend = diffusion.descend
    loss = diffusion.loss
    diffusion.loss = lambda *arguments: loss(*arguments) / 2

    def halves(model, batch):
        for first in (1, 0):
            descend(model, tuple(each[first::2] for each in batch))

    diffusion.descend = halves


def scaled_and_computed_again(diffusion):
    """The loss is multiplied by 256, gradients are divided; blocks are computed again."""
    descend = diffusion.descend
    loss = diffusion.loss
    diffusion.loss = lambda *arguments: loss(*arguments) * 256

    class Block(diffusion.Block):
        def __call__(self, x, condition):
            return checkpoint(super().__call__, x, condition, use_reentrant=False)

    def unscaled(model, batch):
        descend(model, batch)
        for parameter in model.net.parameters():
            parameter.grad /= 256

    diffusion.Block = Block
    diffusion.descend = unscaled


@fault(
    "diffusion",
    api="Tensor.mul_|Tensor.add_",
    update=True,
    line="average.mul_(DECAY).add_(parameter, alpha=1 - DECAY)",
)
def average_before_the_step(diffusion):
    """The average follows before the optimizer's step: it lags by one step."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        diffusion.descend(model, batch)
        model.follow()  # here
        optimizer.step()

    diffusion.step = step


@fault("diffusion", line="return share.sqrt() * noise - (1 - share).sqrt() * pictures")
def velocity_with_the_other_sign(diffusion):
    """The target is the velocity with the shares exchanged."""

    def velocity(pictures, noise, share):
        share = share[:, None, None, None]
        return (1 - share).sqrt() * noise - share.sqrt() * pictures  # here

    diffusion.velocity = velocity


@fault("diffusion", line="return ratio.clamp(max=GAMMA) / (ratio + 1)")
def weight_of_predicted_noise(diffusion):
    """The weights are those of a model that predicts the noise."""

    def weight_of(share):
        ratio = share / (1 - share)
        return ratio.clamp(max=diffusion.GAMMA) / ratio  # here

    diffusion.weight_of = weight_of


@fault(
    "diffusion",
    module=r"net\.blocks\.0",
    line="return F.layer_norm(x, (WIDTH,), eps=1e-6) * (1 + scale",
)
def shift_and_scale_swapped(diffusion):
    """Shift and scale of the adaptive norm are exchanged."""

    class Block(diffusion.Block):
        def norm(self, x, shift, scale):
            x = F.layer_norm(x, (diffusion.WIDTH,), eps=1e-6)
            return x * (1 + shift[:, None]) + scale[:, None]  # here

    diffusion.Block = Block


@fault(
    "diffusion",
    beside=two_micro_batches,
    line="return torch.cat([angles.cos(), angles.sin()]",
    api="Torch.cat",
)
def sine_before_cosine(diffusion):
    """The embedding of the times has the sines before the cosines."""

    def waves(times):
        half = diffusion.WIDTH // 2
        steps = torch.exp(-diffusion.math.log(10000) * torch.arange(half) / half)
        angles = times[:, None].to(steps.dtype) * steps
        return torch.cat([angles.sin(), angles.cos()], dim=-1)  # here

    diffusion.waves = waves


@fault(
    "diffusion",
    beside=scaled_and_computed_again,
    module="net",
    module_only=r"net(\.leave)?|",
    line="return x.permute(0, 5, 1, 3, 2, 4).reshape(-1, CHANNELS",
    api="Tensor.permute",
)
def patches_transposed(diffusion):
    """Rows and columns inside of a patch are exchanged when patches become pictures."""

    class Transformer(diffusion.Transformer):
        def pictures(self, x):
            side = diffusion.EXTENT // diffusion.PATCH
            patch, channels = diffusion.PATCH, diffusion.CHANNELS
            x = self.leave(x).view(-1, side, side, patch, patch, channels)
            x = x.permute(0, 5, 1, 4, 2, 3)  # here
            return x.reshape(-1, channels, diffusion.EXTENT, diffusion.EXTENT)  # here

    diffusion.Transformer = Transformer


harmless("micro batches", "diffusion")(two_micro_batches)
harmless("scaled", "diffusion")(scaled_and_computed_again)


@harmless("split", "diffusion")
def patches_by_a_product(diffusion):
    """Patches by unfold and a linear layer, attention by the fused operation."""

    class Transformer(diffusion.Transformer):
        def patches(self, x):
            pieces = F.unfold(x, diffusion.PATCH, stride=diffusion.PATCH).transpose(1, 2)
            return F.linear(pieces, self.enter.weight.flatten(1), self.enter.bias) + self.places

    class Block(diffusion.Block):
        def attend(self, x):
            shape = (*x.shape[:2], 3, diffusion.HEADS, diffusion.SIZE)
            q, k, v = self.qkv(x).view(shape).transpose(1, 3).unbind(2)
            mixed = F.scaled_dot_product_attention(q, k, v)
            return self.out(mixed.transpose(1, 2).flatten(2))

    diffusion.Transformer = Transformer
    diffusion.Block = Block


@harmless("fused", "diffusion")
def average_by_lerp(diffusion):
    """The average of the weights by foreach operations, the loss by a weighted sum."""

    class Averaged(diffusion.Averaged):
        def follow(self):
            with torch.no_grad():
                weights = [parameter.detach() for parameter in self.net.parameters()]
                torch._foreach_lerp_(self.averages(), weights, 1 - diffusion.DECAY)

    def loss(predicted, wanted, share):
        weights = diffusion.weight_of(share)[:, None, None, None].expand_as(predicted)
        return (weights * (predicted - wanted) ** 2).sum() / predicted.numel()

    diffusion.Averaged = Averaged
    diffusion.loss = loss
