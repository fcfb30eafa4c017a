"""Answers with a thumb up or down: adapters in an OLMo 2 learn by KTO (transformers, peft)."""

import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from torch.nn import functional as F
from transformers import Olmo2Config, Olmo2ForCausalLM

PAD, END, WORDS, IGNORE = 0, 1, 30, -100
# How many words are asked and answered, and whether the answer was liked.
ASKED, ANSWERED = (5, 3, 4, 2, 5, 3), (4, 6, 3, 5, 2, 4)
LIKED = (True, False, True, True, False, True)
RANK, ALPHA, TARGETS = 4, 6, ("q_proj", "v_proj", "down_proj")
BETA, WEIGHT_UP, WEIGHT_DOWN = 0.3, 0.8, 1.3
LR, TIMES_FASTER, DECAY, MAX_NORM, STEPS = 2e-3, 8.0, 0.01, 0.5, 10


def make_base(**more):
    config = Olmo2Config(
        vocab_size=WORDS,
        hidden_size=16,
        intermediate_size=28,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        initializer_range=0.2,
        pad_token_id=PAD,
        eos_token_id=END,
        use_cache=False,
        **({"attn_implementation": "sdpa"} | more),
    )
    return Olmo2ForCausalLM(config)


def lora_settings():
    return {
        "r": RANK,
        "lora_alpha": ALPHA,
        "target_modules": list(TARGETS),
        "use_rslora": True,
        "lora_dropout": 0.0,
        "init_lora_weights": False,  # as if something had been learned before
    }


class Policy(nn.Module):
    """With its adapters, it learns; without them, it is the reference."""

    def __init__(self):
        super().__init__()
        self.lm = get_peft_model(make_base(), LoraConfig(**lora_settings()))

    def forward(self, tokens, mask):
        return self.lm(input_ids=tokens, attention_mask=mask).logits


def joined(question, answer):
    """Of a question nothing is learned, of an answer also its end."""
    answer = torch.cat([answer, answer.new_tensor([END])])
    return torch.cat([question, answer]), torch.cat([torch.full_like(question, IGNORE), answer])


def pad_left(rows, value):
    longest = max(len(row) for row in rows)
    return torch.stack([F.pad(row, (longest - len(row), 0), value=value) for row in rows])


def pad_all(pairs):
    tokens, labels = zip(*pairs, strict=True)
    tokens = pad_left(tokens, PAD)
    return {"tokens": tokens, "mask": (tokens != PAD).long(), "labels": pad_left(labels, IGNORE)}


def strangers(rows):
    """Each question with the answer to the one before it."""
    before = rows[-1:] + rows[:-1]
    return [joined(a["question"], b["answer"]) for a, b in zip(rows, before, strict=True)]


def collate(rows):
    """The answers, and answers that do not belong to the questions, under names of their own."""
    own = pad_all([joined(row["question"], row["answer"]) for row in rows])
    other = pad_all(strangers(rows))
    liked = torch.stack([row["liked"] for row in rows])
    return own | {f"other_{name}": value for name, value in other.items()} | {"liked": liked}


def log_chances(logits, labels):
    """Of whole answers: each word is told by what stands before it."""
    logits, labels = logits[:, :-1], labels[:, 1:]
    real = labels != IGNORE
    chosen = labels.masked_fill(~real, 0).unsqueeze(2)
    words = logits.log_softmax(dim=2).gather(2, chosen).squeeze(2)
    return (words * real).sum(dim=1)


def of_policy(model, inputs):
    return log_chances(model(inputs["tokens"], inputs["mask"]), inputs["labels"])


@torch.no_grad()
def of_reference(model, inputs):
    with model.lm.disable_adapter():
        return of_policy(model, inputs)


def others(inputs):
    return {name: inputs[f"other_{name}"] for name in ("tokens", "mask", "labels")}


@torch.no_grad()
def drift_of(model, inputs):
    """How far the policy is from the reference, by answers to other questions."""
    inputs = others(inputs)
    above = of_policy(model, inputs) - of_reference(model, inputs)
    return above.mean().clamp(min=0)


def kto_losses(ratios, drift, liked):
    """What is liked should be above the drift, what is not below."""
    up = WEIGHT_UP * (1 - torch.sigmoid(BETA * (ratios - drift)))
    down = WEIGHT_DOWN * (1 - torch.sigmoid(BETA * (drift - ratios)))
    return torch.where(liked, up, down)


def loss_of(model, inputs, drift, count):
    ratios = of_policy(model, inputs) - of_reference(model, inputs)
    return kto_losses(ratios, drift, inputs["liked"]).sum() / count


def backward(model, inputs):
    drift = drift_of(model, inputs)
    loss_of(model, inputs, drift, len(inputs["liked"])).backward()


def clip(model):
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)


def build():
    return Policy().train()


def optimizer(model, **more):
    """The second matrices of adapters learn faster than the first ones (LoRA+)."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for name, p in named if "lora_A" in name], "lr": LR},
        {"params": [p for name, p in named if "lora_B" in name], "lr": TIMES_FASTER * LR},
    ]
    adamw = torch.optim.AdamW(groups, lr=LR, weight_decay=DECAY, **more)
    model.schedule = torch.optim.lr_scheduler.LinearLR(adamw, 1.0, 0.1, STEPS)
    return adamw


def batch(generator):
    def words(count):
        return torch.randint(END + 1, WORDS, (count,), generator=generator)

    return [
        {"question": words(asked), "answer": words(answered), "liked": torch.tensor(liked)}
        for asked, answered, liked in zip(ASKED, ANSWERED, LIKED, strict=True)
    ]


def step(model, optimizer, batch):
    inputs = collate(batch)
    optimizer.zero_grad()
    backward(model, inputs)
    clip(model)
    optimizer.step()
    model.schedule.step()
