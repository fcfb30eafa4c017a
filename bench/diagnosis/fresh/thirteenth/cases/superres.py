"""Cases of the pictures that are made larger."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "superres",
    line="return F.pixel_shuffle(x, scale)",
    api=r"Functional\.pixel_shuffle|Torch\.pixel_shuffle",
    module=r"net\.upsampler|upsampler",
    module_only=r"net\.upsampler",
)
def channels_in_another_order(superres):
    """Channels become pixels as in TensorFlow: the place stands before the feature."""

    class Upsampler(superres.Upsampler):
        def shuffle(self, x):
            b, c, h, w = x.shape
            r = superres.scale
            x = x.reshape(b, r, r, c // r**2, h, w)  # here
            x = x.permute(0, 3, 4, 1, 5, 2)  # here
            return x.reshape(b, c // r**2, h * r, w * r)  # here

    superres.Upsampler = Upsampler


@fault("superres", line="y = x.mean(dim=(2, 3), keepdim=True)")
def attention_to_the_whole_batch(superres):
    """The mean of a channel is taken over all pictures, not over each."""

    class ChannelAttention(superres.ChannelAttention):
        def forward(self, x):
            y = x.mean(dim=(0, 2, 3), keepdim=True)  # here
            y = F.relu(self.squeeze(y))
            return x * torch.sigmoid(self.excite(y))

    superres.ChannelAttention = ChannelAttention


@fault(
    "superres",
    # The product is missing; the sum is the first that lacks it.
    line=["return x + res_scale * self.attention(out)"],
)
def residual_is_not_scaled(superres):
    """What a block adds is not made smaller."""

    class Block(superres.Block):
        def forward(self, x):
            out = self.conv2(F.relu(self.conv1(x)))
            return x + self.attention(out)  # here

    superres.Block = Block


@fault("superres", line="return images + noise * noise_level / 255.0")
def noise_is_not_divided(superres):
    """The level of noise is used as if pixels were between 0 and 255."""

    def add_noise(images, noise):
        return images + noise * superres.noise_level  # here

    superres.add_noise = add_noise


@fault("superres", line="return torch.sqrt((x - y) ** 2 + eps**2).mean()")
def epsilon_is_not_squared(superres):
    """Under the root stands epsilon, not its square."""

    def charbonnier(x, y):
        return torch.sqrt((x - y) ** 2 + superres.eps).mean()  # here

    superres.charbonnier = charbonnier


@fault(
    "superres",
    line=["kernel_y = kernel_x.t()", "kernels = torch.stack([kernel_x, kernel_y]).unsqueeze(1)"],
)
def edges_across_alone(superres):
    """The second filter is not turned: both look for edges across."""

    def sobel(images):
        kernel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]]) / 8
        kernels = torch.stack([kernel, kernel]).unsqueeze(1)  # here
        gray = images.mean(dim=1, keepdim=True)
        return F.conv2d(gray, kernels, padding=1)

    superres.sobel = sobel


@fault(
    "superres",
    # The norm is missing; the first convolution is the first that lacks it.
    line=[
        "return (images - self.mean) / self.std",
        "x = F.relu(self.conv1(self.normalize(images)))",
        "wanted = model.vgg(hr)",
    ],
    api=r"Module\.vgg\.(conv1\.)?[A-Z].*|Functional\.conv2d|Torch\.conv2d",
    module=r"vgg(\.conv1)?",
    module_only=r"vgg(\.conv1)?",
)
def wanted_features_of_raw_pictures(superres):
    """The true pictures are not normalised before their features are computed."""

    class Features(superres.Features):
        def normalize(self, images):
            if not images.requires_grad:
                return images  # here
            return super().normalize(images)

    superres.Features = Features


@fault(
    "superres",
    line=["    update_ema(model)", "slow.lerp_(fast, 1 - ema_decay)"],
)
def slow_weights_are_a_step_late(superres):
    """The slow weights follow before the weights are updated."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        superres.backward(model, batch)
        superres.clip(model)
        superres.update_ema(model)  # here
        optimizer.step()
        model.scheduler.step()

    superres.step = step


@fault(
    "superres",
    api=r"Optimizer\.Adam\.step",
    update=True,
    line=["    optimizer.step()", "model.scheduler.step()"],
)
def schedule_before_update(superres):
    """The schedule is advanced before the update, as before PyTorch 1.1: the first rate is lost."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        superres.backward(model, batch)
        superres.clip(model)
        model.scheduler.step()  # here
        optimizer.step()  # here
        superres.update_ema(model)

    superres.step = step


@harmless("split", "superres")
def blurred_twice(superres):
    """Pictures are blurred across, and then down."""

    def blur(images):
        line = superres.gaussian_kernel().sum(dim=0).expand(superres.n_colors, 1, 1, -1)
        padded = F.pad(images, [superres.blur_size // 2] * 4, mode="reflect")
        across = F.conv2d(padded, line, groups=superres.n_colors)
        return F.conv2d(across, line.transpose(2, 3), groups=superres.n_colors)

    superres.blur = blur


@harmless("fused", "superres")
def root_by_hypot(superres):
    """The root of two squares is one call."""

    def charbonnier(x, y):
        return torch.hypot(x - y, torch.full_like(x, superres.eps)).mean()

    superres.charbonnier = charbonnier


@harmless("fused", "superres")
def pixels_placed_by_hand(superres):
    """Channels become pixels by a view and a permutation."""

    class Upsampler(superres.Upsampler):
        def shuffle(self, x):
            r = superres.scale
            x = x.unflatten(1, (-1, r, r)).permute(0, 1, 4, 2, 5, 3)
            return x.flatten(4, 5).flatten(2, 3)

    superres.Upsampler = Upsampler


@harmless("split", "superres")
def attention_by_linear_layers(superres):
    """Convolutions of one pixel are products."""

    class ChannelAttention(superres.ChannelAttention):
        def forward(self, x):
            y = x.flatten(2).mean(dim=2)
            y = F.relu(F.linear(y, self.squeeze.weight.flatten(1), self.squeeze.bias))
            y = F.linear(y, self.excite.weight.flatten(1), self.excite.bias)
            return x * torch.sigmoid(y)[:, :, None, None]

    superres.ChannelAttention = ChannelAttention


@harmless("reordered", "superres")
def features_before_pixels(superres):
    """The parts of the loss are computed in the opposite order."""

    def compute_loss(model, lr_images, hr):
        sr = model.net(lr_images)
        features = superres.perceptual_loss(model, sr, hr)
        edges = superres.edge_loss(sr, hr)
        pixels = superres.charbonnier(sr, hr)
        return pixels + superres.edge_weight * edges + superres.perceptual_weight * features

    superres.compute_loss = compute_loss


@harmless("rows", "superres", group="whole step")
def pictures_in_another_order(superres):
    """The pictures are in another order."""
    backward = superres.backward

    def shuffled(model, batch):
        backward(model, {name: value[[2, 0, 3, 1]] for name, value in batch.items()})

    superres.backward = shuffled


@harmless("micro batches", "superres", group="whole step")
def one_picture_at_a_time(superres):
    """Each picture goes backward on its own."""

    def backward(model, batch):
        for number in range(superres.n_pictures):
            part = {name: value[number : number + 1] for name, value in batch.items()}
            loss = superres.compute_loss(model, superres.degrade(part), part["hr"])
            (loss / superres.n_pictures).backward()

    superres.backward = backward


@harmless("scaled", "superres", group="whole step")
def loss_is_scaled(superres):
    """The loss is scaled, and the gradients are unscaled before they are clipped."""
    compute_loss, clip = superres.compute_loss, superres.clip
    superres.compute_loss = lambda *inputs: 256 * compute_loss(*inputs)

    def unscaled(model):
        for p in model.net.parameters():
            if p.grad is not None:
                p.grad.mul_(1 / 256)
        clip(model)

    superres.clip = unscaled


@harmless("recomputed", "superres", group="whole step")
def groups_computed_again(superres):
    """The groups of blocks are computed again in the backward pass."""

    class Group(superres.Group):
        def forward(self, x):
            return checkpoint(super().forward, x, use_reentrant=False)

    superres.Group = Group
