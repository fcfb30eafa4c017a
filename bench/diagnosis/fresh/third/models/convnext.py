"""A ConvNeXt of timm under autocast: dropped paths, mixed and erased pictures, smoothed labels."""

import libraries

libraries.add_timm()
import timm  # noqa: E402
import torch  # noqa: E402
from timm.loss import SoftTargetCrossEntropy  # noqa: E402
from timm.scheduler import CosineLRScheduler  # noqa: E402
from torch import nn  # noqa: E402

KINDS, SIZE, BATCH, PARTS, BLOCKS = 6, 16, 8, 2, 4
SMOOTHING, KEPT, LARGEST, RATE = 0.1, 0.75, 2.0, 5e-3
MEAN, DEVIATION = (0.48, 0.45, 0.4), (0.23, 0.22, 0.27)


def precision():
    """Autocast; none where float64 is the default, which checks what is harmless."""
    return torch.autocast("cpu", torch.bfloat16, torch.get_default_dtype() == torch.float32)


def settings(**changes):
    return {
        "depths": (1, 1, 1, 1),
        "dims": (8, 8, 12, 16),
        "patch_size": 2,
        "kernel_sizes": 3,
        "output_stride": 8,
        "num_classes": KINDS,
        "ls_init_value": 0.5,
        "conv_mlp": False,
        "norm_eps": 1e-6,
    } | changes


class Path(nn.Module):
    """Drops the path of some rows; what is kept is scaled up. forward() of the model says which."""

    def forward(self, x):
        return x * (self.kept / KEPT)[:, None, None, None]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = timm.create_model("convnext_atto", **settings())
        for weight in self.net.parameters():
            if weight.dim() > 1:
                nn.init.normal_(weight, std=0.25)
        for block in self.blocks():
            block.drop_path = Path()

    def blocks(self):
        return [block for stage in self.net.stages for block in stage.blocks]

    def forward(self, x, kept):
        for block, own in zip(self.blocks(), kept.unbind(1), strict=True):
            block.drop_path.kept = own
        return self.net(x)


def normalised(pictures):
    mean, deviation = (torch.tensor(each)[:, None, None] for each in (MEAN, DEVIATION))
    return (pictures - mean) / deviation


def erased(pictures, corner):
    """A square of each picture is empty."""
    places = torch.arange(SIZE)
    rows, columns = (
        (places >= side[:, None]) & (places < side[:, None] + SIZE // 4)
        for side in corner.unbind(1)
    )
    square = rows[:, :, None] & columns[:, None, :]
    return pictures.masked_fill(square[:, None], 0.0)


def mixed(pictures, labels, share):
    """Each picture is mixed with the one that stands at the same place from the end."""
    wide = share[:, None, None, None]
    soft = torch.eye(KINDS)[labels]
    pictures = wide * pictures + (1 - wide) * pictures.flip(0)
    return pictures, share[:, None] * soft + (1 - share[:, None]) * soft.flip(0)


def smoothed(soft):
    return (1 - SMOOTHING) * soft + SMOOTHING / KINDS


def loss_of(logits, soft):
    return SoftTargetCrossEntropy()(logits, smoothed(soft))


def part_loss(model, pictures, soft, kept):
    with precision():
        logits = model(pictures, kept)
    return loss_of(logits.float(), soft)


def backward(model, data):
    pictures = erased(normalised(data["pictures"]), data["corner"])
    pictures, soft = mixed(pictures, data["labels"], data["share"])
    parts = zip(pictures.chunk(PARTS), soft.chunk(PARTS), data["kept"].chunk(PARTS), strict=True)
    for part in parts:
        (part_loss(model, *part) / PARTS).backward()


def decayed(name, weight):
    return weight.dim() > 1


def groups_of(model):
    named = list(model.named_parameters())
    return [
        {"params": [w for n, w in named if decayed(n, w)], "weight_decay": 0.2},
        {"params": [w for n, w in named if not decayed(n, w)], "weight_decay": 0.0},
    ]


def build():
    return Model()


def optimizer(model, **more):
    made = torch.optim.AdamW(groups_of(model), lr=RATE, **more)
    model.schedule = CosineLRScheduler(
        made, t_initial=9, warmup_t=3, warmup_lr_init=1e-3, t_in_epochs=False
    )
    model.updates = 0
    return made


def batch(generator):
    share = torch.rand(BATCH // 2, generator=generator) * 0.5 + 0.5
    return {
        "pictures": torch.rand(BATCH, 3, SIZE, SIZE, generator=generator),
        "labels": torch.randint(0, KINDS, (BATCH,), generator=generator),
        "share": torch.cat([share, share.flip(0)]),
        "corner": torch.randint(0, SIZE - 4, (BATCH, 2), generator=generator),
        "kept": (torch.rand(BATCH, BLOCKS, generator=generator) < KEPT).to(share.dtype),
    }


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    optimizer.step()
    model.updates += 1
    model.schedule.step_update(model.updates)
