"""Cases of the pointer-generator."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "summary",
    api=r"Tensor\.scatter(_add)?_?",
    line="return torch.cat([dist, extra], dim=1).scatter_add(1, src_ext, weights)",
)
def copies_overwrite_one_another(summary):
    """The attention to a word that comes several times is that of one place, and written over."""

    class Decoder(summary.Decoder):
        def copied(self, dist, src_ext, weights):
            extra = dist.new_zeros(dist.size(0), summary.OOV)
            known = torch.cat([dist, extra], dim=1)
            place = torch.zeros_like(known).scatter(1, src_ext, weights)  # here
            return known + place  # here

    summary.Decoder = Decoder


@fault(
    "summary",
    api=r"(Torch|Tensor)\.(min|minimum)",
    line="return torch.min(attn, coverage).sum(dim=1)",
)
def coverage_with_the_step_itself(summary):
    """The coverage that is compared with the attention holds this attention already."""

    def coverage_loss(attn, coverage):
        coverage = coverage + attn  # here
        return torch.min(attn, coverage).sum(dim=1)  # here

    summary.coverage_loss = coverage_loss


@fault(
    "summary",
    line=[
        "h = h.transpose(0, 1).reshape(-1, 2 * HID)",
        "return F.relu(self.reduce_h(h)), F.relu(self.reduce_c(c))",
    ],
)
def directions_joined_by_a_view(summary):
    """The states of the directions are viewed as rows, not transposed: texts are mixed."""

    class Encoder(summary.Encoder):
        def reduce(self, h, c):
            h = h.reshape(-1, 2 * summary.HID)  # here
            c = c.reshape(-1, 2 * summary.HID)  # here
            return F.relu(self.reduce_h(h)), F.relu(self.reduce_c(c))  # here

    summary.Encoder = Encoder


@fault(
    "summary",
    api=r"Torch\.where|Tensor\.(__[lg][te]__|[lg][te])",
    line="return in_vocabulary(torch.where(coin < share, gold, sampled))",
)
def teacher_by_the_wrong_coin(summary):
    """The right word is fed where the likeliest one should be."""

    def next_word(final, gold, coin, share):
        sampled = final.detach().argmax(dim=1)
        return summary.in_vocabulary(torch.where(coin > share, gold, sampled))  # here

    summary.next_word = next_word


@fault(
    "summary",
    api=r"Torch\.bucketize",
    line=[
        "which = torch.bucketize(lens, torch.tensor(BOUNDS))",
        "return torch.tensor(BUCKET_WEIGHTS)[which]",
    ],
)
def borders_in_the_next_bucket(summary):
    """A length that is a border counts to the next bucket."""

    def bucket_weights(lens):
        which = torch.bucketize(lens, torch.tensor(summary.BOUNDS), right=True)  # here
        return torch.tensor(summary.BUCKET_WEIGHTS)[which]  # here

    summary.bucket_weights = bucket_weights


@fault(
    "summary",
    # Forward, nothing is wrong. Backward, what takes the coverage gives it no gradient, and the
    # attention of the step before lacks a part of its own.
    api=r"Functional\.linear",
    module=r"decoder\.attention\.W_c",
    line=[
        "return coverage + attn",
        "coverage = covered(coverage, attn)",
        "return torch.min(attn, coverage).sum(dim=1)",
        "att = att + self.W_c(coverage.unsqueeze(-1))",
        "attn = attn / attn.sum(dim=1, keepdim=True)",
    ],
)
def coverage_without_gradient(summary):
    """The attention is detached where it is added to the coverage."""
    summary.covered = lambda coverage, attn: coverage + attn.detach()  # here


@fault("summary", api=r"Optimizer\.Adagrad\.step", update=True, line="    optimizer.step()")
def sums_of_squares_begin_at_zero(summary):
    """Adagrad's accumulators begin with 0 for 0.1."""
    optimizer = summary.optimizer
    summary.optimizer = lambda model: optimizer(model, initial_accumulator_value=0.0)


@fault(
    "summary",
    api=r"Functional\.linear",
    module=r"decoder(\.x_context)?",
    line=[
        "x = self.x_context(torch.cat((context, embedded), 1))",
        "return output.new_zeros(output.size(0), output.size(2))",
        "context = self.decoder.first_context(output)",
    ],
)
def context_of_the_batch_before(summary):
    """The decoder keeps its context: the next batch begins with the last one of this batch."""

    class Decoder(summary.Decoder):
        kept = None

        def first_context(self, output):
            if self.kept is not None:
                return self.kept  # here
            return super().first_context(output)

        def forward(self, *inputs):
            made = super().forward(*inputs)
            self.kept = made[2].detach()  # here
            return made

    summary.Decoder = Decoder


@harmless("fused", "summary")
def cell_written_out(summary):
    """The gates of the decoder's cell are written out."""

    class Decoder(summary.Decoder):
        def advance(self, x, state):
            h, c = state
            cell = self.cell
            gates = torch.addmm(cell.bias_ih + cell.bias_hh, x, cell.weight_ih.t())
            gates = torch.addmm(gates, h, cell.weight_hh.t())
            i, f, g, o = gates.chunk(4, dim=1)
            c = torch.addcmul(f.sigmoid() * c, i.sigmoid(), g.tanh())
            return o.sigmoid() * c.tanh(), c

    summary.Decoder = Decoder


@harmless("fused", "summary")
def copies_by_a_product(summary):
    """A product with the one-hot words of the source for the scattered sum."""

    class Decoder(summary.Decoder):
        def copied(self, dist, src_ext, weights):
            place = F.one_hot(src_ext, summary.VOCAB + summary.OOV).to(weights.dtype)
            return F.pad(dist, (0, summary.OOV)) + torch.einsum("bs,bsv->bv", weights, place)

    summary.Decoder = Decoder


@harmless("split", "summary")
def scores_in_place(summary):
    """The scores are added up in place; the products with vectors are written as sums."""

    class Attention(summary.Attention):
        def scores(self, features, s_t_hat, coverage):
            att = torch.einsum("bs,h->bsh", coverage, self.W_c.weight[:, 0])
            att += self.decode_proj(s_t_hat)[:, None]
            att += features
            return (att.tanh_() * self.v.weight[0]).sum(-1)

    summary.Attention = Attention


@harmless("loss", "summary")
def likelihood_by_nll(summary):
    """The loss of PyTorch picks the logarithm; the smaller value is taken by where."""

    def log_likelihood(final, gold):
        return -F.nll_loss(final.add(summary.EPS).log(), gold, reduction="none")

    def coverage_loss(attn, coverage):
        return torch.where(attn < coverage, attn, coverage).sum(dim=1)

    summary.log_likelihood, summary.coverage_loss = log_likelihood, coverage_loss


@harmless("padding", "summary", group="whole step")
def longer_padding(summary):
    """Sources have two more empty places, summaries one."""
    backward = summary.backward

    def padded(model, data, total):
        more = {"src": 2, "src_ext": 2, "tgt": 1, "coins": 1, "lens": 0}
        backward(model, {name: F.pad(x, (0, more[name])) for name, x in data.items()}, total)

    summary.backward = padded


@harmless("padding", "summary", group="whole step")
def sources_encoded_alone(summary):
    """The encoder runs over each source alone, without padding: nothing is packed."""

    class Encoder(summary.Encoder):
        def run(self, embedded, lens):
            outputs, hs, cs = [], [], []
            for row, count in zip(embedded, lens.tolist(), strict=True):
                output, (h, c) = self.lstm(row[:count].unsqueeze(0))
                outputs.append(F.pad(output[0], (0, 0, 0, len(row) - count)))
                hs.append(h)
                cs.append(c)
            return torch.stack(outputs), torch.cat(hs, dim=1), torch.cat(cs, dim=1)

    summary.Encoder = Encoder


@harmless("micro batches", "summary", group="whole step")
def bucket_after_bucket(summary):
    """Each bucket of lengths goes backward on its own."""
    backward = summary.backward

    def buckets(model, data, total):
        which = torch.bucketize(data["lens"], torch.tensor(summary.BOUNDS))
        for each in which.unique():
            backward(model, {name: x[which == each] for name, x in data.items()}, total)

    summary.backward = buckets


@harmless("recomputed", "summary", group="whole step")
def decoder_computed_again(summary):
    """Each step of the decoder is computed again in the backward pass."""

    class Decoder(summary.Decoder):
        def __call__(self, *inputs):
            return checkpoint(super().__call__, *inputs, use_reentrant=False)

    summary.Decoder = Decoder
