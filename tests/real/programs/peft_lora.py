"""LoRA adapters of peft in a BERT of transformers; most weights are frozen."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import BertConfig, BertForSequenceClassification


def train(run):
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=32,
        num_labels=3,
    )
    base = BertForSequenceClassification(config)
    lora = LoraConfig(r=4, lora_alpha=8, lora_dropout=0.1, target_modules=["query", "value"])
    model = get_peft_model(base, lora)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for _ in range(run.steps):
        tokens, labels = torch.randint(64, (4, 10)), torch.randint(3, (4,))
        mask = torch.ones_like(tokens)
        mask[1, 6:] = 0
        with run.recorded(model):
            model(input_ids=tokens, attention_mask=mask, labels=labels).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    return model
