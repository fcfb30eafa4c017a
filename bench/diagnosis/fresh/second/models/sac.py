"""Soft actor-critic: two critics, their slow copies, and a learned temperature."""

import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

OBSERVED, ACTIONS, WIDTH, BATCH = 5, 2, 16, 8
DISCOUNT, FOLLOW, HUBER = 0.97, 0.05, 1.0
LOG_STD = (-5.0, 2.0)
ENTROPY = -float(ACTIONS)


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Linear(OBSERVED, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU()
        )
        self.mean = nn.Linear(WIDTH, ACTIONS)
        self.log_std = nn.Linear(WIDTH, ACTIONS)

    def forward(self, observed):
        h = self.body(observed)
        low, high = LOG_STD
        log_std = low + 0.5 * (high - low) * (torch.tanh(self.log_std(h)) + 1)
        return self.mean(h), log_std


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(OBSERVED + ACTIONS, WIDTH)
        self.norm = nn.LayerNorm(WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, 1)

    def forward(self, observed, action):
        h = F.silu(self.norm(self.first(torch.cat([observed, action], dim=-1))))
        return self.value(F.silu(self.second(h))).squeeze(-1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = Actor()
        self.critics = nn.ModuleList([Critic(), Critic()])
        self.copies = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_alpha = nn.Parameter(torch.tensor(-1.0))


def squash(raw):
    """The logarithm of the derivative of tanh, summed over the actions."""
    return (2 * (math.log(2) - raw - F.softplus(-2 * raw))).sum(-1)


def sample(actor, observed, noise):
    mean, log_std = actor(observed)
    raw = mean + log_std.exp() * noise
    log_prob = (-0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)).sum(-1)
    return torch.tanh(raw), log_prob - squash(raw)


def values(critics, observed, action):
    return [critic(observed, action) for critic in critics]


def smaller(pair):
    return torch.minimum(pair[0], pair[1])


@torch.no_grad()
def target_of(agent, data):
    action, log_prob = sample(agent.actor, data["next"], data["next_noise"])
    future = smaller(values(agent.copies, data["next"], action))
    future = future - agent.log_alpha.exp() * log_prob
    return data["reward"] + DISCOUNT * (1 - data["done"]) * future


def critic_loss(agent, data):
    target = target_of(agent, data)
    total = 0.0
    for value in values(agent.critics, data["observed"], data["action"]):
        errors = F.huber_loss(value, target, reduction="none", delta=HUBER)
        total = total + (data["weight"] * errors).sum() / len(errors)
    return total


def actor_loss(agent, data):
    action, log_prob = sample(agent.actor, data["observed"], data["noise"])
    value = smaller(values(agent.critics, data["observed"], action))
    alpha = agent.log_alpha.exp().detach()
    return (alpha * log_prob - value).mean(), log_prob


def temperature_loss(agent, log_prob):
    return -(agent.log_alpha * (log_prob + ENTROPY).detach()).mean()


@torch.no_grad()
def follow(agent):
    for slow, fast in zip(agent.copies.parameters(), agent.critics.parameters(), strict=True):
        slow.mul_(1 - FOLLOW).add_(FOLLOW * fast)


def train_critics(agent, data):
    agent.critic_optimizer.zero_grad()
    critic_loss(agent, data).backward()
    agent.critic_optimizer.step()


def train_actor(agent, optimizer, data):
    optimizer.zero_grad()
    agent.temperature_optimizer.zero_grad()
    agent.critics.requires_grad_(False)
    loss, log_prob = actor_loss(agent, data)
    loss.backward()
    temperature_loss(agent, log_prob).backward()
    agent.critics.requires_grad_(True)
    optimizer.step()
    agent.temperature_optimizer.step()


def build():
    return Agent()


def optimizer(agent):
    agent.critic_optimizer = torch.optim.Adam(agent.critics.parameters(), lr=3e-3)
    agent.temperature_optimizer = torch.optim.Adam([agent.log_alpha], lr=1e-2)
    return torch.optim.Adam(agent.actor.parameters(), lr=3e-3)


def batch(generator):
    def normal(*shape):
        return torch.randn(*shape, generator=generator)

    weight = torch.rand(BATCH, generator=generator) + 0.2
    return {
        "observed": normal(BATCH, OBSERVED),
        "action": normal(BATCH, ACTIONS).tanh(),
        "reward": normal(BATCH) * 3,
        "next": normal(BATCH, OBSERVED),
        "done": (torch.rand(BATCH, generator=generator) < 0.3).to(weight.dtype),
        "weight": weight / weight.max(),
        "noise": normal(BATCH, ACTIONS),
        "next_noise": normal(BATCH, ACTIONS),
    }


def step(agent, optimizer, batch):
    train_critics(agent, batch)
    train_actor(agent, optimizer, batch)
    follow(agent)
