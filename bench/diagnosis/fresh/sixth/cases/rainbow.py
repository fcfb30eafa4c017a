"""Cases of the categorical deep Q network."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "rainbow",
    # The noise of both nets differs, and after the first step their weights do, too.
    api=r"Functional\.linear|Module\.(online|target)\..*",
    module=r"|(online|target)(\.body(\.0)?)?",
    line=[
        "return (agent.online(later).softmax(dim=-1) * agent.support).sum(dim=-1).argmax(dim=1)",
        'actions = best_actions(agent, sample["later"])',
        "chosen = logits.softmax(dim=-1)[torch.arange(len(actions)), actions]",
    ],
)
def target_net_chooses(rainbow):
    """The target net chooses the action that it judges: no double Q."""

    def best_actions(agent, later):
        values = agent.target(later).softmax(dim=-1) * agent.support
        return values.sum(dim=-1).argmax(dim=1)  # here

    rainbow.best_actions = best_actions


@fault(
    "rainbow",
    line=[
        "share = (upper - b) + (lower == upper)",
        "out.scatter_add_(1, lower, probabilities * share)",
    ],
)
def mass_on_an_atom_is_lost(rainbow):
    """A value that falls on an atom, as all at both ends do, is shared out to none."""

    def project(probabilities, targets, support):
        width = (rainbow.V_MAX - rainbow.V_MIN) / (rainbow.ATOMS - 1)
        b = (targets.clamp(rainbow.V_MIN, rainbow.V_MAX) - rainbow.V_MIN) / width
        lower, upper = b.floor().long(), b.ceil().long()
        out = torch.zeros_like(probabilities)
        out.scatter_add_(1, lower, probabilities * (upper - b))  # here
        return out.scatter_add_(1, upper, probabilities * (b - lower))

    rainbow.project = project


@fault(
    "rainbow",
    line=[
        "total = total + GAMMA**k * alive * rewards[k : k + count]",
        "alive = alive * (1 - ended[k : k + count])",
    ],
)
def rewards_of_the_next_episode(rainbow):
    """Rewards are added past the end of an episode."""

    def discounted(rewards, ended):
        count = len(rewards) - rainbow.N_STEP + 1
        total, alive = torch.zeros(count), torch.ones(count)
        for k in range(rainbow.N_STEP):
            total = total + rainbow.GAMMA**k * rewards[k : k + count]  # here
            alive = alive * (1 - ended[k : k + count])
        return total, 1 - alive

    rainbow.discounted = discounted


@fault(
    "rainbow",
    steps=3,
    line=[
        "powers = self.priorities**ALPHA",
        "self.priorities[where] = losses + PRIORITY_EPS",
        "return powers / powers.sum()",
        "self.priorities[where] = self.priorities.max()",
    ],
)
def priorities_raised_twice(rainbow):
    """Priorities are kept raised to the power, and raised again when they are read."""

    class Replay(rainbow.Replay):
        @torch.no_grad()
        def renew(self, where, losses):
            self.priorities[where] = (losses + rainbow.PRIORITY_EPS) ** rainbow.ALPHA  # here

    rainbow.Replay = Replay


@fault(
    "rainbow",
    steps=3,
    line=[
        "self.priorities[where] = losses + PRIORITY_EPS",
        "agent.replay.renew(where, each)",
        "powers = self.priorities**ALPHA",
        "self.priorities[where] = self.priorities.max()",
    ],
)
def priorities_of_the_first_places(rainbow):
    """New priorities go to the first places of the ring, not to those that were drawn."""

    class Replay(rainbow.Replay):
        @torch.no_grad()
        def renew(self, where, losses):
            self.priorities[: len(losses)] = losses + rainbow.PRIORITY_EPS  # here

    rainbow.Replay = Replay


@fault(
    "rainbow",
    update=True,
    steps=3,
    api=r"Tensor\.lerp_|Functional\.linear",
    module=r"|target\.body\.0",
    line=["slow.lerp_(fast, TAU)"],
)
def rate_of_the_other_net(rainbow):
    """The rate is that of what stays, not of what comes: the target follows too fast."""

    @torch.no_grad()
    def follow(agent):
        pairs = zip(agent.target.parameters(), agent.online.parameters(), strict=True)
        for slow, fast in pairs:
            slow.lerp_(fast, 1 - rainbow.TAU)  # here

    rainbow.follow = follow


@fault(
    "rainbow",
    api=r"Tensor\.(mean|__sub__)",
    module=r"online",
    line=["return value + advantage - advantage.mean(dim=1, keepdim=True)"],
)
def mean_over_the_atoms(rainbow):
    """The mean of advantages is taken over the atoms, not over the actions."""

    class Network(rainbow.Network):
        def combine(self, value, advantage):
            return value + advantage - advantage.mean(dim=2, keepdim=True)  # here

    rainbow.Network = Network


@fault(
    "rainbow",
    # The noise of the target is zero from the beginning.
    api=r"Torch\.outer|Tensor\.__r?mul__|Tensor\.copy_|Tensor\.split",
    module=r"target\.(value|advantage)|",
    line=[
        "agent.target.draw(numbers[1])",
        "taken, rest = numbers.split([len(self.noise_in), len(numbers) - len(self.noise_in)])",
        "return x.sign() * x.abs().sqrt()",
        "self.noise_in.copy_(scaled_noise(taken))",
        "self.noise_out.copy_(scaled_noise(taken))",
        "weight = self.weight + self.weight_sigma * torch.outer(self.noise_out, self.noise_in)",
        "return F.linear(x, weight, self.bias + self.bias_sigma * self.noise_out)",
    ],
)
def target_without_noise(rainbow):
    """The noise of the target net is never drawn."""
    rainbow.draw_noise = lambda agent, numbers: agent.online.draw(
        numbers[0]  # here
    )


@harmless("fused", "rainbow")
def shared_out_by_triangles(rainbow):
    """An atom gets of each value one less the distance, if that is less than one width."""

    def project(probabilities, targets, support):
        width = support[1] - support[0]
        targets = targets.clamp(rainbow.V_MIN, rainbow.V_MAX)
        near = 1 - (targets[:, None, :] - support[None, :, None]).abs() / width
        return torch.einsum("bij,bj->bi", near.clamp(min=0), probabilities)

    rainbow.project = project


@harmless("split", "rainbow")
def noise_beside_the_product(rainbow):
    """The disturbance is a product of its own, between the two vectors of noise."""

    class NoisyLinear(rainbow.NoisyLinear):
        def forward(self, x):
            disturbed = F.linear(x * self.noise_in, self.weight_sigma, self.bias_sigma)
            return F.linear(x, self.weight, self.bias) + disturbed * self.noise_out

    rainbow.NoisyLinear = NoisyLinear


@harmless("loss", "rainbow")
def entropies_by_logsumexp(rainbow):
    """Probabilities add up to one: the entropy is logsumexp less the mean of logits."""

    def entropies(logits, goal):
        return torch.logsumexp(logits, dim=-1) - torch.einsum("ba,ba->b", goal, logits)

    rainbow.entropies = entropies


@harmless("time steps", "rainbow")
def returns_by_windows(rainbow):
    """The sums of rewards are taken for all times at once, from windows."""

    def discounted(rewards, ended):
        ends = ended.unfold(0, rainbow.N_STEP, 1)
        alive = (1 - ends).cumprod(dim=1)
        before = torch.cat([torch.ones(len(alive), 1), alive[:, :-1]], dim=1)
        discount = rainbow.GAMMA ** torch.arange(rainbow.N_STEP)
        total = (rewards.unfold(0, rainbow.N_STEP, 1) * before) @ discount.to(rewards.dtype)
        return total, 1 - alive[:, -1]

    rainbow.discounted = discounted


@harmless("fused", "rainbow")
def target_follows_by_lists(rainbow):
    """The target follows by operations on lists."""

    @torch.no_grad()
    def follow(agent):
        slow, fast = list(agent.target.parameters()), list(agent.online.parameters())
        torch._foreach_mul_(slow, 1 - rainbow.TAU)
        torch._foreach_add_(slow, fast, alpha=rainbow.TAU)

    rainbow.follow = follow


@harmless("rows", "rainbow", group="whole step")
def drawn_in_another_order(rainbow):
    """What is drawn is learned in another order."""
    learn = rainbow.learn

    def shuffled(agent, optimizer, where, weights):
        order = torch.tensor([5, 2, 7, 0, 3, 6, 1, 4])
        learn(agent, optimizer, where[order], weights[order])

    rainbow.learn = shuffled


@harmless("micro batches", "rainbow", group="whole step")
def three_and_five(rainbow):
    """Three transitions are learned from, and then the other five, before the update."""

    def backward(agent, sample, weights):
        found = []
        for chosen in (slice(0, 3), slice(3, None)):
            each = rainbow.losses(agent, {k: v[chosen] for k, v in sample.items()})
            ((weights[chosen] * each).sum() / len(weights)).backward()
            found.append(each.detach())
        return torch.cat(found)

    rainbow.backward = backward


@harmless("padding", "rainbow", group="whole step")
def filled_up_to_eleven(rainbow):
    """Three more transitions of no weight fill the sample up."""
    backward = rainbow.backward

    def filled(agent, sample, weights):
        count = len(weights)
        more = {k: torch.cat([v, v[:3]]) for k, v in sample.items()}
        raised = F.pad(weights * ((count + 3) / count), (0, 3))
        return backward(agent, more, raised)[:count]

    rainbow.backward = filled


@harmless("scaled", "rainbow", group="whole step")
def summed_and_divided_later(rainbow):
    """The losses are summed; the gradients are divided by their number."""

    def backward(agent, sample, weights):
        each = rainbow.losses(agent, sample)
        torch.dot(weights, each).backward()
        for p in agent.online.parameters():
            p.grad.div_(len(weights))
        return each.detach()

    rainbow.backward = backward
