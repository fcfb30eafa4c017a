"""Cases of the diffusion transformer."""

import math

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "dit",
    api=r"Functional\.embedding",
    module=r"net\.label",
    line=["return torch.where(dropped, LABELS, labels)"],
)
def dropped_is_the_first_label(dit):
    """A dropped label becomes label 0, not the one that stands for none."""
    dit.with_dropped = lambda labels, dropped: torch.where(dropped, 0, labels)  # here


@fault("dit", line="return without + GUIDANCE * (with_label - without)")
def led_from_the_wrong_side(dit):
    """The guidance is added to what is said with a label: it is one too strong."""

    @torch.no_grad()
    def guided(slow, x, times, labels):
        with_label = slow(x, times, labels)
        without = slow(x, times, torch.full_like(labels, dit.LABELS))
        return with_label + dit.GUIDANCE * (with_label - without)  # here

    dit.guided = guided


@fault(
    "dit",
    api=r"Functional\.(linear|embedding)",  # right inputs, the wrong weights
    module=r"(slow|net)\.(enter|time\.0|label)",
    line=[
        "with_label = slow(x, times, labels)",
        'taught = guided(model.slow, x, data["times"], data["labels"])',
    ],
)
def taught_by_itself(dit):
    """The teacher is the net that is trained, not the slow copy."""
    guided = dit.guided

    def losses_of(model, data):
        x = dit.noised(data["x"], data["noise"], data["times"])
        predicted = model.net(x, data["times"], dit.with_dropped(data["labels"], data["dropped"]))
        wanted = dit.velocity(data["x"], data["noise"], data["times"])
        taught = guided(model.net, x, data["times"], data["labels"])  # here
        learned = dit.loss_of(predicted, wanted, data["times"])
        return learned, dit.TAUGHT * dit.loss_of(predicted, taught, data["times"])

    dit.losses_of = losses_of


@fault("dit", line="return alpha * noise - sigma * x")
def velocity_with_exchanged_shares(dit):
    """Signal and noise have each other's share in the velocity."""

    def velocity(x, noise, times):
        alpha, sigma = (each[:, None, None] for each in dit.signal(times))
        return sigma * noise - alpha * x  # here

    dit.velocity = velocity


@fault("dit", line="return x * (1 + scale[:, None]) + shift[:, None]")
def scale_without_the_one(dit):
    """The norm is multiplied by the scale, not by one more."""
    dit.modulated = lambda x, shift, scale: x * scale[:, None] + shift[:, None]  # here


@fault(
    "dit",
    line=[
        "return x * (1 + scale[:, None]) + shift[:, None]",
        "x = x + gate[:, None] * self.mix(modulated(self.norms[0](x), shift, scale))",
        "shift, scale, gate, low, size, door = self.adapt(condition).chunk(6, dim=-1)",
    ],
)
def shift_and_scale_exchanged(dit):
    """A block takes the scale for the shift."""

    class Block(dit.Block):
        def forward(self, x, condition):
            scale, shift, gate, size, low, door = self.adapt(condition).chunk(6, dim=-1)  # here
            x = x + gate[:, None] * self.mix(dit.modulated(self.norms[0](x), shift, scale))  # here
            return x + door[:, None] * self.feed(dit.modulated(self.norms[1](x), low, size))

    dit.Block = Block


@fault(
    "dit",
    line=[
        "slow.mul_(decay).add_(fast, alpha=1 - decay)",
        "    follow(model)",
        "with_label = slow(x, times, labels)",
    ],
)
def followed_before_the_step(dit):
    """The slow copy follows the weights from before the step of the optimizer."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        dit.backward(model, batch)
        torch.nn.utils.clip_grad_norm_(model.net.parameters(), dit.LARGEST)
        dit.follow(model)  # here
        optimizer.step()

    dit.step = step


@fault("dit", line="slow.mul_(decay).add_(fast, alpha=1 - decay)")
def follows_slowly_from_the_begin(dit):
    """The decay does not begin small."""

    @torch.no_grad()
    def follow(model):
        for slow, fast in zip(model.slow.parameters(), model.net.parameters(), strict=True):
            slow.mul_(dit.DECAY).add_(fast, alpha=1 - dit.DECAY)  # here

    dit.follow = follow


@fault("dit", line=["angles = 1000.0 * times[:, None] * speeds"])
def times_not_stretched(dit):
    """Times go from 0 to 1 into the waves, not to 1000."""

    def waves(times):
        half = dit.WAVES // 2
        speeds = torch.exp(torch.arange(half) * (-math.log(1000.0) / (half - 1)))
        angles = times[:, None] * speeds  # here
        return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)

    dit.waves = waves


@fault(
    "dit",
    module=r"net",
    line="h = self.enter(x.reshape(len(x), -1, PATCH * CHANNELS)) + self.places",
)
def places_begin_with_one(dit):
    """The places of the patches are counted from one. They are a buffer, made before."""

    def places():
        speeds = 10.0 ** (-torch.arange(dit.WIDTH // 2) / (dit.WIDTH // 2))
        angles = torch.arange(1, dit.LENGTH // dit.PATCH + 1)[:, None] * speeds
        return torch.cat([torch.sin(angles), torch.cos(angles)], dim=-1)

    dit.places = places


@harmless("fused", "dit")
def attention_of_pytorch(dit):
    """The attention is that of PyTorch."""

    class Block(dit.Block):
        def attend(self, q, k, v):
            return F.scaled_dot_product_attention(q, k, v)

    dit.Block = Block


@harmless("split", "dit")
def each_product_of_the_condition(dit):
    """The six parts of the condition are six products; a gate is multiplied in by addcmul."""

    class Block(dit.Block):
        def forward(self, x, condition):
            sides = zip(self.adapt.weight.chunk(6), self.adapt.bias.chunk(6), strict=True)
            parts = [torch.addmm(b, condition, w.T).unsqueeze(1) for w, b in sides]
            inside = torch.addcmul(parts[0], self.norms[0](x), parts[1] + 1)
            x = torch.addcmul(x, parts[2], self.mix(inside))
            inside = torch.addcmul(parts[3], self.norms[1](x), parts[4] + 1)
            return torch.addcmul(x, parts[5], self.feed(inside))

    dit.Block = Block


@harmless("split", "dit")
def guided_by_one_call(dit):
    """The slow copy is asked once, for both sides of the guidance."""

    @torch.no_grad()
    def guided(slow, x, times, labels):
        none = torch.full_like(labels, dit.LABELS)
        made = slow(torch.cat([x, x]), times.repeat(2), torch.cat([none, labels]))
        without, with_label = made.chunk(2)
        return torch.lerp(without, with_label, dit.GUIDANCE)

    dit.guided = guided


@harmless("loss", "dit")
def weights_by_time(dit):
    """The weight of a time by its tangent; the loss is a product of weights and sums."""

    def weight_of(times):
        tangent = torch.tan(0.5 * math.pi * times)
        return torch.minimum(5 * tangent.square(), torch.ones(())) / (1 + tangent.square())

    def loss_of(predicted, wanted, times):
        each = F.mse_loss(predicted, wanted, reduction="none").flatten(1).sum(1)
        return torch.dot(dit.weight_of(times), each) / predicted.numel()

    dit.weight_of, dit.loss_of = weight_of, loss_of


@harmless("fused", "dit")
def followed_by_lists(dit):
    """The slow copy follows by an operation on lists."""

    @torch.no_grad()
    def follow(model):
        model.steps += 1
        decay = min(dit.DECAY, (1 + model.steps) / (4 + model.steps))
        torch._foreach_lerp_(list(model.slow.parameters()), list(model.net.parameters()), 1 - decay)

    dit.follow = follow


@harmless("rows", "dit", group="whole step")
def sequences_turned(dit):
    """The sequences of the batch stand in the other order."""
    step = dit.step
    dit.step = lambda model, optimizer, batch: step(
        model, optimizer, {name: value.flip(0) for name, value in batch.items()}
    )


@harmless("micro batches", "dit", group="whole step")
def dropped_ones_apart(dit):
    """The sequences with a label are one micro-batch, those without are another."""

    def backward(model, data):
        for chosen in (data["dropped"], ~data["dropped"]):
            own = {name: value[chosen] for name, value in data.items()}
            share = chosen.sum().item() / len(chosen)
            (share * sum(dit.losses_of(model, own))).backward()

    dit.backward = backward


@harmless("recomputed", "dit", group="whole step")
def blocks_computed_again(dit):
    """The blocks are computed again in the backward pass."""

    class Block(dit.Block):
        def __call__(self, x, condition):
            return checkpoint(super().__call__, x, condition, use_reentrant=False)

    dit.Block = Block


@harmless("scaled", "dit", group="whole step")
def taught_part_backward_first(dit):
    """What is taught goes backward first, then what is learned; both 1024 times as large."""

    def backward(model, data):
        learned, taught = dit.losses_of(model, data)
        (1024 * taught).backward(retain_graph=True)
        (1024 * learned).backward()
        torch._foreach_div_([weight.grad for weight in model.net.parameters()], 1024)

    dit.backward = backward
