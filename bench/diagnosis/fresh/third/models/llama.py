"""A Llama of transformers: micro-batches divided by their tokens' weights, clipping, a warm-up."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM

VOCABULARY, WIDTH, LENGTH, TEXTS, PARTS = 41, 16, 10, 4, 2
Z, LARGEST, RATE, WARM = 0.02, 0.5, 4e-3, 4


def config(**changes):
    return LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        use_cache=False,
        bos_token_id=1,
        eos_token_id=2,
        **{"rms_norm_eps": 1e-6, "tie_word_embeddings": False} | changes,
    )


def positions(known):
    """Places of tokens behind the padding on the left."""
    return (known.cumsum(dim=1) - 1).clamp(min=0)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = LlamaForCausalLM(config())
        for weight in self.net.parameters():
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.25)

    def forward(self, tokens, known):
        at = positions(known)
        return self.net(input_ids=tokens, attention_mask=known, position_ids=at).logits


def entropies(logits, tokens):
    """Of each token behind the first."""
    return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:], reduction="none")


def z_loss(logits, weight):
    """The logarithm of the sum stays near zero, where a token counts."""
    sums = logits[:, :-1].logsumexp(dim=-1)
    return (sums.square() * (weight[:, 1:] > 0)).sum()


def loss_of(model, tokens, known, weight):
    """Sums over the tokens of a micro-batch."""
    logits = model(tokens, known).float()
    return (entropies(logits, tokens) * weight[:, 1:]).sum() + Z * z_loss(logits, weight)


def parts_of(data):
    return zip(*(value.chunk(PARTS) for value in data), strict=True)


def backward(model, data):
    total = data[2][:, 1:].sum()
    for part in parts_of(data):
        (loss_of(model, *part) / total).backward()


def build():
    return Model()


def decayed(name, weight):
    return weight.dim() > 1 and "embed" not in name


def groups_of(model):
    named = list(model.named_parameters())
    return [
        {"params": [w for n, w in named if decayed(n, w)], "weight_decay": 0.1},
        {"params": [w for n, w in named if not decayed(n, w)], "weight_decay": 0.0},
    ]


def optimizer(model, **more):
    made = torch.optim.AdamW(groups_of(model), lr=RATE, betas=(0.9, 0.95), **more)
    model.schedule = torch.optim.lr_scheduler.LambdaLR(made, lambda t: min(1.0, (t + 1) / WARM))
    return made


def batch(generator):
    """Tokens, what is no padding, and what each token weighs: a question weighs nothing."""
    tokens = torch.randint(3, VOCABULARY, (TEXTS, LENGTH), generator=generator)
    known = (torch.arange(LENGTH) >= torch.tensor([2, 0, 3, 1])[:, None]).long()
    answer = torch.arange(LENGTH) >= torch.tensor([6, 3, 7, 4])[:, None]
    weight = (torch.rand(TEXTS, LENGTH, generator=generator) + 0.5) * answer
    return tokens * known, known, weight


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch)
    nn.utils.clip_grad_norm_(model.parameters(), LARGEST)
    optimizer.step()
    model.schedule.step()
