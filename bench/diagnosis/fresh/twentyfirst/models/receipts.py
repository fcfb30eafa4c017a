"""What stands on a receipt, and where its total is: a Pix2Struct under autocast (transformers).

Pictures keep their shape: each is made as large as its patches allow, and patches know their row
and column, from one on.
"""

import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import (
    Pix2StructConfig,
    Pix2StructForConditionalGeneration,
    Pix2StructTextConfig,
    Pix2StructVisionConfig,
)

PAD, EOS, FIGURES, WORDS = 0, 1, 10, 26  # figures stand behind these two
PATCH, PATCHES, WIDTH, HIDDEN = 4, 12, 16, 24
SIZES, TEXTS = ((10, 26), (15, 13), (8, 31), (22, 9)), (6, 4, 7, 3)  # high, wide; characters
SMOOTH, OF_FIGURES, NORMALIZER, POINTING = 0.1, 2.0, 0.02, 0.4
LR, SLOWER, DECAY, MAX_NORM, WARMUP, TOTAL, NEVER = 3e-3, 0.5, 0.1, 1.5, 2, 12, -1e4


def make_net(**more):
    sizes = {"hidden_size": WIDTH, "d_kv": WIDTH // 2, "d_ff": HIDDEN, "dropout_rate": 0.0}
    vision = Pix2StructVisionConfig(
        patch_embed_hidden_size=PATCH**2,
        num_hidden_layers=2,
        num_attention_heads=2,
        seq_len=20,
        **sizes,
    )
    text = Pix2StructTextConfig(
        vocab_size=WORDS,
        num_layers=2,
        num_heads=2,
        relative_attention_num_buckets=8,
        relative_attention_max_distance=16,
        decoder_start_token_id=PAD,
        pad_token_id=PAD,
        eos_token_id=EOS,
        **sizes,
    )
    config = Pix2StructConfig(
        text_config=text,
        vision_config=vision,
        initializer_range=0.25,
        **({"attn_implementation": "sdpa"} | more),
    )
    return Pix2StructForConditionalGeneration(config)


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.point = make_net(), nn.Linear(WIDTH, 1)

    def forward(self, inputs):
        """Logits of words, and of the patch in which the total is."""
        answer = self.net(
            flattened_patches=inputs["patches"],
            attention_mask=inputs["patch_mask"],
            decoder_input_ids=inputs["before"],
            decoder_attention_mask=inputs["text_mask"],
        )
        return answer.logits, self.point(answer.encoder_last_hidden_state).squeeze(2)


def grid(high, wide):
    """As many rows and columns of patches as are allowed, without another shape."""
    scale = math.sqrt(PATCHES * (PATCH / high) * (PATCH / wide))
    rows, columns = (max(math.floor(scale * size / PATCH), 1) for size in (high, wide))
    return min(rows, PATCHES), min(columns, PATCHES)


def normalised(picture):
    spread = picture.std().clamp(min=1 / math.sqrt(picture.numel()))
    return (picture - picture.mean()) / spread


def resized(picture, rows, columns):
    size = (rows * PATCH, columns * PATCH)
    picture = picture[None, None]
    return F.interpolate(picture, size, mode="bilinear", antialias=True)[0, 0]


def cut(picture):
    """Row after row: (patches, pixels of each)."""
    parts = picture.unflatten(0, (-1, PATCH)).unflatten(2, (-1, PATCH))
    return parts.transpose(1, 2).flatten(2).flatten(0, 1)


def numbers_of(rows, columns):
    """The row and the column of each patch; zero is padding."""
    row = torch.arange(1, rows + 1).repeat_interleave(columns)
    column = torch.arange(1, columns + 1).repeat(rows)
    return torch.stack([row, column], dim=1)


def patches_of(picture):
    rows, columns = grid(*picture.shape)
    pixels = cut(resized(normalised(picture), rows, columns))
    return torch.cat([numbers_of(rows, columns).to(pixels.dtype), pixels], dim=1)


def patch_at(place, size):
    """The number of the patch that covers a place, which is given as parts of the picture."""
    rows, columns = grid(*size)
    return int(place[0] * rows) * columns + int(place[1] * columns)


def shifted(texts):
    """What the decoder is given: it begins with padding, and the last word is left out."""
    return F.pad(texts[:, :-1], (1, 0), value=PAD)


def weights_of(texts, lengths):
    """Figures count more; padding does not count."""
    figures = (texts > EOS) & (texts < EOS + 1 + FIGURES)
    weights = torch.where(figures, OF_FIGURES, 1.0)
    return weights * (torch.arange(texts.shape[1]) < lengths.unsqueeze(1))


def prepare(receipts):
    """Patches, words and what is wanted, with padding."""
    patches = [patches_of(receipt["picture"]) for receipt in receipts]
    texts = [F.pad(receipt["text"], (0, 1), value=EOS) for receipt in receipts]
    counts = torch.tensor([len(each) for each in patches])
    lengths = torch.tensor([len(each) for each in texts])
    texts = nn.utils.rnn.pad_sequence(texts, batch_first=True, padding_value=PAD)
    return {
        "patches": torch.stack([F.pad(p, (0, 0, 0, PATCHES - len(p))) for p in patches]),
        "patch_mask": (torch.arange(PATCHES) < counts.unsqueeze(1)).long(),
        "texts": texts,
        "before": shifted(texts),
        "text_mask": (torch.arange(texts.shape[1]) < lengths.unsqueeze(1)).long(),
        "weights": weights_of(texts, lengths),
        "totals": torch.tensor([patch_at(r["total"], r["picture"].shape) for r in receipts]),
    }


def word_losses(logits, texts):
    """Cross entropies with smoothed labels, and squares of what logits add up to."""
    whole = logits.logsumexp(dim=2)
    right = whole - logits.gather(2, texts.unsqueeze(2)).squeeze(2)
    losses = (1 - SMOOTH) * right + SMOOTH * (whole - logits.mean(dim=2))
    return losses + NORMALIZER * whole.square()


def text_loss(logits, inputs):
    return (word_losses(logits.float(), inputs["texts"]) * inputs["weights"]).sum()


def point_loss(logits, mask, totals):
    """Padding cannot be pointed at."""
    logits = logits.float().masked_fill(mask == 0, NEVER)
    return F.cross_entropy(logits, totals, reduction="sum")


def answered(model, inputs):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return model(inputs)


def sizes_of(inputs):
    return inputs["weights"].sum(), len(inputs["totals"])


def loss_of(model, inputs, sizes):
    words, pictures = sizes
    logits, points = answered(model, inputs)
    loss = text_loss(logits, inputs) / words
    return loss + POINTING * point_loss(points, inputs["patch_mask"], inputs["totals"]) / pictures


def backward(model, inputs):
    loss_of(model, inputs, sizes_of(inputs)).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Reader().train()


def rate_of(name):
    return SLOWER * LR if name.startswith("net.encoder.") else LR


def optimizer(model, **more):
    """The encoder learns slower; norms do not decay."""
    groups = {}
    for name, p in model.named_parameters():
        groups.setdefault((rate_of(name), 0.0 if "norm" in name else DECAY), []).append(p)
    listed = [{"params": ps, "lr": lr, "weight_decay": d} for (lr, d), ps in groups.items()]
    nadam = torch.optim.NAdam(listed, decoupled_weight_decay=True, **more)
    rates = torch.optim.lr_scheduler
    parts = [rates.LinearLR(nadam, 0.5, total_iters=WARMUP), rates.CosineAnnealingLR(nadam, TOTAL)]
    model.schedule = rates.SequentialLR(nadam, parts, milestones=[WARMUP])
    return nadam


def batch(generator):
    """Lines that are darker than paper, with noise."""
    receipts = []
    for (high, wide), length in zip(SIZES, TEXTS, strict=True):
        picture = 0.9 + 0.05 * torch.randn(high, wide, generator=generator)
        ink = torch.rand(high // 2, wide, generator=generator)
        picture[: 2 * (high // 2) : 2] -= 0.7 * ink
        text = torch.randint(EOS + 1, WORDS, (length,), generator=generator)
        total = torch.rand(2, generator=generator).tolist()
        receipts.append({"picture": picture, "text": text, "total": total})
    return receipts


def step(model, optimizer, batch):
    inputs = prepare(batch)
    optimizer.zero_grad()
    backward(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
