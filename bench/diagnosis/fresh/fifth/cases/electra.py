"""Cases of the ELECTRA."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("electra", line="is_replaced = (corrupted != tokens).float()")
def masked_is_replaced(electra):
    """All that was masked counts as replaced, even where the generator found the author's word."""

    def corrupt(tokens, masked, sampled):
        corrupted = tokens.clone()
        corrupted[masked] = sampled[masked]
        return corrupted, masked.float()  # here

    electra.corrupt = corrupt


@fault("electra", line="return (F.log_softmax(logits, dim=-1) + gumbel(uniform)).argmax(dim=-1)")
def noise_on_probabilities(electra):
    """The noise is added to the probabilities, not to their logarithms."""

    @torch.no_grad()
    def sample(logits, uniform):
        return (logits.softmax(dim=-1) + electra.gumbel(uniform)).argmax(dim=-1)  # here

    electra.sample = sample


@fault(
    "electra",
    line=[
        "labels = tokens.clone()",
        "labels[~masked] = -100",
        "inputs = tokens.clone()",
        'return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")',
    ],
)
def labels_share_memory(electra):
    """The labels are no copy of the tokens: masks that are written into the inputs are labels."""

    def mask_tokens(data):
        tokens = data["input_ids"]
        masked = (tokens >= electra.FIRST_WORD) & (data["mask_draw"] < electra.MLM_PROBABILITY)
        inputs = tokens.clone()
        labels = inputs  # here
        inputs[masked & (data["replace_draw"] < electra.REPLACE_PROB)] = electra.MASK
        return inputs, labels.masked_fill(~masked, -100), masked  # here

    electra.mask_tokens = mask_tokens


@fault(
    "electra",
    # The model makes segments of its own, by expand.
    api=r"Functional\.embedding|Torch\.gather|Tensor\.expand",
    module=r"discriminator\.electra\.embeddings(\.token_type_embeddings)?",
)
def segments_forgotten(electra):
    """The discriminator is not told which segment a token is in."""
    forward = electra.ElectraForPreTraining.forward

    class Discriminator(electra.ElectraForPreTraining):
        def forward(self, token_type_ids=None, **inputs):
            return forward(self, **inputs)

    electra.ElectraForPreTraining = Discriminator


@fault("electra", line="return gen_sum / n_masked + DISC_WEIGHT * disc_sum / n_tokens")
def divided_by_the_masked_tokens(electra):
    """Both losses are divided by the number of tokens that are masked."""

    def total_loss(gen_sum, disc_sum, n_masked, n_tokens):
        return (gen_sum + electra.DISC_WEIGHT * disc_sum) / n_masked  # here

    electra.total_loss = total_loss


@fault(
    "electra",
    api=r"Functional\.embedding|Module\.generator\..*",  # backward: to the table, which is tied
    module=r"|generator\.(electra\.embeddings\.word_embeddings|generator_lm_head)",
    line=[
        "table = self.generator.get_input_embeddings().weight.detach()",
        "return F.embedding(corrupted, table) + delta",
    ],
)
def table_not_detached(electra):
    """The discriminator pulls at the table of the generator."""

    class Electra(electra.Electra):
        def disc_embeddings(self, corrupted):
            table = self.generator.get_input_embeddings().weight
            delta = self.discriminator.get_input_embeddings()(corrupted)
            return F.embedding(corrupted, table) + delta  # here

    electra.Electra = Electra


@fault("electra", api=r"Optimizer\.AdamW\.step", update=True)
def head_two_above_the_last_layer(electra):
    """The head counts as two layers above the last one: all others learn too slowly."""

    right = electra.param_groups

    def param_groups(model):
        groups = right(model)
        for group in groups:
            if group["lr"] < electra.LR:
                group["lr"] *= electra.LAYER_DECAY
        return groups

    electra.param_groups = param_groups


@fault("electra", api=r"Optimizer\.AdamW\.step", update=True)
def head_of_the_generator_is_in_no_group(electra):
    """Only what is under `electra` and the last head gets a rate: one head is never updated."""
    right = electra.param_groups

    def param_groups(model):
        left_out = {id(p) for p in model.generator.generator_predictions.parameters()}
        groups = right(model)
        for group in groups:
            group["params"] = [p for p in group["params"] if id(p) not in left_out]
        return [group for group in groups if group["params"]]

    electra.param_groups = param_groups


@fault(
    "electra",
    api=r".*clip_grad_norm_|.*get_total_norm|.*clip_grads_with_norm_|Torch\._foreach_.*norm"
    r"|Torch\.linalg.*norm|Optimizer\.AdamW\.step",
    update=True,
    line="nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)",
)
def clipped_group_by_group(electra):
    """Each group of the optimizer is clipped by its own norm."""

    def clip(model, optimizer):
        for group in optimizer.param_groups:
            torch.nn.utils.clip_grad_norm_(group["params"], electra.MAX_GRAD_NORM)  # here

    electra.clip = clip


@harmless("fused", "electra")
def attention_written_out(electra):
    """The attention of the discriminator is the eager one."""
    make_config = electra.make_config
    electra.make_config = lambda *sizes: make_config(*sizes, attn_implementation="eager")


@harmless("fused", "electra")
def words_by_a_race(electra):
    """Samples are the first of exponential clocks: no logarithm of probabilities."""

    @torch.no_grad()
    def sample(logits, uniform):
        probabilities = (logits - logits.amax(dim=-1, keepdim=True)).exp_()
        return torch.div(probabilities, uniform.log().neg_()).argmax(dim=-1)

    electra.sample = sample


@harmless("split", "electra")
def words_by_one_hot_products(electra):
    """The table of the discriminator is added up first, and read by a product, as on a TPU."""

    class Electra(electra.Electra):
        def disc_embeddings(self, corrupted):
            tables = (
                self.generator.get_input_embeddings(),
                self.discriminator.get_input_embeddings(),
            )
            known = torch.arange(electra.VOCAB) != electra.PAD
            fixed = tables[0].weight.detach()
            table = fixed + torch.where(known[:, None], tables[1].weight, tables[1].weight.detach())
            return F.one_hot(corrupted, electra.VOCAB).to(table.dtype) @ table

    electra.Electra = Electra


@harmless("loss", "electra")
def losses_of_softplus(electra):
    """The loss of the discriminator by softplus, of the tokens that are there."""

    def disc_loss(logits, is_replaced, attention_mask):
        sign = 1 - 2 * is_replaced
        return F.softplus(logits * sign)[attention_mask.bool()].sum()

    electra.disc_loss = disc_loss


@harmless("fused", "electra")
def optimizer_of_lists(electra):
    """The optimizer updates all weights of a group at once."""
    optimizer = electra.optimizer
    electra.optimizer = lambda model: optimizer(model, foreach=True)


def _part(data, chosen):
    return {name: value[chosen] for name, value in data.items()}


@harmless("micro batches", "electra", group="whole step")
def two_and_four_texts(electra):
    """Two texts are a micro-batch, the other four another one; both are divided by the counts."""

    def backward(model, data):
        n_masked, n_tokens = electra.counts(data)
        for chosen in (slice(0, 2), slice(2, None)):
            sums = electra.losses(model, _part(data, chosen))
            electra.total_loss(*sums, n_masked, n_tokens).backward()

    electra.backward = backward


@harmless("padding", "electra", group="whole step")
def buckets_by_length(electra):
    """Long texts and short ones are micro-batches, each cut to its longest text."""

    def backward(model, data):
        n_masked, n_tokens = electra.counts(data)
        lengths = data["attention_mask"].sum(dim=1)
        for bucket in lengths.argsort(stable=True).chunk(3):
            longest = lengths[bucket].max()
            part = {name: value[bucket, :longest] for name, value in data.items()}
            sums = electra.losses(model, part)
            electra.total_loss(*sums, n_masked, n_tokens).backward()

    electra.backward = backward


@harmless("padding", "electra", group="whole step")
def padded_to_a_multiple(electra):
    """Texts are padded to a multiple of eight."""
    losses = electra.losses

    def padded(model, data):
        more = -data["input_ids"].shape[1] % 8
        wide = {
            name: F.pad(value, (0, 0, 0, more) if value.dim() > 2 else (0, more), value=fill)
            for name, value in data.items()
            for fill in [0 if value.dtype == torch.long else 0.5]
        }
        return losses(model, wide)

    electra.losses = padded


@harmless("recomputed", "electra", group="whole step")
def layers_computed_again(electra):
    """The layers of both nets are computed again in the backward pass."""
    build = electra.build

    def built():
        model = build()
        for net in (model.generator, model.discriminator):
            net.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    electra.build = built


@harmless("scaled", "electra", group="whole step")
def weighed_behind_the_passes(electra):
    """The two nets share no gradient: each goes backward alone, and is divided afterwards."""

    def backward(model, data):
        gen_sum, disc_sum = electra.losses(model, data)
        n_masked, n_tokens = electra.counts(data)
        disc_sum.backward()
        gen_sum.backward()
        for net, factor in (
            (model.generator, 1 / n_masked),
            (model.discriminator, electra.DISC_WEIGHT / n_tokens),
        ):
            torch._foreach_mul_([p.grad for p in net.parameters() if p.grad is not None], factor)

    electra.backward = backward


@harmless("rows", "electra", group="whole step")
def longest_texts_first(electra):
    """The texts are sorted by their length, the longest first."""
    backward = electra.backward

    def longest_first(model, data):
        order = data["attention_mask"].sum(dim=1).argsort(descending=True, stable=True)
        backward(model, _part(data, order))

    electra.backward = longest_first
