"""Cases of the group-relative policy."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F

LAST = r"policy(\.head)?|"  # what the loss is computed from


def answers_by_length(grpo):
    """The answers of each group stand by their lengths, the longest first; groups are exchanged."""
    step = grpo.step

    def sorted_step(model, optimizer, batch):
        lengths = batch[1].view(-1, grpo.SIZE)
        order = lengths.argsort(dim=1, descending=True, stable=True)
        order = order + torch.arange(len(order))[:, None] * grpo.SIZE
        step(model, optimizer, tuple(each[order.flip(0).flatten()] for each in batch))

    grpo.step = sorted_step


def columns_of_the_longest(grpo):
    """Groups go backward one by one, each without the columns that none of its answers needs."""
    loss_of = grpo.loss_of
    grpo.loss_of = lambda *arguments: loss_of(*arguments) / grpo.GROUPS

    def descend(model, *values):
        for tokens, *others, advantages, mask in zip(
            *(each.split(grpo.SIZE) for each in values), strict=True
        ):
            wide = int(mask.sum(dim=1).max())
            tokens = tokens[:, : grpo.PROMPT + wide]
            old, reference, mask = (each[:, :wide] for each in (*others, mask))
            new = grpo.log_p(model.policy, tokens)
            grpo.loss_of(new, old, reference, advantages, mask).backward()

    grpo.descend = descend


@fault(
    "grpo",
    module_only=r"(policy|reference)(\.head)?|",
    line=[
        "logits = model(tokens)[:, PROMPT - 1 : -1] / TEMPERATURE",
        "return logits.log_softmax(dim=-1).gather",
    ],
)
def answers_one_token_late(grpo):
    """The logits are those that have seen the token itself: they are not shifted."""

    def log_p(model, tokens):
        logits = model(tokens)[:, grpo.PROMPT :] / grpo.TEMPERATURE  # here
        right = tokens[:, grpo.PROMPT :, None]
        return logits.log_softmax(dim=-1).gather(-1, right).squeeze(-1)  # here

    grpo.log_p = log_p


@fault(
    "grpo",
    module_only=LAST,
    line=[
        "mean, deviation = groups.mean(dim=1, keepdim=True)",
        "return ((groups - mean) / (deviation + EPS)).flatten()",
    ],
)
def deviation_of_all_groups(grpo):
    """Rewards are divided by the deviation of all groups, in place of that of their own."""

    def advantages_of(rewards):
        groups = rewards.view(-1, grpo.SIZE)
        mean, deviation = groups.mean(dim=1, keepdim=True), groups.std()  # here
        return ((groups - mean) / (deviation + grpo.EPS)).flatten()  # here

    grpo.advantages_of = advantages_of


@fault(
    "grpo",
    module=r"policy(\.tokens)?",
    module_only=r"policy.*|",
    api=r"Functional\.embedding",  # the pass that is one too many begins there
    line="ratio, advantages = torch.exp(new - old), advantages[:, None]",
)
def old_policy_of_each_pass(grpo):
    """The old policy is asked again in each pass: the ratio is always 1, which the second shows."""
    descend = grpo.descend

    def asked_again(model, tokens, old, reference, advantages, mask):
        with torch.no_grad():
            old = grpo.log_p(model.policy, tokens)  # here
        descend(model, tokens, old, reference, advantages, mask)  # here

    grpo.descend = asked_again


def policy_begins_as_the_reference(grpo):
    class Policies(grpo.Policies):
        def keep(self):
            self.reference.load_state_dict(self.policy.state_dict())

    grpo.Policies = Policies


@fault(
    "grpo",
    both=policy_begins_as_the_reference,
    module=r"reference.*",
    api=r".*",
    line="return log_p(model.policy, tokens), log_p",
)
def reference_shares_the_weights(grpo):
    """The reference keeps views of the policy's weights, in place of copies: it moves with them."""

    class Policies(grpo.Policies):
        def keep(self):
            pairs = zip(self.reference.parameters(), self.policy.parameters(), strict=True)
            for kept, weight in pairs:
                kept.data = weight.data

    grpo.Policies = Policies


@fault(
    "grpo",
    beside=answers_by_length,
    module_only=LAST,
    line=[
        "return torch.exp(reference - new) - (reference - new) - 1",
        "each = BETA * distance(new, reference) - gain",
    ],
)
def distance_the_other_way(grpo):
    """The distance is that of the reference from the policy: the difference has the other sign."""

    def distance(new, reference):
        return torch.exp(new - reference) - (new - reference) - 1  # here

    grpo.distance = distance


@fault(
    "grpo",
    beside=columns_of_the_longest,
    module_only=LAST,
    line=[
        "return (torch.arange(ANSWER) < lengths[:, None])",
        "return ((each * mask).sum(dim=1) / mask.sum(dim=1)).mean()",
    ],
)
def one_token_after_the_end(grpo):
    """The mask has one token too many, the first after the end of the answer."""

    def mask_of(lengths):
        known = torch.arange(grpo.ANSWER) <= lengths[:, None]  # here
        return known.to(torch.get_default_dtype())  # here

    grpo.mask_of = mask_of


harmless("rows", "grpo")(answers_by_length)
harmless("padding", "grpo")(columns_of_the_longest)


@harmless("fused", "grpo")
def causal_attention_of_pytorch(grpo):
    """scaled_dot_product_attention with is_causal; gate and up are one product."""

    class Block(grpo.Block):
        def attend(self, x):
            joined = self.qkv(x).unflatten(-1, (3, grpo.HEADS, -1)).permute(2, 0, 3, 1, 4)
            mixed = F.scaled_dot_product_attention(*joined, is_causal=True)
            return self.out(mixed.transpose(1, 2).flatten(2))

        def feed(self, x):
            both = F.linear(x, torch.cat([self.gate.weight, self.up.weight]))
            gate, up = both.chunk(2, dim=-1)
            return self.down(nn.functional.silu(gate) * up)

    grpo.Block = Block


@harmless("loss", "grpo")
def probabilities_by_cross_entropy(grpo):
    """Logarithms of probabilities by cross_entropy; the distance by expm1, the gain by where."""

    def log_p(model, tokens):
        logits = model(tokens)[:, grpo.PROMPT - 1 : -1].mul(1 / grpo.TEMPERATURE)
        return -F.cross_entropy(logits.mT, tokens[:, grpo.PROMPT :], reduction="none")

    grpo.log_p = log_p
    grpo.distance = lambda new, reference: torch.expm1(reference - new) + (new - reference)
