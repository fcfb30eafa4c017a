"""A small StyleGAN2: modulated convolutions, R1, path lengths, a spectrally normed critic, EMA."""

import copy
import math

import torch
from torch import autograd, nn, optim
from torch.nn import functional as F

SIZE, CHANNELS, STYLE_DIM, N_MLP, BATCH, STDDEV_GROUP = 16, 8, 12, 3, 4, 2
LR, LR_MLP, R1, PATH, D_REG_EVERY, G_REG_EVERY, EMA_DECAY = 4e-3, 0.1, 5.0, 2.0, 2, 1, 0.8
PATH_DECAY = 0.05


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad_(flag)


def make_kernel(k):
    k = torch.tensor(k)
    if k.ndim == 1:
        k = k[None, :] * k[:, None]
    return k / k.sum()


def upfirdn2d(input, kernel, up=1, down=1, pad=(0, 0)):
    """Zeros between the pixels, a padding, a filter, every other pixel."""
    batch, channel, in_h, in_w = input.shape
    out = input.reshape(-1, in_h, 1, in_w, 1)
    out = F.pad(out, [0, up - 1, 0, 0, 0, up - 1])
    out = out.view(-1, 1, in_h * up, in_w * up)
    out = F.pad(out, [pad[0], pad[1], pad[0], pad[1]])
    out = F.conv2d(out, torch.flip(kernel, [0, 1])[None, None])
    out = out[:, :, ::down, ::down]
    return out.view(batch, channel, out.shape[-2], out.shape[-1])


def leaky(input, bias=None, negative_slope=0.2, scale=2**0.5):
    if bias is not None:
        input = input + bias.view(1, -1, *[1] * (input.ndim - 2))
    return F.leaky_relu(input, negative_slope) * scale


class PixelNorm(nn.Module):
    def forward(self, input):
        return input * torch.rsqrt(torch.mean(input**2, dim=1, keepdim=True) + 1e-8)


class EqualLinear(nn.Module):
    def __init__(self, in_dim, out_dim, bias_init=0.0, lr_mul=1.0, activation=False):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim).div_(lr_mul))
        self.bias = nn.Parameter(torch.zeros(out_dim).fill_(bias_init))
        self.activation = activation
        self.scale = (1 / math.sqrt(in_dim)) * lr_mul
        self.lr_mul = lr_mul

    def forward(self, input):
        out = F.linear(input, self.weight * self.scale, bias=self.bias * self.lr_mul)
        return leaky(out) if self.activation else out


class Upsample(nn.Module):
    def __init__(self, kernel=(1.0, 3.0, 3.0, 1.0), factor=2):
        super().__init__()
        self.factor = factor
        self.register_buffer("kernel", make_kernel(kernel) * (factor**2))

    def forward(self, input):
        return upfirdn2d(input, self.kernel, up=self.factor, pad=(2, 1))


class ModulatedConv2d(nn.Module):
    def __init__(self, in_channel, out_channel, kernel_size, demodulate=True):
        super().__init__()
        self.out_channel, self.kernel_size = out_channel, kernel_size
        self.scale = 1 / math.sqrt(in_channel * kernel_size**2)
        self.padding = kernel_size // 2
        self.weight = nn.Parameter(
            torch.randn(1, out_channel, in_channel, kernel_size, kernel_size)
        )
        self.modulation = EqualLinear(STYLE_DIM, in_channel, bias_init=1.0)
        self.demodulate = demodulate

    def forward(self, input, style):
        batch, in_channel, height, width = input.shape
        style = self.modulation(style).view(batch, 1, in_channel, 1, 1)
        weight = self.scale * self.weight * style
        if self.demodulate:
            demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
            weight = weight * demod.view(batch, self.out_channel, 1, 1, 1)
        weight = weight.view(
            batch * self.out_channel, in_channel, self.kernel_size, self.kernel_size
        )
        input = input.reshape(1, batch * in_channel, height, width)
        out = F.conv2d(input, weight, padding=self.padding, groups=batch)
        return out.view(batch, self.out_channel, height, width)


class StyledConv(nn.Module):
    def __init__(self, in_channel, out_channel, upsample=False):
        super().__init__()
        self.up = Upsample() if upsample else None
        self.conv = ModulatedConv2d(in_channel, out_channel, 3)
        self.noise_strength = nn.Parameter(torch.full((1,), 0.1))
        self.bias = nn.Parameter(torch.zeros(out_channel))

    def forward(self, input, style, noise):
        if self.up is not None:
            input = self.up(input)
        out = self.conv(input, style)
        out = out + self.noise_strength * noise
        return leaky(out, self.bias)


class ToRGB(nn.Module):
    def __init__(self, in_channel):
        super().__init__()
        self.upsample = Upsample()
        self.conv = ModulatedConv2d(in_channel, 3, 1, demodulate=False)
        self.bias = nn.Parameter(torch.zeros(1, 3, 1, 1))

    def forward(self, input, style, skip=None):
        out = self.conv(input, style) + self.bias
        if skip is not None:
            out += self.upsample(skip)
        return out


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [PixelNorm()]
        for _ in range(N_MLP):
            layers.append(EqualLinear(STYLE_DIM, STYLE_DIM, lr_mul=LR_MLP, activation=True))
        self.style = nn.Sequential(*layers)
        self.const = nn.Parameter(torch.randn(1, CHANNELS, 4, 4))
        self.conv1 = StyledConv(CHANNELS, CHANNELS)
        self.to_rgb1 = ToRGB(CHANNELS)
        self.convs, self.to_rgbs = nn.ModuleList(), nn.ModuleList()
        self.log_size = int(math.log2(SIZE))
        for _ in range(3, self.log_size + 1):
            self.convs.append(StyledConv(CHANNELS, CHANNELS, upsample=True))
            self.convs.append(StyledConv(CHANNELS, CHANNELS))
            self.to_rgbs.append(ToRGB(CHANNELS))
        self.n_latent = self.log_size * 2 - 2

    def mix(self, styles, inject_index):
        """One style up to the layer `inject_index`, another one from there."""
        if len(styles) < 2:
            return styles[0].unsqueeze(1).repeat(1, self.n_latent, 1)
        first = styles[0].unsqueeze(1).repeat(1, inject_index, 1)
        second = styles[1].unsqueeze(1).repeat(1, self.n_latent - inject_index, 1)
        return torch.cat([first, second], 1)

    def synthesize(self, latent, noises):
        out = self.const.repeat(latent.shape[0], 1, 1, 1)
        out = self.conv1(out, latent[:, 0], noises[0])
        skip = self.to_rgb1(out, latent[:, 1])
        i = 1
        pairs = zip(self.convs[::2], self.convs[1::2], noises[1::2], noises[2::2], strict=True)
        for (conv1, conv2, noise1, noise2), to_rgb in zip(pairs, self.to_rgbs, strict=True):
            out = conv1(out, latent[:, i], noise1)
            out = conv2(out, latent[:, i + 1], noise2)
            skip = to_rgb(out, latent[:, i + 2], skip)
            i += 2
        return skip

    def forward(self, styles, noises, inject_index=2):
        latent = self.mix([self.style(s) for s in styles], inject_index)
        return self.synthesize(latent, noises), latent


class SNConv2d(nn.Module):
    """A convolution with its weight divided by the largest singular value."""

    def __init__(self, in_channel, out_channel, kernel_size, stride=1):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(out_channel, in_channel, kernel_size, kernel_size))
        nn.init.orthogonal_(self.weight)
        self.bias = nn.Parameter(torch.zeros(out_channel))
        self.stride, self.padding = stride, kernel_size // 2
        self.register_buffer("u", F.normalize(torch.randn(out_channel), dim=0))
        self.register_buffer("v", F.normalize(self.weight.detach().flatten(1).t() @ self.u, dim=0))

    @torch.no_grad()
    def power_iterate(self, eps=1e-12):
        w = self.weight.flatten(1)
        self.v.copy_(F.normalize(torch.mv(w.t(), self.u), dim=0, eps=eps))
        self.u.copy_(F.normalize(torch.mv(w, self.v), dim=0, eps=eps))

    def sigma(self):
        return torch.dot(self.u.clone(), torch.mv(self.weight.flatten(1), self.v.clone()))

    def forward(self, input):
        weight = self.weight / self.sigma()
        return F.conv2d(input, weight, self.bias, stride=self.stride, padding=self.padding)


class ResBlock(nn.Module):
    def __init__(self, in_channel, out_channel):
        super().__init__()
        self.conv1 = SNConv2d(in_channel, in_channel, 3)
        self.conv2 = SNConv2d(in_channel, out_channel, 3)
        self.skip = SNConv2d(in_channel, out_channel, 1)
        self.register_buffer("kernel", make_kernel((1.0, 3.0, 3.0, 1.0)))

    def forward(self, input):
        out = leaky(self.conv2(leaky(self.conv1(input))))
        out = upfirdn2d(out, self.kernel, down=2, pad=(1, 1))
        skip = self.skip(upfirdn2d(input, self.kernel, down=2, pad=(1, 1)))
        return (out + skip) / math.sqrt(2)


def minibatch_stddev(out):
    """One more channel: how much the pictures of a group differ."""
    batch, channel, height, width = out.shape
    group = min(batch, STDDEV_GROUP)
    stddev = out.view(group, -1, 1, channel, height, width)
    stddev = torch.sqrt(stddev.var(0, unbiased=False) + 1e-8)
    stddev = stddev.mean([2, 3, 4], keepdim=True).squeeze(2)
    stddev = stddev.repeat(group, 1, height, width)
    return torch.cat([out, stddev], 1)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.from_rgb = SNConv2d(3, CHANNELS, 1)
        self.blocks = nn.Sequential(ResBlock(CHANNELS, CHANNELS), ResBlock(CHANNELS, CHANNELS))
        self.final_conv = SNConv2d(CHANNELS + 1, CHANNELS, 3)
        self.final_linear = nn.Sequential(
            EqualLinear(CHANNELS * 4 * 4, CHANNELS, activation=True), EqualLinear(CHANNELS, 1)
        )

    def forward(self, input):
        out = self.blocks(leaky(self.from_rgb(input)))
        out = leaky(self.final_conv(minibatch_stddev(out)))
        return self.final_linear(out.view(out.shape[0], -1))


def d_logistic_loss(real_pred, fake_pred):
    return F.softplus(-real_pred).mean() + F.softplus(fake_pred).mean()


def g_nonsaturating_loss(fake_pred):
    return F.softplus(-fake_pred).mean()


def d_r1_loss(real_pred, real_img):
    (grad_real,) = autograd.grad(real_pred.sum(), real_img, create_graph=True)
    return grad_real.pow(2).reshape(grad_real.shape[0], -1).sum(1).mean()


def g_path_regularize(fake_img, latents, noise, mean_path_length):
    noise = noise / math.sqrt(fake_img.shape[2] * fake_img.shape[3])
    (grad,) = autograd.grad((fake_img * noise).sum(), latents, create_graph=True)
    path_lengths = torch.sqrt(grad.pow(2).sum(2).mean(1))
    path_mean = mean_path_length + PATH_DECAY * (path_lengths.mean() - mean_path_length)
    path_penalty = (path_lengths - path_mean).pow(2).mean()
    return path_penalty, path_mean.detach()


@torch.no_grad()
def accumulate(model1, model2, decay=EMA_DECAY):
    par1, par2 = dict(model1.named_parameters()), dict(model2.named_parameters())
    for k in par1:
        par1[k].mul_(decay).add_(par2[k].data, alpha=1 - decay)


class GAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.discriminator = Generator(), Discriminator()
        self.g_ema = copy.deepcopy(self.generator).requires_grad_(False)
        self.register_buffer("mean_path_length", torch.tensor(0.3))
        self.iteration = 0


def build():
    return GAN()


def lazy_adam(parameters, every):
    """Adam with its rate and its averages corrected for the steps of the regularizer."""
    ratio = every / (every + 1)
    return optim.Adam(parameters, lr=LR * ratio, betas=(0.0, 0.99**ratio))


def optimizer(model):
    g_optim = lazy_adam(model.generator.parameters(), 4)
    return g_optim, lazy_adam(model.discriminator.parameters(), D_REG_EVERY)


def batch(generator):
    def drawn(*shape):
        return torch.randn(*shape, generator=generator)

    sizes = [4, 8, 8, 16, 16]
    data = {"real": drawn(BATCH, 3, SIZE, SIZE).tanh()}
    for who, count in (("d", BATCH), ("g", BATCH), ("path", BATCH // 2)):
        data[f"{who}_z"] = drawn(2, count, STYLE_DIM).unbind(0)
        data[f"{who}_noise"] = [drawn(count, 1, size, size) for size in sizes]
    data["path_z"] = data["path_z"][:1]
    data["path_direction"] = drawn(BATCH // 2, 3, SIZE, SIZE)
    return data


def d_backward(model, data):
    fake_img, _ = model.generator(data["d_z"], data["d_noise"])
    fake_pred = model.discriminator(fake_img)
    real_pred = model.discriminator(data["real"])
    d_logistic_loss(real_pred, fake_pred).backward()


def d_regularize(model, data):
    real_img = data["real"].clone().requires_grad_(True)
    real_pred = model.discriminator(real_img)
    r1_loss = d_r1_loss(real_pred, real_img)
    (R1 / 2 * r1_loss * D_REG_EVERY + 0 * real_pred[0].squeeze()).backward()


def d_step(model, d_optim, data):
    requires_grad(model.generator, False)
    requires_grad(model.discriminator, True)
    for module in model.discriminator.modules():
        if isinstance(module, SNConv2d):
            module.power_iterate()
    model.discriminator.zero_grad()
    d_backward(model, data)
    d_optim.step()
    if model.iteration % D_REG_EVERY == 0:
        model.discriminator.zero_grad()
        d_regularize(model, data)
        d_optim.step()


def g_backward(model, data):
    fake_img, _ = model.generator(data["g_z"], data["g_noise"])
    g_nonsaturating_loss(model.discriminator(fake_img)).backward()


def g_regularize(model, data):
    fake_img, latents = model.generator(data["path_z"], data["path_noise"])
    path_loss, mean_path_length = g_path_regularize(
        fake_img, latents, data["path_direction"], model.mean_path_length
    )
    (PATH * G_REG_EVERY * path_loss).backward()
    model.mean_path_length.copy_(mean_path_length)


def g_step(model, g_optim, data):
    requires_grad(model.generator, True)
    requires_grad(model.discriminator, False)
    model.generator.zero_grad()
    g_backward(model, data)
    g_optim.step()
    if model.iteration % G_REG_EVERY == 0:
        model.generator.zero_grad()
        g_regularize(model, data)
        g_optim.step()


def step(model, optimizer, batch):
    g_optim, d_optim = optimizer
    d_step(model, d_optim, batch)
    g_step(model, g_optim, batch)
    accumulate(model.g_ema, model.generator)
    model.iteration += 1
