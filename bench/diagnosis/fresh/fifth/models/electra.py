"""An ELECTRA of transformers: replaced tokens, a disentangled table, rates that fall with depth."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining

VOCAB, WIDTH, LENGTH, N_LAYERS = 16, 12, 12, 2
PAD, CLS, SEP, MASK, FIRST_WORD = 0, 1, 2, 3, 4
MLM_PROBABILITY, REPLACE_PROB, DISC_WEIGHT = 0.45, 0.85, 10.0
LR, LAYER_DECAY, WARMUP, MAX_GRAD_NORM = 4e-3, 0.8, 3, 1.0


def make_config(hidden_size, heads, **changes):
    return ElectraConfig(
        vocab_size=VOCAB,
        embedding_size=WIDTH,
        hidden_size=hidden_size,
        num_hidden_layers=N_LAYERS,
        num_attention_heads=heads,
        intermediate_size=2 * hidden_size,
        max_position_embeddings=32,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.25,
        pad_token_id=PAD,
        **changes,
    )


class Electra(nn.Module):
    """The generator fills masks; the discriminator says which tokens are not the author's."""

    def __init__(self):
        super().__init__()
        self.generator = ElectraForMaskedLM(make_config(8, 2))
        self.discriminator = ElectraForPreTraining(make_config(16, 4))
        # what the discriminator learns beside the table of the generator
        nn.init.normal_(self.discriminator.get_input_embeddings().weight, std=0.02)

    def disc_embeddings(self, corrupted):
        """The table of the generator, to which no gradient goes back, and a small difference."""
        table = self.generator.get_input_embeddings().weight.detach()
        delta = self.discriminator.get_input_embeddings()(corrupted)
        return F.embedding(corrupted, table) + delta


def mask_tokens(data):
    """Inputs with masks, and labels that are -100 where nothing is to be filled in."""
    tokens = data["input_ids"]
    masked = (tokens >= FIRST_WORD) & (data["mask_draw"] < MLM_PROBABILITY)
    labels = tokens.clone()
    labels[~masked] = -100
    inputs = tokens.clone()
    inputs[masked & (data["replace_draw"] < REPLACE_PROB)] = MASK
    return inputs, labels, masked


def gumbel(uniform, eps=1e-9):
    return -torch.log(-torch.log(uniform + eps) + eps)


@torch.no_grad()
def sample(logits, uniform):
    return (F.log_softmax(logits, dim=-1) + gumbel(uniform)).argmax(dim=-1)


def corrupt(tokens, masked, sampled):
    corrupted = tokens.clone()
    corrupted[masked] = sampled[masked]
    is_replaced = (corrupted != tokens).float()
    return corrupted, is_replaced


def mlm_loss(logits, labels):
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")


def disc_loss(logits, is_replaced, attention_mask):
    loss = F.binary_cross_entropy_with_logits(logits, is_replaced, reduction="none")
    return (loss * attention_mask).sum()


def losses(model, data):
    """Sums over the masked tokens, and over all tokens."""
    rest = {name: data[name] for name in ("attention_mask", "token_type_ids")}
    inputs, labels, masked = mask_tokens(data)
    gen_logits = model.generator(input_ids=inputs, **rest).logits
    sampled = sample(gen_logits, data["uniform"])
    corrupted, is_replaced = corrupt(data["input_ids"], masked, sampled)
    embeds = model.disc_embeddings(corrupted)
    disc_logits = model.discriminator(inputs_embeds=embeds, **rest).logits
    return (
        mlm_loss(gen_logits, labels),
        disc_loss(disc_logits, is_replaced, data["attention_mask"]),
    )


def counts(data):
    """How many tokens are masked, and how many there are, in the whole batch."""
    masked = mask_tokens(data)[2]
    return masked.sum(), data["attention_mask"].sum()


def total_loss(gen_sum, disc_sum, n_masked, n_tokens):
    return gen_sum / n_masked + DISC_WEIGHT * disc_sum / n_tokens


def backward(model, data):
    total_loss(*losses(model, data), *counts(data)).backward()


def clip(model, optimizer):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)


def depth_of(name):
    if "embeddings" in name:
        return 0
    if "encoder.layer." in name:
        return int(name.split("encoder.layer.")[1].split(".")[0]) + 1
    return N_LAYERS + 1


def param_groups(model):
    groups = {}
    for name, param in model.named_parameters():
        no_decay = name.endswith("bias") or "LayerNorm" in name
        lr = LR * LAYER_DECAY ** (N_LAYERS + 1 - depth_of(name))
        decay = 0.0 if no_decay else 0.01
        group = groups.setdefault((lr, decay), {"params": [], "lr": lr, "weight_decay": decay})
        group["params"].append(param)
    return list(groups.values())


def build():
    return Electra().train()


def optimizer(model, **more):
    made = torch.optim.AdamW(param_groups(model), lr=LR, eps=1e-6, **more)
    model.scheduler = torch.optim.lr_scheduler.LambdaLR(made, lambda t: min(1, (t + 1) / WARMUP))
    return made


def batch(generator):
    lengths = torch.tensor([12, 9, 11, 7, 10, 12])
    shape = (len(lengths), LENGTH)
    place = torch.arange(LENGTH)
    tokens = torch.randint(FIRST_WORD, VOCAB, shape, generator=generator)
    tokens[:, 0] = CLS
    middle = (lengths // 2)[:, None]
    tokens[(place == middle) | (place == lengths[:, None] - 1)] = SEP
    attention_mask = (place < lengths[:, None]).long()
    return {
        "input_ids": tokens.masked_fill(attention_mask == 0, PAD),
        "attention_mask": attention_mask,
        "token_type_ids": ((place > middle) & (place < lengths[:, None])).long(),
        "mask_draw": torch.rand(shape, generator=generator),
        "replace_draw": torch.rand(shape, generator=generator),
        "uniform": torch.rand((*shape, VOCAB), generator=generator),
    }


def step(model, optimizer, batch):
    backward(model, batch)
    clip(model, optimizer)
    optimizer.step()
    model.scheduler.step()
    optimizer.zero_grad()
