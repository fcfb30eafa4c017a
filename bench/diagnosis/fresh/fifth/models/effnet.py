"""An EfficientNet of timm: CutMix, binary entropies, clipped rows, RMSProp of TensorFlow, EMA."""

import functools

import libraries

libraries.add_timm()
import timm.loss  # noqa: E402
import timm.optim  # noqa: E402
import torch  # noqa: E402
from timm.models._efficientnet_blocks import SqueezeExcite  # noqa: E402
from timm.models._efficientnet_builder import decode_arch_def, round_channels  # noqa: E402
from timm.models.efficientnet import EfficientNet  # noqa: E402
from timm.utils import ModelEmaV3  # noqa: E402
from timm.utils.agc import adaptive_clip_grad  # noqa: E402
from torch import nn  # noqa: E402

CLASSES, SIZE, BATCH, ACCUM_STEPS, SMOOTHING = 6, 16, 8, 2, 0.1
LR, CLIP_FACTOR, WEIGHT_DECAY, EMA_DECAY = 4e-2, 0.02, 1e-2, 0.6
ARCH = [["ds_r1_k3_s1_e1_c8_se0.25"], ["ir_r2_k3_s2_e2_c12_se0.25"], ["ir_r1_k5_s2_e2_c16_se0.25"]]


def settings(**changes):
    return {
        "block_args": decode_arch_def(ARCH),
        "num_classes": CLASSES,
        "num_features": 24,
        "stem_size": 8,
        "round_chs_fn": functools.partial(round_channels, divisor=4),
        "norm_layer": functools.partial(nn.BatchNorm2d, eps=1e-3, momentum=0.1),
        "act_layer": nn.SiLU,
        "se_layer": SqueezeExcite,
        "pad_type": "same",
    } | changes


def make_ema(net, **more):
    return ModelEmaV3(net, decay=EMA_DECAY, use_warmup=True, warmup_power=1.0, **more)


class Trainer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = EfficientNet(**settings())
        with torch.no_grad():  # the weights of an EfficientNet are too small for so few channels
            for p in self.net.parameters():
                if p.ndim > 1:
                    p.mul_(1.5)
        self.num_updates = 0


def build():
    model = Trainer().train()
    model.ema = make_ema(model.net)
    return model


def cutmix_box(center, lam):
    """The box of the second picture, cut off at the borders."""
    half = (SIZE * (1 - lam) ** 0.5 / 2).long()
    top, left = (center - half).clamp(min=0).tolist()
    bottom, right = (center + half).clamp(max=SIZE).tolist()
    return top, bottom, left, right


def box_share(box):
    """How much of the picture is left."""
    top, bottom, left, right = box
    return 1.0 - (bottom - top) * (right - left) / (SIZE * SIZE)


def one_hot(labels):
    off_value = SMOOTHING / CLASSES
    on_value = 1.0 - SMOOTHING + off_value
    target = torch.full((len(labels), CLASSES), off_value)
    return target.scatter_(1, labels.view(-1, 1), on_value)


def cutmix(images, labels, center, lam):
    """Pictures get a box of the one at the same place from the end, as in timm."""
    box = top, bottom, left, right = cutmix_box(center, lam)
    flipped = images.flip(0)
    images = images.clone()
    images[:, :, top:bottom, left:right] = flipped[:, :, top:bottom, left:right]
    lam = box_share(box)
    target = one_hot(labels)
    return images, target * lam + target.flip(0) * (1.0 - lam)


def loss_fn(logits, target):
    return timm.loss.BinaryCrossEntropy(smoothing=0.0, sum_classes=True)(logits, target)


def backward(model, images, target):
    for image, wanted in zip(images.chunk(ACCUM_STEPS), target.chunk(ACCUM_STEPS), strict=True):
        loss = loss_fn(model.net(image), wanted)
        (loss / ACCUM_STEPS).backward()


def clipped_parameters(net):
    """All but the classifier."""
    return [p for name, p in net.named_parameters() if not name.startswith("classifier")]


def clip(net):
    adaptive_clip_grad(clipped_parameters(net), clip_factor=CLIP_FACTOR)


def optimizer(model, **more):
    groups = timm.optim.param_groups_weight_decay(model.net, weight_decay=WEIGHT_DECAY)
    return timm.optim.RMSpropTF(groups, lr=LR, alpha=0.9, eps=1e-3, momentum=0.9, **more)


def validate(model, data):
    """How well the averaged weights do, with their running statistics."""
    model.ema.eval()
    with torch.no_grad():
        logits = model.ema(data["images"][:4])
        model.validation = nn.functional.cross_entropy(logits, data["labels"][:4]).item()


def update_ema(model):
    model.num_updates += 1
    model.ema.update(model.net, step=model.num_updates)


def batch(generator):
    return {
        "images": torch.randn(BATCH, 3, SIZE, SIZE, generator=generator),
        "labels": torch.randint(0, CLASSES, (BATCH,), generator=generator),
        "center": torch.randint(0, 5, (2,), generator=generator),  # the box is cut off
        "lam": torch.rand((), generator=generator) * 0.3 + 0.4,
    }


def step(model, optimizer, batch):
    images, target = cutmix(batch["images"], batch["labels"], batch["center"], batch["lam"])
    optimizer.zero_grad()
    backward(model, images, target)
    clip(model.net)
    optimizer.step()
    update_ema(model)
    validate(model, batch)
