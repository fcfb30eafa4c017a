"""Cases of the mutants of proteins."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

WORDS_OF = r"esm\.esm\.embeddings(\.word_embeddings)?"


@fault(
    "mutants",
    # Sites are integers: what picks the chances at them is the first call that differs.
    line=[
        "wide = (sites + 1).unsqueeze(2).expand(-1, -1, logs.shape[2])",
        "return logs.gather(1, wide)",
    ],
)
def sites_forget_the_first_word(mutants):
    """What is known is picked one place too early: the first word is forgotten."""

    def at_sites(logs, sites):
        wide = sites.unsqueeze(2).expand(-1, -1, logs.shape[2])  # here
        return logs.gather(1, wide)  # here

    mutants.at_sites = at_sites


@fault(
    "mutants",
    # Tokens are integers: the table is the first call with floats.
    line=[
        'return assay["mutants"].scatter(1, assay["sites"] + 1, MASK)',
        'logs = at_sites(logarithms(esm, hidden(assay), assay["mask"]), assay["sites"])',
    ],
    api=r"Functional\.embedding|Module\.esm\.esm\.embeddings\.word_embeddings\..*",
    module=WORDS_OF,
    module_only=WORDS_OF,
)
def mutants_are_seen(mutants):
    """The amino acids that changed are not hidden."""

    def hidden(assay):
        return assay["mutants"]  # here

    mutants.hidden = hidden


@fault(
    "mutants",
    # The mask has a part in the scale of the embeddings first.
    line="return esm(input_ids=tokens, attention_mask=mask).logits.log_softmax(dim=2)",
    api=r"(Tensor|Torch)\.(div|__truediv__|mul|__mul__|sum)"
    r"|(Functional|Torch)\.scaled_dot_product_attention",
    module=r"esm\.esm\.embeddings",
    module_only=r"esm(\.esm(\.embeddings)?)?",
)
def padding_is_read(mutants):
    """The mask is not given to the net."""

    def logarithms(esm, tokens, mask):
        return esm(input_ids=tokens).logits.log_softmax(dim=2)  # here

    mutants.logarithms = logarithms


@fault(
    "mutants",
    # The difference is missing: what reads the chances of the new ones is the first that lacks it.
    line=[
        "return (logs.gather(2, new) - logs.gather(2, old)).squeeze(2)",
        'return (gains(logs, new, old) * assay["counts"]).sum(dim=1)',
    ],
    api=r"(Tensor|Torch)\.(squeeze|mul|__mul__)",
)
def old_amino_acids_left_out(mutants):
    """How likely the old amino acids are does not count."""

    def gains(logs, new, old):
        return logs.gather(2, new).squeeze(2)  # here

    mutants.gains = gains


@fault(
    "mutants",
    # The product is missing: the sum is the first that lacks it.
    line='return (gains(logs, new, old) * assay["counts"]).sum(dim=1)',
    api=r"(Tensor|Torch)\.sum",
)
def single_sites_count_twice(mutants):
    """Mutants with one site have its gain twice."""

    def scores(esm, assay):
        logs = mutants.logarithms(esm, mutants.hidden(assay), assay["mask"])
        logs = mutants.at_sites(logs, assay["sites"])
        new = assay["mutants"].gather(1, assay["sites"] + 1).unsqueeze(2)
        old = assay["wild"].expand(len(new), -1).gather(1, assay["sites"] + 1).unsqueeze(2)
        return mutants.gains(logs, new, old).sum(dim=1)  # here

    mutants.scores = scores


@fault(
    "mutants",
    line="losses = F.softplus(-(found.unsqueeze(1) - found) / TEMPERATURE)",
    api=r"Tensor\.(mul|__mul__|__rmul__|div|__truediv__)",
)
def multiplied_by_the_temperature(mutants):
    """Differences are multiplied by the temperature."""

    def pair_loss(found, worked):
        pairs = mutants.better(worked)
        losses = F.softplus(-(found.unsqueeze(1) - found) * mutants.TEMPERATURE)  # here
        return (losses * pairs).sum() / pairs.sum().clamp(min=1)

    mutants.pair_loss = pair_loss


@fault(
    "mutants",
    line="return (old.exp() * (old - new)).sum(dim=2)",
    api=r"(Tensor|Torch)\.(exp|sub|__sub__)",
)
def divergence_the_other_way(mutants):
    """The divergence is that of the old chances from the new ones."""

    def divergence(old, new):
        return (new.exp() * (new - old)).sum(dim=2)  # here

    mutants.divergence = divergence


@fault(
    "mutants",
    # Which places count is no float before it is cast.
    line=[
        'return (assay["wild"] >= BEGIN).to(torch.get_default_dtype())',
        'return (divergence(old, logarithms(model.esm, assay["wild"], mask)) * inner(assay)).sum()',
        "return len(assays), sum(inner(assay).sum() for assay in assays)",
    ],
    api=r"Tensor\.(to|sum|__r?add__|mul|__mul__)",
)
def ends_and_padding_stay_near(mutants):
    """The words at both ends and padding should look as before, too."""

    def inner(assay):
        return torch.ones_like(assay["wild"]).to(torch.get_default_dtype())  # here

    mutants.inner = inner


@fault(
    "mutants",
    # The same sum is divided by another number.
    line="return (losses * pairs).sum() / pairs.sum().clamp(min=1)",
    api=r"(Tensor|Torch)\.(div|__truediv__)",
)
def all_pairs_in_the_mean(mutants):
    """The mean is over all pairs, those within the noise as well."""

    def pair_loss(found, worked):
        losses = F.softplus(-(found.unsqueeze(1) - found) / mutants.TEMPERATURE)
        return (losses * mutants.better(worked)).sum() / losses.numel()  # here

    mutants.pair_loss = pair_loss


@fault(
    "mutants",
    # The product with the share is missing: what masks the padding is the first that lacks it.
    line='**({"token_dropout": True, "attn_implementation": "sdpa"} | more),',
    api=r"Tensor\.(mul|__mul__|masked_fill)|Torch\.mul",
    module=r"esm\.esm\.embeddings",
    module_only=r"esm\.esm\.embeddings",
)
def hidden_places_are_not_weighed(mutants):
    """The net is made as other nets for words: hidden places have a token."""
    mutants.make_esm = functools.partial(mutants.make_esm, token_dropout=False)


@fault("mutants", api=r"Optimizer\.AdamW\.step", update=True)
def head_is_not_faster(mutants):
    """The names of the head are looked for with a prefix that they do not have."""

    def optimizer(model, **more):
        named = mutants.learning(model)
        head = {name: p for name, p in named.items() if name.startswith("esm.lm_head.")}
        others = {name: p for name, p in named.items() if name not in head}
        rate, decay = mutants.LR, mutants.DECAY
        groups = [
            {"params": list(others.values()), "lr": rate, "weight_decay": decay},
            {"params": list(head.values()), "lr": mutants.FASTER * rate, "weight_decay": 0.0},
        ]
        adamw = torch.optim.AdamW(groups, amsgrad=True, **more)
        model.schedule = mutants.get_polynomial_decay_schedule_with_warmup(
            adamw, mutants.WARMUP, mutants.TOTAL, power=2.0
        )
        model.schedule.step()
        return adamw

    mutants.optimizer = optimizer


@harmless("fused", "mutants")
def attention_by_products(mutants):
    """The attention of the library is two products and a softmax."""
    mutants.make_esm = functools.partial(mutants.make_esm, attn_implementation="eager")


@harmless("loss", "mutants")
def gains_by_cross_entropy(mutants):
    """Gains are differences of two losses."""

    def gains(logs, new, old):
        parts = [
            F.nll_loss(logs.flatten(0, 1), words.flatten(), reduction="none")
            for words in (old, new)
        ]
        return (parts[0] - parts[1]).view(logs.shape[:2])

    mutants.gains = gains


@harmless("loss", "mutants")
def pairs_that_are_picked(mutants):
    """Pairs are picked, and their losses are the mean of logarithms of sigmoids."""

    def pair_loss(found, worked):
        one, other = mutants.better(worked).nonzero(as_tuple=True)
        losses = F.logsigmoid((found[one] - found[other]) / mutants.TEMPERATURE)
        return -losses.sum() / max(len(one), 1)

    mutants.pair_loss = pair_loss


@harmless("fused", "mutants")
def divergence_by_the_library(mutants):
    """The divergence is that of PyTorch."""

    def divergence(old, new):
        return F.kl_div(new, old, reduction="none", log_target=True).sum(dim=2)

    mutants.divergence = divergence


@harmless("split", "mutants")
def both_reads_of_the_net_joined(mutants):
    """The protein is read in one batch with its mutants."""

    def loss_of(model, assay, totals):
        assays, places = totals
        tokens = torch.cat([mutants.hidden(assay), assay["wild"]])
        mask = torch.cat([assay["mask"], assay["mask"][:1]])
        logs = mutants.logarithms(model.esm, tokens, mask)
        at, index = mutants.at_sites(logs[:-1], assay["sites"]), assay["sites"] + 1
        new = assay["mutants"].gather(1, index).unsqueeze(2)
        old = assay["wild"].expand(len(new), -1).gather(1, index).unsqueeze(2)
        found = (mutants.gains(at, new, old) * assay["counts"]).sum(dim=1)
        with torch.no_grad():
            before = mutants.logarithms(model.before, assay["wild"], mask[-1:])
        near = (mutants.divergence(before, logs[-1:]) * mutants.inner(assay)).sum()
        loss = mutants.pair_loss(found, assay["worked"]) / assays
        return loss + mutants.NEAR * near / places

    mutants.loss_of = loss_of


@harmless("inserted", "mutants")
def hidden_by_comparing(mutants):
    """Places are compared with the sites before they are hidden."""

    def hidden(assay):
        places = torch.arange(assay["mutants"].shape[1]) - 1
        at = (assay["sites"].unsqueeze(2) == places).any(dim=1)
        return torch.where(at, mutants.MASK, assay["mutants"])

    mutants.hidden = hidden


ROWS = ("mutants", "mask", "sites", "counts", "worked")


@harmless("rows", "mutants", group="whole step")
def mutants_in_another_order(mutants):
    """The mutants of each assay are in the opposite order."""
    loss_of = mutants.loss_of

    def turned(model, assay, totals):
        return loss_of(model, assay | {name: assay[name].flip(0) for name in ROWS}, totals)

    mutants.loss_of = turned


@harmless("micro batches", "mutants", group="whole step")
def assays_go_backward_together(mutants):
    """The losses of all assays are added before they go backward."""

    def accumulate(model, assays):
        totals = mutants.totals_of(assays)
        torch.stack([mutants.loss_of(model, assay, totals) for assay in assays]).sum().backward()

    mutants.accumulate = accumulate


@harmless("padding", "mutants", group="whole step")
def padded_to_a_larger_multiple(mutants):
    """Proteins are padded to a larger multiple."""
    mutants.MULTIPLE = 16


@harmless("scaled", "mutants", group="whole step")
def divided_when_added(mutants):
    """The loss is not divided by the assays; gradients are, before they are clipped."""
    loss_of, clip = mutants.loss_of, mutants.clip
    assays = len(mutants.PROTEINS)

    def multiplied(model, assay, totals):
        return assays * loss_of(model, assay, totals)

    def divided(model):
        for p in mutants.learning(model).values():
            p.grad.div_(assays)
        clip(model)

    mutants.loss_of, mutants.clip = multiplied, divided


@harmless("recomputed", "mutants", group="whole step")
def layers_computed_again(mutants):
    """The layers are computed again in the backward pass."""
    make_esm = mutants.make_esm

    def made(**more):
        esm = make_esm(**more)
        for layer in esm.esm.encoder.layer:
            layer.feed_forward_chunk = functools.partial(
                checkpoint, layer.feed_forward_chunk, use_reentrant=False
            )
        return esm

    mutants.make_esm = made
