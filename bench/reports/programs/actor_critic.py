"""Advantage actor critic: the advantage is not detached, so the policy's loss trains the critic."""

import torch
from common import ALT, BUG, debugger, digest
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(12)


class Agent(nn.Module):
    def __init__(self, observed=4, actions=3, width=32):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(observed, width), nn.Tanh())
        self.actor = nn.Linear(width, actions)
        self.critic = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1))

    def forward(self, observation):
        features = self.trunk(observation)
        return self.actor(features), self.critic(features).squeeze(-1)


class Pole:
    """Eight carts with a pole each, all moved at once."""

    def __init__(self, count=8):
        self.state = torch.rand(count, 4) * 0.1 - 0.05

    def move(self, action):
        position, speed, angle, turn = self.state.unbind(-1)
        force = (action - 1) * 10.0
        pull = (9.8 * angle.sin() - angle.cos() * force) / (2 - angle.cos() ** 2)
        speed, turn = speed + 0.02 * (force - pull), turn + 0.02 * pull
        self.state = torch.stack([position + 0.02 * speed, speed, angle + 0.02 * turn, turn], -1)
        return 1.0 - angle.abs() - 0.1 * position.abs()


agent, env = Agent(), Pole()
optimizer = torch.optim.RMSprop(agent.parameters(), lr=1e-3)
dbg = debugger()
losses = []
for _ in range(2):
    dbg.start(agent)
    logps, values, rewards, entropies = [], [], [], []
    for _ in range(3):
        logits, value = agent(env.state)
        policy = Categorical(logits=logits)
        action = policy.sample()
        rewards.append(env.move(action))
        logps.append(policy.log_prob(action))
        values.append(value)
        entropies.append(policy.entropy())
    with torch.no_grad():
        _, last = agent(env.state)
    returns = []
    for reward in reversed(rewards):
        last = reward + 0.95 * last
        returns.insert(0, last)
    returns, values = torch.stack(returns), torch.stack(values)
    if BUG:
        advantage = returns - values
    elif ALT:
        with torch.no_grad():
            advantage = returns - values
    else:
        advantage = (returns - values).detach()
    policy_loss = -(torch.stack(logps) * advantage).mean()
    value_loss = (returns - values).square().mean()
    loss = policy_loss + 0.5 * value_loss - 0.01 * torch.stack(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    dbg.stop()
    dbg.step()
    losses.append(loss.item())
made = digest(losses, agent)
