"""Residual networks: one with six basic blocks for benchmarks, and the fifty-layer network."""

import torch
from torch import nn
from torch.nn import functional as F


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride=stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    expansion = 1

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        self.conv1, self.norm1 = convolution(inputs, width, 3, stride), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = convolution(width, width, 3), nn.BatchNorm2d(width)
        self.shortcut = make_shortcut(inputs, width, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 convolutions around a shortcut; the output is `expansion` times as wide."""

    expansion = 4

    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = width * self.expansion
        self.conv1, self.norm1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = convolution(width, outputs, 1), nn.BatchNorm2d(outputs)
        self.shortcut = make_shortcut(inputs, outputs, stride)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)), inplace=True)
        y = F.relu(self.norm2(self.conv2(y)), inplace=True)
        return F.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


def make_shortcut(inputs: int, outputs: int, stride: int) -> nn.Module:
    if stride == 1 and inputs == outputs:
        return nn.Identity()
    return nn.Sequential(convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))


class ResNet(nn.Module):
    """`depths` blocks a stage; each stage halves the picture and doubles the channels."""

    def __init__(self, block, depths, width: int, classes: int, large_input: bool):
        super().__init__()
        self.stem = convolution(3, width, 7 if large_input else 3, 2 if large_input else 1)
        self.norm = nn.BatchNorm2d(width)
        self.pool = nn.MaxPool2d(3, 2, 1) if large_input else nn.Identity()
        blocks, channels = [], width
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                blocks.append(block(channels, width << stage, stride))
                channels = (width << stage) * block.expansion
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.pool(F.relu(self.norm(self.stem(x))))
        x = F.adaptive_avg_pool2d(self.blocks(x), 1)
        return self.head(torch.flatten(x, 1))


def build(seed: int = 0, *, batch=16, classes=10):
    """Six basic blocks on 32 x 32 pictures."""
    torch.manual_seed(seed)
    model = ResNet(BasicBlock, (2, 2, 2), 16, classes, large_input=False)
    return model, (torch.randn(batch, 3, 32, 32), torch.randint(classes, (batch,)))


def build50(seed: int = 0, *, batch=2, size=224, classes=1000):
    """The fifty-layer network on size x size pictures."""
    torch.manual_seed(seed)
    model = ResNet(Bottleneck, (3, 4, 6, 3), 64, classes, large_input=True)
    return model, (torch.randn(batch, 3, size, size), torch.randint(classes, (batch,)))


def loss(model, batch):
    pictures, labels = batch
    return F.cross_entropy(model(pictures), labels)
