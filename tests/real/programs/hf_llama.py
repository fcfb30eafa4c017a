"""A Llama of transformers, trained by its Trainer."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class RecordingTrainer(Trainer):
    def training_step(self, model, inputs, *args, **kwargs):
        with self.run.recorded(model):
            return super().training_step(model, inputs, *args, **kwargs)


def train(run):
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        attn_implementation=run.options.get("attention", "sdpa"),
    )
    model = LlamaForCausalLM(config)
    tokens = torch.randint(64, (8, 12))
    masks = torch.ones_like(tokens)
    masks[::2, 9:] = 0
    data = [
        {"input_ids": t, "labels": t, "attention_mask": m}
        for t, m in zip(tokens, masks, strict=True)
    ]
    arguments = TrainingArguments(
        output_dir=str(run.scratch),
        max_steps=run.steps,
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        use_cpu=True,
        bf16=run.options.get("bf16", False),
        gradient_checkpointing=run.options.get("checkpointing", False),
        optim=run.options.get("optim", "adamw_torch"),
    )
    trainer = RecordingTrainer(model=model, args=arguments, train_dataset=data)
    trainer.run = run
    trainer.train()
    return model
