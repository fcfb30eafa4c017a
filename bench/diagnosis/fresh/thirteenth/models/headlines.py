"""Headlines for short articles: a BART of transformers, smoothed labels, two micro-batches."""

from types import SimpleNamespace

import torch
from transformers import BartConfig, BartForConditionalGeneration, get_linear_schedule_with_warmup

args = SimpleNamespace(
    vocab_size=44,
    source_lengths=(11, 7, 9, 4, 10, 6),
    target_lengths=(7, 3, 5, 6, 2, 4),
    bos_token_id=0,
    pad_token_id=1,
    eos_token_id=2,
    decoder_start_token_id=2,
    scale_embedding=True,
    label_smoothing=0.1,
    gradient_accumulation_steps=2,
    learning_rate=4e-3,
    weight_decay=0.1,
    no_decay=("bias", "layer_norm.weight", "layernorm_embedding.weight"),
    max_grad_norm=1.0,
    total_steps=10,
)
IGNORE = -100


def get_config(**overrides):
    kwargs = {
        "vocab_size": args.vocab_size,
        "d_model": 16,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24,
        "max_position_embeddings": 40,
        "dropout": 0.0,
        "init_std": 0.15,
        "scale_embedding": args.scale_embedding,
        "bos_token_id": args.bos_token_id,
        "pad_token_id": args.pad_token_id,
        "eos_token_id": args.eos_token_id,
        "decoder_start_token_id": args.decoder_start_token_id,
        "forced_eos_token_id": None,
        "use_cache": False,
    }
    return BartConfig(**(kwargs | overrides))


def build():
    model = BartForConditionalGeneration(get_config())
    model.train()
    return model


def get_parameter_groups(model):
    decay, rest = [], []
    for name, param in model.named_parameters():
        (rest if any(word in name for word in args.no_decay) else decay).append(param)
    return [
        {"params": decay, "weight_decay": args.weight_decay},
        {"params": rest, "weight_decay": 0.0},
    ]


def optimizer(model, **more):
    adamw = torch.optim.AdamW(get_parameter_groups(model), lr=args.learning_rate, **more)
    model.lr_scheduler = get_linear_schedule_with_warmup(adamw, 0, args.total_steps)
    return adamw


def pad(rows):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=args.pad_token_id)


def batch(generator):
    """Words of articles and headlines, as a tokenizer gives them."""

    def sentence(length):
        words = torch.randint(3, args.vocab_size, (length,), generator=generator)
        return torch.cat([torch.tensor([0]), words, torch.tensor([2])])

    return {
        "input_ids": pad([sentence(length) for length in args.source_lengths]),
        "labels": pad([sentence(length) for length in args.target_lengths]),
    }


def get_attention_mask(input_ids):
    return input_ids.ne(args.pad_token_id).long()


def ignore_padding(labels):
    return labels.masked_fill(labels == args.pad_token_id, IGNORE)


def collate(features):
    """Adds the mask of articles; what stands behind a headline has no loss."""
    labels = ignore_padding(features["labels"])
    attention_mask = get_attention_mask(features["input_ids"])
    return {"input_ids": features["input_ids"], "attention_mask": attention_mask, "labels": labels}


def shift_tokens_right(labels):
    """The decoder sees the words before the one that it has to say."""
    shifted = torch.empty_like(labels)
    shifted[:, 1:] = labels[:, :-1]
    shifted[:, 0] = args.decoder_start_token_id
    return shifted.masked_fill(shifted == IGNORE, args.pad_token_id)


def get_logits(model, inputs):
    outputs = model(
        input_ids=inputs["input_ids"],
        attention_mask=inputs["attention_mask"],
        decoder_input_ids=shift_tokens_right(inputs["labels"]),
    )
    return outputs.logits


def count_items(labels):
    return labels.ne(IGNORE).sum()


def smoothed_nll(logits, labels):
    """The sum over all words that count."""
    lprobs = torch.log_softmax(logits, dim=-1)
    padded = labels.eq(IGNORE)
    target = labels.clamp(min=0).unsqueeze(-1)
    nll_loss = -lprobs.gather(dim=-1, index=target).squeeze(-1)
    smooth_loss = -lprobs.mean(dim=-1)
    nll_loss = nll_loss.masked_fill(padded, 0.0).sum()
    smooth_loss = smooth_loss.masked_fill(padded, 0.0).sum()
    return (1 - args.label_smoothing) * nll_loss + args.label_smoothing * smooth_loss


def compute_loss(model, inputs, num_items):
    loss = smoothed_nll(get_logits(model, inputs), inputs["labels"])
    return loss / num_items


def split(inputs):
    chunks = {k: v.chunk(args.gradient_accumulation_steps) for k, v in inputs.items()}
    return [
        {k: v[number] for k, v in chunks.items()}
        for number in range(args.gradient_accumulation_steps)
    ]


def training_step(model, optimizer, inputs):
    num_items = count_items(inputs["labels"])
    optimizer.zero_grad()
    for micro_batch in split(inputs):
        loss = compute_loss(model, micro_batch, num_items)
        loss.backward()


def clip_gradients(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)


def step(model, optimizer, batch):
    training_step(model, optimizer, collate(batch))
    clip_gradients(model)
    optimizer.step()
    model.lr_scheduler.step()
