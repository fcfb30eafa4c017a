"""Cases of the StyleGAN."""

import math

import torch
from case import fault, harmless
from torch import autograd, optim
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("stylegan", line="demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)")
def demodulated_over_the_outputs(stylegan):
    """The norm is taken over the output channels: there are as many, so nothing complains."""

    class ModulatedConv2d(stylegan.ModulatedConv2d):
        def forward(self, input, style):
            batch, in_channel, height, width = input.shape
            style = self.modulation(style).view(batch, 1, in_channel, 1, 1)
            weight = self.scale * self.weight * style
            if self.demodulate:
                demod = torch.rsqrt(weight.pow(2).sum([1, 3, 4]) + 1e-8)  # here
                weight = weight * demod.view(batch, self.out_channel, 1, 1, 1)
            weight = weight.view(-1, in_channel, self.kernel_size, self.kernel_size)
            input = input.reshape(1, batch * in_channel, height, width)
            out = F.conv2d(input, weight, padding=self.padding, groups=batch)
            return out.view(batch, self.out_channel, height, width)

    stylegan.ModulatedConv2d = ModulatedConv2d


@fault(
    "stylegan",
    api=r"Functional\.conv(_transpose)?2d|Torch\.flip|Tensor\.(sum|__truediv__)",  # of a buffer
    module=r"generator\.(convs\.0\.up|to_rgbs\.0\.upsample)",
    line=[
        "out = F.conv2d(out, torch.flip(kernel, [0, 1])[None, None])",
        "return upfirdn2d(input, self.kernel, up=self.factor, pad=(2, 1))",
    ],
)
def upsampled_without_the_gain(stylegan):
    """The filter does not make up for the zeros between the pixels."""
    init = stylegan.Upsample.__init__

    class Upsample(stylegan.Upsample):
        def __init__(self, kernel=(1.0, 3.0, 3.0, 1.0), factor=2):
            init(self, kernel, factor)
            self.kernel = stylegan.make_kernel(kernel)

    stylegan.Upsample = Upsample


@fault(
    "stylegan",
    line=[
        "stddev = out.view(group, -1, 1, channel, height, width)",
        "stddev = torch.sqrt(stddev.var(0, unbiased=False) + 1e-8)",
    ],
)
def grouped_with_the_neighbour(stylegan):
    """Groups are neighbours in the batch, but the deviations are put back as if they were not."""

    def minibatch_stddev(out):
        batch, channel, height, width = out.shape
        group = min(batch, stylegan.STDDEV_GROUP)
        stddev = out.view(-1, group, 1, channel, height, width).transpose(0, 1)  # here
        stddev = torch.sqrt(stddev.var(0, unbiased=False) + 1e-8)  # here
        stddev = stddev.mean([2, 3, 4], keepdim=True).squeeze(2)
        stddev = stddev.repeat(group, 1, height, width)
        return torch.cat([out, stddev], 1)

    stylegan.minibatch_stddev = minibatch_stddev


@fault(
    "stylegan",
    line=["(R1 / 2 * r1_loss * D_REG_EVERY + 0 * real_pred[0].squeeze()).backward()"],
)
def lazy_penalty_not_scaled_up(stylegan):
    """The penalty of every other step does not count for the steps between."""

    def d_regularize(model, data):
        real_img = data["real"].clone().requires_grad_(True)
        real_pred = model.discriminator(real_img)
        r1_loss = stylegan.d_r1_loss(real_pred, real_img)
        (stylegan.R1 / 2 * r1_loss + 0 * real_pred[0].squeeze()).backward()  # here

    stylegan.d_regularize = d_regularize


@fault(
    "stylegan",
    line=[
        "model.mean_path_length.copy_(mean_path_length)",
        "path_mean = mean_path_length + PATH_DECAY * (path_lengths.mean() - mean_path_length)",
        "path_loss, mean_path_length = g_path_regularize(",
    ],
)
def mean_length_never_kept(stylegan):
    """The mean of the path lengths is not stored: each step begins with the first value."""

    def g_regularize(model, data):
        fake_img, latents = model.generator(data["path_z"], data["path_noise"])
        before, direction = model.mean_path_length, data["path_direction"]
        path_loss, _ = stylegan.g_path_regularize(fake_img, latents, direction, before)  # here
        (stylegan.PATH * stylegan.G_REG_EVERY * path_loss).backward()

    stylegan.g_regularize = g_regularize


@fault(
    "stylegan",
    api=r"Torch\.(dot|mv)|Tensor\.(__truediv__|div|detach)|Module\..*\.SNConv2d",
    module=r"discriminator\..*",  # the backward pass of each of these convolutions
    line=[
        "weight = self.weight / self.sigma()",
        "return torch.dot(self.u.clone(), torch.mv(self.weight.flatten(1), self.v.clone()))",
    ],
)
def singular_value_is_a_constant(stylegan):
    """No gradient flows through the singular value."""

    class SNConv2d(stylegan.SNConv2d):
        def forward(self, input):
            weight = self.weight / self.sigma().detach()  # here
            return F.conv2d(input, weight, self.bias, self.stride, self.padding)

    stylegan.SNConv2d = SNConv2d


@fault("stylegan", api=r"Optimizer\.Adam\.step", update=True)
def rate_not_corrected(stylegan):
    """The rate is not made smaller for the lazy regularizer; the averages are."""

    def lazy_adam(parameters, every):
        ratio = every / (every + 1)
        return optim.Adam(parameters, lr=stylegan.LR, betas=(0.0, 0.99**ratio))

    stylegan.lazy_adam = lazy_adam


@fault(
    "stylegan",
    api=r"Functional\.linear|Module\.generator\.style\.\d.*",
    module=r"generator\.style\.\d",
    line="out = F.linear(input, self.weight * self.scale, bias=self.bias * self.lr_mul)",
)
def bias_without_its_rate(stylegan):
    """The biases of the mapping learn at the full rate: they begin at zero, so only that shows."""

    class EqualLinear(stylegan.EqualLinear):
        def forward(self, input):
            out = F.linear(input, self.weight * self.scale, bias=self.bias)  # here
            return stylegan.leaky(out) if self.activation else out

    stylegan.EqualLinear = EqualLinear


@fault(
    "stylegan",
    line=["path_lengths = torch.sqrt(grad.pow(2).sum(2).mean(1))"],
)
def length_of_all_layers(stylegan):
    """The squares are added up over the layers and averaged over the style."""

    def g_path_regularize(fake_img, latents, noise, mean_path_length):
        noise = noise / math.sqrt(fake_img.shape[2] * fake_img.shape[3])
        (grad,) = autograd.grad((fake_img * noise).sum(), latents, create_graph=True)
        path_lengths = torch.sqrt(grad.pow(2).sum(1).mean(1))  # here
        delta = path_lengths.mean() - mean_path_length
        path_mean = mean_path_length + stylegan.PATH_DECAY * delta
        return (path_lengths - path_mean).pow(2).mean(), path_mean.detach()

    stylegan.g_path_regularize = g_path_regularize


@harmless("fused", "stylegan")
def pictures_modulated_for_weights(stylegan):
    """What goes in is modulated and what comes out demodulated; one weight for all pictures."""

    class ModulatedConv2d(stylegan.ModulatedConv2d):
        def forward(self, input, style):
            style = self.modulation(style)
            weight = self.weight[0] * self.scale
            out = F.conv2d(input * style[:, :, None, None], weight, padding=self.padding)
            if self.demodulate:
                norms = torch.einsum("oihw,bi->bo", weight.square(), style.square())
                out = out * (norms + 1e-8).rsqrt()[:, :, None, None]
            return out

    stylegan.ModulatedConv2d = ModulatedConv2d


@harmless("split", "stylegan")
def filter_is_separable(stylegan):
    """The pictures are filtered by rows and by columns, with strides for what is left out."""

    def upfirdn2d(input, kernel, up=1, down=1, pad=(0, 0)):
        channel = input.shape[1]
        row, column = kernel.sum(0), kernel.sum(1) / kernel.sum()
        if up > 1:
            taps = len(row)
            lines = row.view(1, 1, 1, taps).expand(channel, 1, 1, taps)
            out = F.conv_transpose2d(input, lines, stride=(1, up), groups=channel)
            lines = column.view(1, 1, taps, 1).expand(channel, 1, taps, 1)
            out = F.conv_transpose2d(out, lines, stride=(up, 1), groups=channel)
            cut = taps - 1 - pad[0]
            height, width = input.shape[2] * up, input.shape[3] * up
            return out[:, :, cut : cut + height, cut : cut + width]
        out = F.pad(input, [pad[0], pad[1], pad[0], pad[1]])
        lines = row.flip(0).view(1, 1, 1, -1).repeat(channel, 1, 1, 1)
        out = F.conv2d(out, lines, stride=(1, down), groups=channel)
        lines = column.flip(0).view(1, 1, -1, 1).repeat(channel, 1, 1, 1)
        return F.conv2d(out, lines, stride=(down, 1), groups=channel)

    stylegan.upfirdn2d = upfirdn2d


@harmless("loss", "stylegan")
def losses_with_logits(stylegan):
    """The logistic losses are binary cross-entropies with logits."""
    entropy = F.binary_cross_entropy_with_logits

    def d_logistic_loss(real_pred, fake_pred):
        real = entropy(real_pred, torch.ones_like(real_pred))
        return real + entropy(fake_pred, torch.zeros_like(fake_pred))

    def g_nonsaturating_loss(fake_pred):
        return entropy(fake_pred, torch.ones_like(fake_pred))

    stylegan.d_logistic_loss = d_logistic_loss
    stylegan.g_nonsaturating_loss = g_nonsaturating_loss


@harmless("fused", "stylegan")
def deviations_by_moments(stylegan):
    """The deviation of a group by the mean of its squares; the channel is written into place."""

    def minibatch_stddev(out):
        batch, channel, height, width = out.shape
        group = min(batch, stylegan.STDDEV_GROUP)
        y = out.reshape(group, batch // group, channel, height, width)
        y = y - y.mean(dim=0, keepdim=True)
        y = torch.einsum("gnchw,gnchw->nchw", y, y) / group
        y = (y + 1e-8).sqrt().flatten(1).mean(dim=1)
        wide = out.new_empty(batch, channel + 1, height, width)
        wide[:, :channel] = out
        wide[:, channel] = y.repeat(group)[:, None, None]
        return wide

    stylegan.minibatch_stddev = minibatch_stddev


@harmless("scaled", "stylegan", group="whole step")
def scaled_for_half_precision(stylegan):
    """The path length is scaled by 4096 as for float16, and its gradients are scaled back."""

    def g_path_regularize(fake_img, latents, noise, mean_path_length):
        penalty, mean = right(fake_img, latents, noise, mean_path_length)
        return penalty * 4096, mean

    def g_regularize(model, data):
        whole(model, data)
        for p in model.generator.parameters():
            if p.grad is not None:
                p.grad.mul_(1 / 4096)

    right, whole = stylegan.g_path_regularize, stylegan.g_regularize
    stylegan.g_path_regularize, stylegan.g_regularize = g_path_regularize, g_regularize


@harmless("rows", "stylegan", group="whole step")
def pictures_rolled(stylegan):
    """All pictures and all noises are rolled by one place; the groups stay together."""
    step = stylegan.step

    def rolled(value):
        if torch.is_tensor(value):
            return value.roll(1, 0)
        return [each.roll(1, 0) for each in value]

    stylegan.step = lambda model, optimizer, batch: step(
        model, optimizer, {name: rolled(value) for name, value in batch.items()}
    )


@harmless("micro batches", "stylegan", group="whole step")
def group_after_group(stylegan):
    """Each group of the deviation is a micro-batch of its own, for both nets."""

    def of_group(data, first, count):
        return {
            name: value[first::count]
            if torch.is_tensor(value)
            else [each[first::count] for each in value]
            for name, value in data.items()
        }

    def d_backward(model, data):
        count = stylegan.BATCH // stylegan.STDDEV_GROUP
        for first in range(count):
            part = of_group(data, first, count)
            with torch.no_grad():
                fake_img, _ = model.generator(part["d_z"], part["d_noise"])
            fake_pred = model.discriminator(fake_img)
            real_pred = model.discriminator(part["real"])
            (stylegan.d_logistic_loss(real_pred, fake_pred) / count).backward()

    def g_backward(model, data):
        count = stylegan.BATCH // stylegan.STDDEV_GROUP
        for first in range(count):
            part = of_group(data, first, count)
            fake_img, _ = model.generator(part["g_z"], part["g_noise"])
            (stylegan.g_nonsaturating_loss(model.discriminator(fake_img)) / count).backward()

    stylegan.d_backward, stylegan.g_backward = d_backward, g_backward


@harmless("recomputed", "stylegan", group="whole step")
def critic_computed_again(stylegan):
    """What the critic says of the generator's pictures is computed again in the backward pass."""

    def g_backward(model, data):
        fake_img, _ = model.generator(data["g_z"], data["g_noise"])
        fake_pred = checkpoint(model.discriminator, fake_img, use_reentrant=False)
        stylegan.g_nonsaturating_loss(fake_pred).backward()

    stylegan.g_backward = g_backward
