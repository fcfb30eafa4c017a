"""Fine-tunes a small Gemma 2 on chats: noise on embeddings, a loss for what the assistant says."""

import torch
import torch.nn.functional as F
from transformers import Gemma2Config, Gemma2ForCausalLM, get_cosine_schedule_with_warmup

# Words of users and of the assistant, in turn.
TURNS = ((5, 4), (3, 6, 2, 3), (6, 2), (2, 5, 3, 7))
PAD, EOS, BOS, START, END, USER, ASSISTANT, FIRST_WORD = range(8)
VOCAB, HIDDEN, MAX_LENGTH, IGNORE = 48, 16, 40, -100
HEAD_DIM, SCORES_SCALAR, WINDOW, FINAL_CAP = 8, 16, 5, 4.0
NOISE_ALPHA, Z_WEIGHT, MICRO_BATCHES = 3.0, 1e-2, 2
LR, WEIGHT_DECAY, MAX_GRAD_NORM, TOTAL_STEPS = 3e-3, 0.01, 0.8, 12


def build():
    config = Gemma2Config(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=HEAD_DIM,
        query_pre_attn_scalar=SCORES_SCALAR,
        sliding_window=WINDOW,
        layer_types=["sliding_attention", "full_attention"],
        attn_logit_softcapping=6.0,
        final_logit_softcapping=FINAL_CAP,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.3,
        pad_token_id=PAD,
        eos_token_id=EOS,
        bos_token_id=BOS,
        attn_implementation="eager",
    )
    return Gemma2ForCausalLM(config).train()


def optimizer(model, **more):
    adamw = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=WEIGHT_DECAY, **more)
    model.lr_scheduler = get_cosine_schedule_with_warmup(adamw, 0, TOTAL_STEPS)
    return adamw


def batch(generator):
    def words(length):
        return torch.randint(FIRST_WORD, VOCAB, (length,), generator=generator)

    return {
        "chats": [[words(length) for length in lengths] for lengths in TURNS],
        "noise": 2 * torch.rand(len(TURNS), MAX_LENGTH, HIDDEN, generator=generator) - 1,
    }


def is_answer(role, length):
    """The assistant learns its words and that a turn ends, but not how a turn begins."""
    answer = torch.full((length + 3,), role == ASSISTANT)
    answer[:2] = False
    return answer


def tokenize(turns):
    """The template of chats: a start, who speaks, words and an end for each turn."""
    ids, answers = [torch.tensor([BOS])], [torch.tensor([False])]
    for number, words in enumerate(turns):
        role = ASSISTANT if number % 2 else USER
        ids.append(torch.cat([torch.tensor([START, role]), words, torch.tensor([END])]))
        answers.append(is_answer(role, len(words)))
    return torch.cat(ids), torch.cat(answers)


def pad(rows, value):
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def collate(chats):
    ids, answers = zip(*[tokenize(turns) for turns in chats], strict=True)
    input_ids, answers = pad(ids, PAD), pad(answers, False)
    return {
        "input_ids": input_ids,
        "attention_mask": (input_ids != PAD).long(),
        "labels": input_ids.masked_fill(~answers, IGNORE),
    }


def noise_scale(attention_mask):
    """As in NEFTune: all noise of a chat is as long, however many words there are."""
    lengths = attention_mask.sum(dim=1)
    return (NOISE_ALPHA / torch.sqrt(lengths * HIDDEN)).view(-1, 1, 1)


def noisy_embeddings(model, inputs):
    embeddings = model.get_input_embeddings()(inputs["input_ids"])
    noise = inputs["noise"][:, : embeddings.shape[1]]
    return embeddings + noise_scale(inputs["attention_mask"]) * noise


def forward(model, inputs):
    outputs = model(
        inputs_embeds=noisy_embeddings(model, inputs),
        attention_mask=inputs["attention_mask"],
        use_cache=False,
    )
    return outputs.logits


def shift(logits, labels):
    """What is said at a place is about the next word."""
    return logits[:, :-1], labels[:, 1:]


def z_losses(logits, labels):
    """Keeps the sum of exponentials close to one."""
    log_z = torch.logsumexp(logits, dim=-1)
    return log_z.square() * (labels != IGNORE)


def sum_of_losses(logits, labels):
    logits, labels = shift(logits, labels)
    nll = F.cross_entropy(
        logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORE, reduction="sum"
    )
    return nll + Z_WEIGHT * z_losses(logits, labels).sum()


def micro_batches(inputs):
    chunks = {name: value.chunk(MICRO_BATCHES) for name, value in inputs.items()}
    return [{name: parts[i] for name, parts in chunks.items()} for i in range(MICRO_BATCHES)]


def train_on(model, inputs):
    num_items = (inputs["labels"] != IGNORE).sum()
    for part in micro_batches(inputs):
        loss = sum_of_losses(forward(model, part), part["labels"]) / num_items
        loss.backward()


def clip(model):
    torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_GRAD_NORM)


def step(model, optimizer, batch):
    inputs = collate(batch["chats"]) | {"noise": batch["noise"]}
    optimizer.zero_grad()
    train_on(model, inputs)
    clip(model)
    optimizer.step()
    model.lr_scheduler.step()
