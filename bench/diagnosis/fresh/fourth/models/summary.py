"""A pointer-generator: packed LSTM, coverage, scheduled sampling, buckets of lengths."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

PAD, UNK, START = 0, 1, 2
VOCAB, OOV, EMB, HID, BATCH, SRC, TGT = 37, 3, 12, 12, 6, 9, 6
COV_WEIGHT, EPS, MAX_NORM, DECAY = 1.0, 1e-12, 2.0, 2.5
BOUNDS = (4, 7)  # of the lengths of sources
BUCKET_WEIGHTS = (1.0, 0.75, 0.5)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(EMB, HID, batch_first=True, bidirectional=True)
        self.W_h = nn.Linear(2 * HID, 2 * HID, bias=False)
        self.reduce_h = nn.Linear(2 * HID, HID)
        self.reduce_c = nn.Linear(2 * HID, HID)

    def run(self, embedded, lens):
        packed = pack_padded_sequence(embedded, lens, batch_first=True, enforce_sorted=False)
        output, (h, c) = self.lstm(packed)
        output, _ = pad_packed_sequence(output, batch_first=True, total_length=embedded.size(1))
        return output, h, c

    def reduce(self, h, c):
        """Joins the directions (2, batch, hidden) into the decoder's first state."""
        h = h.transpose(0, 1).reshape(-1, 2 * HID)
        c = c.transpose(0, 1).reshape(-1, 2 * HID)
        return F.relu(self.reduce_h(h)), F.relu(self.reduce_c(c))

    def forward(self, embedded, lens):
        output, h, c = self.run(embedded, lens)
        return output, self.W_h(output), self.reduce(h, c)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.decode_proj = nn.Linear(2 * HID, 2 * HID)
        self.W_c = nn.Linear(1, 2 * HID, bias=False)
        self.v = nn.Linear(2 * HID, 1, bias=False)

    def scores(self, features, s_t_hat, coverage):
        att = features + self.decode_proj(s_t_hat).unsqueeze(1)
        att = att + self.W_c(coverage.unsqueeze(-1))
        return self.v(torch.tanh(att)).squeeze(-1)

    def forward(self, s_t_hat, output, features, mask, coverage):
        attn = F.softmax(self.scores(features, s_t_hat, coverage), dim=1) * mask
        attn = attn / attn.sum(dim=1, keepdim=True)
        context = torch.bmm(attn.unsqueeze(1), output).squeeze(1)
        return context, attn


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.x_context = nn.Linear(2 * HID + EMB, EMB)
        self.cell = nn.LSTMCell(EMB, HID)
        self.p_gen = nn.Linear(4 * HID + EMB, 1)
        self.out1 = nn.Linear(3 * HID, HID)
        self.out2 = nn.Linear(HID, VOCAB)

    def first_context(self, output):
        return output.new_zeros(output.size(0), output.size(2))

    def advance(self, x, state):
        return self.cell(x, state)

    def copied(self, dist, src_ext, weights):
        extra = dist.new_zeros(dist.size(0), OOV)
        return torch.cat([dist, extra], dim=1).scatter_add(1, src_ext, weights)

    def forward(self, embedded, state, context, encoded, coverage):
        output, features, mask, src_ext = encoded
        x = self.x_context(torch.cat((context, embedded), 1))
        h, c = self.advance(x, state)
        s_t_hat = torch.cat((h, c), 1)
        context, attn = self.attention(s_t_hat, output, features, mask, coverage)
        p_gen = torch.sigmoid(self.p_gen(torch.cat((context, s_t_hat, x), 1)))
        logits = self.out2(self.out1(torch.cat((h, context), 1)))
        vocab_dist = p_gen * F.softmax(logits, dim=1)
        final = self.copied(vocab_dist, src_ext, (1 - p_gen) * attn)
        return final, (h, c), context, attn


class Summarizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, EMB, padding_idx=PAD)
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.seen = 0  # steps, of which the share of the teacher depends

    def forward(self, src, src_ext, lens, tgt, coins):
        """Probabilities of each step, attention and the coverage before it."""
        output, features, state = self.encoder(self.embedding(src), lens)
        mask = (src != PAD).to(output.dtype)
        encoded = output, features, mask, src_ext
        context = self.decoder.first_context(output)
        coverage = torch.zeros_like(mask)
        steps, y = [], torch.full_like(lens, START)
        for t in range(tgt.size(1)):
            embedded = self.embedding(y)
            final, state, context, attn = self.decoder(embedded, state, context, encoded, coverage)
            steps.append((final, attn, coverage))
            coverage = covered(coverage, attn)
            y = next_word(final, tgt[:, t], coins[:, t], teacher_share(self.seen))
        return steps


def covered(coverage, attn):
    return coverage + attn


def teacher_share(seen):
    """Inverse sigmoid decay."""
    return DECAY / (DECAY + math.exp(seen / DECAY))


def in_vocabulary(words):
    return words.masked_fill(words >= VOCAB, UNK)


def next_word(final, gold, coin, share):
    """The right word, or the likeliest one: scheduled sampling."""
    sampled = final.detach().argmax(dim=1)
    return in_vocabulary(torch.where(coin < share, gold, sampled))


def log_likelihood(final, gold):
    return torch.log(final.gather(1, gold.unsqueeze(1)).squeeze(1) + EPS)


def coverage_loss(attn, coverage):
    return torch.min(attn, coverage).sum(dim=1)


def text_losses(steps, tgt):
    """Of each text, the mean over its words."""
    losses = []
    for t, (final, attn, coverage) in enumerate(steps):
        loss = -log_likelihood(final, tgt[:, t]) + COV_WEIGHT * coverage_loss(attn, coverage)
        losses.append(loss * (tgt[:, t] != PAD))
    return torch.stack(losses, 1).sum(1) / (tgt != PAD).sum(1)


def bucket_weights(lens):
    which = torch.bucketize(lens, torch.tensor(BOUNDS))
    return torch.tensor(BUCKET_WEIGHTS)[which]


def backward(model, data, total):
    tgt, lens = data["tgt"], data["lens"]
    steps = model(data["src"], data["src_ext"], lens, tgt, data["coins"])
    weights = bucket_weights(lens)
    loss = (weights * text_losses(steps, tgt)).sum() / total
    loss.backward()


def build():
    torch.manual_seed(5)
    model = Summarizer()
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.uniform_(p, -0.3, 0.3)
    return model


def optimizer(model, **more):
    params = list(model.parameters())
    return torch.optim.Adagrad(params, lr=0.05, **{"initial_accumulator_value": 0.1} | more)


def batch(generator):
    """Sources with words outside of the vocabulary, which are unknown but can be copied."""
    lens = torch.tensor([7, 4, 9, 5, 2, 8])
    words = torch.tensor([5, 3, 6, 4, 2, 5])
    src_ext = torch.randint(3, VOCAB + OOV, (BATCH, SRC), generator=generator)
    src_ext[:, 1::3] = src_ext[:, :1]  # a word comes several times
    src_ext = src_ext * (torch.arange(SRC) < lens[:, None])
    tgt = torch.randint(3, VOCAB, (BATCH, TGT), generator=generator)
    tgt[:, ::2] = src_ext[:, :2].repeat(1, 2)[:, : TGT // 2]
    tgt = tgt * (torch.arange(TGT) < words[:, None])
    coins = torch.rand(BATCH, TGT, generator=generator)
    src = in_vocabulary(src_ext)
    return {"src": src, "src_ext": src_ext, "lens": lens, "tgt": tgt, "coins": coins}


def step(model, optimizer, batch):
    optimizer.zero_grad()
    backward(model, batch, bucket_weights(batch["lens"]).sum())
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    model.seen += 1
