"""Cases of the encoder and decoder."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


@fault(
    "seq2seq",
    module="decoder",
    line="return (-apart).clamp(0, BUCKETS - 1)",
    module_only=r"decoder.own(.\w)?|decoder",
)
def positions_of_the_decoder_look_both_ways(seq2seq):
    """The relative positions of the decoder look both ways."""

    class Part(seq2seq.Part):
        def bias(self, x, valid):
            length = x.shape[1]
            buckets = seq2seq.distance(length, length, True)  # here
            bias = self.distances(buckets).permute(2, 0, 1)[None]  # here
            bias = bias.masked_fill(~valid[:, None, None, :], -1e9)
            if self.decodes:
                future = torch.ones(length, length, dtype=torch.bool).triu(1)
                bias = bias.masked_fill(future, -1e9)
            return bias

    seq2seq.Part = Part


@fault(
    "seq2seq",
    module="decoder",
    line="hidden = torch.zeros(memory_valid.shape).masked_fill(",
    module_only="decoder.cross|decoder",
)
def memory_mask_missing(seq2seq):
    """The decoder attends to the padding of the source."""

    class Part(seq2seq.Part):
        def look(self, x, memory, memory_valid):
            hidden = torch.zeros(memory_valid.shape)  # here
            return x + self.cross(self.norms[1](x), memory, hidden[:, None, None, :])  # here

    seq2seq.Part = Part


@fault(
    "seq2seq",
    module=r"decoder(.cross(.\w)?)?",
    line="return x + self.cross(self.norms[1](x)",
    api="Functional.linear",
    module_only=r"decoder.cross.[kv]|decoder.cross",
)
def memory_of_another_layer(seq2seq):
    """The decoder attends to the embedded source instead of the encoder's result."""

    class Translator(seq2seq.Translator):
        def forward(self, source, given):
            self.encode(source)
            memory = self.words(source)  # here
            x = self.decoder(self.words(given), given != seq2seq.PAD, memory, source != seq2seq.PAD)
            return self.logits(x)

    seq2seq.Translator = Translator


@fault("seq2seq", line="return F.linear(x * WIDTH**-0.5")
def logits_not_scaled(seq2seq):
    """The tied logits are not scaled by the root of the width."""

    class Translator(seq2seq.Translator):
        def logits(self, x):
            return F.linear(x, self.words.weight)  # here

    seq2seq.Translator = Translator


@fault("seq2seq", line="return F.pad(target[:, :-1]", api="Functional.pad")
def start_is_padding(seq2seq):
    """The decoder begins with the padding's number instead of the start's."""

    def shifted(target):
        return F.pad(target[:, :-1], (1, 0), value=seq2seq.PAD)  # here

    seq2seq.shifted = shifted


@fault("seq2seq", line="return (losses * known).sum() / known.sum()")
def loss_divided_by_all_places(seq2seq):
    """The sum of the losses is divided by all places, padded ones included."""

    def loss(logits, target):
        losses = F.cross_entropy(logits.transpose(1, 2), target, reduction="none")
        known = (target != seq2seq.PAD).float()
        return (losses * known).sum() / known.numel()  # here

    seq2seq.loss = loss


@fault("seq2seq", line="losses = F.cross_entropy(logits.transpose(1, 2)")
def classes_in_the_wrong_dimension(seq2seq):
    """Places and classes are viewed as each other before the loss: reshaped, not transposed. The
    content is the same in the same order; the first wrong numbers are those of the loss."""

    def loss(logits, target):
        wrong = logits.reshape(len(logits), seq2seq.VOCABULARY, -1)  # here
        losses = F.cross_entropy(wrong, target, reduction="none")  # here
        known = (target != seq2seq.PAD).float()
        return (losses * known).sum() / known.sum()

    seq2seq.loss = loss


@fault("seq2seq", module="encoder.own", api="Torch.softmax")
def softmax_of_the_wrong_dimension(seq2seq):
    """The weights of the attention add up to one over the queries."""

    class Attention(seq2seq.Attention):
        def attend(self, q, k, v, bias):
            scores = torch.matmul(q, k.transpose(2, 3)) + bias
            weights = torch.softmax(scores, dim=-2)  # here
            return torch.matmul(weights, v)

    seq2seq.Attention = Attention


@fault("seq2seq", module="decoder.cross.o", api="Functional.linear")
def weight_transposed(seq2seq):
    """The last matrix of the attention was loaded transposed: its statistics agree."""
    right = seq2seq.build

    def build():
        model = right()
        weight = model.decoder.cross.o.weight.data
        weight.copy_(weight.clone().T)
        return model

    seq2seq.build = build


@fault("seq2seq", api="Optimizer.Adagrad.step", update=True)
def learning_rate(seq2seq):
    """The learning rate is 0.02 for 0.01."""
    seq2seq.LR = 2e-2


@fault("seq2seq", module="encoder.feed", api="Functional.relu|Functional.leaky_relu")
def leaky_activation(seq2seq):
    """The activation lets one percent of negative values through."""

    class Feed(seq2seq.Feed):
        def forward(self, x):
            return self.down(F.leaky_relu(self.up(x)))  # here

    seq2seq.Feed = Feed


@harmless("fused", "seq2seq")
def fused_attention(seq2seq):
    """scaled_dot_product_attention with the scale 1 and the bias as its mask."""

    class Attention(seq2seq.Attention):
        def attend(self, q, k, v, bias):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias, scale=1.0)

    seq2seq.Attention = Attention


@harmless("split", "seq2seq")
def head_after_head(seq2seq):
    """Each head has products of its own."""

    class Attention(seq2seq.Attention):
        def attend(self, q, k, v, bias):
            bias = bias.expand(-1, seq2seq.HEADS, -1, -1)
            heads = []
            for h in range(seq2seq.HEADS):
                scores = torch.matmul(q[:, h], k[:, h].transpose(1, 2)) + bias[:, h]
                heads.append(torch.matmul(torch.softmax(scores, dim=-1), v[:, h]))
            return torch.stack(heads, dim=1)

    seq2seq.Attention = Attention


@harmless("recomputed", "seq2seq")
def parts_computed_again(seq2seq):
    """Encoder and feed-forward parts are computed again in the backward pass."""
    from torch.utils.checkpoint import checkpoint

    class Translator(seq2seq.Translator):
        def encode(self, source):
            x = self.words(source)
            return checkpoint(self.encoder, x, source != seq2seq.PAD, use_reentrant=False)

    seq2seq.Translator = Translator


@harmless("loss", "seq2seq")
def loss_of_known_places(seq2seq):
    """The mean over the labels that are not ignored."""

    def loss(logits, target):
        return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=seq2seq.PAD)

    seq2seq.loss = loss


@harmless("fused", "seq2seq")
def product_with_addition(seq2seq):
    """The bias is added by the product itself (baddbmm)."""

    class Attention(seq2seq.Attention):
        def attend(self, q, k, v, bias):
            full = bias.expand(*q.shape[:3], k.shape[2]).flatten(0, 1)
            scores = torch.baddbmm(full, q.flatten(0, 1), k.flatten(0, 1).transpose(1, 2))
            weights = torch.softmax(scores, dim=-1)
            return torch.bmm(weights, v.flatten(0, 1)).unflatten(0, q.shape[:2])

    seq2seq.Attention = Attention


@harmless("micro batches", "seq2seq")
def rows_one_by_one(seq2seq):
    """Each text is a micro batch; the losses are weighted by their tokens."""

    def step(model, optimizer, batch):
        source, target = batch
        optimizer.zero_grad()
        count = (target != seq2seq.PAD).sum()
        for row in range(len(source)):
            one, wanted = source[row : row + 1], target[row : row + 1]
            share = (wanted != seq2seq.PAD).sum() / count
            (seq2seq.loss(model(one, seq2seq.shifted(wanted)), wanted) * share).backward()
        optimizer.step()

    seq2seq.step = step


@harmless("compiled", "seq2seq", needs="compile")
def compiled_feed(seq2seq):
    """The feed-forward parts are compiled."""
    right = seq2seq.build

    def build():
        model = right()
        for part in (model.encoder, model.decoder):
            part.feed = torch.compile(part.feed, backend="aot_eager")
        return model

    seq2seq.build = build


@harmless("renamed", "seq2seq")
def other_names(seq2seq):
    """Encoder and decoder have other names and one list of both."""

    class Translator(seq2seq.Translator):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleList([self.encoder, self.decoder])
            del self.encoder, self.decoder

        def encode(self, source):
            return self.parts[0](self.words(source), source != seq2seq.PAD)

        def forward(self, source, given):
            memory = self.encode(source)
            known, given_known = source != seq2seq.PAD, given != seq2seq.PAD
            return self.logits(self.parts[1](self.words(given), given_known, memory, known))

    seq2seq.Translator = Translator


@harmless("zero in theory", "seq2seq")
def scores_centred(seq2seq):
    """The largest score is subtracted before the softmax."""

    class Attention(seq2seq.Attention):
        def attend(self, q, k, v, bias):
            scores = torch.matmul(q, k.transpose(2, 3)) + bias
            scores = scores - scores.amax(dim=-1, keepdim=True).detach()
            return torch.matmul(torch.softmax(scores, dim=-1), v)

    seq2seq.Attention = Attention
