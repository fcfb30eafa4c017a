"""Cases of PPO."""

import torch
from case import fault, harmless
from torch import nn


@fault("ppo", line=["alive = 1.0 - dones[t]", "delta = rewards[t] + GAMMA"])
def done_of_the_next_step(ppo):
    """Advantages look whether the next step ends the episode: off by one."""

    def advantages_of(rewards, values, dones, last):
        advantages = torch.zeros_like(rewards)
        running = torch.zeros_like(last)
        for t in reversed(range(ppo.TIMES)):
            following = last if t == ppo.TIMES - 1 else values[t + 1]
            alive = 1.0 - dones[min(t + 1, ppo.TIMES - 1)]  # here
            delta = rewards[t] + ppo.GAMMA * following * alive - values[t]  # here
            running = delta + ppo.GAMMA * ppo.LAMBDA * alive * running
            advantages[t] = running
        return advantages

    ppo.advantages_of = advantages_of


@fault("ppo", line=["running = delta + GAMMA", "delta = rewards[t] + GAMMA"])
def advantage_flows_over_the_end(ppo):
    """The running sum of advantages is not cut at the end of an episode."""

    def advantages_of(rewards, values, dones, last):
        advantages = torch.zeros_like(rewards)
        running = torch.zeros_like(last)
        for t in reversed(range(ppo.TIMES)):
            following = last if t == ppo.TIMES - 1 else values[t + 1]
            alive = 1.0 - dones[t]
            delta = rewards[t] + ppo.GAMMA * following * alive - values[t]
            running = delta + ppo.GAMMA * ppo.LAMBDA * running  # here
            advantages[t] = running
        return advantages

    ppo.advantages_of = advantages_of


@fault("ppo", line=["return -torch.min(plain, clipped).mean()"])
def maximum_of_the_surrogates(ppo):
    """The larger of both surrogates is taken."""

    def policy_loss(new, old, advantage):
        ratio = torch.exp(new - old)
        advantage = ppo.normalised(advantage)
        plain = ratio * advantage
        clipped = ratio.clamp(1 - ppo.CLIP, 1 + ppo.CLIP) * advantage
        return -torch.max(plain, clipped).mean()  # here

    ppo.policy_loss = policy_loss


@fault("ppo", line=["advantage = normalised(advantage)", "return (advantage - advantage.mean())"])
def advantages_divided_by_the_variance(ppo):
    """Advantages are divided by their variance."""
    ppo.normalised = lambda a: (a - a.mean()) / (a.var() + 1e-8)  # here


@fault("ppo", line=["loss = loss - ENTROPY_WEIGHT"])
def entropy_with_the_wrong_sign(ppo):
    """The entropy is added to the loss."""

    def losses(model, x, action, old_log_prob, old_value, advantage, wanted):
        mean, log_std = model.policy(x)
        new = ppo.log_prob(mean, log_std, action)
        loss = ppo.policy_loss(new, old_log_prob, advantage)
        loss = loss + ppo.ENTROPY_WEIGHT * ppo.entropy(log_std).mean()  # here
        return loss + ppo.VALUE_WEIGHT * ppo.value_loss(model.value(x), old_value, wanted)

    ppo.losses = losses


@fault("ppo", line=["z = (action - mean) * torch.exp(-log_std)"])
def deviation_for_its_inverse(ppo):
    """The distance is multiplied by the deviation: old and new agree in the first update."""

    def log_prob(mean, log_std, action):
        z = (action - mean) * torch.exp(log_std)  # here
        return (-0.5 * z.square() - log_std - 0.5 * ppo.LOG_2PI).sum(-1)

    ppo.log_prob = log_prob


@fault(
    "ppo",
    module="norm",
    line=["m2 = self.var * self.count", "m2 += delta.square()", "self.var.copy_"],
)
def running_variance_without_the_means(ppo):
    """The running variance forgets that the means differ."""

    class RunningNorm(ppo.RunningNorm):
        @torch.no_grad()
        def update(self, x):
            x = x.flatten(0, -2)
            delta = x.mean(0) - self.mean
            total = self.count + len(x)
            m2 = self.var * self.count + x.var(0, unbiased=False) * len(x)  # here
            self.mean += delta * len(x) / total
            self.var.copy_(m2 / total)  # here
            self.count.copy_(total)

    ppo.RunningNorm = RunningNorm


@harmless("time steps", "ppo")
def advantages_by_a_matrix(ppo):
    """All advantages by a product with the discounts between each two times."""

    def advantages_of(rewards, values, dones, last):
        following = torch.cat([values[1:], last[None]])
        alive = 1 - dones
        delta = rewards + ppo.GAMMA * following * alive - values
        rows = []
        for t in range(ppo.TIMES):
            factor = ppo.GAMMA * ppo.LAMBDA * alive[t : ppo.TIMES - 1]
            weight = torch.cat([torch.ones_like(last)[None], factor.cumprod(0)])
            rows.append((weight * delta[t:]).sum(0))
        return torch.stack(rows)

    ppo.advantages_of = advantages_of


@harmless("fused", "ppo")
def distributions_of_torch(ppo):
    """Log-probabilities and entropy by torch.distributions."""

    def log_prob(mean, log_std, action):
        normal = torch.distributions.Normal(mean, log_std.exp())
        return torch.distributions.Independent(normal, 1).log_prob(action)

    ppo.log_prob = log_prob
    ppo.entropy = lambda log_std: (
        torch.distributions.Normal(torch.zeros_like(log_std), log_std.exp()).entropy().sum(-1)
    )


@harmless("loss", "ppo")
def surrogates_by_their_sign(ppo):
    """The smaller surrogate as the larger loss of both."""

    def policy_loss(new, old, advantage):
        advantage = ppo.normalised(advantage)
        ratio = (new - old).exp()
        plain = -advantage * ratio
        clipped = -advantage * torch.clamp(ratio, 1 - ppo.CLIP, 1 + ppo.CLIP)
        return torch.max(plain, clipped).mean()

    ppo.policy_loss = policy_loss


@harmless("rows", "ppo", group="whole step")
def rows_sorted(ppo):
    """The rows of each minibatch are sorted."""
    step = ppo.step

    def changed(model, optimizer, batch):
        *seen, orders = batch
        parts = [[rows.sort().values for rows in o.chunk(ppo.MINIBATCHES)] for o in orders]
        step(model, optimizer, (*seen, [torch.cat(each) for each in parts]))

    ppo.step = changed


@harmless("scaled", "ppo", group="whole step")
def losses_apart(ppo):
    """The three losses go backward apart, times 64; gradients are divided before the clip."""

    def update(model, optimizer, data):
        x, action, old, old_value, advantage, wanted = data
        optimizer.zero_grad()
        mean, log_std = model.policy(x)
        (64 * ppo.policy_loss(ppo.log_prob(mean, log_std, action), old, advantage)).backward()
        (-64 * ppo.ENTROPY_WEIGHT * ppo.entropy(model.log_std)).backward()
        (64 * ppo.VALUE_WEIGHT * ppo.value_loss(model.value(x), old_value, wanted)).backward()
        for parameter in model.parameters():
            parameter.grad.mul_(1 / 64)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()

    ppo.update = update
