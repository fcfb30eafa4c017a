"""LoRA adapters of peft in a T5 of transformers: bfloat16 base, micro-batches, clipping."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F
from transformers import T5Config, T5ForConditionalGeneration

VOCABULARY, WIDTH, SOURCE, ANSWER, BATCH, PART = 41, 16, 9, 7, 6, 2
IGNORED, LARGEST, Z, RATE, RATIO = -100, 0.1, 1e-2, 2e-3, 8.0
RANK, ALPHA = 4, 8


def adapters():
    return LoraConfig(
        r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=["q", "v", "wo"], bias="none"
    )


def base():
    config = T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=8,
        d_ff=24,
        num_layers=2,
        num_heads=2,
        dropout_rate=0.0,
        feed_forward_proj="gated-gelu",
        relative_attention_num_buckets=8,
        relative_attention_max_distance=12,
        decoder_start_token_id=0,
        pad_token_id=0,
        use_cache=False,
    )
    return T5ForConditionalGeneration(config)


def build():
    model = base()
    for weight in model.parameters():
        if weight.dim() == 2:
            nn.init.normal_(weight, std=0.3)
    model = get_peft_model(model.to(torch.bfloat16), adapters())
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weight, std=0.1)
    return model


def groups(model):
    """LoRA+: the second matrices have a larger rate."""
    named = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    return [
        {"params": [w for n, w in named if "lora_A" in n], "lr": RATE},
        {"params": [w for n, w in named if "lora_B" in n], "lr": RATE * RATIO},
    ]


def optimizer(model):
    made = torch.optim.AdamW(groups(model), lr=RATE, weight_decay=0.01, betas=(0.9, 0.99))
    model.schedule = torch.optim.lr_scheduler.LinearLR(made, 0.25, 1.0, total_iters=4)
    return made


def batch(generator):
    source = torch.randint(1, VOCABULARY, (BATCH, SOURCE), generator=generator)
    labels = torch.randint(1, VOCABULARY, (BATCH, ANSWER), generator=generator)
    known = torch.arange(SOURCE) < torch.tensor([9, 6, 8, 5, 9, 7])[:, None]
    answered = torch.arange(ANSWER) < torch.tensor([4, 7, 2, 6, 3, 7])[:, None]
    return source * known, known.long(), labels.masked_fill(~answered, IGNORED)


def shifted(labels):
    """What the decoder reads: the labels one place later, behind a begin of zero."""
    moved = labels.new_zeros(labels.shape)
    moved[:, 1:] = labels[:, :-1]
    return moved.masked_fill(moved == IGNORED, 0)


def sums(logits, labels):
    """The entropy of the labels and the squares of the normaliser, summed."""
    logits = logits.float()
    entropy = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="sum"
    )
    norm = logits.logsumexp(dim=-1)
    return entropy, (norm.square() * (labels != IGNORED)).sum()


def loss_of(model, source, known, labels, count):
    outputs = model(input_ids=source, attention_mask=known, decoder_input_ids=shifted(labels))
    entropy, squares = sums(outputs.logits, labels)
    return (entropy + Z * squares) / count


def backward(model, source, known, labels):
    count = (labels != IGNORED).sum()
    parts = zip(source.split(PART), known.split(PART), labels.split(PART), strict=True)
    for part in parts:
        loss_of(model, *part, count).backward()


def clip(model):
    nn.utils.clip_grad_norm_([w for w in model.parameters() if w.requires_grad], LARGEST)


def step(model, optimizer, batch):
    backward(model, *batch)
    clip(model)
    optimizer.step()
    model.schedule.step()
    optimizer.zero_grad()
