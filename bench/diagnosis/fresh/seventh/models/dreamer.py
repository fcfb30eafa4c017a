"""A world model: categorical latents, balanced divergences, an actor that learns in dreams."""

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

EPISODES, LENGTH, OBSERVED, ACTIONS = 4, 6, 10, 3
DETER, GROUPS, CLASSES, HIDDEN, BINS, HORIZON = 16, 3, 4, 20, 9, 4
UNIMIX, FREE, DYN_WEIGHT, REP_WEIGHT = 0.02, 0.05, 0.5, 0.1
GAMMA, LAMBDA, ENTROPY, SLOW_RATE, SLOW_WEIGHT = 0.95, 0.9, 3e-2, 0.2, 1.0
RETURN_DECAY, LOW, HIGH = 0.8, 0.05, 0.95
LR_WORLD, LR_ACTOR, LR_CRITIC, CLIP_WORLD, CLIP_HEADS = 4e-3, 1e-2, 1e-2, 10.0, 1.0


def symlog(x):
    return torch.sign(x) * torch.log1p(x.abs())


def symexp(x):
    return torch.sign(x) * torch.expm1(x.abs())


def bins(like):
    return torch.linspace(-2.0, 2.0, BINS, dtype=like.dtype)


def two_hot(x):
    """Shares of the two bins beside symlog(x)."""
    x, centres = symlog(x), bins(x)
    above = torch.bucketize(x.contiguous(), centres).clamp(1, BINS - 1)
    part = ((x - centres[above - 1]) / (centres[above] - centres[above - 1])).clamp(0, 1)
    shares = torch.zeros(*x.shape, BINS, dtype=x.dtype)
    shares.scatter_(-1, (above - 1)[..., None], (1 - part)[..., None])
    return shares.scatter_(-1, above[..., None], part[..., None])


def mean_of(logits):
    return symexp((logits.softmax(dim=-1) * bins(logits)).sum(dim=-1))


def log_prob_of(logits, x):
    return (two_hot(x) * logits.log_softmax(dim=-1)).sum(dim=-1)


def mixed(logits):
    """Logarithms of probabilities, of which a small part is uniform."""
    probabilities = (1 - UNIMIX) * logits.softmax(dim=-1) + UNIMIX / logits.shape[-1]
    return probabilities.log()


def draw(log_probs, uniform):
    """A class for each number of 0 to 1, as one-hot."""
    total = log_probs.exp().cumsum(dim=-1)
    index = (uniform[..., None] > total).sum(dim=-1).clamp(max=log_probs.shape[-1] - 1)
    return F.one_hot(index, log_probs.shape[-1]).to(log_probs.dtype)


def straight_through(log_probs, uniform):
    probabilities = log_probs.exp()
    return draw(log_probs, uniform) + probabilities - probabilities.detach()


def mlp(inputs, outputs):
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN), nn.RMSNorm(HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, outputs)
    )


class NormGRU(nn.Module):
    """A recurrent cell with one normalisation of all gates."""

    def __init__(self, inputs):
        super().__init__()
        self.gates = nn.Linear(inputs + DETER, 3 * DETER, bias=False)
        self.norm = nn.LayerNorm(3 * DETER)

    def forward(self, x, state):
        reset, cand, update = self.norm(self.gates(torch.cat([state, x], dim=-1))).chunk(3, dim=-1)
        cand = torch.tanh(torch.sigmoid(reset) * cand)
        update = torch.sigmoid(update - 1)
        return update * cand + (1 - update) * state


class RSSM(nn.Module):
    def __init__(self):
        super().__init__()
        self.img_in = mlp(GROUPS * CLASSES + ACTIONS, HIDDEN)
        self.cell = NormGRU(HIDDEN)
        self.prior = mlp(DETER, GROUPS * CLASSES)
        self.posterior = mlp(DETER + HIDDEN, GROUPS * CLASSES)

    def deterministic(self, state, action):
        x = self.img_in(torch.cat([state["stoch"].flatten(-2), action], dim=-1))
        return self.cell(x, state["deter"])

    def log_prior(self, deter):
        return mixed(self.prior(deter).unflatten(-1, (GROUPS, CLASSES)))

    def log_posterior(self, deter, embedded):
        logits = self.posterior(torch.cat([deter, embedded], dim=-1))
        return mixed(logits.unflatten(-1, (GROUPS, CLASSES)))

    def observe_step(self, state, action, embedded, is_first, uniform):
        """One step with an observation; a new episode begins with an empty state."""
        keep = 1 - is_first
        state = {
            "deter": state["deter"] * keep[:, None],
            "stoch": state["stoch"] * keep[:, None, None],
        }
        deter = self.deterministic(state, action * keep[:, None])
        log_post = self.log_posterior(deter, embedded)
        return {"deter": deter, "stoch": straight_through(log_post, uniform)}, log_post

    def imagine_step(self, state, action, uniform):
        deter = self.deterministic(state, action)
        return {"deter": deter, "stoch": straight_through(self.log_prior(deter), uniform)}


class WorldModel(nn.Module):
    def __init__(self):
        super().__init__()
        features = DETER + GROUPS * CLASSES
        self.encoder = mlp(OBSERVED, HIDDEN)
        self.rssm = RSSM()
        self.decoder = mlp(features, OBSERVED)
        self.reward = mlp(features, BINS)
        self.cont = mlp(features, 1)


class Dreamer(nn.Module):
    def __init__(self):
        super().__init__()
        features = DETER + GROUPS * CLASSES
        self.world = WorldModel()
        self.actor = mlp(features, ACTIONS)
        self.critic = mlp(features, BINS)
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.register_buffer("return_range", torch.zeros(2))
        self.register_buffer("deter", torch.zeros(EPISODES, DETER))
        self.register_buffer("stoch", torch.zeros(EPISODES, GROUPS, CLASSES))


def features_of(state):
    return torch.cat([state["deter"], state["stoch"].flatten(-2)], dim=-1)


def stacked(states):
    return tree_map(lambda *each: torch.stack(each, dim=1), *states)


def observe(world, state, batch):
    """States and posteriors of all steps, (B, T, ...), from where the last batch has ended."""
    embedded = world.encoder(symlog(batch["obs"]))
    states, log_posts = [], []
    for t in range(embedded.shape[1]):
        state, log_post = world.rssm.observe_step(
            state, batch["action"][:, t], embedded[:, t], batch["is_first"][:, t],
            batch["uniform"][:, t],
        )  # fmt: skip
        states.append(state)
        log_posts.append(log_post)
    return stacked(states), torch.stack(log_posts, dim=1)


def divergence(log_p, log_q):
    return (log_p.exp() * (log_p - log_q)).sum(dim=(-2, -1))


def balanced(log_post, log_prior):
    """The prior learns faster than the posterior; small divergences are free."""
    dyn = divergence(log_post.detach(), log_prior).clamp(min=FREE)
    rep = divergence(log_post, log_prior.detach()).clamp(min=FREE)
    return DYN_WEIGHT * dyn + REP_WEIGHT * rep


def world_losses(world, states, log_post, batch):
    """Of each step: (B, T)."""
    features = features_of(states)
    recon = (world.decoder(features) - symlog(batch["obs"])).square().sum(dim=-1)
    reward = -log_prob_of(world.reward(features), batch["reward"])
    cont = F.binary_cross_entropy_with_logits(
        world.cont(features).squeeze(-1), batch["cont"], reduction="none"
    )
    log_prior = world.rssm.log_prior(states["deter"])
    return recon + reward + cont + balanced(log_post, log_prior)


def world_backward(model, batch):
    """The states behind all steps, without gradients."""
    state = {"deter": model.deter[: len(batch["obs"])], "stoch": model.stoch[: len(batch["obs"])]}
    states, log_post = observe(model.world, state, batch)
    world_losses(model.world, states, log_post, batch).mean().backward()
    return tree_map(torch.Tensor.detach, states)


@torch.no_grad()
def carry(model, states):
    model.deter.copy_(states["deter"][:, -1])
    model.stoch.copy_(states["stoch"][:, -1])


def policy(model, features):
    return mixed(model.actor(features.detach()))


@torch.no_grad()
def imagine(model, states, batch):
    """Features (N, H + 1, ...) and actions (N, H, ...) of dreams from every state."""
    state = tree_map(lambda value: value.flatten(0, 1), states)
    dreamt, actions = [features_of(state)], []
    for t in range(HORIZON):
        action = draw(policy(model, dreamt[-1]), batch["action_draw"].flatten(0, 1)[:, t])
        state = model.world.rssm.imagine_step(
            state, action, batch["dream_draw"].flatten(0, 1)[:, t]
        )
        dreamt.append(features_of(state))
        actions.append(action)
    return torch.stack(dreamt, dim=1), torch.stack(actions, dim=1)


@torch.no_grad()
def lambda_returns(reward, discount, value):
    """reward and discount of steps 1..H, value of steps 0..H: returns of steps 0..H-1."""
    found, last = [], value[:, -1]
    for t in reversed(range(HORIZON)):
        ahead = (1 - LAMBDA) * value[:, t + 1] + LAMBDA * last
        last = reward[:, t] + discount[:, t] * ahead
        found.append(last)
    return torch.stack(found[::-1], dim=1)


@torch.no_grad()
def return_scale(model, returns):
    """The range of returns of late, at least 1."""
    now = torch.quantile(returns.flatten(), torch.tensor([LOW, HIGH], dtype=returns.dtype))
    model.return_range.lerp_(now, 1 - RETURN_DECAY)
    return (model.return_range[1] - model.return_range[0]).clamp(min=0.1)


@torch.no_grad()
def judged(model, features):
    """Returns, and how likely each step of a dream still happens."""
    reward = mean_of(model.world.reward(features[:, 1:]))
    discount = GAMMA * torch.sigmoid(model.world.cont(features[:, 1:]).squeeze(-1))
    value = mean_of(model.critic(features))
    weight = torch.cumprod(torch.cat([torch.ones_like(discount[:, :1]), discount], dim=1), dim=1)
    return lambda_returns(reward, discount, value), value[:, :-1], weight[:, :-1]


def actor_loss(model, features, actions, returns, value, weight, scale):
    log_probs = policy(model, features[:, :-1])
    chosen = (log_probs * actions).sum(dim=-1)
    entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
    advantage = (returns - value) / scale
    return -(weight * (chosen * advantage + ENTROPY * entropy)).mean()


def critic_loss(model, features, returns, weight):
    logits = model.critic(features[:, :-1])
    with torch.no_grad():
        slow = mean_of(model.slow_critic(features[:, :-1]))
    fit = log_prob_of(logits, returns) + SLOW_WEIGHT * log_prob_of(logits, slow)
    return -(weight * fit).mean()


def dream_backward(model, states, batch):
    features, actions = imagine(model, states, batch)
    returns, value, weight = judged(model, features)
    scale = return_scale(model, returns)
    actor_loss(model, features, actions, returns, value, weight, scale).backward()
    critic_loss(model, features, returns, weight).backward()


@torch.no_grad()
def follow(model):
    for slow, fast in zip(model.slow_critic.parameters(), model.critic.parameters(), strict=True):
        slow.mul_(1 - SLOW_RATE).add_(fast, alpha=SLOW_RATE)


def build():
    return Dreamer()


def optimizer(model, **more):
    settings = {"eps": 1e-7} | more
    return {
        "world": torch.optim.Adam(model.world.parameters(), lr=LR_WORLD, **settings),
        "actor": torch.optim.Adam(model.actor.parameters(), lr=LR_ACTOR, **settings),
        "critic": torch.optim.Adam(model.critic.parameters(), lr=LR_CRITIC, **settings),
    }


def batch(generator):
    shape = (EPISODES, LENGTH)
    is_first = (torch.rand(shape, generator=generator) < 0.2).to(torch.get_default_dtype())
    obs = torch.randn(*shape, OBSERVED, generator=generator).cumsum(dim=1)
    action = torch.randint(0, ACTIONS, shape, generator=generator)
    return {
        "obs": obs,
        "action": F.one_hot(action, ACTIONS).to(obs.dtype),
        "reward": torch.sin(obs.sum(dim=-1)) + obs[..., 0],
        "cont": (torch.rand(shape, generator=generator) < 0.85).to(obs.dtype),
        "is_first": is_first,
        "uniform": torch.rand(*shape, GROUPS, generator=generator),
        "action_draw": torch.rand(*shape, HORIZON, generator=generator),
        "dream_draw": torch.rand(*shape, HORIZON, GROUPS, generator=generator),
    }


def apply(module, optimizer, most):
    nn.utils.clip_grad_norm_(module.parameters(), most)
    optimizer.step()
    optimizer.zero_grad()


def step(model, optimizer, batch):
    states = world_backward(model, batch)
    apply(model.world, optimizer["world"], CLIP_WORLD)
    carry(model, states)
    dream_backward(model, states, batch)
    apply(model.actor, optimizer["actor"], CLIP_HEADS)
    apply(model.critic, optimizer["critic"], CLIP_HEADS)
    follow(model)
