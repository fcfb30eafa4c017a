"""A small vision transformer; the gradients of the data ranks are averaged by hand."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from common import average, launch
from torch import nn

LAYOUTS = {"one": 1, "dp2": 2, "dp4": 4}
VARIANTS = ("", "flat", "bf16")
BUGS = {
    "reduced_twice": {"layout": "dp2", "near": ["patch.*grad", "SGD"]},
    "not_divided": {"layout": "dp4", "variant": "flat", "near": ["truediv", "split|copy_", "SGD"]},
    "one_gradient_missing": {"layout": "dp2", "near": [r"blocks\.1\.mlp\.0.*grad", "SGD"]},
    "clipped_before_average": {"layout": "dp2", "near": ["clip_grad_norm_"]},
    "same_images": {"layout": "dp4", "rank": 3, "near": ["patch"]},
    "augmented_by_other_seed": {"layout": "dp2", "rank": 1, "near": ["patch"]},
    "class_token_of_other_seed": {
        "layout": "dp2",
        "rank": 0,
        "near": [r"Torch\.cat", r"Tensor\.expand"],
    },
    "flat_part_missing": {"layout": "dp2", "variant": "flat", "near": [r"head\.1.*grad", "SGD"]},
}
DIM, PATCH, SIDE, CLASSES, BATCH = 32, 4, 12, 4, 8


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.projection = nn.Conv2d(3, DIM, PATCH, stride=PATCH)

    def forward(self, images):
        return self.projection(images).flatten(2).transpose(1, 2)


class Attention(nn.Module):
    def __init__(self, heads=4):
        super().__init__()
        self.heads = heads
        self.to_qkv, self.to_out = nn.Linear(DIM, 3 * DIM, bias=False), nn.Linear(DIM, DIM)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.to_qkv(x).reshape(b, n, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        weights = torch.einsum("bhid,bhjd->bhij", q, k).mul((DIM // self.heads) ** -0.5).softmax(-1)
        return self.to_out(torch.einsum("bhij,bhjd->bihd", weights, v).flatten(2))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.pre, self.attention = nn.LayerNorm(DIM), Attention()
        self.post = nn.LayerNorm(DIM)
        self.mlp = nn.Sequential(nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM))

    def forward(self, x):
        x = self.attention(self.pre(x)) + x
        return self.mlp(self.post(x)) + x


class Vit(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch = Patches()
        self.cls = nn.Parameter(torch.randn(1, 1, DIM))
        self.pos = nn.Parameter(0.2 * torch.randn(1, (SIDE // PATCH) ** 2 + 1, DIM))
        self.blocks = nn.Sequential(Block(), Block())
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES))

    def forward(self, images):
        x = self.patch(images)  # bug: same_images, augmented_by_other_seed
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], dim=1)  # bug: class_token_of_other_seed
        x = self.blocks(x + self.pos)
        return self.head(x[:, 0])


def average_gradients(run, model):
    if run.ranks == 1:
        return
    if run.variant == "flat":
        gradients = [each.grad for each in model.parameters()]
        if run.bug("flat_part_missing"):
            gradients = gradients[:-2]
        flat = torch.cat([each.flatten() for each in gradients])
        dist.all_reduce(flat)  # bug: flat_part_missing
        if not run.bug("not_divided"):
            flat = flat / run.ranks  # bug: not_divided
        parts = flat.split([each.numel() for each in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))  # bug: flat_part_missing
        return
    for name, parameter in model.named_parameters():
        if name == "blocks.1.mlp.0.weight" and run.bug("one_gradient_missing"):
            continue
        if run.bug("reduced_twice") and name == "patch.projection.weight":
            dist.all_reduce(parameter.grad)  # bug: reduced_twice
        dist.all_reduce(parameter.grad)  # bug: one_gradient_missing
        parameter.grad /= run.ranks


def train(run):
    torch.manual_seed(55)
    low = torch.bfloat16 if run.variant == "bf16" else torch.float32
    model = Vit().to(run.dtype(low))
    if run.bug("class_token_of_other_seed", 0):
        model.cls.data.normal_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=1e-3)
    pictures = torch.Generator().manual_seed(404)
    losses = []
    for number in range(run.steps):
        images = torch.randn(BATCH, 3, SIDE, SIDE, generator=pictures)
        labels = torch.randint(CLASSES, (BATCH,), generator=pictures)
        seed = 17 * number + (1 if run.bug("augmented_by_other_seed", 1) else 0)
        grain = torch.randn(images.shape, generator=torch.Generator().manual_seed(seed))
        images = images + 0.1 * grain
        part = 0 if run.bug("same_images", 3) else run.rank
        images = images.chunk(run.ranks)[part].to(run.dtype(low))
        labels = labels.chunk(run.ranks)[part]
        optimizer.zero_grad()
        with run.step(model):
            loss = F.nll_loss(F.log_softmax(model(images).to(run.dtype(torch.float32)), -1), labels)
            loss.backward()
            if run.bug("clipped_before_average"):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # bug: clipped_before_average
            average_gradients(run, model)
            if run.variant != "flat" and not run.bug("clipped_before_average"):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # bug: clipped_before_average
            optimizer.step()  # bug: reduced_twice, one_gradient_missing
        losses.append(average(loss))
    return losses, {name: each.detach().clone() for name, each in model.named_parameters()}


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS, VARIANTS)
