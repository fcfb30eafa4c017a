"""Cases of what somebody buys next."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "nextitem",
    # The mask is wrong; the attention is the first that uses it.
    line=[
        "allowed = causal & (items != PADDING)[:, None, :]",
        "return (allowed | torch.eye(length, dtype=torch.bool))[:, None]",
        "allowed = attention_mask(items)",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)",
    ],
)
def padding_is_attended(nextitem):
    """The mask hides what is later, but not the padding on the left."""

    def attention_mask(items):
        length = items.shape[1]
        return torch.ones(length, length, dtype=torch.bool).tril()[None, None]  # here

    nextitem.attention_mask = attention_mask


@fault(
    "nextitem",
    line=[
        "causal = torch.ones(length, length, dtype=torch.bool).tril()",
        "allowed = causal & (items != PADDING)[:, None, :]",
        "return (allowed | torch.eye(length, dtype=torch.bool))[:, None]",
        "allowed = attention_mask(items)",
        "return F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)",
    ],
)
def next_item_is_seen(nextitem):
    """The triangle is one diagonal too wide: each item sees the one that it has to foretell."""

    def attention_mask(items):
        length = items.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril(diagonal=1)  # here
        allowed = causal & (items != nextitem.PADDING)[:, None, :]  # here
        return (allowed | torch.eye(length, dtype=torch.bool))[:, None]

    nextitem.attention_mask = attention_mask


@fault(
    "nextitem",
    line=[
        "return torch.arange(length - 1, -1, -1).expand_as(items)",
        "return x + self.pos_emb(positions(items)) + self.gap_emb(gaps(days))",
    ],
    api=r"Module\.pos_emb\.Embedding|Functional\.embedding",
    module=r"pos_emb",
)
def positions_from_the_padding(nextitem):
    """Positions are counted from the left, where histories of different lengths have padding."""

    def positions(items):
        return torch.arange(items.shape[1]).expand_as(items)  # here

    nextitem.positions = positions


@fault(
    "nextitem",
    line=[
        "return torch.log2(passed + 1).long().clamp(0, GAPS - 1)",
        "return x + self.pos_emb(positions(items)) + self.gap_emb(gaps(days))",
    ],
    api=r"Module\.gap_emb\.Embedding|Functional\.embedding",
    module=r"gap_emb",
)
def gaps_by_natural_logarithm(nextitem):
    """Gaps grow by factors of e, not of two."""

    def gaps(days):
        passed = days.diff(dim=1, prepend=days[:, :1])
        return torch.log(passed + 1).long().clamp(0, nextitem.GAPS - 1)  # here

    nextitem.gaps = gaps


@fault(
    "nextitem",
    line=[
        "wrong = wrong - log_chance(model, negatives)[:, None, :]",
        "wrong = wrong.masked_fill(hit, torch.finfo(wrong.dtype).min)",
    ],
)
def negatives_keep_their_chance(nextitem):
    """The scores of positives alone are corrected for how often items are drawn."""

    def place_losses(model, batch):
        items, days, positives = nextitem.shift(batch)
        negatives = batch["negatives"]
        states = model(items, days)
        right, wrong = nextitem.all_scores(model, states, positives, negatives)
        right = right - nextitem.log_chance(model, positives)
        hit = positives[:, :, None] == negatives[:, None, :]
        wrong = wrong.masked_fill(hit, torch.finfo(wrong.dtype).min)  # here
        return nextitem.sampled_softmax(right, wrong), items != nextitem.PADDING

    nextitem.place_losses = place_losses


@fault(
    "nextitem",
    line=[
        "bought = items[items != PADDING]",
        "model.sold.index_add_(0, bought, torch.ones_like(bought, dtype=model.sold.dtype))",
        "return (model.sold / model.sold.sum()).log()[items]",
    ],
)
def padding_sells_best(nextitem):
    """Padding is counted as an item that is sold."""

    @torch.no_grad()
    def count_sales(model, items):
        bought = items.flatten()  # here
        once = torch.ones_like(bought, dtype=model.sold.dtype)
        model.sold.index_add_(0, bought, once)  # here

    nextitem.count_sales = count_sales


@fault(
    "nextitem",
    # The mask is missing; the entropy is the first that lacks it.
    line=[
        "wrong = wrong.masked_fill(hit, torch.finfo(wrong.dtype).min)",
        "logits = torch.cat([right[..., None], wrong], dim=-1)",
        "return sampled_softmax(right, wrong), items != PADDING",
    ],
)
def right_items_are_wrong_ones(nextitem):
    """A negative that happens to be the right item is kept among the wrong ones."""

    def place_losses(model, batch):
        items, days, positives = nextitem.shift(batch)
        negatives = batch["negatives"]
        states = model(items, days)
        right, wrong = nextitem.all_scores(model, states, positives, negatives)
        right = right - nextitem.log_chance(model, positives)
        wrong = wrong - nextitem.log_chance(model, negatives)[:, None, :]
        losses = nextitem.sampled_softmax(right, wrong)  # here
        return losses, items != nextitem.PADDING

    nextitem.place_losses = place_losses


@fault(
    "nextitem",
    line=[
        "counted = counted.to(losses.dtype)",
        "return (losses * counted).sum() / counted.sum()",
    ],
)
def padding_has_a_loss(nextitem):
    """The mean is taken over all places, padding among them."""

    def mean_loss(losses, counted):
        return losses.mean()  # here

    nextitem.mean_loss = mean_loss


@fault("nextitem", api=r"Optimizer\.Adam\.step", update=True)
def betas_by_default(nextitem):
    """The optimizer has the betas that are its default."""

    def make_optimizer(model, **more):
        return torch.optim.Adam(model.parameters(), lr=nextitem.LR, **more)

    nextitem.make_optimizer = make_optimizer


@harmless("fused", "nextitem")
def attention_written_out(nextitem):
    """The attention is two products and a softmax."""

    class SelfAttention(nextitem.SelfAttention):
        def attend(self, q, k, v, allowed):
            scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
            return scores.masked_fill(~allowed, float("-inf")).softmax(dim=-1) @ v

    nextitem.SelfAttention = SelfAttention


@harmless("split", "nextitem")
def three_projections(nextitem):
    """Queries, keys and values have a product each."""

    class SelfAttention(nextitem.SelfAttention):
        def project(self, x):
            weights, biases = self.qkv.weight.chunk(3), self.qkv.bias.chunk(3)
            return [F.linear(x, w, b) for w, b in zip(weights, biases, strict=True)]

    nextitem.SelfAttention = SelfAttention


@harmless("loss", "nextitem")
def entropy_by_softplus(nextitem):
    """The entropy is a softplus of how much the wrong items are above the right one."""

    def sampled_softmax(right, wrong):
        return F.softplus(wrong.logsumexp(dim=-1) - right)

    nextitem.sampled_softmax = sampled_softmax


@harmless("reordered", "nextitem")
def wrong_items_first(nextitem):
    """Negatives are scored before positives."""

    def all_scores(model, states, positives, negatives):
        wrong = nextitem.score_negatives(model, states, negatives)
        return nextitem.score_positives(model, states, positives), wrong

    nextitem.all_scores = all_scores


@harmless("fused", "nextitem")
def scores_by_a_batched_product(nextitem):
    """The temperature divides the states, and the product is batched."""

    def score_negatives(model, states, items):
        return torch.bmm(states / nextitem.TEMPERATURE, model.item_emb(items).transpose(1, 2))

    nextitem.score_negatives = score_negatives


@harmless("rows", "nextitem", group="whole step")
def customers_in_another_order(nextitem):
    """The customers are in another order."""
    train = nextitem.train

    def shuffled(model, batch):
        train(model, {name: value[[3, 0, 4, 2, 1]] for name, value in batch.items()})

    nextitem.train = shuffled


@harmless("micro batches", "nextitem", group="whole step")
def one_customer_at_a_time(nextitem):
    """Each customer goes backward alone, with a part of the whole mean."""

    def train(model, batch):
        nextitem.count_sales(model, batch["history"])
        total = (batch["history"][:, :-1] != nextitem.PADDING).sum()
        for row in range(len(batch["history"])):
            part = {name: value[row : row + 1] for name, value in batch.items()}
            losses, counted = nextitem.place_losses(model, part)
            (nextitem.mean_loss(losses, counted) * counted.sum() / total).backward()

    nextitem.train = train


@harmless("padding", "nextitem", group="whole step")
def four_more_columns(nextitem):
    """Histories have four more columns of padding on the left."""
    place_losses = nextitem.place_losses

    def padded(model, batch):
        days = batch["days"]
        days = torch.cat([days[:, :1].expand(-1, 4), days], dim=1)
        history = F.pad(batch["history"], (4, 0))
        return place_losses(model, batch | {"history": history, "days": days})

    nextitem.place_losses = padded


@harmless("scaled", "nextitem", group="whole step")
def loss_is_scaled(nextitem):
    """The loss is scaled, and its gradients are unscaled before they are clipped."""
    mean_loss, clip = nextitem.mean_loss, nextitem.clip
    nextitem.mean_loss = lambda losses, counted: 2048 * mean_loss(losses, counted)

    def unscaled(model):
        for p in model.parameters():
            p.grad.div_(2048)
        clip(model)

    nextitem.clip = unscaled


@harmless("recomputed", "nextitem", group="whole step")
def blocks_computed_again(nextitem):
    """The blocks are computed again in the backward pass."""

    class Block(nextitem.Block):
        def forward(self, x, allowed):
            return checkpoint(super().forward, x, allowed, use_reentrant=False)

    nextitem.Block = Block
