"""Cases of the encoder."""

import torch
from case import fault, harmless
from torch import nn
from torch.nn import functional as F


def without_dropout(bert):
    """Both sides of a rewrite that draws other random numbers."""
    bert.DROPOUT = 0.0


def nothing_padded(bert):
    bert.DROPOUT = 0.0
    right = bert.batch

    def batch(generator):
        tokens, types, valid, chosen = right(generator)
        return tokens.clamp(min=2), types, torch.ones_like(valid), chosen

    bert.batch = batch


@fault("bert", api=r"Functional.dropout", module="embeddings.dropout")
def dropout_left_off(bert):
    """The model is in eval mode while it trains: the first dropout differs."""
    bert.train_mode = lambda model: model.eval()


@fault("bert", api=r"Functional.dropout", module=r"layers.1.attention.dropout")
def dropout_twice_as_large(bert):
    """The attention of layer 1 drops with 0.2."""
    right = bert.build

    def build():
        model = right()
        model.layers[1].attention.dropout.p = 0.2
        return model

    bert.build = build


@fault("bert", api=r"Functional.gelu", module=r"layers.0")
def gelu_of_tanh(bert):
    """GELU by its approximation with tanh."""

    def activation(x):
        return F.gelu(x, approximate="tanh")  # here

    bert.activation = activation


@fault(
    "bert",
    module="layers.0",
    line="x = self.norm1(x + self.dropout",
    module_only=r"layers.0(.attention(.query)?)?",
)
def norm_before_attention(bert):
    """Norms before instead of after: the attention reads the normalised value."""

    class Layer(bert.Layer):
        def forward(self, x, mask):
            y = self.norm1(x)  # here
            x = x + self.dropout(self.output(self.attention(y, mask)))  # here
            return x + self.dropout(self.down(bert.activation(self.up(self.norm2(x)))))

    bert.Layer = Layer


@fault("bert", api=r"Functional.layer_norm", module="embeddings.norm")
def layer_norm_epsilon(bert):
    """The epsilon of the norm of the embeddings is 1e-3, for 1e-12."""

    class Embeddings(bert.Embeddings):
        def __init__(self):
            super().__init__()
            self.norm.eps = 1e-3

    bert.Embeddings = Embeddings


@fault("bert", line="return (1.0 - valid")
def mask_inverted(bert):
    """The mask hides the words and shows the padding."""

    def extended_mask(valid):
        return valid[:, None, None, :].float() * -10000.0  # here

    bert.extended_mask = extended_mask


@fault("bert", line="return (1.0 - valid")
def mask_of_one(bert):
    """The mask subtracts 1 from the scores of the padding, for 10000."""

    def extended_mask(valid):
        return (1.0 - valid[:, None, None, :].float()) * -1.0  # here

    bert.extended_mask = extended_mask


@fault(
    "bert",
    api=r"Functional.embedding|Torch.arange",
    module=r"embeddings(.positions)?",
    module_only=r"embeddings(.positions)?",
)
def positions_off_by_two(bert):
    """Positions begin at 2, as in RoBERTa."""

    class Embeddings(bert.Embeddings):
        def position_ids(self, tokens):
            return torch.arange(tokens.shape[1]) + 2  # here

    bert.Embeddings = Embeddings


@fault("bert", module="embeddings", module_only="embeddings(.norm)?", line="x = self.words(tokens)")
def types_not_added(bert):
    """The embedding of types is left out of the sum."""

    class Embeddings(bert.Embeddings):
        def forward(self, tokens, types):
            x = self.words(tokens) + self.positions(self.position_ids(tokens))  # here
            return self.dropout(self.norm(x))  # here

    bert.Embeddings = Embeddings


@fault(
    "bert",
    api=r"Functional.linear|Module.head.decoder.Linear|Module.embeddings.words.Embedding",
    module=r"head.decoder|embeddings.words",
)
def tied_weights_untied(bert):
    """The decoder has a copy of the weights of the words: the values agree, the gradient of each
    lacks the part of the other."""

    class Head(bert.Head):
        def tie(self, words):
            self.decoder.weight = nn.Parameter(torch.empty_like(words.weight))

    right = bert.build

    def build():
        model = right()
        with torch.no_grad():
            model.head.decoder.weight.copy_(model.embeddings.words.weight)
        return model

    bert.Head, bert.build = Head, build


@fault("bert", api=r"Functional.cross_entropy")
def loss_summed(bert):
    """The loss is summed over the words."""

    def loss(logits, labels):
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="sum")  # here

    bert.loss = loss


@fault("bert", line="return tokens.masked_fill(~chosen, IGNORED)", api=r"Functional.cross_entropy")
def all_words_predicted(bert):
    """Words that are not masked are labels, too."""

    def labels_of(tokens, chosen):
        return tokens.masked_fill(tokens == 0, bert.IGNORED)  # here

    bert.labels_of = labels_of


@fault("bert", api=r"Optimizer.Adam.step", update=True)
def schedule_before_the_step(bert):
    """The learning rate is raised before the step of the optimizer instead of after."""

    def step(model, optimizer, batch):
        tokens, types, valid, chosen = batch
        bert.train_mode(model)
        optimizer.zero_grad()
        logits = model(tokens.masked_fill(chosen, bert.MASK), types, valid)
        bert.loss(logits, bert.labels_of(tokens, chosen)).backward()
        bert.schedule(optimizer)
        optimizer.step()

    bert.step = step


@fault("bert", api=r"Optimizer.Adam.step", update=True)
def epsilon_of_the_optimizer(bert):
    """Adam's epsilon is 1e-3."""
    bert.optimizer = lambda model: torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-3)


@fault("bert", module="layers.0.attention", api=r"Tensor.reshape|Tensor.transpose")
def heads_not_transposed_back(bert):
    """Heads are joined without being transposed back: statistics agree, the places do not."""

    class SelfAttention(bert.SelfAttention):
        def forward(self, x, mask):
            q, k, v = self.query(x), self.key(x), self.value(x)
            q, k, v = self.heads(q), self.heads(k), self.heads(v)
            return self.attend(q, k, v, mask).reshape(x.shape)  # here

    bert.SelfAttention = SelfAttention


@harmless("fused", "bert", both=without_dropout)
def fused_attention(bert):
    """scaled_dot_product_attention with a mask that is added."""

    class SelfAttention(bert.SelfAttention):
        def attend(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    bert.SelfAttention = SelfAttention


@harmless("fused", "bert")
def gelu_written_out(bert):
    """GELU with the error function."""

    def activation(x):
        return x * 0.5 * (1.0 + torch.erf(x / 2.0**0.5))

    bert.activation = activation


@harmless("mask", "bert", both=nothing_padded)
def mask_is_none_without_padding(bert):
    """Nothing is padded; one side passes None, the other a mask of zeros."""
    bert.extended_mask = lambda valid: None

    class SelfAttention(bert.SelfAttention):
        def attend(self, q, k, v, mask):
            return F.scaled_dot_product_attention(q, k, v)

    bert.SelfAttention = SelfAttention


@harmless("split", "bert")
def projections_joined(bert):
    """Queries, keys and values by one product; the zero biases are joined alike."""

    class SelfAttention(bert.SelfAttention):
        def forward(self, x, mask):
            parts = (self.query, self.key, self.value)
            joined = F.linear(
                x, torch.cat([p.weight for p in parts]), torch.cat([p.bias for p in parts])
            )
            q, k, v = (self.heads(part) for part in joined.chunk(3, dim=-1))
            return self.attend(q, k, v, mask).transpose(1, 2).reshape(x.shape)

    bert.SelfAttention = SelfAttention


@harmless("zero in theory", "bert", settings={"threads": 2})
def bias_of_the_key(bert):
    """The gradient of the keys' bias is zero in theory; the scores are scaled after the product
    on one side, before it on the other."""

    class SelfAttention(bert.SelfAttention):
        def attend(self, q, k, v, mask):
            scores = (q / bert.math.sqrt(bert.SIZE)) @ k.transpose(-2, -1)
            return self.dropout((scores + mask).softmax(-1)) @ v

    bert.SelfAttention = SelfAttention


@harmless("loss", "bert")
def loss_of_chosen_words(bert):
    """The loss of the masked words only, as nll_loss of log_softmax."""

    def loss(logits, labels):
        wanted = labels != bert.IGNORED
        return F.nll_loss(logits[wanted].log_softmax(-1), labels[wanted])

    bert.loss = loss


@harmless("renamed", "bert")
def layers_in_an_encoder(bert):
    """The layers are one level deeper, in a module that calls them."""

    class Encoder(nn.Module):
        def __init__(self, layers):
            super().__init__()
            self.layer = layers

        def forward(self, x, mask):
            for layer in self.layer:
                x = layer(x, mask)
            return x

    class Bert(bert.Bert):
        def __init__(self):
            super().__init__()
            head = self.head
            self.encoder = Encoder(self.layers)
            del self.layers, self.head
            self.head = head  # after the layers, as it was: weights are drawn in this order

        def forward(self, tokens, types, valid):
            x = self.embeddings(tokens, types)
            return self.head(self.encoder(x, bert.extended_mask(valid)))

    bert.Bert = Bert


@harmless("inserted", "bert")
def detours(bert):
    """Values are made contiguous, copied and reshaped there and back."""

    class Layer(bert.Layer):
        def forward(self, x, mask):
            flat = x.flatten(0, 1).clone().view(x.shape)
            return super().forward(flat.contiguous(), mask.to(x.dtype))

    bert.Layer = Layer
