"""A step of PPO: a rollout, advantages (GAE), epochs of clipped losses over minibatches."""

import math

import torch
from torch import nn

TIMES, PLACES, OBSERVED, ACTIONS = 8, 4, 6, 2
GAMMA, LAMBDA = 0.97, 0.9
EPOCHS, MINIBATCHES = 2, 2
CLIP, VALUE_CLIP, VALUE_WEIGHT, ENTROPY_WEIGHT = 0.2, 0.2, 0.5, 0.01
LOG_2PI = math.log(2 * math.pi)


def layer(inside, outside, gain=2**0.5):
    made = nn.Linear(inside, outside)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.constant_(made.bias, 0.0)
    return made


class RunningNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("var", torch.ones(width))
        self.register_buffer("count", torch.tensor(1e-4))

    @torch.no_grad()
    def update(self, x):
        x = x.flatten(0, -2)
        delta = x.mean(0) - self.mean
        total = self.count + len(x)
        m2 = self.var * self.count + x.var(0, unbiased=False) * len(x)
        m2 += delta.square() * self.count * len(x) / total
        self.mean += delta * len(x) / total
        self.var.copy_(m2 / total)
        self.count.copy_(total)

    def forward(self, x):
        return ((x - self.mean) / (self.var + 1e-8).sqrt()).clamp(-5, 5)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = RunningNorm(OBSERVED)
        self.actor = nn.Sequential(
            layer(OBSERVED, 16), nn.Tanh(), layer(16, 16), nn.Tanh(), layer(16, ACTIONS, 0.5)
        )
        self.critic = nn.Sequential(
            layer(OBSERVED, 16), nn.Tanh(), layer(16, 16), nn.Tanh(), layer(16, 1, 1.0)
        )
        self.log_std = nn.Parameter(torch.full((ACTIONS,), -0.5))

    def value(self, x):
        return self.critic(self.norm(x)).squeeze(-1)

    def policy(self, x):
        mean = self.actor(self.norm(x))
        return mean, self.log_std.expand_as(mean)


def log_prob(mean, log_std, action):
    z = (action - mean) * torch.exp(-log_std)
    return (-0.5 * z.square() - log_std - 0.5 * LOG_2PI).sum(-1)


def entropy(log_std):
    return (0.5 + 0.5 * LOG_2PI + log_std).sum(-1)


def advantages_of(rewards, values, dones, last):
    """Generalised advantages: done[t] says that the episode ended behind step t."""
    advantages = torch.zeros_like(rewards)
    running = torch.zeros_like(last)
    for t in reversed(range(TIMES)):
        following = last if t == TIMES - 1 else values[t + 1]
        alive = 1.0 - dones[t]
        delta = rewards[t] + GAMMA * following * alive - values[t]
        running = delta + GAMMA * LAMBDA * alive * running
        advantages[t] = running
    return advantages


def normalised(advantage):
    return (advantage - advantage.mean()) / (advantage.std() + 1e-8)


def policy_loss(new, old, advantage):
    ratio = torch.exp(new - old)
    advantage = normalised(advantage)
    plain = ratio * advantage
    clipped = ratio.clamp(1 - CLIP, 1 + CLIP) * advantage
    return -torch.min(plain, clipped).mean()


def value_loss(value, old, wanted):
    near = old + (value - old).clamp(-VALUE_CLIP, VALUE_CLIP)
    loss = torch.max((value - wanted).square(), (near - wanted).square())
    return 0.5 * loss.mean()


def losses(model, x, action, old_log_prob, old_value, advantage, wanted):
    mean, log_std = model.policy(x)
    new = log_prob(mean, log_std, action)
    loss = policy_loss(new, old_log_prob, advantage)
    loss = loss - ENTROPY_WEIGHT * entropy(log_std).mean()
    return loss + VALUE_WEIGHT * value_loss(model.value(x), old_value, wanted)


def build():
    return Agent()


def optimizer(model):
    made = torch.optim.Adam(model.parameters(), lr=3e-3, eps=1e-5)
    model.schedule = torch.optim.lr_scheduler.LinearLR(made, 1.0, 0.1, total_iters=10)
    return made


def batch(generator):
    shape = (TIMES, PLACES)
    x = torch.randn(*shape, OBSERVED, generator=generator) * 2 + 1
    noise = torch.randn(*shape, ACTIONS, generator=generator)
    rewards = torch.randn(*shape, generator=generator)
    dones = (torch.rand(*shape, generator=generator) < 0.2).to(rewards.dtype)
    last = torch.randn(PLACES, OBSERVED, generator=generator)
    orders = [torch.randperm(TIMES * PLACES, generator=generator) for _ in range(EPOCHS)]
    return x, noise, rewards, dones, last, orders


@torch.no_grad()
def rollout(model, x, noise, rewards, dones, last):
    model.norm.update(x)
    mean, log_std = model.policy(x)
    action = mean + log_std.exp() * noise
    values = model.value(x)
    advantages = advantages_of(rewards, values, dones, model.value(last))
    data = (x, action, log_prob(mean, log_std, action), values, advantages, advantages + values)
    return [each.flatten(0, 1) for each in data]


def update(model, optimizer, data):
    optimizer.zero_grad()
    losses(model, *data).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()


def step(model, optimizer, batch):
    *seen, orders = batch
    data = rollout(model, *seen)
    for order in orders:
        for rows in order.chunk(MINIBATCHES):
            update(model, optimizer, [each[rows] for each in data])
    model.schedule.step()
