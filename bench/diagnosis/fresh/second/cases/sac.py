"""Cases of the soft actor-critic."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "sac",
    api=r"Functional\.linear",
    module=r"(critics|copies)\.\d\.first",
    line=["future = smaller(values(agent.copies"],
)
def target_of_the_trained_critics(sac):
    """The target takes the critics that are trained, not their slow copies."""

    @torch.no_grad()
    def target_of(agent, data):
        action, log_prob = sac.sample(agent.actor, data["next"], data["next_noise"])
        future = sac.smaller(sac.values(agent.critics, data["next"], action))  # here
        future = future - agent.log_alpha.exp() * log_prob
        return data["reward"] + sac.DISCOUNT * (1 - data["done"]) * future

    sac.target_of = target_of


@fault("sac", line="return torch.minimum(pair[0], pair[1])")
def mean_of_both_critics(sac):
    """The mean of both critics for the smaller one."""
    sac.smaller = lambda pair: 0.5 * (pair[0] + pair[1])  # here


@fault(
    "sac",
    line=["future = future - agent.log_alpha.exp() * log_prob", 'return data["reward"] + DISCOUNT'],
)
def entropy_missing_in_the_target(sac):
    """The target of the critics lacks the entropy."""

    @torch.no_grad()
    def target_of(agent, data):
        action, _ = sac.sample(agent.actor, data["next"], data["next_noise"])
        future = sac.smaller(sac.values(agent.copies, data["next"], action))
        return data["reward"] + sac.DISCOUNT * (1 - data["done"]) * future  # here

    sac.target_of = target_of


@fault("sac", line='return data["reward"] + DISCOUNT * (1 - data["done"]) * future')
def future_behind_the_end(sac):
    """An end cuts the reward's entropy only: the discount stands outside of the mask."""

    @torch.no_grad()
    def target_of(agent, data):
        action, log_prob = sac.sample(agent.actor, data["next"], data["next_noise"])
        future = sac.smaller(sac.values(agent.copies, data["next"], action))
        future = future - agent.log_alpha.exp() * log_prob
        return data["reward"] + sac.DISCOUNT * data["done"] * future  # here

    sac.target_of = target_of


@fault("sac", line="return (2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(-1)")
def squash_of_the_single_value(sac):
    """The logarithm of the derivative of tanh lacks a factor of two in the softplus."""
    sac.squash = lambda raw: (2 * (0.6931471805599453 - raw - F.softplus(-raw))).sum(-1)  # here


@fault(
    "sac",
    line=[
        'value = smaller(values(agent.critics, data["observed"], action))',
        "return [critic(observed, action) for critic in critics]",
        "return self.value(F.silu(self.second(h))).squeeze(-1)",
        "h = F.silu(self.norm(self.first(torch.cat([observed, action], dim=-1))))",
        'action, log_prob = sample(agent.actor, data["observed"]',
        "return torch.tanh(raw), log_prob - squash(raw)",
    ],
)
def action_detached_for_the_actor(sac):
    """The critics see a detached action: the actor learns its entropy alone."""

    def actor_loss(agent, data):
        action, log_prob = sac.sample(agent.actor, data["observed"], data["noise"])
        value = sac.smaller(sac.values(agent.critics, data["observed"], action.detach()))  # here
        alpha = agent.log_alpha.exp().detach()
        return (alpha * log_prob - value).mean(), log_prob  # here

    sac.actor_loss = actor_loss


@fault(
    "sac",
    line=[
        "alpha = agent.log_alpha.exp().detach()",
        "return (alpha * log_prob - value).mean(), log_prob",
        "return -(agent.log_alpha * (log_prob + ENTROPY).detach()).mean()",
    ],
)
def temperature_learns_from_the_actor(sac):
    """The temperature is not detached in the loss of the actor."""

    def actor_loss(agent, data):
        action, log_prob = sac.sample(agent.actor, data["observed"], data["noise"])
        value = sac.smaller(sac.values(agent.critics, data["observed"], action))
        alpha = agent.log_alpha.exp()  # here
        return (alpha * log_prob - value).mean(), log_prob  # here

    sac.actor_loss = actor_loss


@fault("sac", line=["slow.mul_(1 - FOLLOW).add_(FOLLOW * fast)"])
def copies_follow_the_wrong_way(sac):
    """The slow copies take nearly all of the trained critics."""

    @torch.no_grad()
    def follow(agent):
        for slow, fast in zip(agent.copies.parameters(), agent.critics.parameters(), strict=True):
            slow.mul_(sac.FOLLOW).add_((1 - sac.FOLLOW) * fast)  # here

    sac.follow = follow


@fault(
    "sac", line=["errors = F.huber_loss(value, target", 'total = total + (data["weight"] * errors)']
)
def weights_inside_the_error(sac):
    """The weights of the rows scale the values before the loss."""

    def critic_loss(agent, data):
        target = sac.target_of(agent, data)
        total = 0.0
        for value in sac.values(agent.critics, data["observed"], data["action"]):
            left, right = data["weight"] * value, data["weight"] * target  # here
            errors = F.huber_loss(left, right, reduction="none", delta=sac.HUBER)  # here
            total = total + errors.sum() / len(errors)  # here
        return total

    sac.critic_loss = critic_loss


@harmless("split", "sac")
def critics_as_one_product(sac):
    """Both critics are computed at once by batched products of stacked weights."""

    def values(critics, observed, action):
        x = torch.cat([observed, action], dim=-1).expand(2, -1, -1)

        def product(x, name):
            layers = [getattr(critic, name) for critic in critics]
            weight = torch.stack([layer.weight for layer in layers]).transpose(1, 2)
            return torch.baddbmm(torch.stack([layer.bias for layer in layers])[:, None], x, weight)

        h = F.layer_norm(product(x, "first"), (sac.WIDTH,))
        scale = torch.stack([critic.norm.weight for critic in critics])[:, None]
        h = F.silu(h * scale + torch.stack([critic.norm.bias for critic in critics])[:, None])
        return product(F.silu(product(h, "second")), "value").squeeze(-1).unbind(0)

    sac.values = values


@harmless("fused", "sac")
def log_probability_of_distributions(sac):
    """The logarithm of the probability by torch.distributions."""

    def sample(actor, observed, noise):
        mean, log_std = actor(observed)
        normal = torch.distributions.Normal(mean, log_std.exp(), validate_args=False)
        raw = torch.addcmul(mean, normal.scale, noise)
        return raw.tanh(), (normal.log_prob(raw)).sum(-1) - sac.squash(raw)

    sac.sample = sample


@harmless("loss", "sac")
def huber_by_smooth_l1(sac):
    """Huber's loss as a smooth absolute loss; the mean over the rows by a product."""

    def critic_loss(agent, data):
        target = sac.target_of(agent, data)
        share = data["weight"] / len(target)
        one, two = sac.values(agent.critics, data["observed"], data["action"])
        return sum(
            torch.dot(share, F.smooth_l1_loss(value, target, reduction="none", beta=sac.HUBER))
            for value in (two, one)
        )

    sac.critic_loss = critic_loss


@harmless("fused", "sac")
def copies_follow_by_foreach(sac):
    """The copies follow by one operation of all weights."""

    @torch.no_grad()
    def follow(agent):
        torch._foreach_lerp_(
            list(agent.copies.parameters()), list(agent.critics.parameters()), sac.FOLLOW
        )

    sac.follow = follow


@harmless("rows", "sac", group="whole step")
def rows_turned(sac):
    """The rows of the batch stand in the other order."""
    step = sac.step

    def turned(agent, optimizer, batch):
        step(agent, optimizer, {name: value.flip(0) for name, value in batch.items()})

    sac.step = turned


@harmless("micro batches", "sac", group="whole step")
def critics_in_unequal_parts(sac):
    """The critics learn from three rows and from five."""
    whole = sac.critic_loss

    def train_critics(agent, data):
        agent.critic_optimizer.zero_grad()
        for part in (slice(0, 3), slice(3, None)):
            rows = {name: value[part] for name, value in data.items()}
            share = len(rows["reward"]) / sac.BATCH
            (whole(agent, rows) * share).backward()
        agent.critic_optimizer.step()

    sac.train_critics = train_critics


@harmless("scaled", "sac", group="whole step")
def critics_backward_apart(sac):
    """Each critic has its own backward pass, with a scale that is taken out of the gradients."""

    def train_critics(agent, data):
        agent.critic_optimizer.zero_grad()
        target = sac.target_of(agent, data)
        for critic in reversed(agent.critics):
            value = critic(data["observed"], data["action"])
            errors = F.huber_loss(value, target, reduction="none", delta=sac.HUBER)
            ((data["weight"] * errors).sum() * 4).backward()
        for parameter in agent.critics.parameters():
            parameter.grad.div_(4 * sac.BATCH)
        agent.critic_optimizer.step()

    sac.train_critics = train_critics


@harmless("recomputed", "sac", group="whole step")
def critics_left_trainable(sac):
    """The gradients of the actor and of the temperature are asked for by name, in one pass."""

    def train_actor(agent, optimizer, data):
        loss, log_prob = sac.actor_loss(agent, data)
        total = sac.temperature_loss(agent, log_prob) + loss
        wanted = [*agent.actor.parameters(), agent.log_alpha]
        for parameter, gradient in zip(wanted, torch.autograd.grad(total, wanted), strict=True):
            parameter.grad = gradient
        agent.temperature_optimizer.step()
        optimizer.step()

    sac.train_actor = train_actor
