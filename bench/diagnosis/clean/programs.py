"""Random small training steps. What a clean change may change is how they compute: `Ways`."""

import contextlib
import dataclasses
import math
import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


@dataclasses.dataclass
class Ways:
    """How a step computes; every field names a way to compute the same numbers."""

    linear: str = "linear"
    activation: str = "function"
    norm: str = "function"
    loss: str = "function"
    attention: str = "math"
    convolution: str = "convolution"
    fold: bool = False
    memory: str = "contiguous"
    optimizer: str = "foreach"
    threads: int = 1
    onednn: bool = True
    autocast: str = ""
    rows: str = "as they come"
    micro_batches: int = 1


@dataclasses.dataclass
class Spec:
    """A program: everything that is drawn, before anything is computed."""

    family: str
    seed: int
    width: int
    depth: int
    batch: int
    length: int
    activation: str
    norm: str
    loss: str
    optimizer: str
    weight_scale: float = 1.0
    input_scale: float = 1.0
    loss_scale: float = 1.0
    causal: bool = True


ACTIVATIONS = ("relu", "gelu", "silu", "tanh", "sigmoid", "leaky_relu", "softplus")
NORMS = ("none", "layer", "batch", "rms", "group")
CLASSES = ("cross_entropy", "smoothed", "nll")  # losses that take labels
LOSSES = ("mse", "l1", "smooth_l1", "huber", "bce", "kl", "cosine", *CLASSES)
OPTIMIZERS = ("SGD", "momentum", "Adam", "AdamW", "RMSprop", "Adagrad")
OUTPUTS = 5


def draw(number: int, family: str = "") -> Spec:
    pick = random.Random(number)

    def scale():
        return 10 ** pick.uniform(-3, 3) if pick.random() < 1 / 4 else 1.0

    return Spec(
        family=family or pick.choice(("dense", "image", "attention")),
        seed=number,
        width=4 * pick.choice((1, 2, 3, 4, 6, 8, 12, 16)),
        depth=pick.choice((1, 1, 2, 2, 3, 5)),
        batch=4 * pick.choice((1, 2, 3, 4, 8)),
        length=pick.choice((3, 5, 8, 16)),
        activation=pick.choice(ACTIVATIONS),
        norm=pick.choice(NORMS),
        loss=pick.choice(LOSSES),
        optimizer=pick.choice(OPTIMIZERS),
        weight_scale=scale(),
        input_scale=scale(),
        loss_scale=scale(),
        causal=pick.random() < 1 / 2,
    )


class Dense(nn.Linear):
    def __init__(self, ways, *sizes):
        super().__init__(*sizes)
        self.ways = ways

    def forward(self, x):
        weight, bias = self.weight, self.bias
        if self.ways.linear == "addmm" and x.dim() == 2:
            return torch.addmm(bias, x, weight.t())
        if self.ways.linear == "einsum":
            return torch.einsum("...i,oi->...o", x, weight) + bias
        if self.ways.linear == "split":
            half = weight.shape[1] // 2
            return x[..., :half] @ weight[:, :half].t() + (
                x[..., half:] @ weight[:, half:].t() + bias
            )
        if self.ways.linear == "matmul":
            return torch.matmul(x, weight.t()) + bias
        return F.linear(x, weight, bias)


class Activation(nn.Module):
    def __init__(self, ways, kind):
        super().__init__()
        self.ways, self.kind = ways, kind

    def forward(self, x):
        if self.ways.activation == "function":
            return getattr(F, self.kind)(x)
        return {
            "relu": lambda: x * (x > 0),
            "gelu": lambda: x * 0.5 * (1 + torch.erf(x / math.sqrt(2))),
            "silu": lambda: x * torch.sigmoid(x),
            "tanh": lambda: 2 * torch.sigmoid(2 * x) - 1,
            "sigmoid": lambda: 0.5 * (1 + torch.tanh(0.5 * x)),
            "leaky_relu": lambda: torch.where(x > 0, x, 0.01 * x),
            "softplus": lambda: torch.logaddexp(x, torch.zeros_like(x)),
        }[self.kind]()


class Norm(nn.Module):
    """Over the last dimension ("layer", "rms"), over the batch, or over groups of channels."""

    def __init__(self, ways, kind, width, image):
        super().__init__()
        self.ways, self.kind, self.image = ways, kind, image
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        if kind == "batch":
            self.register_buffer("running_mean", torch.zeros(width))
            self.register_buffer("running_var", torch.ones(width))

    def forward(self, x):
        by_hand = self.ways.norm == "by hand"
        shape = [1, -1] + [1] * (x.dim() - 2)
        if self.kind == "batch" and (self.image or x.dim() == 2):
            if not by_hand:
                return F.batch_norm(
                    x, self.running_mean, self.running_var, self.weight, self.bias, True
                )
            over = [d for d in range(x.dim()) if d != 1]
            mean = x.mean(over, keepdim=True)
            var = (x - mean).square().mean(over, keepdim=True)
            n = x.numel() / x.shape[1]
            with torch.no_grad():
                self.running_mean.lerp_(mean.flatten(), 0.1)
                self.running_var.lerp_(var.flatten() * (n / (n - 1)), 0.1)
            y = (x - mean) * torch.rsqrt(var + 1e-5)
            return y * self.weight.view(shape) + self.bias.view(shape)
        if self.kind == "group" and self.image:
            if not by_hand:
                return F.group_norm(x, 2, self.weight, self.bias)
            y = x.reshape(x.shape[0], 2, -1)
            y = (y - y.mean(-1, keepdim=True)) / torch.sqrt(
                y.var(-1, unbiased=False, keepdim=True) + 1e-5
            )
            return y.reshape(x.shape) * self.weight.view(shape) + self.bias.view(shape)
        if self.image:
            x = x.movedim(1, -1)
        y = self._over_last(x, by_hand)
        return y.movedim(-1, 1) if self.image else y

    def _over_last(self, x, by_hand):
        if self.kind == "rms":
            if not by_hand:
                return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5) + self.bias
            root = x.square().mean(-1, keepdim=True).add(1e-5).rsqrt()
            return x * root * self.weight + self.bias
        if not by_hand:
            return F.layer_norm(x, (x.shape[-1],), self.weight, self.bias)
        mean = x.mean(-1, keepdim=True)
        centred = x - mean
        return (
            centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt() * (self.weight)
            + self.bias
        )


class Block(nn.Module):
    def __init__(self, ways, spec):
        super().__init__()
        image = spec.family == "image"
        if image:
            self.layer = Convolution(ways, spec.width)
        else:
            self.layer = Dense(ways, spec.width, spec.width)
        self.norm = (
            nn.Identity() if spec.norm == "none" else Norm(ways, spec.norm, spec.width, image)
        )
        self.activation = Activation(ways, spec.activation)
        self.mix = Attention(ways, spec) if spec.family == "attention" else nn.Identity()

    def forward(self, x):
        return x + self.activation(self.norm(self.layer(self.mix(x))))


class Convolution(nn.Conv2d):
    """With a batch norm in eval mode after it, which may be folded into its weight."""

    def __init__(self, ways, width):
        super().__init__(width, width, 3, padding=1)
        self.ways = ways
        self.gain, self.shift = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.randn(width))
        self.register_buffer("var", torch.rand(width) + 0.5)

    def forward(self, x):
        if self.ways.fold:
            by = self.gain * torch.rsqrt(self.var + 1e-5)
            weight = self.weight * by.view(-1, 1, 1, 1)
            return F.conv2d(x, weight, (self.bias - self.mean) * by + self.shift, padding=1)
        if self.ways.convolution == "unfold":
            columns = F.unfold(x, 3, padding=1)
            y = self.weight.flatten(1) @ columns + self.bias.view(-1, 1)
            y = y.view(x.shape)
        else:
            y = F.conv2d(x, self.weight, self.bias, padding=1)
        return F.batch_norm(y, self.mean, self.var, self.gain, self.shift, False)


class Attention(nn.Module):
    def __init__(self, ways, spec):
        super().__init__()
        self.ways, self.causal, self.heads = ways, spec.causal, 2
        self.qkv = Dense(ways, spec.width, 3 * spec.width)
        self.out = Dense(ways, spec.width, spec.width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        if self.ways.attention == "by hand":
            scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
            if self.causal:
                hidden = torch.ones(length, length, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(hidden, float("-inf"))
            y = scores.softmax(-1) @ v
        else:
            flash = self.ways.attention == "flash"
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION if flash else SDPBackend.MATH):
                y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


class Net(nn.Module):
    def __init__(self, ways, spec):
        super().__init__()
        self.ways, self.image = ways, spec.family == "image"
        if self.image:
            self.stem = nn.Conv2d(3, spec.width, 3, stride=2)
        else:
            self.stem = Dense(ways, 7, spec.width)
        self.blocks = nn.ModuleList(Block(ways, spec) for _ in range(spec.depth))
        self.head = Dense(ways, spec.width, OUTPUTS)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(spec.weight_scale)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        if self.image:
            x = x.mean((2, 3))
        elif x.dim() == 3:
            x = x.mean(1)
        return self.head(x)


def loss_of(kind, way, out, target):
    """The loss of each row, added up."""
    by_hand = way == "by hand"
    if kind in CLASSES:
        smoothing = 0.1 if kind == "smoothed" else 0.0
        if kind == "nll" or by_hand:
            if by_hand:
                logs = out - torch.logsumexp(out, -1, keepdim=True)
            else:
                logs = F.log_softmax(out, -1)
            if kind == "nll" and not by_hand:
                return F.nll_loss(logs, target, reduction="sum")
            picked = logs.gather(-1, target[:, None]).sum()
            return -(1 - smoothing) * picked - smoothing * logs.mean(-1).sum()
        return F.cross_entropy(out, target, reduction="sum", label_smoothing=smoothing)
    apart = out - target
    if kind == "bce":
        wanted = torch.sigmoid(target)
        if by_hand:
            return (F.softplus(out) - wanted * out).sum()
        return F.binary_cross_entropy_with_logits(out, wanted, reduction="sum")
    if kind == "kl":
        logs, wanted = F.log_softmax(out, -1), F.softmax(target, -1)
        if by_hand:
            return (wanted * (wanted.log() - logs)).sum()
        return F.kl_div(logs, wanted, reduction="sum")
    if kind == "cosine":
        if by_hand:
            lengths = out.norm(dim=-1) * target.norm(dim=-1)
            return (1 - (out * target).sum(-1) / lengths).sum()
        return (1 - F.cosine_similarity(out, target)).sum()
    if by_hand:
        small = apart.abs() < 1
        return {
            "mse": lambda: apart * apart,
            "l1": lambda: torch.where(apart > 0, apart, -apart),
            "smooth_l1": lambda: torch.where(small, 0.5 * apart * apart, apart.abs() - 0.5),
            "huber": lambda: torch.where(small, 0.5 * apart * apart, apart.abs() - 0.5),
        }[kind]().sum()
    named = {"mse": "mse_loss", "l1": "l1_loss", "smooth_l1": "smooth_l1_loss"}
    return getattr(F, named.get(kind, "huber_loss"))(out, target, reduction="sum")


def optimizer_of(spec, ways, parameters):
    name = {"momentum": "SGD"}.get(spec.optimizer, spec.optimizer)
    rate = 1e-2 if name in ("SGD", "Adagrad") else 1e-3
    settings = {"lr": rate}
    if spec.optimizer == "momentum":
        settings["momentum"] = 0.9
    if ways.optimizer == "fused" and name in ("SGD", "Adam", "AdamW", "Adagrad"):
        settings["fused"] = True
    else:
        settings["foreach"] = ways.optimizer == "foreach"
    return getattr(torch.optim, name)(parameters, **settings)


class Step:
    """The training: build(), then step() as often as it is wanted."""

    def __init__(self, spec, ways):
        torch.set_num_threads(ways.threads)
        torch.backends.mkldnn.set_flags(ways.onednn)
        self.spec, self.ways = spec, ways
        torch.manual_seed(spec.seed)
        self.net = Net(ways, spec)
        if ways.memory == "channels_last" and spec.family == "image":
            self.net.to(memory_format=torch.channels_last)
        self.optimizer = optimizer_of(spec, ways, self.net.parameters())
        self.generator = torch.Generator().manual_seed(spec.seed)

    def batch(self):
        spec = self.spec
        shape = {
            "image": (spec.batch, 3, 9, 9),
            "attention": (spec.batch, spec.length, 7),
            "dense": (spec.batch, 7),
        }[spec.family]
        x = spec.input_scale * torch.randn(shape, generator=self.generator)
        if spec.loss in CLASSES:
            target = torch.randint(0, OUTPUTS, (spec.batch,), generator=self.generator)
        else:
            target = torch.randn(spec.batch, OUTPUTS, generator=self.generator)
        if self.ways.rows == "in another order":
            order = torch.randperm(spec.batch, generator=torch.Generator().manual_seed(spec.seed))
            x, target = x[order], target[order]
        if self.ways.memory == "channels_last" and spec.family == "image":
            x = x.contiguous(memory_format=torch.channels_last)
        return x, target

    def step(self, x, target):
        spec, ways = self.spec, self.ways
        self.optimizer.zero_grad()
        dtype = getattr(torch, ways.autocast) if ways.autocast else None
        for rows, wanted in zip(
            x.chunk(ways.micro_batches), target.chunk(ways.micro_batches), strict=True
        ):
            with torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext():
                out = self.net(rows)
            loss = loss_of(spec.loss, ways.loss, out.float(), wanted)
            (loss * (spec.loss_scale / spec.batch)).backward()
        self.optimizer.step()
