"""Cases of the diffusion model."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault("unet", line="return kept.sqrt() * pictures + (1 - kept).sqrt() * noise")
def noise_without_root(unet):
    """The noise is scaled by the variance instead of its root."""

    def add_noise(pictures, noise, times):
        kept = unet.alphas()[times][:, None, None, None]
        return kept.sqrt() * pictures + (1 - kept) * noise  # here

    unet.add_noise = add_noise


@fault("unet", api="Torch.linspace", line="betas = torch.linspace(1e-4")
def other_schedule(unet):
    """The schedule of the noise ends at 0.02."""

    def alphas():
        betas = torch.linspace(1e-4, 0.02, unet.TIMES)  # here
        return torch.cumprod(1.0 - betas, dim=0)

    unet.alphas = alphas


@fault("unet", line="return torch.cat([angles.sin()", api="Torch.cat")
def sine_and_cosine_swapped(unet):
    """Sines and cosines of the times are joined in the other order."""
    math = unet.math

    def embed_times(times):
        half = unet.WIDTH // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half) / half)
        angles = times[:, None].float() * frequencies
        return torch.cat([angles.cos(), angles.sin()], dim=-1)  # here

    unet.embed_times = embed_times


@fault("unet", line="frequencies = torch.exp(-math.log")
def frequencies_end_at_one_step(unet):
    """The frequencies are divided by half - 1, as in another library."""
    math = unet.math

    def embed_times(times):
        half = unet.WIDTH // 2
        frequencies = torch.exp(-math.log(10000.0) * torch.arange(half) / (half - 1))  # here
        angles = times[:, None].float() * frequencies
        return torch.cat([angles.sin(), angles.cos()], dim=-1)

    unet.embed_times = embed_times


@fault("unet", module="model.down", line="scale, shift = self.time(F.silu(time))")
def scale_and_shift_swapped(unet):
    """The halves of the modulation are exchanged."""

    class Block(unet.Block):
        def modulate(self, y, scale, shift):
            return y * (1 + shift[:, :, None, None]) + scale[:, :, None, None]  # here

    unet.Block = Block


@fault("unet", module="model.down", line="return y * (1 + scale")
def modulation_without_one(unet):
    """The modulation multiplies by the scale, without adding one."""

    class Block(unet.Block):
        def modulate(self, y, scale, shift):
            return y * scale[:, :, None, None] + shift[:, :, None, None]  # here

    unet.Block = Block


@fault("unet", module="model.down.norm1", api="Functional.group_norm")
def number_of_groups(unet):
    """Group norms have two groups for four."""
    unet.GROUPS = 2


@fault(
    "unet",
    module="model",
    api="Torch.cat",
    line="return torch.cat([x, kept], dim=1)",
    module_only=r"model(.up(.norm1|.skip)?)?",
)
def joined_in_the_other_order(unet):
    """The kept values come before those from below."""

    class UNet(unet.UNet):
        def join(self, x, kept):
            return torch.cat([kept, x], dim=1)  # here

    unet.UNet = UNet


@fault(
    "unet", module="model", api="Functional.interpolate", module_only=r"model(.up(.norm1|.skip)?)?"
)
def bilinear(unet):
    """Pictures grow by bilinear interpolation."""

    class UNet(unet.UNet):
        def grow(self, x):
            return F.interpolate(x, scale_factor=2, mode="bilinear")  # here

    unet.UNet = UNet


@fault("unet", api="Functional.mse_loss", line="def wanted(pictures, noise, times):")
def predicts_the_picture(unet):
    """The loss compares with the picture instead of the noise."""

    def wanted(pictures, noise, times):
        return pictures

    unet.wanted = wanted


@fault("unet", line="lerp_(parameter, 1 - DECAY)", api="Tensor.lerp_", update=True)
def average_with_the_wrong_side(unet):
    """The moving average keeps a tenth of itself: buffers are wrong that this training never
    reads."""
    unet.DECAY = 0.1


@fault("unet", module="model.middle", line="weights = torch.softmax(torch.bmm(q.transpose")
def attention_not_scaled(unet):
    """The scores are not divided by the root of the width."""

    class Middle(unet.Middle):
        def attend(self, q, k, v):
            weights = torch.softmax(torch.bmm(q.transpose(1, 2), k), dim=-1)  # here
            return torch.bmm(v, weights.transpose(1, 2))

    unet.Middle = Middle


@harmless("loss", "unet")
def loss_written_out(unet):
    """The mean of the squared differences."""
    unet.loss = lambda predicted, target: (predicted - target).pow(2).mean()


@harmless("fused", "unet")
def fused_attention(unet):
    """scaled_dot_product_attention over places."""

    class Middle(unet.Middle):
        def attend(self, q, k, v):
            q, k, v = (part.transpose(1, 2)[:, None] for part in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v)[:, 0].transpose(1, 2)

    unet.Middle = Middle


@harmless("split", "unet")
def three_convolutions(unet):
    """Queries, keys and values by a convolution each."""

    class Middle(unet.Middle):
        def forward(self, x):
            y = self.norm(x)
            parts = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
            q, k, v = (F.conv2d(y, weight, bias).flatten(2) for weight, bias in parts)
            return x + self.out(self.attend(q, k, v).view(x.shape))

    unet.Middle = Middle


@harmless("split", "unet")
def convolution_as_a_product(unet):
    """The convolutions with one pixel are linear maps of the channels."""

    class Block(unet.Block):
        def __init__(self, inner, outer):
            super().__init__(inner, outer)
            kernel = self.skip

            class Skip(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.weight, self.bias = kernel.weight, kernel.bias

                def forward(self, x):
                    flat = F.linear(x.movedim(1, -1), self.weight[:, :, 0, 0], self.bias)
                    return flat.movedim(-1, 1)

            self.skip = Skip()

    unet.Block = Block


@harmless("recomputed", "unet")
def blocks_computed_again(unet):
    """Both blocks are computed again in the backward pass, by the reentrant way."""
    from torch.utils.checkpoint import checkpoint

    class Block(unet.Block):
        def forward(self, x, time):
            return checkpoint(super().forward, x, time, use_reentrant=True)

    unet.Block = Block


@harmless("reordered", "unet")
def times_embedded_last(unet):
    """The first convolution runs before the times are embedded."""

    class UNet(unet.UNet):
        def forward(self, x, times):
            x = self.enter(x)
            time = self.time2(F.silu(self.time1(unet.embed_times(times))))
            kept = self.down(x, time)
            x = self.middle(self.shrink(kept))
            return self.leave(self.up(self.join(self.grow(x), kept), time))

    unet.UNet = UNet


@harmless("environment", "unet", settings={"threads": 2})
def two_threads(unet):
    """Kernels run on two threads."""


@harmless("fused", "unet")
def norms_written_out(unet):
    """Group norm by mean and variance of the groups."""

    class GroupNorm(nn.GroupNorm):
        def forward(self, x):
            groups = x.unflatten(1, (self.num_groups, -1)).flatten(2)
            variance, mean = torch.var_mean(groups, dim=-1, keepdim=True, correction=0)
            groups = (groups - mean) * torch.rsqrt(variance + self.eps)
            return groups.view(x.shape) * self.weight[:, None, None] + self.bias[:, None, None]

    class Block(unet.Block):
        def __init__(self, inner, outer):
            super().__init__(inner, outer)
            self.norm1 = GroupNorm(unet.GROUPS, inner)
            self.norm2 = GroupNorm(unet.GROUPS, outer)

    unet.Block = Block


@harmless("fused", "unet")
def activation_written_out(unet):
    """SiLU as a product with the sigmoid."""

    class Block(unet.Block):
        def forward(self, x, time):
            y = self.norm1(x)
            y = self.conv1(y * torch.sigmoid(y))
            scale, shift = self.time(time * torch.sigmoid(time)).chunk(2, dim=1)
            y = self.modulate(self.norm2(y), scale, shift)
            return self.skip(x) + self.conv2(y * torch.sigmoid(y))

    unet.Block = Block


@harmless("split", "unet")
def convolution_in_two_halves(unet):
    """The convolution of the joined channels as the sum of one over each half."""

    class Block(unet.Block):
        def forward(self, x, time):
            y = F.silu(self.norm1(x))
            half = y.shape[1] // 2
            first, last = self.conv1.weight[:, :half], self.conv1.weight[:, half:]
            y = F.conv2d(y[:, :half], first, padding=1) + F.conv2d(
                y[:, half:], last, self.conv1.bias, padding=1
            )
            scale, shift = self.time(F.silu(time)).chunk(2, dim=1)
            y = self.modulate(self.norm2(y), scale, shift)
            return self.skip(x) + self.conv2(F.silu(y))

    unet.Block = Block
