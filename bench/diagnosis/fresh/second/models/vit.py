"""A vision transformer of timm: mixed pictures, smoothed labels, rates of layers, LAMB, EMA."""

import libraries

libraries.add_timm()
import timm  # noqa: E402
import torch  # noqa: E402
from timm.loss import SoftTargetCrossEntropy  # noqa: E402
from timm.optim import Lamb, param_groups_layer_decay  # noqa: E402
from timm.utils import ModelEmaV3, adaptive_clip_grad  # noqa: E402

KINDS, SIZE, PATCH, WIDTH, BATCH, PARTS = 5, 8, 4, 16, 8, 2
SMOOTHING, DECAY, KEPT, CLIP, RATE = 0.1, 0.7, 0.6, 0.3, 4e-3
MEAN, DEVIATION = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)


def precision():
    """Autocast; none where float64 is the default, which checks what is harmless."""
    return torch.autocast("cpu", torch.bfloat16, torch.get_default_dtype() == torch.float32)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = timm.create_model(
            "vit_tiny_patch16_224",
            img_size=SIZE,
            patch_size=PATCH,
            embed_dim=WIDTH,
            depth=2,
            num_heads=2,
            num_classes=KINDS,
            init_values=0.5,
        )
        for weight in self.net.parameters():
            if weight.dim() == 2:
                torch.nn.init.normal_(weight, std=0.25)

    def forward(self, x):
        return self.net(x)


def normalised(pictures):
    mean = torch.tensor(MEAN)[:, None, None]
    return (pictures - mean) / torch.tensor(DEVIATION)[:, None, None]


def mixed(pictures, labels, share, partner):
    """Each picture is mixed with its partner; so are the smoothed labels."""
    off = SMOOTHING / KINDS
    soft = torch.full((len(labels), KINDS), off)
    soft = soft.scatter(1, labels[:, None], 1 - SMOOTHING + off)
    wide = share[:, None, None, None]
    pictures = wide * pictures + (1 - wide) * pictures[partner]
    return pictures, share[:, None] * soft + (1 - share[:, None]) * soft[partner]


def build():
    return Model()


def rates(optimizer):
    """The rate of a group is the common one, times its scale."""
    for group in optimizer.param_groups:
        group["lr"] = RATE * group["lr_scale"]


def optimizer(model):
    groups = param_groups_layer_decay(
        model.net,
        weight_decay=0.05,
        no_weight_decay_list=model.net.no_weight_decay(),
        layer_decay=DECAY,
    )
    made = Lamb(groups, lr=RATE)
    rates(made)
    model.__dict__["slow"] = ModelEmaV3(model.net, decay=KEPT)
    return made


def batch(generator):
    pictures = torch.rand(BATCH, 3, SIZE, SIZE, generator=generator)
    labels = torch.randint(0, KINDS, (BATCH,), generator=generator)
    share = torch.rand(BATCH, generator=generator)
    partner = torch.arange(BATCH).view(PARTS, -1).flip(1).flatten()
    return pictures, labels, share, partner


def teaching(model, pictures):
    """The slow copy's probabilities; they are a part of the target."""
    with torch.no_grad(), precision():
        logits = model.slow.module(pictures)
    return logits.float().softmax(dim=-1)


def loss_of(model, pictures, soft):
    with precision():
        logits = model(pictures)
    target = 0.8 * soft + 0.2 * teaching(model, pictures)
    return SoftTargetCrossEntropy()(logits.float(), target)


def backward(model, pictures, labels, share, partner):
    pictures, soft = mixed(normalised(pictures), labels, share, partner)
    for part, own in zip(pictures.chunk(PARTS), soft.chunk(PARTS), strict=True):
        (loss_of(model, part, own) / PARTS).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, *batch)
    adaptive_clip_grad(model.parameters(), CLIP)
    optimizer.step()
    model.slow.update(model.net)
