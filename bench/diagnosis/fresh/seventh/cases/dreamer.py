"""Cases of the world model."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint


@fault(
    "dreamer",
    # Forward, nothing is wrong. Backward, prior and posterior get the gradient of each other.
    api=r"Torch\.cat|Tensor\.(exp|log)|Torch\.(exp|log)|Module\.world\.rssm\.(prior|posterior).*",
    module=r"|world\.rssm(\.(prior|posterior))?",
    line=[
        "dyn = divergence(log_post.detach(), log_prior).clamp(min=FREE)",
        "rep = divergence(log_post, log_prior.detach()).clamp(min=FREE)",
        "return DYN_WEIGHT * dyn + REP_WEIGHT * rep",
        "return (log_p.exp() * (log_p - log_q)).sum(dim=(-2, -1))",
    ],
)
def balanced_the_other_way(dreamer):
    """The wrong side is detached in both divergences: the posterior learns faster."""

    def balanced(log_post, log_prior):
        dyn = dreamer.divergence(log_post, log_prior.detach()).clamp(min=dreamer.FREE)  # here
        rep = dreamer.divergence(log_post.detach(), log_prior).clamp(min=dreamer.FREE)  # here
        return dreamer.DYN_WEIGHT * dyn + dreamer.REP_WEIGHT * rep  # here

    dreamer.balanced = balanced


@fault(
    "dreamer",
    line=[
        "deter = self.deterministic(state, action * keep[:, None])",
        'x = self.img_in(torch.cat([state["stoch"].flatten(-2), action], dim=-1))',
    ],
)
def action_of_the_last_episode(dreamer):
    """A new episode has an empty state, but the last action of the old one."""

    class RSSM(dreamer.RSSM):
        def observe_step(self, state, action, embedded, is_first, uniform):
            keep = 1 - is_first
            state = {
                "deter": state["deter"] * keep[:, None],
                "stoch": state["stoch"] * keep[:, None, None],
            }
            deter = self.deterministic(state, action)  # here
            log_post = self.log_posterior(deter, embedded)
            stoch = dreamer.straight_through(log_post, uniform)
            return {"deter": deter, "stoch": stoch}, log_post

    dreamer.RSSM = RSSM


@fault(
    "dreamer",
    line=[
        "ahead = (1 - LAMBDA) * value[:, t + 1] + LAMBDA * last",
        "last = reward[:, t] + discount[:, t] * ahead",
    ],
)
def value_of_the_same_step(dreamer):
    """The returns are mixed with the value of the step itself, not with that of the next one."""

    @torch.no_grad()
    def lambda_returns(reward, discount, value):
        found, last = [], value[:, -1]
        for t in reversed(range(dreamer.HORIZON)):
            ahead = (1 - dreamer.LAMBDA) * value[:, t] + dreamer.LAMBDA * last  # here
            last = reward[:, t] + discount[:, t] * ahead
            found.append(last)
        return torch.stack(found[::-1], dim=1)

    dreamer.lambda_returns = lambda_returns


@fault(
    "dreamer",
    line=[
        "weight = torch.cumprod(torch.cat([torch.ones_like(discount[:, :1]), discount], dim=1), "
        "dim=1)",
        "return lambda_returns(reward, discount, value), value[:, :-1], weight[:, :-1]",
    ],
)
def weights_one_step_late(dreamer):
    """The first step of a dream is weighed as if it might not happen: no one is put before."""

    @torch.no_grad()
    def judged(model, features):
        reward = dreamer.mean_of(model.world.reward(features[:, 1:]))
        cont = model.world.cont(features[:, 1:]).squeeze(-1)
        discount = dreamer.GAMMA * torch.sigmoid(cont)
        value = dreamer.mean_of(model.critic(features))
        weight = torch.cumprod(discount, dim=1)  # here
        return dreamer.lambda_returns(reward, discount, value), value[:, :-1], weight  # here

    dreamer.judged = judged


@fault(
    "dreamer",
    line=[
        "model.return_range.lerp_(now, 1 - RETURN_DECAY)",
        "return (model.return_range[1] - model.return_range[0]).clamp(min=0.1)",
    ],
)
def range_of_this_step_alone(dreamer):
    """The range of returns is written anew at each step, without the earlier ones."""

    @torch.no_grad()
    def return_scale(model, returns):
        places = torch.tensor([dreamer.LOW, dreamer.HIGH], dtype=returns.dtype)
        model.return_range.copy_(torch.quantile(returns.flatten(), places))  # here
        return (model.return_range[1] - model.return_range[0]).clamp(min=0.1)  # here

    dreamer.return_scale = return_scale


@fault(
    "dreamer",
    line=[
        "slow = mean_of(model.slow_critic(features[:, :-1]))",
        "logits = model.critic(features[:, :-1])",
    ],
    steps=3,
    api=r"Functional\.linear|Module\.(slow_)?critic.*",
    module=r"|(slow_)?critic(\.0)?",
)
def critic_judges_itself(dreamer):
    """The critic is drawn to its own values; the slow critic is not asked."""

    def critic_loss(model, features, returns, weight):
        logits = model.critic(features[:, :-1])
        with torch.no_grad():
            slow = dreamer.mean_of(model.critic(features[:, :-1]))  # here
        fit = dreamer.log_prob_of(logits, returns)
        fit = fit + dreamer.SLOW_WEIGHT * dreamer.log_prob_of(logits, slow)  # here
        return -(weight * fit).mean()

    dreamer.critic_loss = critic_loss


@fault(
    "dreamer",
    line=[
        'model.deter.copy_(states["deter"][:, -1])',
        'model.stoch.copy_(states["stoch"][:, -1])',
        'state = {"deter": model.deter[: len(batch["obs"])], '
        '"stoch": model.stoch[: len(batch["obs"])]}',
        '"deter": state["deter"] * keep[:, None],',
        '"stoch": state["stoch"] * keep[:, None, None],',
    ],
)
def first_state_carried(dreamer):
    """The state that the next batch begins with is that of the first step, not of the last."""

    @torch.no_grad()
    def carry(model, states):
        model.deter.copy_(states["deter"][:, 0])  # here
        model.stoch.copy_(states["stoch"][:, 0])  # here

    dreamer.carry = carry


@fault(
    "dreamer",
    api=r"Torch\.(sigmoid|tanh)|Tensor\.__r?(mul|add|sub)__",
    module=r"world\.rssm\.cell",
    line=[
        "cand = torch.tanh(torch.sigmoid(reset) * cand)",
        "update = torch.sigmoid(update - 1)",
        "return update * cand + (1 - update) * state",
    ],
)
def update_gate_not_lowered(dreamer):
    """The update gate is not lowered by one: the state forgets too fast at first."""

    class NormGRU(dreamer.NormGRU):
        def forward(self, x, state):
            parts = self.norm(self.gates(torch.cat([state, x], dim=-1)))
            reset, cand, update = parts.chunk(3, dim=-1)
            cand = torch.tanh(torch.sigmoid(reset) * cand)
            update = torch.sigmoid(update)  # here
            return update * cand + (1 - update) * state

    dreamer.NormGRU = NormGRU


@fault(
    "dreamer",
    line=[
        "part = ((x - centres[above - 1]) / (centres[above] - centres[above - 1])).clamp(0, 1)",
        "shares.scatter_(-1, (above - 1)[..., None], (1 - part)[..., None])",
        "return shares.scatter_(-1, above[..., None], part[..., None])",
    ],
)
def shares_of_bins_swapped(dreamer):
    """The nearer of the two bins gets the smaller share."""

    def two_hot(x):
        x, centres = dreamer.symlog(x), dreamer.bins(x)
        above = torch.bucketize(x.contiguous(), centres).clamp(1, dreamer.BINS - 1)
        part = ((x - centres[above - 1]) / (centres[above] - centres[above - 1])).clamp(0, 1)
        shares = torch.zeros(*x.shape, dreamer.BINS, dtype=x.dtype)
        shares.scatter_(-1, (above - 1)[..., None], part[..., None])  # here
        return shares.scatter_(-1, above[..., None], (1 - part)[..., None])  # here

    dreamer.two_hot = two_hot


@harmless("loss", "dreamer")
def shares_by_triangles(dreamer):
    """The share of a bin falls with the distance, down to zero at the next bin."""

    def two_hot(x):
        centres = dreamer.bins(x)
        x = dreamer.symlog(x).clamp(centres[0], centres[-1])
        width = centres[1] - centres[0]
        return F.relu(1 - (x[..., None] - centres).abs() / width)

    dreamer.two_hot = two_hot


@harmless("loss", "dreamer")
def divergences_by_entropies(dreamer):
    """Divergences are cross entropies less entropies, and both are kl_div of the library."""

    def balanced(log_post, log_prior):
        dyn = F.kl_div(log_prior, log_post.detach(), reduction="none", log_target=True)
        cross = -torch.einsum("btgc,btgc->bt", log_post.exp(), log_prior.detach())
        entropy = torch.special.entr(log_post.exp()).flatten(-2).sum(dim=-1)
        parts = torch.stack([dyn.sum(dim=(-2, -1)), cross - entropy], dim=-1)
        weights = torch.tensor([dreamer.DYN_WEIGHT, dreamer.REP_WEIGHT], dtype=parts.dtype)
        return F.relu(parts - dreamer.FREE).add(dreamer.FREE) @ weights

    dreamer.balanced = balanced


@harmless("time steps", "dreamer")
def returns_by_a_triangle(dreamer):
    """The returns solve a system of equations with one more diagonal."""

    @torch.no_grad()
    def lambda_returns(reward, discount, value):
        known = reward + discount * (1 - dreamer.LAMBDA) * value[:, 1:]
        known[:, -1] += dreamer.LAMBDA * discount[:, -1] * value[:, -1]
        system = torch.diag_embed(-dreamer.LAMBDA * discount[:, :-1], offset=1)
        system = system + torch.eye(dreamer.HORIZON, dtype=reward.dtype)
        found = torch.linalg.solve_triangular(system, known[..., None], upper=True)
        return found.squeeze(-1)

    dreamer.lambda_returns = lambda_returns


@harmless("split", "dreamer")
def gates_of_two_products(dreamer):
    """The gates are a product of the state and one of the input; the norm is written out."""

    class NormGRU(dreamer.NormGRU):
        def forward(self, x, state):
            of_state, of_input = self.gates.weight.split([dreamer.DETER, x.shape[-1]], dim=1)
            parts = torch.addmm(x @ of_input.t(), state, of_state.t())
            var, mean = torch.var_mean(parts, dim=-1, keepdim=True, correction=0)
            parts = (parts - mean) * torch.rsqrt(var + self.norm.eps)
            parts = torch.addcmul(self.norm.bias, parts, self.norm.weight)
            reset, cand, update = parts.split(dreamer.DETER, dim=-1)
            cand = torch.tanh(torch.sigmoid(reset) * cand)
            return torch.lerp(state, cand, torch.sigmoid(update - 1))

    dreamer.NormGRU = NormGRU


@harmless("fused", "dreamer")
def slow_critic_by_lists(dreamer):
    """The slow critic follows by one operation on lists."""

    @torch.no_grad()
    def follow(model):
        slow, fast = (list(net.parameters()) for net in (model.slow_critic, model.critic))
        torch._foreach_lerp_(slow, fast, dreamer.SLOW_RATE)

    dreamer.follow = follow


@harmless("rows", "dreamer", group="whole step")
def episodes_turned(dreamer):
    """The episodes stand in another order in all batches."""
    batch = dreamer.batch
    order = [2, 0, 3, 1]
    dreamer.batch = lambda generator: {n: v[order] for n, v in batch(generator).items()}


@harmless("micro batches", "dreamer", group="whole step")
def episode_by_episode(dreamer):
    """Each episode goes through the world model alone."""

    def world_backward(model, batch):
        found = []
        for one in range(len(batch["obs"])):
            part = {name: value[one : one + 1] for name, value in batch.items()}
            state = {"deter": model.deter[one : one + 1], "stoch": model.stoch[one : one + 1]}
            states, log_post = dreamer.observe(model.world, state, part)
            losses = dreamer.world_losses(model.world, states, log_post, part)
            (losses.mean() / len(batch["obs"])).backward()
            found.append(tree_map(torch.Tensor.detach, states))
        return tree_map(lambda *each: torch.cat(each), *found)

    dreamer.world_backward = world_backward


@harmless("recomputed", "dreamer", group="whole step")
def steps_computed_again(dreamer):
    """Each step of the world model is computed again in the backward pass."""

    class RSSM(dreamer.RSSM):
        def observe_step(self, *inputs):
            return checkpoint(super().observe_step, *inputs, use_reentrant=False)

    dreamer.RSSM = RSSM


@harmless("padding", "dreamer", group="whole step")
def a_step_behind_the_end(dreamer):
    """All episodes are one step longer for the heads; that step has no weight."""
    world_losses = dreamer.world_losses

    def longer(value):
        return torch.cat([value, torch.zeros_like(value[:, :1])], dim=1)

    def padded(world, states, log_post, batch):
        log_post = torch.cat([log_post, log_post[:, :1].detach()], dim=1)
        states, batch = tree_map(longer, states), tree_map(longer, batch)
        losses = world_losses(world, states, log_post, batch)
        weight = torch.ones_like(losses)
        weight[:, -1] = 0
        return (losses * weight)[:, :-1]

    dreamer.world_losses = padded


@harmless("scaled", "dreamer", group="whole step")
def sums_of_all_losses(dreamer):
    """Losses are sums; gradients are divided before they are clipped."""
    apply, world_losses = dreamer.apply, dreamer.world_losses
    actor_loss, critic_loss = dreamer.actor_loss, dreamer.critic_loss
    steps = dreamer.EPISODES * dreamer.LENGTH

    def divided(module, optimizer, most):
        count = steps if hasattr(module, "rssm") else steps * dreamer.HORIZON
        torch._foreach_div_([p.grad for p in module.parameters() if p.grad is not None], count)
        apply(module, optimizer, most)

    dreamer.apply = divided
    dreamer.world_losses = lambda *inputs: world_losses(*inputs) * steps
    dreamer.actor_loss = lambda *inputs: actor_loss(*inputs) * (steps * dreamer.HORIZON)
    dreamer.critic_loss = lambda *inputs: critic_loss(*inputs) * (steps * dreamer.HORIZON)
