"""A categorical deep Q network: noisy duelling heads, prioritised replay, three-step returns."""

import torch
from torch import nn
from torch.nn import functional as F

STATE, ACTIONS, WIDTH, ATOMS = 6, 3, 12, 9
V_MIN, V_MAX, GAMMA, N_STEP = -2.0, 2.0, 0.9, 3
CHUNK, SAMPLES, CAPACITY, FILLED = 10, 8, 40, 16
ALPHA, BETA, PRIORITY_EPS, TAU, SIGMA = 0.6, 0.5, 0.05, 0.25, 0.5
LR, MAX_NORM = 3e-3, 0.5


def scaled_noise(x):
    return x.sign() * x.abs().sqrt()


class NoisyLinear(nn.Module):
    """A linear layer whose weights are disturbed by a product of two vectors."""

    def __init__(self, inputs, outputs):
        super().__init__()
        bound = inputs**-0.5
        self.weight = nn.Parameter(torch.empty(outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))
        self.weight_sigma = nn.Parameter(torch.full((outputs, inputs), SIGMA * bound))
        self.bias_sigma = nn.Parameter(torch.full((outputs,), SIGMA * bound))
        self.register_buffer("noise_in", torch.zeros(inputs))
        self.register_buffer("noise_out", torch.zeros(outputs))

    def draw(self, numbers):
        """Takes what it needs from a list of numbers; gives the rest."""
        taken, rest = numbers.split([len(self.noise_in), len(numbers) - len(self.noise_in)])
        self.noise_in.copy_(scaled_noise(taken))
        taken, rest = rest.split([len(self.noise_out), len(rest) - len(self.noise_out)])
        self.noise_out.copy_(scaled_noise(taken))
        return rest

    def forward(self, x):
        weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)
        return F.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATE, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH))
        self.value = NoisyLinear(WIDTH, ATOMS)
        self.advantage = NoisyLinear(WIDTH, ACTIONS * ATOMS)

    def draw(self, numbers):
        self.advantage.draw(self.value.draw(numbers))

    def combine(self, value, advantage):
        return value + advantage - advantage.mean(dim=1, keepdim=True)

    def forward(self, states):
        """Logits of returns: states, actions, atoms."""
        features = F.relu(self.body(states))
        value = self.value(features).view(-1, 1, ATOMS)
        advantage = self.advantage(features).view(-1, ACTIONS, ATOMS)
        return self.combine(value, advantage)


class Replay(nn.Module):
    """A ring of transitions with priorities, in part filled."""

    def __init__(self):
        super().__init__()
        gen = torch.Generator().manual_seed(5)
        self.register_buffer("states", torch.randn(CAPACITY, STATE, generator=gen))
        self.register_buffer("actions", torch.randint(0, ACTIONS, (CAPACITY,), generator=gen))
        self.register_buffer("returns", torch.randn(CAPACITY, generator=gen))
        self.register_buffer("later", torch.randn(CAPACITY, STATE, generator=gen))
        self.register_buffer("ended", (torch.rand(CAPACITY, generator=gen) < 0.2).float())
        priorities = torch.rand(CAPACITY, generator=gen) + 0.1
        priorities[FILLED:] = 0.0
        self.register_buffer("priorities", priorities)
        self.place, self.filled = FILLED, FILLED

    @torch.no_grad()
    def push(self, transitions):
        count = len(transitions["actions"])
        where = (self.place + torch.arange(count)) % CAPACITY
        for name, values in transitions.items():
            getattr(self, name)[where] = values
        self.priorities[where] = self.priorities.max()
        self.place = (self.place + count) % CAPACITY
        self.filled = min(self.filled + count, CAPACITY)

    def probabilities(self):
        powers = self.priorities**ALPHA
        return powers / powers.sum()

    @torch.no_grad()
    def sample(self, uniform):
        """One transition of each of as many equal shares of the total, and their weights."""
        probabilities = self.probabilities()
        points = (torch.arange(SAMPLES) + uniform) / SAMPLES
        where = torch.searchsorted(probabilities.cumsum(0), points).clamp(max=self.filled - 1)
        return where, self.importance(probabilities[where])

    def importance(self, chosen):
        weights = (self.filled * chosen) ** -BETA
        return weights / weights.max()

    def get(self, where):
        names = ("states", "actions", "returns", "later", "ended")
        return {name: getattr(self, name)[where] for name in names}

    @torch.no_grad()
    def renew(self, where, losses):
        self.priorities[where] = losses + PRIORITY_EPS


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.online = Network()
        self.target = Network()
        self.target.load_state_dict(self.online.state_dict())
        self.target.requires_grad_(False)
        self.replay = Replay()
        self.register_buffer("support", torch.linspace(V_MIN, V_MAX, ATOMS))


def discounted(rewards, ended):
    """Sums of the next rewards, up to the end of an episode, and whether it ends within them."""
    count = len(rewards) - N_STEP + 1
    total, alive = torch.zeros(count), torch.ones(count)
    for k in range(N_STEP):
        total = total + GAMMA**k * alive * rewards[k : k + count]
        alive = alive * (1 - ended[k : k + count])
    return total, 1 - alive


def transitions(data):
    returns, ended = discounted(data["rewards"], data["ended"])
    count = len(returns)
    return {
        "states": data["states"][:count],
        "actions": data["actions"][:count],
        "returns": returns,
        "later": data["states"][N_STEP : N_STEP + count],
        "ended": ended,
    }


def project(probabilities, targets, support):
    """The distribution of values at `targets`, shared out among the two nearest atoms."""
    width = (V_MAX - V_MIN) / (ATOMS - 1)
    b = (targets.clamp(V_MIN, V_MAX) - V_MIN) / width
    lower, upper = b.floor().long(), b.ceil().long()
    share = (upper - b) + (lower == upper)
    out = torch.zeros_like(probabilities)
    out.scatter_add_(1, lower, probabilities * share)
    return out.scatter_add_(1, upper, probabilities * (b - lower))


def best_actions(agent, later):
    """Double Q: the online net chooses."""
    return (agent.online(later).softmax(dim=-1) * agent.support).sum(dim=-1).argmax(dim=1)


@torch.no_grad()
def wanted(agent, sample):
    actions = best_actions(agent, sample["later"])
    logits = agent.target(sample["later"])
    chosen = logits.softmax(dim=-1)[torch.arange(len(actions)), actions]
    discount = GAMMA**N_STEP * (1 - sample["ended"])
    targets = sample["returns"][:, None] + discount[:, None] * agent.support
    return project(chosen, targets, agent.support)


def entropies(logits, goal):
    return -(goal * logits.log_softmax(dim=-1)).sum(dim=-1)


def losses(agent, sample):
    """One for each transition."""
    goal = wanted(agent, sample)
    logits = agent.online(sample["states"])
    logits = logits[torch.arange(len(logits)), sample["actions"]]
    return entropies(logits, goal)


def backward(agent, sample, weights):
    each = losses(agent, sample)
    (weights * each).mean().backward()
    return each.detach()


@torch.no_grad()
def follow(agent):
    """The target net follows the online net slowly."""
    for slow, fast in zip(agent.target.parameters(), agent.online.parameters(), strict=True):
        slow.lerp_(fast, TAU)


def draw_noise(agent, numbers):
    agent.online.draw(numbers[0])
    agent.target.draw(numbers[1])


def build():
    return Agent()


def optimizer(agent, **more):
    return torch.optim.Adam(agent.online.parameters(), lr=LR, eps=1.5e-4, **more)


def batch(generator):
    noises = 2 * WIDTH + ATOMS + ACTIONS * ATOMS
    return {
        "states": torch.randn(CHUNK + 1, STATE, generator=generator),
        "actions": torch.randint(0, ACTIONS, (CHUNK,), generator=generator),
        "rewards": torch.randn(CHUNK, generator=generator),
        "ended": (torch.rand(CHUNK, generator=generator) < 0.3).float(),
        "uniform": torch.rand(SAMPLES, generator=generator),
        "noise": torch.randn(2, noises, generator=generator),
    }


def learn(agent, optimizer, where, weights):
    optimizer.zero_grad()
    each = backward(agent, agent.replay.get(where), weights)
    nn.utils.clip_grad_norm_(agent.online.parameters(), MAX_NORM)
    optimizer.step()
    agent.replay.renew(where, each)


def step(agent, optimizer, batch):
    agent.replay.push(transitions(batch))
    draw_noise(agent, batch["noise"])
    where, weights = agent.replay.sample(batch["uniform"])
    learn(agent, optimizer, where, weights)
    follow(agent)
