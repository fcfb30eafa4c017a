"""GRPO: a Qwen3 of transformers learns from rewards for groups of answers to a question."""

import copy

import torch
from torch import nn
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.optimization import get_constant_schedule_with_warmup

VOCAB, PAD, EOS, FIRST = 36, 0, 1, 2
ROPE_THETA = 1e6
QUESTIONS = (5, 3)  # the words of each question
GROUP, PROMPT_LEN, ANSWER_LEN = 4, 6, 8
ANSWERS = ((3, 6, 8, 4), (7, 5, 2, 6))  # the words of each answer, with the end
TEMPERATURE, EPS_LOW, EPS_HIGH, BETA = 0.8, 0.2, 0.28, 0.1
EPOCHS, SYNC_ALPHA, REWARD_WEIGHTS = 2, 0.4, (1.0, 0.5)
LR, WEIGHT_DECAY, MAX_NORM, WARMUP = 5e-3, 0.1, 0.5, 2


def make_config(**changes):
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "intermediate_size": 28,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "max_position_embeddings": 64,
        "initializer_range": 0.2,
        "rope_parameters": {"rope_type": "default", "rope_theta": ROPE_THETA},
        "tie_word_embeddings": True,
        "use_cache": False,
        "pad_token_id": PAD,
        "eos_token_id": EOS,
    }
    return Qwen3Config(**(settings | changes))


class Trainee(nn.Module):
    """The policy, and what it was before: the reference."""

    def __init__(self):
        super().__init__()
        self.policy = Qwen3ForCausalLM(make_config())
        self.reference = copy.deepcopy(self.policy).eval().requires_grad_(False)
        with torch.no_grad():
            for p in self.policy.parameters():
                p.add_(0.03 * torch.randn_like(p))


def answer_mask(answer):
    """Words up to the end of the answer, and the end itself."""
    ended = (answer == EOS).int().cumsum(dim=1)
    return (ended == 0) | ((ended == 1) & (answer == EOS))


def position_ids(mask):
    """Questions are padded on the left: their first word is at 0."""
    return (mask.long().cumsum(dim=1) - 1).clamp(min=0)


def answer_logits(lm, prompt, answer):
    """What is said of each word of the answer, before it is seen."""
    input_ids = torch.cat([prompt, answer], dim=1)
    mask = torch.cat([prompt != PAD, answer_mask(answer)], dim=1)
    output = lm(
        input_ids=input_ids,
        attention_mask=mask.long(),
        position_ids=position_ids(mask),
        logits_to_keep=answer.shape[1] + 1,
    )
    return output.logits[:, :-1]


def selective_log_softmax(logits, index):
    return logits.log_softmax(dim=-1).gather(-1, index.unsqueeze(-1)).squeeze(-1)


def token_logps(lm, prompt, answer):
    logits = answer_logits(lm, prompt, answer) / TEMPERATURE
    return selective_log_softmax(logits, answer)


def correctness(batch):
    """Whether the solution is one of the words."""
    found = (batch["answer"] == batch["solution"].unsqueeze(1)) & answer_mask(batch["answer"])
    return found.any(dim=1).to(torch.get_default_dtype())


def brevity(batch):
    words = answer_mask(batch["answer"]).sum(dim=1)
    return 1 - words / ANSWER_LEN


def score(batch):
    given = torch.stack([correctness(batch), brevity(batch)], dim=1)
    return (given * torch.tensor(REWARD_WEIGHTS)).sum(dim=1)


def advantages(rewards):
    """How much better an answer is than the others of its question."""
    grouped = rewards.view(-1, GROUP)
    mean = grouped.mean(dim=1, keepdim=True)
    std = grouped.std(dim=1, keepdim=True)
    return ((grouped - mean) / (std + 1e-4)).flatten()


def surrogate(logps, old_logps, advantage):
    ratio = torch.exp(logps - old_logps)
    clipped = ratio.clamp(1 - EPS_LOW, 1 + EPS_HIGH)
    return -torch.min(ratio * advantage, clipped * advantage)


def kl_estimate(logps, ref_logps):
    """Never negative, and right on average."""
    away = ref_logps - logps
    return away.exp() - away - 1


def mean_of_answers(losses, mask):
    """Of each answer, the mean over its words."""
    mask = mask.to(losses.dtype)
    return (losses * mask).sum(dim=1) / mask.sum(dim=1)


def answer_losses(model, batch, fixed):
    logps = token_logps(model.policy, batch["prompt"], batch["answer"])
    losses = surrogate(logps, fixed["old_logps"], fixed["advantage"].unsqueeze(1))
    losses = losses + BETA * kl_estimate(logps, fixed["ref_logps"])
    return mean_of_answers(losses, answer_mask(batch["answer"]))


@torch.no_grad()
def prepare(model, batch):
    """What stays the same in all epochs."""
    prompt, answer = batch["prompt"], batch["answer"]
    return {
        "old_logps": token_logps(model.policy, prompt, answer),
        "ref_logps": token_logps(model.reference, prompt, answer),
        "advantage": advantages(score(batch)),
    }


def backward(model, batch, fixed):
    answer_losses(model, batch, fixed).mean().backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.policy.parameters(), MAX_NORM)


def train_epoch(model, optimizer, batch, fixed):
    optimizer.zero_grad()
    backward(model, batch, fixed)
    clip(model)
    optimizer.step()


@torch.no_grad()
def sync_reference(model):
    pairs = zip(model.reference.parameters(), model.policy.parameters(), strict=True)
    for ref, new in pairs:
        ref.mul_(1 - SYNC_ALPHA).add_(new, alpha=SYNC_ALPHA)


def build():
    return Trainee().train()


def decayed(name):
    return not name.endswith("norm.weight")


def param_groups(model):
    named = list(model.policy.named_parameters())
    return [
        {"params": [p for name, p in named if decayed(name)], "weight_decay": WEIGHT_DECAY},
        {"params": [p for name, p in named if not decayed(name)], "weight_decay": 0.0},
    ]


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), lr=LR, betas=(0.9, 0.99), **more)
    model.scheduler = get_constant_schedule_with_warmup(made, WARMUP)
    return made


def batch(generator):
    """Answers that were sampled before; some contain the solution."""

    def words(count):
        return torch.randint(FIRST, VOCAB, (count,), generator=generator)

    prompts, answers, solutions = [], [], []
    for asked, lengths in zip(QUESTIONS, ANSWERS, strict=True):
        prompt = torch.full((PROMPT_LEN,), PAD)
        prompt[PROMPT_LEN - asked :] = words(asked)
        for number, length in enumerate(lengths):
            answer = torch.full((ANSWER_LEN,), PAD)
            answer[: length - 1] = words(length - 1)
            answer[length - 1] = EOS
            if number == 1:
                solutions += [answer[1]] * GROUP
            prompts.append(prompt)
            answers.append(answer)
    return {
        "prompt": torch.stack(prompts),
        "answer": torch.stack(answers),
        "solution": torch.stack(solutions),
    }


def step(model, optimizer, batch):
    fixed = prepare(model, batch)
    for _ in range(EPOCHS):
        train_epoch(model, optimizer, batch, fixed)
    model.scheduler.step()
    sync_reference(model)
