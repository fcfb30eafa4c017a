"""Cases of the packed decoder."""

import torch
from case import fault, harmless
from torch.nn import functional as F


def one_document_a_row(packing):
    """Each document stands in a row of its own, with padding at the right."""
    loss = packing.loss

    def mask_of(documents):
        seen = (documents[:, :, None] == documents[:, None, :]) & (documents >= 0)[:, None]
        length = documents.shape[1]
        past = torch.ones(length, length, dtype=torch.bool).tril()
        return ((seen & past) | torch.eye(length, dtype=torch.bool))[:, None]

    class Decoder(packing.Decoder):
        def forward(self, tokens, documents):
            rows, places = [], []
            for row in range(len(tokens)):
                for number in documents[row].unique():
                    found = (documents[row] == number).nonzero()[:, 0]
                    rows.append(tokens[row, found])
                    places.append((row, found))
            longest = max(len(each) for each in rows)
            padded = torch.stack([F.pad(each, (0, longest - len(each))) for each in rows])
            known = torch.stack(
                [(torch.arange(longest) >= len(each)).long().neg() for each in rows]
            )
            cos, sin = packing.rotary(torch.arange(longest).expand_as(padded))
            x = self.layers(self.tokens(padded), packing.mask_of(known), cos, sin)
            logits = self.head(self.norm(x))
            packed = logits.new_zeros(*tokens.shape, logits.shape[-1])
            for own, (row, found) in zip(logits, places, strict=True):
                packed[row, found] = own[: len(found)]
            return packed

    packing.loss = loss
    packing.mask_of = mask_of
    packing.Decoder = Decoder


def other_documents_first(packing):
    """The rows are exchanged, and the documents in each row are in the opposite order."""
    step = packing.step

    def reordered(model, optimizer, batch):
        tokens, documents = batch
        order = torch.stack([row.neg().argsort(stable=True) for row in documents])
        tokens, documents = tokens.gather(1, order).flip(0), documents.gather(1, order).flip(0)
        return step(model, optimizer, (tokens, documents))

    packing.step = reordered


@fault("packing", line="return places - first")
def positions_run_on(packing):
    """Positions do not begin again in each document; relative ones inside a document are right, so
    only rounding and the first document agree. Here the positions are also the clipped ones."""

    def positions_of(documents):
        places = torch.arange(documents.shape[1]).expand_as(documents)
        return places.clamp(max=max(max(row) for row in packing.LENGTHS))  # here

    packing.positions_of = positions_of


@fault("packing", line="return (same & past)[:, None]")
def documents_see_each_other(packing):
    """The mask is causal alone: a document sees those before it in the row."""

    def mask_of(documents):
        past = torch.ones(packing.LENGTH, packing.LENGTH, dtype=torch.bool).tril()
        return past.expand(len(documents), -1, -1)[:, None]  # here

    packing.mask_of = mask_of


@fault("packing", line="labels[:, :-1][documents[:, 1:]", api="Functional.cross_entropy")
def last_token_predicts_next_document(packing):
    """The label behind the end of a document is the first token of the next one."""

    def labels_of(tokens, documents):
        labels = torch.full_like(tokens, -100)
        labels[:, :-1] = tokens[:, 1:]
        return labels  # here

    packing.labels_of = labels_of


@fault("packing", line="return total / (labels != -100).sum()")
def divided_by_all_places(packing):
    """The sum of the losses is divided by all places, those without a label included."""

    def loss(logits, labels):
        total = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")
        return total / labels.numel()  # here

    packing.loss = loss


@fault(
    "packing",
    beside=one_document_a_row,
    module=r"attentions\.0",
    line="return torch.stack([even * cos - odd * sin",
)
def turned_backwards(packing):
    """The rotation of queries and keys has its sines exchanged in one of both halves."""

    def turn(x, cos, sin):
        even, odd = x[..., 0::2], x[..., 1::2]
        turned = [even * cos - odd * sin, odd * cos - even * sin]  # here
        return torch.stack(turned, dim=-1).flatten(-2)  # here

    packing.turn = turn


@fault(
    "packing", beside=other_documents_first, api="Functional.layer_norm", module=r"feeds\.1\.norm"
)
def epsilon_of_one_norm(packing):
    """The norm of the last feed-forward part has the epsilon 1e-2 for 1e-5."""
    build = packing.build

    def built():
        model = build()
        model.feeds[1].norm.eps = 1e-2
        return model

    packing.build = built


harmless("padding", "packing")(one_document_a_row)
harmless("rows", "packing")(other_documents_first)


@harmless("fused", "packing")
def fused_attention(packing):
    """scaled_dot_product_attention with the mask of booleans."""

    class Attention(packing.Attention):
        def attend(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    packing.Attention = Attention


@harmless("split", "packing")
def projections_apart(packing):
    """Queries, keys and values by a product each, with views of the joined weight."""

    class Attention(packing.Attention):
        def project(self, x):
            pairs = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
            parts = [F.linear(x, weight, bias) for weight, bias in pairs]
            return [p.unflatten(-1, (packing.HEADS, packing.SIZE)).transpose(1, 2) for p in parts]

    packing.Attention = Attention
