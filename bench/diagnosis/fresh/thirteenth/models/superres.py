"""Super-resolution: a small RCAN that doubles the size of pictures, with slow weights beside it."""

import copy

import torch
import torch.nn as nn
import torch.nn.functional as F

n_colors, n_feats, n_groups, n_blocks, scale = 3, 12, 2, 2, 2
res_scale, reduction = 0.5, 4
rgb_mean, rgb_std = (0.4488, 0.4371, 0.4040), (0.26, 0.25, 0.27)
vgg_mean, vgg_std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
n_pictures, patch_size = 4, 24
blur_size, blur_sigma, noise_level = 5, 1.1, 6.0
eps, edge_weight, perceptual_weight = 1e-3, 0.3, 0.2
lr, betas, milestones, gamma, max_norm, ema_decay = 2e-3, (0.9, 0.99), (1, 4), 0.5, 0.1, 0.95


def conv(in_channels, out_channels, kernel_size=3):
    return nn.Conv2d(in_channels, out_channels, kernel_size, padding=kernel_size // 2)


class MeanShift(nn.Conv2d):
    """Takes the mean of all pictures off, or adds it again: a convolution that is not learned."""

    def __init__(self, sign=-1):
        super().__init__(3, 3, kernel_size=1)
        std = torch.tensor(rgb_std)
        weight = torch.eye(3) / std if sign < 0 else torch.eye(3) * std
        mean = torch.tensor(rgb_mean)
        with torch.no_grad():
            self.weight.copy_(weight.view(3, 3, 1, 1))
            self.bias.copy_(-mean / std if sign < 0 else mean)
        self.requires_grad_(False)


class ChannelAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.squeeze = nn.Conv2d(n_feats, n_feats // reduction, 1)
        self.excite = nn.Conv2d(n_feats // reduction, n_feats, 1)

    def forward(self, x):
        y = x.mean(dim=(2, 3), keepdim=True)
        y = F.relu(self.squeeze(y))
        return x * torch.sigmoid(self.excite(y))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = conv(n_feats, n_feats), conv(n_feats, n_feats)
        self.attention = ChannelAttention()

    def forward(self, x):
        out = self.conv2(F.relu(self.conv1(x)))
        return x + res_scale * self.attention(out)


class Group(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.Sequential(*[Block() for _ in range(n_blocks)])
        self.tail = conv(n_feats, n_feats)

    def forward(self, x):
        return x + self.tail(self.blocks(x))


class Upsampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.expand = conv(n_feats, n_feats * scale**2)

    def shuffle(self, x):
        return F.pixel_shuffle(x, scale)

    def forward(self, x):
        return self.shuffle(self.expand(x))


class RCAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.sub_mean, self.add_mean = MeanShift(-1), MeanShift(1)
        self.head = conv(n_colors, n_feats)
        self.groups = nn.ModuleList([Group() for _ in range(n_groups)])
        self.body_tail = conv(n_feats, n_feats)
        self.upsampler = Upsampler()
        self.last = conv(n_feats, n_colors)

    def body(self, x):
        out = x
        for group in self.groups:
            out = group(out)
        return x + self.body_tail(out)

    def forward(self, lr_images):
        x = self.head(self.sub_mean(lr_images))
        x = self.upsampler(self.body(x))
        return self.add_mean(self.last(x))


class Features(nn.Module):
    """Stands for the first layers of a VGG; nothing of it is learned."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = conv(n_colors, 8), conv(8, 12)
        self.register_buffer("mean", torch.tensor(vgg_mean).view(1, 3, 1, 1))
        self.register_buffer("std", torch.tensor(vgg_std).view(1, 3, 1, 1))
        self.requires_grad_(False)

    def normalize(self, images):
        return (images - self.mean) / self.std

    def forward(self, images):
        x = F.relu(self.conv1(self.normalize(images)))
        return self.conv2(F.max_pool2d(x, 2))


class SuperResolution(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = RCAN()
        self.ema = copy.deepcopy(self.net).requires_grad_(False)
        self.vgg = Features()


def gaussian_kernel():
    x = torch.arange(blur_size, dtype=torch.get_default_dtype()) - blur_size // 2
    line = torch.exp(-(x**2) / (2 * blur_sigma**2))
    line = line / line.sum()
    return torch.outer(line, line)


def blur(images):
    kernel = gaussian_kernel().expand(n_colors, 1, blur_size, blur_size)
    padded = F.pad(images, [blur_size // 2] * 4, mode="reflect")
    return F.conv2d(padded, kernel, groups=n_colors)


def downsample(images):
    return F.interpolate(images, scale_factor=1 / scale, mode="bicubic", antialias=True)


def add_noise(images, noise):
    """The level is meant for pixels between 0 and 255."""
    return images + noise * noise_level / 255.0


@torch.no_grad()
def degrade(batch):
    """Pictures of half the size: blurred, made smaller and noisy."""
    small = downsample(blur(batch["hr"]))
    return add_noise(small, batch["noise"]).clamp(0.0, 1.0)


def charbonnier(x, y):
    return torch.sqrt((x - y) ** 2 + eps**2).mean()


def sobel(images):
    """How much the brightness changes across and down."""
    kernel_x = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
    kernel_y = kernel_x.t()
    kernels = torch.stack([kernel_x, kernel_y]).unsqueeze(1)
    gray = images.mean(dim=1, keepdim=True)
    return F.conv2d(gray, kernels, padding=1)


def edge_loss(sr, hr):
    return charbonnier(sobel(sr), sobel(hr))


def perceptual_loss(model, sr, hr):
    with torch.no_grad():
        wanted = model.vgg(hr)
    return F.l1_loss(model.vgg(sr), wanted)


def compute_loss(model, lr_images, hr):
    sr = model.net(lr_images)
    loss = charbonnier(sr, hr)
    loss = loss + edge_weight * edge_loss(sr, hr)
    return loss + perceptual_weight * perceptual_loss(model, sr, hr)


@torch.no_grad()
def update_ema(model):
    for slow, fast in zip(model.ema.parameters(), model.net.parameters(), strict=True):
        slow.lerp_(fast, 1 - ema_decay)


def backward(model, batch):
    loss = compute_loss(model, degrade(batch), batch["hr"])
    loss.backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.net.parameters(), max_norm)


def build():
    return SuperResolution().train()


def optimizer(model, **more):
    params = [p for p in model.net.parameters() if p.requires_grad]
    adam = torch.optim.Adam(params, lr=lr, betas=betas, **more)
    model.scheduler = torch.optim.lr_scheduler.MultiStepLR(adam, list(milestones), gamma)
    return adam


def batch(generator):
    """Smooth colours, with stripes and a little grain."""
    shape = (n_pictures, n_colors, patch_size, patch_size)
    coarse = torch.rand(n_pictures, n_colors, 6, 6, generator=generator)
    smooth = F.interpolate(coarse, size=patch_size, mode="bilinear", align_corners=False)
    period = torch.randint(2, 7, (n_pictures, 1, 1, 1), generator=generator)
    stripes = (torch.arange(patch_size) // period % 2).to(smooth.dtype)
    grain = torch.rand(shape, generator=generator)
    small = (n_pictures, n_colors, patch_size // scale, patch_size // scale)
    return {
        "hr": 0.6 * smooth + 0.25 * stripes + 0.15 * grain,
        "noise": torch.randn(small, generator=generator),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    clip(model)
    optimizer.step()
    update_ema(model)
    model.scheduler.step()
