"""A residual network for pictures: batch norms, strides, average pooling, momentum."""

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, CLASSES, BATCH, EXTENT = 8, 5, 6, 12
LR, MOMENTUM, DECAY = 0.05, 0.9, 1e-3


def conv(inner, outer, stride=1):
    return nn.Conv2d(inner, outer, 3, stride=stride, padding=1, bias=False)


class Block(nn.Module):
    def __init__(self, inner, outer, stride):
        super().__init__()
        self.conv1 = conv(inner, outer, stride)
        self.norm1 = nn.BatchNorm2d(outer)
        self.conv2 = conv(outer, outer)
        self.norm2 = nn.BatchNorm2d(outer)
        self.shortcut = nn.Conv2d(inner, outer, 1, stride=stride, bias=False)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return F.relu(y + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv(3, WIDTH)
        self.norm = nn.BatchNorm2d(WIDTH)
        self.layers = nn.Sequential(Block(WIDTH, WIDTH, 1), Block(WIDTH, 2 * WIDTH, 2))
        self.head = nn.Linear(2 * WIDTH, CLASSES)

    def pool(self, x):
        return x.mean(dim=(2, 3))

    def forward(self, pictures):
        x = F.relu(self.norm(self.stem(pictures)))
        x = self.layers(x)
        return self.head(self.pool(x))


def initialise(model):
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)


def build():
    model = ResNet()
    initialise(model)
    return model


def optimizer(model):
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=DECAY)


def batch(generator):
    pictures = torch.rand(BATCH, 3, EXTENT, EXTENT, generator=generator)
    return pictures, torch.randint(CLASSES, (BATCH,), generator=generator)


MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def normalise(pictures):
    mean = torch.tensor(MEAN)[:, None, None]
    deviation = torch.tensor(DEVIATION)[:, None, None]
    return (pictures - mean) / deviation


def loss(logits, labels):
    return F.cross_entropy(logits, labels, label_smoothing=0.1)


def prepare(model):
    model.train()


def step(model, optimizer, batch):
    pictures, labels = batch
    prepare(model)
    value = loss(model(normalise(pictures)), labels)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
