"""Music from words: a MusicGen with four books of codes, in micro-batches (transformers)."""

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    MusicgenDecoderConfig,
    MusicgenForCausalLM,
    T5Config,
    T5EncoderModel,
    get_cosine_schedule_with_warmup,
)

BOOKS, CODES, WORDS, IGNORE = 4, 18, 30, -100
BEGIN = CODES  # also stands where a book has no code
# How many codes each song has in each book, and how many words say what it is.
SONGS, TEXTS = (7, 5, 8, 4, 6, 7), (4, 3, 6, 2, 5, 4)
PER_DEVICE, WIDTH, TEXT_WIDTH = 2, 16, 12
BOOK_WEIGHTS, Z_WEIGHT = (2.0, 1.0, 0.7, 0.5), 1e-2
LR, BETAS, DECAY, MAX_NORM, WARMUP, TOTAL = 3e-3, (0.9, 0.95), 0.1, 0.7, 2, 12


def make_decoder(**more):
    settings = {
        "vocab_size": CODES,
        "num_codebooks": BOOKS,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "ffn_dim": 32,
        "activation_function": "gelu",
        "max_position_embeddings": 32,
        "dropout": 0.0,
        "initializer_factor": 0.2,
        "pad_token_id": BEGIN,
        "bos_token_id": BEGIN,
        "attn_implementation": "sdpa",
    }
    return MusicgenForCausalLM(MusicgenDecoderConfig(**(settings | more)))


def make_text_encoder():
    config = T5Config(
        vocab_size=WORDS,
        d_model=TEXT_WIDTH,
        d_kv=6,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
    )
    return T5EncoderModel(config)


class Composer(nn.Module):
    """The words are read by a T5 that does not learn."""

    def __init__(self):
        super().__init__()
        self.text_encoder = make_text_encoder().requires_grad_(False)
        self.to_decoder = nn.Linear(TEXT_WIDTH, WIDTH)
        self.decoder = make_decoder()

    def read(self, texts, mask, keep):
        """Some songs are learned without words: all of their states are zero."""
        states = self.text_encoder(texts, attention_mask=mask).last_hidden_state
        states = self.to_decoder(states) * keep.view(-1, 1, 1)
        return states * mask.unsqueeze(-1)

    def forward(self, codes, texts, mask, keep):
        """Scores of the next code of each book: (songs, books, moments, codes)."""
        states = self.read(texts, mask, keep)
        logits = self.decoder(
            codes.flatten(0, 1),
            encoder_hidden_states=states,
            encoder_attention_mask=mask,
            use_cache=False,
        ).logits
        return logits.unflatten(0, (-1, BOOKS))


def delayed(codes):
    """Each book begins a moment later than the one before; before it is the mark of the begin."""
    songs, books, length = codes.shape
    late = codes.new_full((songs, books, length + books), BEGIN)
    for book in range(books):
        late[:, book, book + 1 : book + 1 + length] = codes[:, book]
    return late


def labels_of(late):
    """What comes next; where there is no code, there is no loss."""
    labels = late[:, :, 1:]
    return labels.masked_fill(labels == BEGIN, IGNORE)


def pad_songs(songs):
    longest = max(song.shape[1] for song in songs)
    padded = [F.pad(song, (0, longest - song.shape[1]), value=BEGIN) for song in songs]
    return torch.stack(padded)


def pad_texts(texts):
    return nn.utils.rnn.pad_sequence(texts, batch_first=True)


def collate(songs):
    late = delayed(pad_songs([song["codes"] for song in songs]))
    texts = pad_texts([song["text"] for song in songs])
    return {
        "codes": late[:, :, :-1],
        "labels": labels_of(late),
        "texts": texts,
        "mask": (texts > 0).long(),
        "keep": torch.stack([song["keep"] for song in songs]),
    }


def book_losses(logits, labels):
    """The sum over songs and moments, for each book."""
    losses = [
        F.cross_entropy(
            logits[:, book].flatten(0, 1),
            labels[:, book].flatten(),
            ignore_index=IGNORE,
            reduction="sum",
        )
        for book in range(BOOKS)
    ]
    return torch.stack(losses)


def z_losses(logits, labels):
    """Scores should not grow: the square of the logarithm of their sum."""
    log_z = logits.logsumexp(dim=-1)
    return (log_z.square() * (labels != IGNORE)).sum(dim=(0, 2))


def counts_of(inputs):
    """How many codes each book has, in all micro-batches."""
    return (inputs["labels"] != IGNORE).sum(dim=(0, 2))


def loss_of(model, inputs, counts):
    logits = model(inputs["codes"], inputs["texts"], inputs["mask"], inputs["keep"])
    weights = torch.tensor(BOOK_WEIGHTS, dtype=logits.dtype)
    losses = book_losses(logits, inputs["labels"])
    losses = losses + Z_WEIGHT * z_losses(logits, inputs["labels"])
    return (weights * losses / counts).sum() / weights.sum()


def micro_batches(inputs):
    parts = [value.split(PER_DEVICE) for value in inputs.values()]
    return [dict(zip(inputs, part, strict=True)) for part in zip(*parts, strict=True)]


def accumulate(model, inputs):
    counts = counts_of(inputs)
    for part in micro_batches(inputs):
        loss_of(model, part, counts).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Composer().train()


def optimizer(model, **more):
    learned = [p for p in model.parameters() if p.requires_grad]
    adamw = torch.optim.AdamW(learned, lr=LR, betas=BETAS, weight_decay=DECAY, **more)
    model.schedule = get_cosine_schedule_with_warmup(adamw, WARMUP, TOTAL)
    model.schedule.step()
    return adamw


def batch(generator):
    songs = []
    for row, (length, words) in enumerate(zip(SONGS, TEXTS, strict=True)):
        songs.append(
            {
                "codes": torch.randint(0, CODES, (BOOKS, length), generator=generator),
                "text": torch.randint(1, WORDS, (words,), generator=generator),
                "keep": torch.tensor(float(row not in (1, 4))),
            }
        )
    return songs


def step(model, optimizer, batch):
    inputs = collate(batch)
    optimizer.zero_grad()
    accumulate(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
