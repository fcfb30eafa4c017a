"""Cases of the answers that are rewarded in groups."""

import functools
import types

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "grpo",
    line=[
        "return output.logits[:, :-1]",
        "logits = answer_logits(lm, prompt, answer) / TEMPERATURE",
    ],
)
def logits_one_word_late(grpo):
    """A word is judged by what is said after it."""

    def answer_logits(lm, prompt, answer):
        mask = torch.cat([prompt != grpo.PAD, grpo.answer_mask(answer)], dim=1)
        output = lm(
            input_ids=torch.cat([prompt, answer], dim=1),
            attention_mask=mask.long(),
            position_ids=grpo.position_ids(mask),
            logits_to_keep=answer.shape[1] + 1,
        )
        return output.logits[:, 1:]  # here

    grpo.answer_logits = answer_logits


@fault(
    "grpo",
    # The division is missing; the softmax is the first that lacks it.
    line=[
        "logits = answer_logits(lm, prompt, answer) / TEMPERATURE",
        "return logits.log_softmax(dim=-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)",
    ],
)
def temperature_is_forgotten(grpo):
    """Answers are sampled with a temperature, and judged without it."""

    def token_logps(lm, prompt, answer):
        logits = grpo.answer_logits(lm, prompt, answer)  # here
        return grpo.selective_log_softmax(logits, answer)  # here

    grpo.token_logps = token_logps


@fault(
    "grpo",
    line="output = lm(",
    api=r"Module\.policy\.model\.rotary_emb\..*|Tensor\.(to|float|expand|__r?mul__|mul)"
    r"|Tensor\.(__r?matmul__|matmul|cos|sin|__getitem__)|Torch\.(cat|mul|matmul|cos|sin)",
    module=r"policy\.model(\.rotary_emb)?",
    module_only=r"policy\.model\.rotary_emb",
)
def rotation_base_by_default(grpo):
    """The base of the rotations is the default of the library, not that of the model."""
    grpo.ROPE_THETA = 10000.0


@fault(
    "grpo",
    line=[
        "grouped = rewards.view(-1, GROUP)",
        "mean = grouped.mean(dim=1, keepdim=True)",
        "std = grouped.std(dim=1, keepdim=True)",
    ],
)
def groups_taken_crosswise(grpo):
    """Answers stand question by question, but are compared as if questions took turns."""

    def advantages(rewards):
        grouped = rewards.view(grpo.GROUP, -1)  # here
        mean = grouped.mean(dim=0, keepdim=True)  # here
        std = grouped.std(dim=0, keepdim=True)  # here
        return ((grouped - mean) / (std + 1e-4)).flatten()

    grpo.advantages = advantages


@fault("grpo", line="away = ref_logps - logps")
def estimate_turned_round(grpo):
    """The estimate of the divergence takes the difference the wrong way round."""

    def kl_estimate(logps, ref_logps):
        away = logps - ref_logps  # here
        return away.exp() - away - 1

    grpo.kl_estimate = kl_estimate


@fault(
    "grpo",
    line=[
        'return mean_of_answers(losses, answer_mask(batch["answer"]))',
        "mask = mask.to(losses.dtype)",
        "return (losses * mask).sum(dim=1) / mask.sum(dim=1)",
    ],
)
def end_has_no_loss(grpo):
    """The end of an answer is left out of the mean: nobody learns to stop."""
    mean_of_answers = grpo.mean_of_answers

    def answer_losses(model, batch, fixed):
        logps = grpo.token_logps(model.policy, batch["prompt"], batch["answer"])
        advantage = fixed["advantage"].unsqueeze(1)
        losses = grpo.surrogate(logps, fixed["old_logps"], advantage)
        losses = losses + grpo.BETA * grpo.kl_estimate(logps, fixed["ref_logps"])
        return mean_of_answers(losses, batch["answer"] > grpo.EOS)  # here

    grpo.answer_losses = answer_losses


@fault(
    "grpo",
    # In the first epoch both are the same.
    line=[
        'losses = surrogate(logps, fixed["old_logps"], fixed["advantage"].unsqueeze(1))',
        "ratio = torch.exp(logps - old_logps)",
    ],
    api=r"Tensor\.detach",
)
def old_policy_is_the_new_one(grpo):
    """The ratio is that of the policy to itself in every epoch: nothing is ever clipped."""

    def answer_losses(model, batch, fixed):
        logps = grpo.token_logps(model.policy, batch["prompt"], batch["answer"])
        advantage = fixed["advantage"].unsqueeze(1)
        losses = grpo.surrogate(logps, logps.detach(), advantage)  # here
        losses = losses + grpo.BETA * grpo.kl_estimate(logps, fixed["ref_logps"])
        return grpo.mean_of_answers(losses, grpo.answer_mask(batch["answer"]))

    grpo.answer_losses = answer_losses


@fault(
    "grpo",
    line=["ref.mul_(1 - SYNC_ALPHA).add_(new, alpha=SYNC_ALPHA)"],
)
def reference_keeps_the_wrong_part(grpo):
    """The shares of the reference and the policy are exchanged."""

    @torch.no_grad()
    def sync_reference(model):
        pairs = zip(model.reference.parameters(), model.policy.parameters(), strict=True)
        for ref, new in pairs:
            ref.mul_(grpo.SYNC_ALPHA).add_(new, alpha=1 - grpo.SYNC_ALPHA)  # here

    grpo.sync_reference = sync_reference


@fault("grpo", api=r"Optimizer\.AdamW\.step", update=True)
def norms_are_decayed(grpo):
    """Weights of norms decay as all others do."""

    def decayed(name):
        return True

    grpo.decayed = decayed


@harmless("fused", "grpo")
def norms_by_pytorch(grpo):
    """The RMS norms are those of PyTorch."""

    def forward(self, x):
        return F.rms_norm(x, x.shape[-1:], self.weight, self.variance_epsilon)

    class Qwen3ForCausalLM(grpo.Qwen3ForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            for module in self.modules():
                if type(module).__name__ == "Qwen3RMSNorm":
                    module.forward = types.MethodType(forward, module)

    grpo.Qwen3ForCausalLM = Qwen3ForCausalLM


@harmless("loss", "grpo")
def chances_by_a_difference(grpo):
    """The logarithm of a chance is a logit less the logarithm of a sum."""

    def selective_log_softmax(logits, index):
        chosen = logits.gather(-1, index.unsqueeze(-1)).squeeze(-1)
        return chosen - logits.logsumexp(dim=-1)

    grpo.selective_log_softmax = selective_log_softmax


@harmless("fused", "grpo")
def estimate_by_expm1(grpo):
    """The one is taken off by the exponential function."""

    def kl_estimate(logps, ref_logps):
        away = ref_logps - logps
        return torch.expm1(away) - away

    grpo.kl_estimate = kl_estimate


@harmless("reordered", "grpo")
def reference_is_asked_first(grpo):
    """Rewards come first, then the reference, and the old policy is the last."""

    @torch.no_grad()
    def prepare(model, batch):
        prompt, answer = batch["prompt"], batch["answer"]
        fixed = {"advantage": grpo.advantages(grpo.score(batch))}
        fixed["ref_logps"] = grpo.token_logps(model.reference, prompt, answer)
        return fixed | {"old_logps": grpo.token_logps(model.policy, prompt, answer)}

    grpo.prepare = prepare


@harmless("inserted", "grpo")
def all_logits_are_computed(grpo):
    """Logits of the question are computed, too, and cut off."""

    def answer_logits(lm, prompt, answer):
        mask = torch.cat([prompt != grpo.PAD, grpo.answer_mask(answer)], dim=1)
        output = lm(
            input_ids=torch.cat([prompt, answer], dim=1),
            attention_mask=mask.long(),
            position_ids=grpo.position_ids(mask),
        )
        return output.logits[:, prompt.shape[1] - 1 : -1].contiguous()

    grpo.answer_logits = answer_logits


@harmless("rows", "grpo", group="whole step")
def answers_in_another_order(grpo):
    """The questions change places, and so do the answers of each."""
    step = grpo.step

    def shuffled(model, optimizer, batch):
        order = torch.tensor([6, 4, 7, 5, 1, 3, 0, 2])
        step(model, optimizer, {name: value[order] for name, value in batch.items()})

    grpo.step = shuffled


@harmless("micro batches", "grpo", group="whole step")
def one_question_at_a_time(grpo):
    """The answers to each question go backward on their own."""

    def backward(model, batch, fixed):
        questions = len(grpo.QUESTIONS)
        for number in range(questions):
            rows = slice(number * grpo.GROUP, (number + 1) * grpo.GROUP)
            part = {name: value[rows] for name, value in batch.items()}
            kept = {name: value[rows] for name, value in fixed.items()}
            (grpo.answer_losses(model, part, kept).mean() / questions).backward()

    grpo.backward = backward


@harmless("padding", "grpo", group="whole step")
def questions_padded_further(grpo):
    """Questions have three more columns of padding on the left."""
    step = grpo.step

    def padded(model, optimizer, batch):
        prompt = F.pad(batch["prompt"], (3, 0), value=grpo.PAD)
        step(model, optimizer, batch | {"prompt": prompt})

    grpo.step = padded


@harmless("padding", "grpo", group="whole step")
def positions_count_the_padding(grpo):
    """Positions count from the padding on the left: rotations know differences alone."""

    def position_ids(mask):
        return torch.arange(mask.shape[1]).expand_as(mask)

    grpo.position_ids = position_ids


@harmless("scaled", "grpo", group="whole step")
def losses_are_added_up(grpo):
    """The sum of the losses goes backward; gradients are divided before they are clipped."""
    clip = grpo.clip

    def backward(model, batch, fixed):
        grpo.answer_losses(model, batch, fixed).sum().backward()

    def divided(model):
        answers = len(grpo.QUESTIONS) * grpo.GROUP
        for p in model.policy.parameters():
            p.grad.div_(answers)
        clip(model)

    grpo.backward, grpo.clip = backward, divided


@harmless("recomputed", "grpo", group="whole step")
def feed_forward_computed_again(grpo):
    """The feed-forward layers of the policy are computed again in the backward pass."""
    build = grpo.build

    def built():
        model = build()
        for layer in model.policy.model.layers:
            layer.mlp.forward = functools.partial(again, layer.mlp.forward)
        return model

    def again(forward, x):
        return checkpoint(forward, x, use_reentrant=False)

    grpo.build = built
