"""A Mixtral of transformers in an ordinary loop: routing picks other experts for each token."""

import torch
from transformers import MixtralConfig, MixtralForCausalLM


def train(run):
    config = MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        max_position_embeddings=32,
        output_router_logits=True,
    )
    model = MixtralForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(run.steps):
        tokens = torch.randint(64, (2, 12))
        with run.recorded(model):
            model(input_ids=tokens, labels=tokens).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    return model
