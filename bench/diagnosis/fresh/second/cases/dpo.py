"""Cases of the preferences."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("dpo", line=["return (chosen * answer[:, 1:]).sum(dim=-1)"])
def question_counts(dpo):
    """The tokens of the question count, too."""

    def answer_log_p(model, tokens, known, answer):
        outputs = model(input_ids=tokens, attention_mask=known, position_ids=dpo.positions(known))
        log_p = outputs.logits[:, :-1].log_softmax(dim=-1)
        chosen = log_p.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return (chosen * known[:, 1:]).sum(dim=-1)  # here

    dpo.answer_log_p = answer_log_p


@fault("dpo", line=["return (chosen * answer[:, 1:]).sum(dim=-1)"])
def answer_not_shifted(dpo):
    """The mask of the answer is not shifted with the labels: it is one token late."""

    def answer_log_p(model, tokens, known, answer):
        outputs = model(input_ids=tokens, attention_mask=known, position_ids=dpo.positions(known))
        log_p = outputs.logits[:, :-1].log_softmax(dim=-1)
        chosen = log_p.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return (chosen * answer[:, :-1]).sum(dim=-1)  # here

    dpo.answer_log_p = answer_log_p


@fault(
    "dpo",
    line=[
        "return (known.cumsum(dim=1) - 1).clamp(min=0)",
        "outputs = model(input_ids=tokens, attention_mask=known",
    ],
    api="Functional.embedding",
    module=r"(policy|reference).*wpe",
)
def positions_of_the_padding(dpo):
    """Positions count the padding."""
    dpo.positions = lambda known: torch.arange(known.shape[1]).expand_as(known)  # here


@fault("dpo", module=r"reference.*", api="Functional.dropout", line=["self.reference.eval()"])
def reference_with_dropout(dpo):
    """The reference is in training mode with the policy."""

    class Pair(dpo.Pair):
        def train(self, mode=True):
            return torch.nn.Module.train(self, mode)  # here

    dpo.Pair = Pair


@fault(
    "dpo",
    line=["loss = -(1 - SMOOTHING) * F.logsigmoid(margin) - SMOOTHING * F.logsigmoid(-margin)"],
)
def smoothing_of_the_same_side(dpo):
    """The smoothing prefers the chosen answer, too."""

    def preference_loss(policy, reference):
        chosen, rejected = (policy - reference).chunk(2)
        margin = dpo.BETA * (chosen - rejected)
        s, same = dpo.SMOOTHING, F.logsigmoid(margin)
        loss = -(1 - s) * same - s * F.logsigmoid(margin)  # here
        return loss.mean()

    dpo.preference_loss = preference_loss


@fault(
    "dpo",
    line=["margin = BETA * (chosen - rejected)", "loss = -(1 - SMOOTHING) * F.logsigmoid(margin)"],
)
def temperature_outside(dpo):
    """Beta scales the loss, not the margin."""

    def preference_loss(policy, reference):
        chosen, rejected = (policy - reference).chunk(2)
        margin = chosen - rejected  # here
        s = dpo.SMOOTHING
        loss = -(1 - s) * F.logsigmoid(margin) - s * F.logsigmoid(-margin)  # here
        return dpo.BETA * loss.mean()  # here

    dpo.preference_loss = preference_loss


@fault("dpo", line=["return -chosen.sum() / answer[: len(chosen), 1:].sum()"])
def entropy_over_all_answers(dpo):
    """The chosen answers' entropy is divided by the tokens of both answers."""
    dpo.sft_loss = lambda policy, answer: -policy.chunk(2)[0].sum() / answer[:, 1:].sum()  # here


@fault("dpo", line=["slow.copy_(MIX * fast + (1 - MIX) * slow)"])
def reference_follows_the_wrong_way(dpo):
    """The reference keeps the policy's share."""

    @torch.no_grad()
    def follow(model):
        sides = zip(model.reference.parameters(), model.policy.parameters(), strict=True)
        for slow, fast in sides:
            slow.copy_((1 - dpo.MIX) * fast + dpo.MIX * slow)  # here

    dpo.follow = follow


@fault("dpo", api="Optimizer.AdamW.step", update=True)
def positions_decayed(dpo):
    """The table of positions is decayed."""
    dpo.decayed = lambda name, weight: weight.dim() >= 2


@harmless("fused", "dpo")
def eager_attention(dpo):
    """The attention of transformers is written out, not that of PyTorch."""
    config = dpo.config
    dpo.config = lambda **changes: config(attn_implementation="eager", **changes)


@harmless("loss", "dpo")
def loss_by_softplus(dpo):
    """The loss as a softplus; both terms share it."""

    def preference_loss(policy, reference):
        half = len(policy) // 2
        margin = policy[:half] - policy[half:] - reference[:half] + reference[half:]
        return (F.softplus(-dpo.BETA * margin) + dpo.SMOOTHING * dpo.BETA * margin).mean()

    dpo.preference_loss = preference_loss


@harmless("loss", "dpo")
def log_p_of_cross_entropy(dpo):
    """cross_entropy gives the logarithms of the answer's tokens, which are picked by an index."""

    def answer_log_p(model, tokens, known, answer):
        outputs = model(input_ids=tokens, attention_mask=known, position_ids=dpo.positions(known))
        labels = tokens[:, 1:].masked_fill(answer[:, 1:] == 0, -100)
        logits = outputs.logits[:, :-1].transpose(1, 2)
        return -F.cross_entropy(logits, labels, reduction="none", ignore_index=-100).sum(1)

    dpo.answer_log_p = answer_log_p


@harmless("split", "dpo")
def queries_keys_values_apart(dpo):
    """The joined projection of the attention is three products."""

    class Three(dpo.GPT2LMHeadModel):
        def __init__(self, config):
            super().__init__(config)
            for block in self.transformer.h:
                joined = block.attn.c_attn

                def apart(x, joined=joined):
                    weights = joined.weight.split(dpo.WIDTH, dim=1)
                    biases = joined.bias.split(dpo.WIDTH)
                    return torch.cat(
                        [x @ w + b for w, b in zip(weights, biases, strict=True)], dim=-1
                    )

                joined.forward = apart

    dpo.GPT2LMHeadModel = Three


@harmless("micro batches", "dpo", group="whole step")
def pair_after_pair(dpo):
    """Each pair is a micro-batch of its own."""

    def backward(model, data):
        tokens_of_all = data[2][: dpo.PAIRS, 1:].sum()
        for number in range(dpo.PAIRS):
            rows = torch.tensor([number, number + dpo.PAIRS])
            own = [value[rows] for value in data]
            with torch.no_grad():
                reference = dpo.answer_log_p(model.reference, *own)
            policy = dpo.answer_log_p(model.policy, *own)
            loss = dpo.preference_loss(policy, reference) / dpo.PAIRS
            (loss - dpo.SFT * policy[0] / tokens_of_all).backward()

    dpo.backward = backward


@harmless("micro batches", "dpo", group="whole step")
def chosen_and_rejected_apart(dpo):
    """The chosen rows and the rejected rows are two calls of each model, the policy first."""

    def loss_of(model, data):
        halves = list(zip(*(value.split(dpo.PAIRS) for value in data), strict=True))
        policy = torch.cat([dpo.answer_log_p(model.policy, *half) for half in halves])
        with torch.no_grad():
            reference = torch.cat([dpo.answer_log_p(model.reference, *half) for half in halves])
        return dpo.preference_loss(policy, reference) + dpo.SFT * dpo.sft_loss(policy, data[2])

    dpo.loss_of = loss_of


@harmless("padding", "dpo", group="whole step")
def three_more_places_of_padding(dpo):
    """Texts have three more places of padding on the left."""
    backward = dpo.backward
    dpo.backward = lambda model, data: backward(model, [F.pad(value, (3, 0)) for value in data])


@harmless("rows", "dpo", group="whole step")
def pairs_turned(dpo):
    """The pairs stand in the other order."""
    step = dpo.step

    def turned(model, optimizer, data):
        order = torch.cat([torch.arange(dpo.PAIRS).flip(0) + start for start in (0, dpo.PAIRS)])
        step(model, optimizer, [value[order] for value in data])

    dpo.step = turned


@harmless("recomputed", "dpo", group="whole step")
def blocks_computed_again(dpo):
    """The blocks of the policy are computed again in the backward pass."""
    build = dpo.build

    def again():
        model = build()
        model.policy.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    dpo.build = again
