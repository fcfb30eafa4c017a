"""Cases of the tagger."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "crf",
    line=[
        "scores = self.transitions[tags[:, :-1], tags[:, 1:]]",
        "return (scores * mask[:, 1:]).sum(dim=1)",
    ],
)
def rows_and_columns_swapped(crf):
    """The score of the right tags reads the transitions as from a column to a row."""

    class Chain(crf.Chain):
        def moved(self, tags, mask):
            scores = self.transitions[tags[:, 1:], tags[:, :-1]]  # here
            return (scores * mask[:, 1:]).sum(dim=1)  # here

    crf.Chain = Chain


@fault(
    "crf",
    line=[
        "last = tags.gather(1, mask.sum(dim=1, keepdim=True) - 1).squeeze(1)",
        "return self.end[last]",
    ],
)
def ends_in_the_padding(crf):
    """The last tag is that of the last column, where short sentences have padding."""

    class Chain(crf.Chain):
        def ended(self, tags, mask):
            return self.end[tags[:, -1]]  # here

    crf.Chain = Chain


@fault(
    "crf",
    line=[
        "alpha = torch.where(mask[:, t, None], moved, alpha)",
        "return (alpha + self.end).logsumexp(dim=1)",
        "moved = self.advance(alpha, emissions[:, t])",
    ],
)
def padding_has_paths(crf):
    """The sum over all paths goes on behind the end of a sentence."""

    class Chain(crf.Chain):
        def partition(self, emissions, mask):
            alpha = self.start + emissions[:, 0]
            for t in range(1, emissions.shape[1]):
                alpha = self.advance(alpha, emissions[:, t])  # here
            return (alpha + self.end).logsumexp(dim=1)  # here

    crf.Chain = Chain


@fault(
    "crf",
    api=r"Tensor\.(masked_fill|max)",
    module=r"encoder\.letters",
    line=[
        "found = found.masked_fill(~known[:, :, None], NOWHERE)",
        "found = found.max(dim=1).values * known.any(dim=1)[:, None]",
    ],
)
def letters_of_the_padding(crf):
    """The answers of filters at places without a letter may be the largest ones."""

    class Letters(crf.Letters):
        def forward(self, chars):
            known = chars.flatten(0, 1) != crf.PAD
            found = self.answers(self.embed(chars.flatten(0, 1)))
            found = found.max(dim=1).values * known.any(dim=1)[:, None]  # here
            return found.view(*chars.shape[:2], crf.CHAR_FILTERS)

    crf.Letters = Letters


@fault(
    "crf",
    api=r"Module\.encoder\.lstm\.LSTM|.*lstm.*",
    module=r"encoder\.lstm|encoder",
    line=[
        "packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)",
        "states = self.lstm(packed)[0]",
        "return pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])[0]",
    ],
)
def read_back_from_the_padding(crf):
    """Sentences are not packed: the way back begins in the padding."""

    class Encoder(crf.Encoder):
        def run(self, x, lengths):
            return self.lstm(x)[0]  # here

    crf.Encoder = Encoder


@fault("crf", line="return chain_sum / sentences + NEIGHBOUR_WEIGHT * word_sum / words")
def sentences_divided_by_words(crf):
    """The sum over sentences is divided by the words, like the side task."""

    def total_loss(chain_sum, word_sum, sentences, words):
        return (chain_sum + crf.NEIGHBOUR_WEIGHT * word_sum) / words  # here

    crf.total_loss = total_loss


@fault(
    "crf",
    line=[
        "after, before = neighbours(words, mask)",
        "return F.pad(words[:, 1:], (0, 1), value=IGNORED), F.pad(words[:, :-1], (1, 0),"
        " value=IGNORED)",
        "before = word_loss(model.last_word(behind), before.masked_fill(~mask, IGNORED))",
    ],
)
def both_ways_guess_what_follows(crf):
    """The way back has to guess the word behind, which it has read, not the one before."""

    def neighbours(words, mask):
        words = words.masked_fill(~mask, crf.IGNORED)
        after = F.pad(words[:, 1:], (0, 1), value=crf.IGNORED)
        return after, after  # here

    crf.neighbours = neighbours


@fault(
    "crf",
    api=r".*clip_grad_value_|.*clip_grad_norm_|.*get_total_norm|Optimizer\.SGD\.step"
    r"|Torch\._foreach_(clamp.*|norm|mul_)|Torch\.linalg.*norm",
    line="nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)",
)
def length_clips_each_value(crf):
    """Each value of the gradient is clipped at a bound, in place of the length of all."""

    def clip(model):
        torch.nn.utils.clip_grad_value_(model.parameters(), crf.MAX_NORM / 20)  # here

    crf.clip = clip


@harmless("fused", "crf")
def tags_by_one_hot(crf):
    """What a right tag scores is picked by a product with its one-hot vector."""

    class Chain(crf.Chain):
        def emitted(self, emissions, tags, mask):
            hot = F.one_hot(tags, crf.TAGS).to(emissions.dtype)
            return torch.einsum("btk,btk,bt->b", emissions, hot, mask.to(emissions.dtype))

    crf.Chain = Chain


@harmless("loss", "crf")
def paths_by_products(crf):
    """A step of the sum over paths is a product of exponentials, shifted by the largest."""

    class Chain(crf.Chain):
        def advance(self, alpha, emission):
            shift = alpha.amax(dim=1, keepdim=True).detach()
            return ((alpha - shift).exp() @ self.transitions.exp()).log() + shift + emission

    crf.Chain = Chain


@harmless("time steps", "crf")
def transitions_one_by_one(crf):
    """The transitions between right tags are added up word by word."""

    class Chain(crf.Chain):
        def moved(self, tags, mask):
            total = self.start.new_zeros(len(tags))
            for t in range(1, tags.shape[1]):
                pair = tags[:, t - 1] * crf.TAGS + tags[:, t]
                total = total + self.transitions.flatten().index_select(0, pair) * mask[:, t]
            return total

    crf.Chain = Chain


@harmless("split", "crf")
def three_letters_at_once(crf):
    """The convolution is one product with windows of three letters."""

    class Letters(crf.Letters):
        def answers(self, x):
            windows = F.pad(x, (0, 0, 1, 1)).unfold(1, 3, 1)
            return F.linear(windows.flatten(2), self.conv.weight.flatten(1), self.conv.bias)

    crf.Letters = Letters


def _part(data, chosen):
    return {name: value[chosen] for name, value in data.items()}


@harmless("micro batches", "crf", group="whole step")
def three_times_two_sentences(crf):
    """Pairs of sentences go backward alone; all are divided by the counts of the batch."""

    def backward(model, data):
        for first in range(0, len(data["lengths"]), 2):
            sums = crf.losses(model, _part(data, slice(first, first + 2)))
            crf.total_loss(*sums, *crf.counts(data)).backward()

    crf.backward = backward


@harmless("padding", "crf", group="whole step")
def padded_to_eleven_words(crf):
    """Sentences have three more words of padding."""
    losses = crf.losses

    def padded(model, data):
        wide = {
            name: value if value.dim() < 2 else F.pad(value, (*(0, 0) * (value.dim() - 2), 0, 3))
            for name, value in data.items()
        }
        return losses(model, wide)

    crf.losses = padded


@harmless("rows", "crf", group="whole step")
def longest_sentence_first(crf):
    """Sentences are sorted by their length."""
    backward = crf.backward

    def longest_first(model, data):
        backward(model, _part(data, data["lengths"].argsort(descending=True)))

    crf.backward = longest_first


@harmless("scaled", "crf", group="whole step")
def sums_divided_in_the_gradients(crf):
    """The loss is multiplied by the sentences, and the gradients are divided."""

    def backward(model, data):
        factor = 32.0 * crf.counts(data)[0]
        (factor * crf.total_loss(*crf.losses(model, data), *crf.counts(data))).backward()
        for p in model.parameters():
            p.grad.div_(factor)

    crf.backward = backward
