"""Cases of proximal policy optimization."""

import torch
from case import fault, harmless


def worlds_in_two_parts(ppo):
    """The worlds go backward in two parts; each has its share of the mean."""

    def descend(model, data):
        for part in (slice(0, 2), slice(2, None)):
            own = [each[:, part] for each in data]
            (ppo.loss(model, *own) * (own[1].numel() / data[1].numel())).backward()

    ppo.descend = descend


def flat_and_shuffled(ppo):
    """Times and worlds are one dimension, in another order."""
    rollout = ppo.rollout

    def shuffled(model, batch):
        data = rollout(model, batch)
        count = ppo.TIMES * ppo.WORLDS
        order = (torch.arange(count) * 13 + 5) % count
        return tuple(each.flatten(0, 1)[order] for each in data)

    ppo.rollout = shuffled


@fault("ppo", line="error = rewards[time] + DISCOUNT")
def end_not_masked(ppo):
    """The value behind the end of a world counts."""

    def advantages(rewards, values, ends):
        result, running = [], torch.zeros(ppo.WORLDS)
        for time in reversed(range(ppo.TIMES)):
            goes_on = (~ends[time]).to(values.dtype)
            error = rewards[time] + ppo.DISCOUNT * values[time + 1] - values[time]  # here
            running = error + ppo.DISCOUNT * ppo.TRACE * goes_on * running
            result.append(running)
        return torch.stack(result[::-1])

    ppo.advantages = advantages


@fault("ppo", line="returns = gains + values[:-1]", api="Tensor.__add__|Functional.mse_loss")
def returns_of_normalised_advantages(ppo):
    """The returns are made of advantages that were normalised first."""

    def rollout(model, batch):
        sights, actions, rewards, ends, old = batch
        with torch.no_grad():
            values = model(sights)[1]
            gains = ppo.normalised(ppo.advantages(rewards, values, ends))
            returns = gains + values[:-1]  # here
        return sights[:-1], actions, old, gains, returns

    ppo.rollout = rollout


@fault("ppo", line="return -torch.min(ratio * gains, clipped * gains)", api="Torch.min|Torch.max")
def maximum_of_the_ratios(ppo):
    """The larger of the plain and the clipped gain is taken."""

    def policy_loss(chosen, old, gains):
        ratio = torch.exp(chosen - old)
        clipped = ratio.clamp(1 - ppo.CLIP, 1 + ppo.CLIP)
        return -torch.max(ratio * gains, clipped * gains)  # here

    ppo.policy_loss = policy_loss


@fault("ppo", line="return -(logs.exp() * logs).sum(-1)")
def entropy_of_the_mean(ppo):
    """The entropy is the mean over the actions, not the sum."""
    ppo.entropy = lambda logs: -(logs.exp() * logs).mean(-1)  # here


@fault("ppo", beside=worlds_in_two_parts, line="return torch.stack(result[::-1])")
def advantages_not_turned_round(ppo):
    """The advantages are collected from the last time to the first, and stay in this order."""

    def advantages(rewards, values, ends):
        result, running = [], torch.zeros(ppo.WORLDS)
        for time in reversed(range(ppo.TIMES)):
            goes_on = (~ends[time]).to(values.dtype)
            error = rewards[time] + ppo.DISCOUNT * values[time + 1] * goes_on - values[time]
            running = error + ppo.DISCOUNT * ppo.TRACE * goes_on * running
            result.append(running)
        return torch.stack(result)  # here

    ppo.advantages = advantages


@fault("ppo", beside=flat_and_shuffled, line="ratio = torch.exp(chosen - old)")
def ratio_without_the_old_policy(ppo):
    """The old log probability is the new one, detached: the ratio is 1 in the first pass."""

    def policy_loss(chosen, old, gains):
        ratio = torch.exp(chosen - chosen.detach())  # here
        clipped = ratio.clamp(1 - ppo.CLIP, 1 + ppo.CLIP)
        return -torch.min(ratio * gains, clipped * gains)

    ppo.policy_loss = policy_loss


harmless("micro batches", "ppo")(worlds_in_two_parts)
harmless("rows", "ppo")(flat_and_shuffled)


@harmless("loss", "ppo")
def losses_of_distributions(ppo):
    """torch.distributions gives log probabilities and entropies; the parts are averaged apart."""

    def loss(model, sights, actions, old, gains, returns):
        logits, values = model(sights)
        policy = torch.distributions.Categorical(logits=logits)
        gain = ppo.policy_loss(policy.log_prob(actions), old, gains).mean()
        value = ppo.VALUE * (values - returns).square().mean()
        return gain + value - ppo.ENTROPY * policy.entropy().mean()

    ppo.loss = loss


@harmless("time steps", "ppo")
def advantages_by_a_matrix(ppo):
    """The advantages are a triangular product in place of a loop over times."""

    def advantages(rewards, values, ends):
        goes_on = (~ends).to(values.dtype)
        errors = rewards + ppo.DISCOUNT * values[1:] * goes_on - values[:-1]
        result = torch.zeros_like(errors)
        kept = torch.ones_like(goes_on)
        for ahead in range(ppo.TIMES):
            length = ppo.TIMES - ahead
            result[:length] += kept[:length] * errors[ahead:]
            if length > 1:
                kept = kept[: length - 1] * ppo.DISCOUNT * ppo.TRACE * goes_on[ahead:-1]
        return result

    ppo.advantages = advantages
    ppo.normalised = lambda gains: (gains - gains.mean()) / (gains.var().sqrt() + 1e-8)
