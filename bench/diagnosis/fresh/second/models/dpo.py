"""Preferences (DPO) of a GPT-2 of transformers: left padding, a reference model that follows."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

VOCABULARY, WIDTH, LENGTH, PAIRS = 37, 16, 10, 3
BETA, SMOOTHING, SFT, MIX, LARGEST = 0.5, 0.1, 0.2, 0.4, 1.0


def config(**changes):
    return GPT2Config(
        vocab_size=VOCABULARY,
        n_positions=16,
        n_embd=WIDTH,
        n_layer=2,
        n_head=2,
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        **{"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0} | changes,
    )


class Pair(nn.Module):
    """The policy, and the reference, which has dropout and never uses it."""

    def __init__(self):
        super().__init__()
        self.policy = GPT2LMHeadModel(config())
        for weight in self.policy.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.2)
        self.reference = GPT2LMHeadModel(config(resid_pdrop=0.1))
        self.reference.load_state_dict(self.policy.state_dict())
        with torch.no_grad():  # an earlier checkpoint
            for weight in self.reference.parameters():
                weight.mul_(0.9)
        self.reference.requires_grad_(False)

    def train(self, mode=True):
        super().train(mode)
        self.reference.eval()
        return self


def positions(known):
    """Places of tokens behind the padding on the left."""
    return (known.cumsum(dim=1) - 1).clamp(min=0)


def answer_log_p(model, tokens, known, answer):
    """The sum of the logarithms of the answer's tokens."""
    outputs = model(input_ids=tokens, attention_mask=known, position_ids=positions(known))
    log_p = outputs.logits[:, :-1].log_softmax(dim=-1)
    chosen = log_p.gather(-1, tokens[:, 1:, None]).squeeze(-1)
    return (chosen * answer[:, 1:]).sum(dim=-1)


def preference_loss(policy, reference):
    """`policy` and `reference`: the chosen answers, then the rejected ones."""
    ratio = policy - reference
    chosen, rejected = ratio.chunk(2)
    margin = BETA * (chosen - rejected)
    loss = -(1 - SMOOTHING) * F.logsigmoid(margin) - SMOOTHING * F.logsigmoid(-margin)
    return loss.mean()


def sft_loss(policy, answer):
    """The chosen answers' entropy, for each token."""
    chosen = policy.chunk(2)[0]
    return -chosen.sum() / answer[: len(chosen), 1:].sum()


def loss_of(model, data):
    with torch.no_grad():
        reference = answer_log_p(model.reference, *data)
    policy = answer_log_p(model.policy, *data)
    return preference_loss(policy, reference) + SFT * sft_loss(policy, data[2])


@torch.no_grad()
def follow(model):
    sides = zip(model.reference.parameters(), model.policy.parameters(), strict=True)
    for slow, fast in sides:
        slow.copy_(MIX * fast + (1 - MIX) * slow)


def build():
    return Pair().train()


def decayed(name, weight):
    return weight.dim() >= 2 and "wpe" not in name


def optimizer(model):
    named = list(model.policy.named_parameters())
    return torch.optim.AdamW(
        [
            {"params": [w for n, w in named if decayed(n, w)], "weight_decay": 0.1},
            {"params": [w for n, w in named if not decayed(n, w)], "weight_decay": 0.0},
        ],
        lr=2e-3,
    )


def batch(generator):
    """Tokens, what is no padding, and what is an answer: chosen rows, then the rejected."""
    tokens = torch.randint(1, VOCABULARY, (2 * PAIRS, LENGTH), generator=generator)
    padding = torch.tensor([0, 2, 1, 3, 0, 2])
    known = (torch.arange(LENGTH) >= padding[:, None]).long()
    begins = torch.tensor([5, 6, 4, 6, 5, 7])
    answer = (torch.arange(LENGTH) >= begins[:, None]).long()
    tokens = tokens * known
    return tokens, known, answer


def backward(model, data):
    loss_of(model, data).backward()


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.policy.parameters(), LARGEST)
    optimizer.step()
    follow(model)
