"""Cases of the arm that learns from demonstrations."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault("robot", line="return (values.mean(dim=-1) * real).sum(dim=1) / real.sum(dim=1)")
def padding_in_the_mean(robot):
    """Errors of padded actions are zero, but they are counted."""

    def masked_mean(values, is_pad):
        real = (~is_pad).to(values.dtype)
        return (values.mean(dim=-1) * real).mean(dim=1)  # here

    robot.masked_mean = masked_mean


@fault(
    "robot",
    line=[
        "mask = torch.cat([is_pad.new_zeros(count, 2), is_pad], dim=1)",
        "style = self.layer(tokens, src_key_padding_mask=mask)[:, 0]",
    ],
    api=r"Module\.posterior\.layer\..*|Tensor\.(masked_fill_?|view|logical_or)"
    r"|Functional\.(multi_head_attention_forward|scaled_dot_product_attention)"
    r"|Torch\.(zeros_like|cat|scaled_dot_product_attention)",
    module=r"posterior(\.layer(\.self_attn)?)?",
    module_only=r"posterior\.layer\.self_attn",
)
def mask_is_two_places_early(robot):
    """In the mask the two tokens before the actions stand behind them."""

    class Posterior(robot.Posterior):
        def forward(self, joints, actions, is_pad):
            count = len(joints)
            tokens = [self.cls.expand(count, 1, robot.DIM), self.joints(joints).unsqueeze(1)]
            tokens = torch.cat([*tokens, self.actions(actions)], dim=1)
            tokens = tokens + robot.line_positions(tokens.shape[1]).to(tokens.dtype)
            mask = torch.cat([is_pad, is_pad.new_zeros(count, 2)], dim=1)  # here
            style = self.layer(tokens, src_key_padding_mask=mask)[:, 0]  # here
            return self.out(style).chunk(2, dim=-1)

    robot.Posterior = Posterior


@fault(
    "robot",
    line="moves = (actions[..., :JOINTS] - model.action_mean) / model.action_std",
)
def actions_measured_as_joints(robot):
    """Actions are normalised by the statistics of the joints."""

    def normalize_actions(model, actions):
        moves = robot.normalize_joints(model, actions[..., : robot.JOINTS])  # here
        return torch.cat([moves, actions[..., robot.JOINTS :]], dim=-1)

    robot.normalize_actions = normalize_actions
    robot.normalize_joints = lambda model, joints: (
        (joints - model.joint_mean) / model.joint_std  # here
    )


@fault(
    "robot",
    line=[
        "return maps.unflatten(0, (len(images), CAMERAS))",
        "maps = self.features(images)",
        "maps = maps + grid_positions(*maps.shape[-2:]).to(maps.dtype)",
    ],
)
def cameras_of_other_moments(robot):
    """The rows are taken apart as if all pictures of a camera stood together."""

    class Policy(robot.Policy):
        def features(self, images):
            maps = self.project(self.backbone(images.flatten(0, 1)))
            return maps.unflatten(0, (robot.CAMERAS, len(images))).transpose(0, 1)  # here

    robot.Policy = Policy


@fault(
    "robot",
    # The second layer is missing; the head is the first that lacks it.
    line=[
        "x = layer(x, memory)",
        "x = self.decode(memory)",
        "return self.head(x), self.grip(x).squeeze(-1)",
    ],
    api=r"Module\.(head|decoder\.1)\..*|Functional\.linear|Torch\.linear",
    module=r"head|decoder\.1(\..*)?",
    module_only=r"head|decoder\.1",
)
def one_layer_decides(robot):
    """The output of the decoder's first layer is used, as in the first version of ACT."""

    class Policy(robot.Policy):
        def decode(self, memory):
            x = self.queries.expand(len(memory), robot.CHUNK, robot.DIM)
            return self.decoder[0](x, memory)  # here

    robot.Policy = Policy


@fault(
    "robot",
    line='losses = F.binary_cross_entropy_with_logits(grip, closed, reduction="none")',
    api=r"Functional\.binary_cross_entropy_with_logits|Tensor\.sigmoid|Torch\.sigmoid",
)
def sigmoid_taken_twice(robot):
    """The loss expects scores, and is given chances."""

    def grip_loss(grip, closed, is_pad):
        chance = grip.sigmoid()  # here
        losses = F.binary_cross_entropy_with_logits(chance, closed, reduction="none")  # here
        return robot.masked_mean(losses[..., None], is_pad)

    robot.grip_loss = grip_loss


@fault(
    "robot",
    line=["loss = losses(model, part).mean() / MICRO_BATCHES", "loss.backward()"],
)
def micro_batches_not_divided(robot):
    """The means of the micro-batches are added up."""

    def accumulate(model, batch):
        for part in robot.micro_batches(batch):
            loss = robot.losses(model, part).mean()  # here
            loss.backward()  # here

    robot.accumulate = accumulate


@fault(
    "robot",
    settings={"float32": True},
    line=[
        "return mean.float(), logvar.float()",
        "return mean + torch.exp(0.5 * logvar) * noise",
        "return -0.5 * (1 + logvar - mean.square() - logvar.exp()).sum(dim=-1)",
    ],
    api=r"Tensor\.(bfloat16|float)",
)
def style_in_bfloat16(robot):
    """The mean and the variance of the style stay in bfloat16: so does what is computed of them."""

    def infer_style(model, joints, actions, is_pad):
        return model.posterior(joints, actions, is_pad)  # here

    robot.infer_style = infer_style


@fault("robot", api=r"Optimizer\.AdamW\.step", update=True)
def backbone_learns_as_the_rest(robot):
    """The backbone is in the group of all other weights, with their rate."""

    def param_groups(model):
        return [{"params": list(model.parameters())}]

    robot.param_groups = param_groups


@harmless("split", "robot")
def one_camera_after_the_other(robot):
    """The pictures of each camera go through the backbone on their own."""

    class Policy(robot.Policy):
        def features(self, images):
            maps = [self.project(self.backbone(each)) for each in images.unbind(dim=1)]
            return torch.stack(maps, dim=1)

    robot.Policy = Policy


@harmless("loss", "robot")
def entropy_by_softplus(robot):
    """The loss of the hand is a softplus and a product."""

    def grip_loss(grip, closed, is_pad):
        losses = F.softplus(grip) - closed * grip
        return robot.masked_mean(losses[..., None], is_pad)

    robot.grip_loss = grip_loss


@harmless("loss", "robot")
def divergence_by_pytorch(robot):
    """The divergence is that of PyTorch's distributions."""

    def kl_loss(mean, logvar):
        normal = torch.distributions.Normal
        wanted = normal(torch.zeros_like(mean), torch.ones_like(mean))
        said = normal(mean, torch.exp(0.5 * logvar))
        return torch.distributions.kl_divergence(said, wanted).sum(dim=-1)

    robot.kl_loss = kl_loss


@harmless("fused", "robot")
def latent_by_one_call(robot):
    """The latent is computed by one call, with a root of the variance."""

    def sample_latent(mean, logvar, noise):
        return torch.addcmul(mean, logvar.exp().sqrt(), noise)

    robot.sample_latent = sample_latent


@harmless("reordered", "robot")
def joints_before_pictures(robot):
    """The tokens of style and joints are made before those of pictures."""

    class Policy(robot.Policy):
        def forward(self, images, joints, latent):
            joint, style = self.joints(joints), self.latent(latent)
            first = torch.stack([style, joint], dim=1)
            memory = self.encoder(torch.cat([first, self.picture_tokens(images)], dim=1))
            x = self.decode(memory)
            grip = self.grip(x).squeeze(-1)
            return self.head(x), grip

    robot.Policy = Policy


@harmless("rows", "robot", group="whole step")
def demonstrations_in_another_order(robot):
    """The demonstrations are in another order, and in other micro-batches."""
    accumulate = robot.accumulate

    def shuffled(model, batch):
        order = torch.tensor([3, 5, 0, 4, 1, 2])
        accumulate(model, {name: value[order] for name, value in batch.items()})

    robot.accumulate = shuffled


@harmless("micro batches", "robot", group="whole step")
def one_batch_for_two(robot):
    """All demonstrations are in one batch."""
    robot.MICRO_BATCHES = 1


@harmless("padding", "robot", group="whole step")
def chunks_padded_further(robot):
    """For the style chunks have three more padded actions."""
    infer_style = robot.infer_style

    def padded(model, joints, actions, is_pad):
        actions = F.pad(actions, (0, 0, 0, 3), value=1.0)
        return infer_style(model, joints, actions, F.pad(is_pad, (0, 3), value=True))

    robot.infer_style = padded


@harmless("scaled", "robot", group="whole step")
def divided_before_clipping(robot):
    """Sums go backward; gradients are divided by the demonstrations before they are clipped."""
    clip = robot.clip

    def accumulate(model, batch):
        for part in robot.micro_batches(batch):
            robot.losses(model, part).sum().backward()

    def divided(model):
        for p in model.parameters():
            p.grad.div_(robot.DEMOS)
        clip(model)

    robot.accumulate, robot.clip = accumulate, divided


@harmless("recomputed", "robot", group="whole step")
def pictures_computed_again(robot):
    """The backbone is computed again in the backward pass."""

    class Backbone(robot.Backbone):
        def forward(self, images):
            return checkpoint(super().forward, images, use_reentrant=False)

    robot.Backbone = Backbone
