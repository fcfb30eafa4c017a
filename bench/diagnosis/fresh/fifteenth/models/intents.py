"""What users want of an assistant: a RoBERTa for intents and the slots of words (transformers)."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from transformers import (
    RobertaConfig,
    RobertaModel,
    get_polynomial_decay_schedule_with_warmup,
)

BOS, PAD, EOS, FIRST = 0, 1, 2, 3
VOCAB, INTENTS, SLOTS, IGNORE = 40, 4, 6, -100
# How many sub-words the words of each sentence have.
SENTENCES = ((1, 2, 1, 1), (3, 1), (1, 1, 2, 1, 2, 1), (2, 2, 1), (1, 3, 1, 1, 1), (1, 2, 2))
SLOT_WEIGHTS = (0.3, 1.0, 1.0, 1.5, 1.0, 2.0)
SLOT_LOSS, SMOOTHING = 1.5, 0.1
PER_DEVICE, ADAM_EPS = 2, 1e-7
LR, HEAD_LR, DECAY, MAX_NORM, WARMUP, TOTAL = 1e-3, 4e-3, 0.1, 1.0, 0, 10
NO_DECAY = ("bias", "LayerNorm.weight")


def make_config(**more):
    settings = {
        "vocab_size": VOCAB,
        "hidden_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "hidden_act": "gelu",
        "max_position_embeddings": 32,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        "initializer_range": 0.15,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "attn_implementation": "sdpa",
    }
    return RobertaConfig(**(settings | more))


class JointModel(nn.Module):
    """The intent is read at the first token; slots also see how likely each intent is."""

    def __init__(self):
        super().__init__()
        self.roberta = RobertaModel(make_config(), add_pooling_layer=False)
        self.intent_dense = nn.Linear(16, 16)
        self.intent_out = nn.Linear(16, INTENTS)
        self.slot_out = nn.Linear(16 + INTENTS, SLOTS)

    def encode(self, input_ids, attention_mask):
        outputs = self.roberta(input_ids=input_ids, attention_mask=attention_mask)
        return outputs.last_hidden_state

    def intents(self, states):
        return self.intent_out(torch.tanh(self.intent_dense(states[:, 0])))

    def slots(self, states, intent_logits):
        chances = intent_logits.softmax(dim=-1)
        chances = chances.unsqueeze(1).expand(-1, states.shape[1], -1)
        return self.slot_out(torch.cat([states, chances], dim=-1))

    def forward(self, input_ids, attention_mask):
        states = self.encode(input_ids, attention_mask)
        intent_logits = self.intents(states)
        return intent_logits, self.slots(states, intent_logits)


def labels_of_word(slot, pieces):
    """The first piece of a word has its slot, the others have no loss."""
    labels = torch.full((len(pieces),), IGNORE)
    labels[0] = slot
    return labels


def encode_sentence(words, slots):
    ids = torch.cat([torch.tensor([BOS]), *words, torch.tensor([EOS])])
    none = torch.tensor([IGNORE])
    labels = [labels_of_word(slot, word) for slot, word in zip(slots, words, strict=True)]
    return ids, torch.cat([none, *labels, none])


def pad(rows, value):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=value)


def collate(sentences):
    encoded = [encode_sentence(each["words"], each["slots"]) for each in sentences]
    input_ids = pad([ids for ids, _ in encoded], PAD)
    return {
        "input_ids": input_ids,
        "attention_mask": input_ids.ne(PAD).long(),
        "slots": pad([labels for _, labels in encoded], IGNORE),
        "intent": torch.stack([each["intent"] for each in sentences]),
    }


def intent_loss(logits, intent):
    return cross_entropy(logits, intent, label_smoothing=SMOOTHING, reduction="sum")


def slot_loss(logits, slots):
    """A sum; the label of words without a slot is frequent, and weighs less."""
    weight = torch.tensor(SLOT_WEIGHTS, dtype=logits.dtype)
    flat = logits.reshape(-1, SLOTS)
    return cross_entropy(flat, slots.reshape(-1), weight, ignore_index=IGNORE, reduction="sum")


def sizes_of(inputs):
    """What losses are divided by: sentences, and words."""
    return len(inputs["intent"]), (inputs["slots"] != IGNORE).sum()


def compute_loss(model, inputs, sizes):
    intent_logits, slot_logits = model(inputs["input_ids"], inputs["attention_mask"])
    first = intent_loss(intent_logits, inputs["intent"]) / sizes[0]
    second = slot_loss(slot_logits, inputs["slots"]) / sizes[1]
    return first + SLOT_LOSS * second


def micro_batches(inputs):
    count = len(inputs["intent"])
    for begin in range(0, count, PER_DEVICE):
        yield {name: value[begin : begin + PER_DEVICE] for name, value in inputs.items()}


def accumulate(model, inputs):
    sizes = sizes_of(inputs)
    for part in micro_batches(inputs):
        compute_loss(model, part, sizes).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return JointModel().train()


def parameter_groups(model):
    """Heads learn faster; biases and norms do not decay."""
    groups = []
    for heads in (False, True):
        for decays in (False, True):
            chosen = [
                p
                for name, p in model.named_parameters()
                if name.startswith("roberta.") != heads
                and decays != any(part in name for part in NO_DECAY)
            ]
            rate = HEAD_LR if heads else LR
            groups.append({"params": chosen, "lr": rate, "weight_decay": DECAY if decays else 0.0})
    return groups


def optimizer(model, **more):
    adamw = torch.optim.AdamW(parameter_groups(model), lr=LR, eps=ADAM_EPS, **more)
    model.schedule = get_polynomial_decay_schedule_with_warmup(adamw, WARMUP, TOTAL)
    return adamw


def batch(generator):
    def draw(low, high, *size):
        return torch.randint(low, high, size, generator=generator)

    return [
        {
            "words": [draw(FIRST, VOCAB, pieces) for pieces in lengths],
            "slots": draw(0, SLOTS, len(lengths)),
            "intent": draw(0, INTENTS, 1)[0],
        }
        for lengths in SENTENCES
    ]


def step(model, optimizer, batch):
    inputs = collate(batch)
    optimizer.zero_grad()
    accumulate(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
