"""Cases of the residual network."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault("resnet", api=r"Functional.batch_norm", module="norm")
def frozen_batch_norm(resnet):
    """The first batch norm is in eval mode, as after loading a backbone: it uses the running
    statistics."""

    def prepare(model):
        model.train()
        model.norm.eval()

    resnet.prepare = prepare


@fault("resnet", api=r"Functional.batch_norm", module="norm")
def batch_norm_momentum(resnet):
    """The running statistics follow with 0.9 for 0.1: the first batch norm leaves wrong buffers,
    its output is right."""

    def build():
        model = resnet.ResNet()
        resnet.initialise(model)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.momentum = 0.9
        return model

    resnet.build = build


@fault("resnet", api=r"Functional.batch_norm", module="norm")
def batch_norm_epsilon(resnet):
    """The epsilon of the frameworks differs: 1e-3 for 1e-5."""

    def build():
        model = resnet.ResNet()
        resnet.initialise(model)
        for module in model.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.eps = 1e-3
        return model

    resnet.build = build


@fault(
    "resnet",
    api=r"Functional.conv2d",
    module=r"layers.1.(conv1|shortcut)",
    module_only=r"layers.1.(conv1|shortcut)",
)
def kernel_not_shifted(resnet):
    """The convolution with a stride pads at the left only: its result is shifted by a pixel."""

    class Conv(nn.Conv2d):
        def forward(self, x):
            return F.conv2d(F.pad(x, (2, 0, 2, 0)), self.weight, stride=self.stride)  # here

    right = resnet.conv

    def conv(inner, outer, stride=1):
        if stride == 1:
            return right(inner, outer, stride)
        return Conv(inner, outer, 3, stride=stride, padding=1, bias=False)

    resnet.conv = conv


@fault("resnet", module="layers.0")
def activation_before_the_sum(resnet):
    """The last activation of a block comes before the shortcut is added."""

    class Block(resnet.Block):
        def forward(self, x):
            y = F.relu(self.norm1(self.conv1(x)))
            y = self.norm2(self.conv2(y))
            return F.relu(y) + self.shortcut(x)  # here

    resnet.Block = Block


@fault("resnet", module="layers.0", line="self.norm1(self.conv1(x))")
def activation_missing(resnet):
    """The activation between the convolutions is missing."""

    class Block(resnet.Block):
        def forward(self, x):
            y = self.norm1(self.conv1(x))
            y = self.norm2(self.conv2(y))  # here
            return F.relu(y + self.shortcut(x))

    resnet.Block = Block


@fault("resnet", module="", module_only="", line="return x.mean(dim=(2, 3))")
def pooled_to_the_maximum(resnet):
    """The pictures are pooled to the maximum."""

    class ResNet(resnet.ResNet):
        def pool(self, x):
            return x.amax(dim=(2, 3))  # here

    resnet.ResNet = ResNet


@fault("resnet", api=r"Functional.cross_entropy")
def label_smoothing_lost(resnet):
    """The labels are not smoothed."""

    def loss(logits, labels):
        return F.cross_entropy(logits, labels)  # here

    resnet.loss = loss


@fault("resnet", api=r"Tensor.__truediv__|Tensor.div")
def deviation_of_other_pictures(resnet):
    """The pictures are divided by the deviation of another data set."""
    resnet.DEVIATION = (0.247, 0.243, 0.261)


@fault("resnet", api=r"Functional.conv2d", module="stem", line="def normalise(pictures):")
def channels_reversed(resnet):
    """Blue and red are exchanged after the normalisation: a permutation of the input."""
    right = resnet.normalise

    def normalise(pictures):
        return right(pictures).flip(1)  # here

    resnet.normalise = normalise


@fault("resnet", api=r"Optimizer.SGD.step", update=True, steps=3)
def momentum(resnet):
    """Momentum 0.99 for 0.9: the second step of the optimizer moves the weights wrongly."""
    resnet.MOMENTUM = 0.99


@fault("resnet", api=r"Optimizer.SGD.step", update=True)
def nesterov(resnet):
    """Nesterov's momentum."""

    def optimizer(model):
        return torch.optim.SGD(
            model.parameters(), lr=resnet.LR, momentum=0.9, weight_decay=resnet.DECAY, nesterov=True
        )

    resnet.optimizer = optimizer


@fault("resnet", api=r"Optimizer.SGD.step|Module.head.Linear", update=True)
def gradients_not_cleared(resnet):
    """Gradients of the step before are added: in the second step the first wrong value is the
    gradient of the last layer's weights."""

    def step(model, optimizer, batch):
        pictures, labels = batch
        resnet.prepare(model)
        value = resnet.loss(model(resnet.normalise(pictures)), labels)
        value.backward()  # here
        optimizer.step()

    resnet.step = step


@fault("resnet")
def logits_changed_through_a_view(resnet):
    """Code for a shown accuracy divides a detached view of the logits in place."""

    class ResNet(resnet.ResNet):
        def forward(self, pictures):
            logits = super().forward(pictures)
            logits.detach().div_(2.0)  # here
            return logits

    resnet.ResNet = ResNet


@harmless("fused", "resnet")
def norms_of_group_statistics(resnet):
    """Batch norm written out: mean, variance, and an affine map."""

    class BatchNorm2d(nn.BatchNorm2d):
        def forward(self, x):
            mean = x.mean(dim=(0, 2, 3), keepdim=True)
            centred = x - mean
            variance = centred.pow(2).mean(dim=(0, 2, 3), keepdim=True)
            with torch.no_grad():
                count = x.numel() / x.shape[1]
                self.running_mean.lerp_(mean.flatten(), self.momentum)
                self.running_var.lerp_(variance.flatten() * count / (count - 1), self.momentum)
                self.num_batches_tracked.add_(1)
            scale = self.weight[:, None, None] * torch.rsqrt(variance + self.eps)
            return centred * scale + self.bias[:, None, None]

    class ResNet(resnet.ResNet):
        def __init__(self):
            super().__init__()
            self.norm = BatchNorm2d(resnet.WIDTH)

    resnet.ResNet = ResNet


@harmless("inserted", "resnet")
def channels_last(resnet):
    """The memory layout of pictures and kernels is channels last."""
    right = resnet.build
    normalise = resnet.normalise
    resnet.build = lambda: right().to(memory_format=torch.channels_last)
    resnet.normalise = lambda x: normalise(x).contiguous(memory_format=torch.channels_last)


@harmless("renamed", "resnet")
def nested_layers(resnet):
    """Each layer is a stage of its own, under another name."""

    class ResNet(resnet.ResNet):
        def __init__(self):
            super().__init__()
            head, layers = self.head, self.layers
            del self.layers, self.head
            stages = {"one": nn.Sequential(layers[0]), "two": nn.Sequential(layers[1])}
            self.stages = nn.ModuleDict(stages)
            self.head = head

        def forward(self, pictures):
            x = F.relu(self.norm(self.stem(pictures)))
            for stage in self.stages.values():
                x = stage(x)
            return self.head(self.pool(x))

    resnet.ResNet = ResNet


@harmless("reordered", "resnet")
def shortcut_first(resnet):
    """The shortcut is computed before the convolutions."""

    class Block(resnet.Block):
        def forward(self, x):
            kept = self.shortcut(x)
            y = F.relu(self.norm1(self.conv1(x)))
            return F.relu(self.norm2(self.conv2(y)) + kept)

    resnet.Block = Block


@harmless("fused", "resnet")
def adaptive_pooling(resnet):
    """adaptive_avg_pool2d for the mean."""

    class ResNet(resnet.ResNet):
        def pool(self, x):
            return F.adaptive_avg_pool2d(x, 1).flatten(1)

    resnet.ResNet = ResNet


@harmless("environment", "resnet")
def no_foreach(resnet):
    """The optimizer goes from weight to weight."""

    def optimizer(model):
        return torch.optim.SGD(
            model.parameters(), lr=resnet.LR, momentum=0.9, weight_decay=resnet.DECAY, foreach=False
        )

    resnet.optimizer = optimizer


@harmless("initialised", "resnet")
def initialised_with_formula(resnet):
    """Kaiming's initialisation written out; it draws the same numbers."""

    def initialise(model):
        for module in model.modules():
            if isinstance(module, nn.Conv2d):
                fan = module.weight[0].numel()
                with torch.no_grad():
                    module.weight.normal_(0, (2.0**0.5) / fan**0.5)

    resnet.initialise = initialise


@harmless("loss", "resnet")
def smoothed_labels_written_out(resnet):
    """Label smoothing as a product with smoothed one-hot labels."""

    def loss(logits, labels):
        wanted = F.one_hot(labels, resnet.CLASSES) * 0.9 + 0.1 / resnet.CLASSES
        return -(wanted * logits.log_softmax(-1)).sum(-1).mean()

    resnet.loss = loss
