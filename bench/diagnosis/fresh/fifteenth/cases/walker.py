"""Cases of the walker that learns from recorded episodes."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "walker",
    line=[
        "running = reward + GAMMA * running",
        "found.append(running)",
        "return torch.stack(found).flip(0)",
    ],
)
def reward_of_now_is_missing(walker):
    """The return begins with the next reward, not with that of this moment."""

    def discount_cumsum(rewards):
        running, found = torch.zeros(()), []
        for reward in rewards.flip(0):
            found.append(running)  # here
            running = reward + walker.GAMMA * running  # here
        return torch.stack(found).flip(0)  # here

    walker.discount_cumsum = discount_cumsum


@fault(
    "walker",
    # The slice comes too early: the first that reads it turns it round.
    line=[
        'return discount_cumsum(episode["rewards"])[start:end].unsqueeze(1) / RETURN_SCALE',
        "for reward in rewards.flip(0):",
        "running = reward + GAMMA * running",
    ],
)
def returns_end_with_the_window(walker):
    """Rewards behind the window are left out of the returns."""

    def returns_of(episode, start, end):
        rewards = episode["rewards"][start:end]  # here
        return walker.discount_cumsum(rewards).unsqueeze(1) / walker.RETURN_SCALE  # here

    walker.returns_of = returns_of


@fault(
    "walker",
    # What is made from numbers alone may not be recorded: the padding has it.
    line=[
        "return torch.arange(start, end)",
        '"timesteps": pad_left(timesteps_of(start, end)),',
        "return torch.cat([value.new_zeros(missing, *value.shape[1:]), value], dim=0)",
    ],
)
def each_window_begins_at_zero(walker):
    """Moments are counted from the begin of the window, not of the episode."""

    def timesteps_of(start, end):
        return torch.arange(end - start)  # here

    walker.timesteps_of = timesteps_of


@fault(
    "walker",
    line="outputs = model(**inputs)",
    # The model makes a mask of its own, and repeats it for returns, states and actions.
    api=r"Torch\.(ones|stack)",
    module="",
    module_only=r"encoder(\.h\.0(\.attn)?)?",
)
def padding_is_attended(walker):
    """The mask is not given to the model: real moments see the padding before them."""

    def predict(model, inputs):
        given = {name: value for name, value in inputs.items() if name != "attention_mask"}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = model(**given)  # here
        return outputs.action_preds.float()

    walker.predict = predict


@fault(
    "walker",
    # The choice is missing: the loss is the first call that lacks it.
    line=[
        "real = attention_mask.reshape(-1) > 0",
        "predicted = predicted.reshape(-1, ACT_DIM)[real]",
        "target = actions.reshape(-1, ACT_DIM)[real]",
        'return F.mse_loss(predicted, target, reduction="sum")',
    ],
)
def padding_has_a_loss(walker):
    """The model also learns to do nothing in the padding."""

    def action_loss(predicted, actions, attention_mask):
        predicted = predicted.reshape(-1, walker.ACT_DIM)  # here
        target = actions.reshape(-1, walker.ACT_DIM)  # here
        return F.mse_loss(predicted, target, reduction="sum")  # here

    walker.action_loss = action_loss


@fault("walker", line="return states.mean(dim=0), states.std(dim=0) + STD_EPS")
def one_spread_for_all_numbers(walker):
    """The spread is one number for the whole state, whatever the units are."""

    def state_statistics(episodes):
        states = torch.cat([each["states"] for each in episodes], dim=0)
        return states.mean(dim=0), states.std() + walker.STD_EPS  # here

    walker.state_statistics = state_statistics


@fault(
    "walker",
    # Slices may not be recorded: the first calls with them are in the loss.
    line=[
        "real = attention_mask.reshape(-1) > 0",
        "predicted = predicted.reshape(-1, ACT_DIM)[real]",
        "target = actions.reshape(-1, ACT_DIM)[real]",
        'return F.mse_loss(predicted, target, reduction="sum")',
        'return action_loss(predicted, inputs["actions"], inputs["attention_mask"]) / count',
    ],
)
def action_after_this_one(walker):
    """What is predicted at a moment is compared with the action of the next one."""
    action_loss = walker.action_loss

    def shifted(predicted, actions, attention_mask):
        return action_loss(predicted[:, :-1], actions[:, 1:], attention_mask[:, :-1])  # here

    walker.action_loss = shifted


@fault("walker", api=r"Optimizer\.AdamW\.step", update=True)
def rate_begins_with_zero(walker):
    """The first step has a rate of zero: it is lost."""

    def warmup(step):
        return min(step / walker.WARMUP_STEPS, 1)

    walker.warmup = warmup


@fault(
    "walker",
    settings={"float32": True},
    line=['return F.mse_loss(predicted, target, reduction="sum")'],
    api=r"Tensor\.(bfloat16|to)|Functional\.mse_loss",
)
def errors_in_bfloat16(walker):
    """The loss is computed with the type of autocast: errors have eight bits."""

    def action_loss(predicted, actions, attention_mask):
        real = attention_mask.reshape(-1) > 0
        predicted = predicted.reshape(-1, walker.ACT_DIM)[real].bfloat16()  # here
        target = actions.reshape(-1, walker.ACT_DIM)[real].bfloat16()  # here
        return F.mse_loss(predicted, target, reduction="sum")  # here

    walker.action_loss = action_loss


@harmless("fused", "walker")
def attention_by_pytorch(walker):
    """The attention is one call."""
    make_config = walker.make_config

    def changed(**more):
        return make_config(attn_implementation="sdpa", **more)

    walker.make_config = changed


@harmless("time steps", "walker")
def returns_by_a_matrix(walker):
    """Returns are a product of rewards with powers of the discount."""

    def discount_cumsum(rewards):
        moment = torch.arange(len(rewards))
        later = (moment - moment[:, None]).to(rewards.dtype)
        powers = torch.where(later >= 0, walker.GAMMA ** later.clamp(min=0), 0.0)
        return powers @ rewards

    walker.discount_cumsum = discount_cumsum


@harmless("loss", "walker")
def errors_times_a_mask(walker):
    """Errors of the padding are multiplied by zero."""

    def action_loss(predicted, actions, attention_mask):
        squares = (predicted - actions).square()
        return (squares.sum(dim=-1) * attention_mask).sum()

    walker.action_loss = action_loss


@harmless("reordered", "walker")
def returns_before_states(walker):
    """Returns and moments of a window are made before its states."""

    def window(episode, start, statistics):
        end = min(start + walker.CONTEXT, len(episode["rewards"]))
        pad_left = walker.pad_left
        returns = pad_left(walker.returns_of(episode, start, end))
        timesteps = pad_left(walker.timesteps_of(start, end))
        mask = pad_left(torch.ones(end - start, dtype=torch.long))
        states = walker.normalize(episode["states"][start:end], statistics)
        return {
            "states": pad_left(states),
            "actions": pad_left(episode["actions"][start:end]),
            "rewards": pad_left(episode["rewards"][start:end].unsqueeze(1)),
            "returns_to_go": returns,
            "timesteps": timesteps,
            "attention_mask": mask,
        }

    walker.window = window


@harmless("split", "walker")
def states_by_scale_and_shift(walker):
    """States are multiplied, and then moved."""

    def normalize(states, statistics):
        mean, std = statistics
        return torch.addcmul(-mean / std, states, std.reciprocal())

    walker.normalize = normalize


@harmless("rows", "walker", group="whole step")
def windows_in_another_order(walker):
    """The windows are in another order."""
    train_on = walker.train_on

    def shuffled(model, inputs):
        order = torch.tensor([1, 4, 5, 0, 3, 2])
        train_on(model, {name: value[order] for name, value in inputs.items()})

    walker.train_on = shuffled


@harmless("micro batches", "walker", group="whole step")
def two_windows_at_a_time(walker):
    """Two windows go backward at a time; sums are divided by the moments of all."""

    def train_on(model, inputs):
        count = walker.count_of(inputs)
        for first in range(0, len(walker.LENGTHS), 2):
            part = {name: value[first : first + 2] for name, value in inputs.items()}
            walker.loss_of(model, part, count).backward()

    walker.train_on = train_on


@harmless("padding", "walker", group="whole step")
def two_more_moments_before(walker):
    """Two more moments of padding stand before each window."""
    pad_left = walker.pad_left

    def longer(value):
        padded = pad_left(value)
        return torch.cat([padded.new_zeros(2, *padded.shape[1:]), padded], dim=0)

    walker.pad_left = longer


@harmless("scaled", "walker", group="whole step")
def divided_after_the_backward_pass(walker):
    """The sum goes backward; gradients are divided by the number of its terms."""

    def train_on(model, inputs):
        walker.loss_of(model, inputs, 1.0).backward()
        count = walker.count_of(inputs)
        for p in model.parameters():
            if p.grad is not None:
                p.grad.div_(count)

    walker.train_on = train_on


@harmless("recomputed", "walker", group="whole step")
def feed_forward_computed_again(walker):
    """The feed-forward layers are computed again in the backward pass."""
    build = walker.build

    def made():
        model = build()
        for layer in model.encoder.h:
            layer.mlp.forward = functools.partial(
                checkpoint, layer.mlp.forward, use_reentrant=False
            )
        return model

    walker.build = made
