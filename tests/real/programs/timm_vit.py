"""A vision transformer and a residual network of timm."""

import os
import sys

import torch

# timm imports torchvision, whose compiled operators do not fit a CPU build of PyTorch. They are not
# called here; they only have to be declared. Both stand in a folder of their own, because other
# libraries import torchvision where they find it.
sys.path.append(os.path.join(sys.prefix, "timm"))
_operators = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    _operators.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

import timm  # noqa: E402


class Both(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.vit = timm.create_model(
            "vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2, num_classes=10
        )
        self.resnet = timm.create_model("resnet10t", num_classes=10)

    def forward(self, images):
        return self.vit(images) + self.resnet(images)


def train(run):
    model = Both().to(memory_format=run.options.get("layout", torch.contiguous_format))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, weight_decay=1e-4)
    for _ in range(run.steps):
        images, labels = torch.randn(2, 3, 32, 32), torch.randint(10, (2,))
        images = images.to(memory_format=run.options.get("layout", torch.contiguous_format))
        with run.recorded(model):
            with torch.autocast("cpu", enabled=run.options.get("bf16", False)):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model
