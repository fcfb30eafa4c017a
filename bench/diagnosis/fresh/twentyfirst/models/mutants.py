"""Which mutants of a protein work better: an ESM that learns from pairs (transformers).

That is done as in ConFit. Each assay is a micro-batch: a protein, mutants of it, and how well they
worked. A slow copy of the net keeps it near to what it knew before.
"""

import copy

import torch
from torch import nn
from torch.nn import functional as F
from transformers import EsmConfig, EsmForMaskedLM, get_polynomial_decay_schedule_with_warmup

CLS, PAD, EOS, MASK, BEGIN, WORDS = 0, 1, 2, 3, 4, 24  # amino acids from BEGIN on
# The lengths of proteins, how many mutants were measured, and how many sites change in each.
PROTEINS, MUTANTS, SITES, MULTIPLE = (9, 6, 11), (4, 3, 5), 2, 4
WIDTH, NOISE, TEMPERATURE, NEAR = 16, 0.15, 0.7, 0.5
LR, FASTER, DECAY, KEEP, MAX_NORM, WARMUP, TOTAL = 2e-3, 2.0, 0.05, 0.8, 1.0, 2, 12


def make_esm(**more):
    config = EsmConfig(
        vocab_size=WORDS,
        pad_token_id=PAD,
        mask_token_id=MASK,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=40,
        position_embedding_type="rotary",
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.25,
        emb_layer_norm_before=False,
        **({"token_dropout": True, "attn_implementation": "sdpa"} | more),
    )
    return EsmForMaskedLM(config)


class Reader(nn.Module):
    """The net, and what it was: a copy that follows slowly."""

    def __init__(self):
        super().__init__()
        self.esm = make_esm()
        self.before = copy.deepcopy(self.esm).requires_grad_(False)


def logarithms(esm, tokens, mask):
    """Of the chances of all words at each place."""
    return esm(input_ids=tokens, attention_mask=mask).logits.log_softmax(dim=2)


def hidden(assay):
    """Mutants without the amino acids that changed."""
    return assay["mutants"].scatter(1, assay["sites"] + 1, MASK)


def at_sites(logs, sites):
    """What is known at the sites: the first word is no amino acid."""
    wide = (sites + 1).unsqueeze(2).expand(-1, -1, logs.shape[2])
    return logs.gather(1, wide)


def gains(logs, new, old):
    """How much likelier the new amino acids of each site are than the old ones."""
    return (logs.gather(2, new) - logs.gather(2, old)).squeeze(2)


def scores(esm, assay):
    """Of each mutant: the sum over its sites. A site that stands there twice counts once."""
    logs = at_sites(logarithms(esm, hidden(assay), assay["mask"]), assay["sites"])
    new = assay["mutants"].gather(1, assay["sites"] + 1).unsqueeze(2)
    old = assay["wild"].expand(len(new), -1).gather(1, assay["sites"] + 1).unsqueeze(2)
    return (gains(logs, new, old) * assay["counts"]).sum(dim=1)


def better(worked):
    """Pairs whose difference is larger than the noise: [i, j] if i worked better."""
    return (worked.unsqueeze(1) - worked) > NOISE


def pair_loss(found, worked):
    """By Bradley and Terry: the mean over pairs."""
    pairs = better(worked)
    losses = F.softplus(-(found.unsqueeze(1) - found) / TEMPERATURE)
    return (losses * pairs).sum() / pairs.sum().clamp(min=1)


def divergence(old, new):
    """How far the new chances are from the old ones, at each place."""
    return (old.exp() * (old - new)).sum(dim=2)


def inner(assay):
    """The places of amino acids: neither the first word, nor the last one, nor padding."""
    return (assay["wild"] >= BEGIN).to(torch.get_default_dtype())


def near_loss(model, assay):
    """The protein itself should look as it did before: a sum over its places."""
    mask = assay["mask"][:1]
    with torch.no_grad():
        old = logarithms(model.before, assay["wild"], mask)
    return (divergence(old, logarithms(model.esm, assay["wild"], mask)) * inner(assay)).sum()


def totals_of(assays):
    """How many assays there are, and how many amino acids their proteins have."""
    return len(assays), sum(inner(assay).sum() for assay in assays)


def loss_of(model, assay, totals):
    assays, places = totals
    loss = pair_loss(scores(model.esm, assay), assay["worked"]) / assays
    return loss + NEAR * near_loss(model, assay) / places


def accumulate(model, assays):
    totals = totals_of(assays)
    for assay in assays:
        loss_of(model, assay, totals).backward()


@torch.no_grad()
def follow(model):
    for old, new in zip(model.before.parameters(), model.esm.parameters(), strict=True):
        old.lerp_(new, 1 - KEEP)


def learning(model):
    """The contacts are not asked for."""
    return {n: p for n, p in model.esm.named_parameters() if "contact_head" not in n}


def clip(model):
    nn.utils.clip_grad_norm_(learning(model).values(), MAX_NORM)


def build():
    return Reader().train()


def optimizer(model, **more):
    """The head learns faster; its table of words is that of the net."""
    head = {name: p for name, p in learning(model).items() if name.startswith("lm_head.")}
    others = {name: p for name, p in learning(model).items() if name not in head}
    groups = [
        {"params": list(others.values()), "lr": LR, "weight_decay": DECAY},
        {"params": list(head.values()), "lr": FASTER * LR, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, amsgrad=True, **more)
    model.schedule = get_polynomial_decay_schedule_with_warmup(adamw, WARMUP, TOTAL, power=2.0)
    model.schedule.step()
    return adamw


def made_mutants(protein, many, generator):
    """Each has new amino acids at its sites; some have one site alone, which stands there twice."""

    def randint(most, *shape):
        return torch.randint(most, shape, generator=generator)

    length = len(protein)
    first = randint(length, many, 1)
    second = (first + 1 + randint(length - 1, many, 1)) % length
    second[::3] = first[::3]
    sites = torch.cat([first, second], dim=1)
    amino = WORDS - BEGIN
    moved = BEGIN + (protein - BEGIN + 1 + randint(amino - 1, many, length)) % amino
    mutants = protein.repeat(many, 1)
    mutants.scatter_(1, sites, moved.gather(1, sites))
    return mutants, sites


def framed(proteins):
    """A word at both ends, and padding to a multiple."""
    many, length = proteins.shape
    ends = torch.full((many, 1), CLS), torch.full((many, 1), EOS)
    tokens = torch.cat([ends[0], proteins, ends[1]], dim=1)
    return F.pad(tokens, (0, -(length + 2) % MULTIPLE), value=PAD)


def batch(generator):
    assays = []
    for length, many in zip(PROTEINS, MUTANTS, strict=True):
        protein = torch.randint(BEGIN, WORDS, (length,), generator=generator)
        mutants, sites = made_mutants(protein, many, generator)
        mutants, counts = framed(mutants), torch.ones(many, SITES)
        counts[:, 1] = sites[:, 0] != sites[:, 1]
        assays.append(
            {
                "wild": framed(protein.unsqueeze(0)),
                "mutants": mutants,
                "mask": (mutants != PAD).long(),
                "sites": sites,
                "counts": counts,
                "worked": torch.randn(many, generator=generator),
            }
        )
    return assays


def step(model, optimizer, batch):
    optimizer.zero_grad()
    accumulate(model, batch)
    clip(model)
    optimizer.step()
    follow(model)
    model.schedule.step()
