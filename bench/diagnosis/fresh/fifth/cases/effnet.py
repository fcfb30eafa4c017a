"""Cases of the EfficientNet."""

import functools

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "effnet",
    line=[
        "return images, target * lam + target.flip(0) * (1.0 - lam)",
        "    lam = box_share(box)",
    ],
)
def share_of_the_whole_box(effnet):
    """Labels are mixed by the share that was drawn, though the box is cut off at a border."""

    def cutmix(images, labels, center, lam):
        top, bottom, left, right = effnet.cutmix_box(center, lam)
        flipped = images.flip(0)
        images = images.clone()
        images[:, :, top:bottom, left:right] = flipped[:, :, top:bottom, left:right]
        target = effnet.one_hot(labels)
        return images, target * lam + target.flip(0) * (1.0 - lam)  # here

    effnet.cutmix = cutmix


@fault(
    "effnet",
    line=[
        "images[:, :, top:bottom, left:right] = flipped[:, :, top:bottom, left:right]",
        "images = images.clone()",
        "flipped = images.flip(0)",
    ],
)
def boxes_of_what_is_mixed_already(effnet):
    """The other pictures are no copy: the second half gets back its own boxes."""

    def cutmix(images, labels, center, lam):
        box = top, bottom, left, right = effnet.cutmix_box(center, lam)
        images = images.clone()
        for i in range(len(images)):
            other = images[len(images) - 1 - i]
            images[i, :, top:bottom, left:right] = other[:, top:bottom, left:right]  # here
        lam = effnet.box_share(box)
        target = effnet.one_hot(labels)
        return images, target * lam + target.flip(0) * (1.0 - lam)

    effnet.cutmix = cutmix


@fault("effnet", line="return target.scatter_(1, labels.view(-1, 1), on_value)")
def labels_do_not_add_up_to_one(effnet):
    """What is smoothed away from the right class is not all given to the classes."""

    def one_hot(labels):
        off_value = effnet.SMOOTHING / effnet.CLASSES
        target = torch.full((len(labels), effnet.CLASSES), off_value)
        return target.scatter_(1, labels.view(-1, 1), 1.0 - effnet.SMOOTHING)  # here

    effnet.one_hot = one_hot


@fault("effnet", api=r"Functional\.(conv2d|pad)", module=r"net\.conv_stem")
def padded_on_both_sides(effnet):
    """Strided convolutions are padded as in PyTorch, not as in TensorFlow."""
    settings = effnet.settings
    effnet.settings = lambda: settings(pad_type="")


@fault(
    "effnet",
    api=r"Functional\.(relu_?|silu_?)|Torch\.relu_?|Tensor\.(relu_?|mul|mul_|sigmoid)",
    module=r"net\.blocks\.0\.0\.se(\.act1)?",
)
def squeezed_with_relu(effnet):
    """The gates have a ReLU inside, as those of a MobileNet have."""
    settings = effnet.settings
    gate = functools.partial(effnet.SqueezeExcite, force_act_layer=nn.ReLU)
    effnet.settings = lambda: settings(se_layer=gate)


@fault(
    "effnet",
    api=r"Functional\.batch_norm|Torch\._foreach_lerp_|Tensor\.(lerp_|copy_)",
    module=r"|ema\.module\.bn1",
    line=["model.ema.update(model.net, step=model.num_updates)"],
)
def average_of_weights_alone(effnet):
    """The average has the weights; its running statistics stay what they were."""

    def update_ema(model):
        model.num_updates += 1
        decay = model.ema.get_decay(model.num_updates)
        with torch.no_grad():
            for slow, fast in zip(model.ema.parameters(), model.net.parameters(), strict=True):
                slow.lerp_(fast, 1 - decay)  # here

    effnet.update_ema = update_ema


@fault(
    "effnet",
    api=r"Functional\.batch_norm|Torch\._foreach_lerp_|Tensor\.lerp_",
    module=r"|(net|ema\.module)\.blocks\..*",
    line=["model.ema.update(model.net, step=model.num_updates)"],
)
def statistics_twice_by_checkpointing(effnet):
    """The blocks are computed again in the backward pass: running statistics move twice."""
    build = effnet.build

    def built():
        model = build()
        model.net.set_grad_checkpointing()
        return model

    effnet.build = built


@fault(
    "effnet",
    api=r"Functional\.batch_norm",
    module=r"net\.bn1",
)
def training_goes_on_in_eval_mode(effnet):
    """The validation leaves the net in eval mode: the second step uses running statistics."""

    def validate(model, data):
        model.eval()
        with torch.no_grad():
            logits = model.ema(data["images"][:4])
            model.validation = F.cross_entropy(logits, data["labels"][:4]).item()

    effnet.validate = validate


@fault(
    "effnet",
    api=r"Optimizer\.RMSprop(TF)?\.step|Torch\._foreach_(add|sqrt|sqrt_|add_|addcdiv_)",
    update=True,
    line="    optimizer.step()",
)
def root_before_the_epsilon(effnet):
    """The RMSProp is that of PyTorch: no epsilon in the root, averages begin at zero."""

    def optimizer(model):
        groups = effnet.timm.optim.param_groups_weight_decay(
            model.net, weight_decay=effnet.WEIGHT_DECAY
        )
        return torch.optim.RMSprop(groups, lr=effnet.LR, alpha=0.9, eps=1e-3, momentum=0.9)

    effnet.optimizer = optimizer


@fault(
    "effnet",
    api=r"Optimizer\.RMSpropTF\.step|Tensor\.(copy_|norm|clamp_|mul_)|Torch\.where",
    update=True,
    line="adaptive_clip_grad(clipped_parameters(net), clip_factor=CLIP_FACTOR)",
)
def classifier_clipped_as_well(effnet):
    """Gradients of the classifier are clipped, too."""
    effnet.clipped_parameters = lambda net: list(net.parameters())


@harmless("fused", "effnet")
def pointwise_by_einsum(effnet):
    """Convolutions of one place are products over channels."""

    class EfficientNet(effnet.EfficientNet):
        def __init__(self, **settings):
            super().__init__(**settings)
            for module in self.modules():
                if isinstance(module, nn.Conv2d) and module.kernel_size == (1, 1):
                    module.forward = functools.partial(self.product, module)

        @staticmethod
        def product(conv, x):
            out = torch.einsum("nchw,oc->nohw", x, conv.weight[:, :, 0, 0])
            return out if conv.bias is None else out + conv.bias.view(1, -1, 1, 1)

    effnet.EfficientNet = EfficientNet


@harmless("fused", "effnet")
def gates_by_linear_layers(effnet):
    """Gates are two linear layers of the mean over all places."""

    class Gate(effnet.SqueezeExcite):
        def forward(self, x):
            mean = x.flatten(2).sum(dim=2) / (x.shape[2] * x.shape[3])
            small = F.linear(mean, self.conv_reduce.weight.flatten(1), self.conv_reduce.bias)
            small = small * torch.sigmoid(small)
            wide = F.linear(small, self.conv_expand.weight.flatten(1), self.conv_expand.bias)
            return torch.einsum("nchw,nc->nchw", x, wide.sigmoid())

    effnet.SqueezeExcite = Gate


@harmless("inserted", "effnet")
def boxes_by_a_mask(effnet):
    """Boxes are taken by a mask; labels are mixed by a matrix."""

    def cutmix(images, labels, center, lam):
        box = top, bottom, left, right = effnet.cutmix_box(center, lam)
        inside = torch.zeros(effnet.SIZE, effnet.SIZE, dtype=torch.bool)
        inside[top:bottom, left:right] = True
        lam = effnet.box_share(box)
        mixing = torch.eye(len(images)) * lam + torch.eye(len(images)).flip(1) * (1 - lam)
        return torch.where(inside, images.flip(0), images), mixing @ effnet.one_hot(labels)

    effnet.cutmix = cutmix


@harmless("loss", "effnet")
def entropies_by_log_sigmoid(effnet):
    """The loss by the logarithms of both sigmoids, summed over all, divided by the pictures."""

    def loss_fn(logits, target):
        yes, no = F.logsigmoid(logits), F.logsigmoid(-logits)
        return -(target * yes + (1 - target) * no).sum() / len(logits)

    effnet.loss_fn = loss_fn


@harmless("fused", "effnet")
def clipped_by_a_factor(effnet):
    """Adaptive clipping by a factor of at most one for each row."""

    def clip(net):
        for p in effnet.clipped_parameters(net):
            rows = (p.ndim - 1) * [1]
            flat = (p.flatten(1) if p.ndim > 1 else p.view(1, -1)).detach()
            slope = p.grad.flatten(1) if p.ndim > 1 else p.grad.view(1, -1)
            limit = torch.linalg.vector_norm(flat, dim=1).clamp(min=1e-3) * effnet.CLIP_FACTOR
            length = torch.linalg.vector_norm(slope, dim=1).clamp(min=1e-6)
            p.grad.mul_((limit / length).clamp(max=1.0).view(-1, *rows))

    effnet.clip = clip


@harmless("fused", "effnet")
def average_weight_by_weight(effnet):
    """The average is moved by a loop over the weights."""
    make_ema = effnet.make_ema
    effnet.make_ema = lambda net: make_ema(net, foreach=False)


@harmless("micro batches", "effnet", group="whole step")
def one_batch_of_ghost_norms(effnet):
    """One batch for two; each norm takes the pictures of a micro-batch by themselves."""

    def ghost(norm, x):
        right = type(norm).forward
        parts = x.chunk(2) if norm.training else [x]
        return torch.cat([right(norm, part) for part in parts])

    class EfficientNet(effnet.EfficientNet):
        def __init__(self, **settings):
            super().__init__(**settings)
            for module in self.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.forward = functools.partial(ghost, module)

    def backward(model, images, target):
        effnet.loss_fn(model.net(images), target).backward()

    effnet.EfficientNet, effnet.backward = EfficientNet, backward


@harmless("rows", "effnet", group="whole step")
def micro_batches_turned(effnet):
    """The pictures of each micro-batch stand in the other order: the same ones are mixed."""
    cutmix = effnet.cutmix

    def turned(images, labels, center, lam):
        order = torch.arange(len(images)).view(effnet.ACCUM_STEPS, -1).flip(1).flatten()
        return cutmix(images[order], labels[order], center, lam)

    effnet.cutmix = turned


@harmless("recomputed", "effnet", group="whole step")
def gates_computed_again(effnet):
    """The gates, which have no norm, are computed again in the backward pass."""

    class Gate(effnet.SqueezeExcite):
        def __call__(self, x):
            return checkpoint(super().__call__, x, use_reentrant=False)

    effnet.SqueezeExcite = Gate


@harmless("scaled", "effnet", group="whole step")
def loss_scaled_as_for_float16(effnet):
    """The loss is 65536 times as large; gradients are scaled back before they are clipped."""
    loss_fn, clip = effnet.loss_fn, effnet.clip

    def unscaled(net):
        for p in net.parameters():
            p.grad.div_(65536.0)
        clip(net)

    effnet.loss_fn = lambda logits, target: loss_fn(logits, target) * 65536.0
    effnet.clip = unscaled
