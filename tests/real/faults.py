"""Bugs of real histories: each changes a few words of a function of a library or of a program.

The changed function keeps its file and line numbers, so that a report can be held against the line
that was changed. A fault whose first wrong number appears elsewhere says where: `named` is a
regular expression that the report's headline (name, source line, sentence) must match.
"""

import ast
import dataclasses
import importlib
import inspect
import os
import textwrap

LLAMA = "transformers.models.llama.modeling_llama"
MIXTRAL = "transformers.models.mixtral.modeling_mixtral"
LOSS = "transformers.loss.loss_utils"


@dataclasses.dataclass
class Fault:
    program: str
    function: str  # "module:qualified.name"
    old: str
    new: str
    named: str = ""  # "": the line of `old`
    options: dict = dataclasses.field(default_factory=dict)  # of both runs


FAULTS = {
    # -- transformers: Llama
    "rms_epsilon_outside_the_root": Fault(
        "hf_llama",
        f"{LLAMA}:LlamaRMSNorm.forward",
        "torch.rsqrt(variance + self.variance_epsilon)",
        "1 / (torch.sqrt(variance) + self.variance_epsilon)",
    ),
    "rms_epsilon_larger": Fault(
        "hf_llama",
        f"{LLAMA}:LlamaRMSNorm.forward",
        "variance + self.variance_epsilon",
        "variance + 1e-5",
    ),
    "rms_norm_subtracts_the_mean": Fault(
        "hf_llama",
        f"{LLAMA}:LlamaRMSNorm.forward",
        "hidden_states.pow(2).mean(-1, keepdim=True)",
        "hidden_states.pow(2).mean(0, keepdim=True)",
    ),
    "rotate_half_without_sign": Fault(
        "hf_llama",
        f"{LLAMA}:rotate_half",
        "torch.cat((-x2, x1), dim=-1)",
        "torch.cat((x2, x1), dim=-1)",
    ),
    "rotate_half_of_pairs": Fault(
        "hf_llama", f"{LLAMA}:rotate_half", "x[..., : x.shape[-1] // 2]", "x[..., ::2]"
    ),
    "repeat_for_repeat_interleave": Fault(
        "hf_llama",
        f"{LLAMA}:repeat_kv",
        "hidden_states[:, :, None, :, :].expand(batch, num_key_value_heads, n_rep, slen, head_dim)",
        "hidden_states[:, None].expand(batch, n_rep, num_key_value_heads, slen, head_dim)",
        options={"attention": "eager"},
    ),
    "attention_scale_of_the_model": Fault(
        "hf_llama",
        f"{LLAMA}:eager_attention_forward",
        "* scaling",
        "* scaling * 0.5",
        options={"attention": "eager"},
    ),
    "softmax_in_half_precision": Fault(
        "hf_llama",
        f"{LLAMA}:eager_attention_forward",
        "dtype=torch.float32",
        "dtype=torch.bfloat16",
        options={"attention": "eager"},
    ),
    "residual_after_the_norm": Fault(
        "hf_llama",
        f"{LLAMA}:LlamaDecoderLayer.forward",
        "hidden_states = self.post_attention_layernorm(hidden_states)",
        "residual = hidden_states = self.post_attention_layernorm(hidden_states)",
        named=r"modeling_llama\.py:312",
    ),
    "gate_without_activation": Fault(
        "hf_llama",
        f"{LLAMA}:LlamaMLP.forward",
        "self.act_fn(self.gate_proj(x)) * self.up_proj(x)",
        "self.act_fn(self.gate_proj(x) * self.up_proj(x))",
    ),
    "labels_shifted_twice": Fault(
        "hf_llama",
        f"{LOSS}:ForCausalLMLoss",
        "(0, 1)",
        "(-1, 2)",
    ),
    "positions_off_by_one": Fault(
        "hf_llama",
        f"{LLAMA}:LlamaRotaryEmbedding.forward",
        "position_ids[..., None].float()",
        "(position_ids[..., None].float() + 1)",
    ),
    # -- transformers: Mixtral
    "experts_not_normalised": Fault(
        "hf_mixtral",
        f"{MIXTRAL}:MixtralTopKRouter.forward",
        "router_top_value /= router_top_value.sum(dim=-1, keepdim=True)",
        "pass",
        named=r"modeling_mixtral\.py:10[789]",
    ),
    "router_softmax_over_tokens": Fault(
        "hf_mixtral",
        f"{MIXTRAL}:MixtralTopKRouter.forward",
        "router_logits.float(), dim=-1",
        "router_logits.float(), dim=0",
    ),
    "experts_of_lowest_weight": Fault(
        "hf_mixtral",
        f"{MIXTRAL}:MixtralTopKRouter.forward",
        "self.top_k, dim=-1",
        "self.top_k, dim=-1, largest=False",
    ),
    # -- transformers: generate()
    "temperature_inverted": Fault(
        "hf_generate",
        "transformers.generation.logits_process:TemperatureLogitsWarper.__call__",
        "scores / self.temperature",
        "scores * self.temperature",
    ),
    "top_k_off_by_one": Fault(
        "hf_generate",
        "transformers.generation.logits_process:TopKLogitsWarper.__call__",
        "min(self.top_k, scores.size(-1))",
        "min(self.top_k - 1, scores.size(-1))",
        named=r"logits_process\.py:\d+ .*topk",
    ),
    # -- lightning
    "label_smoothing_lost": Fault(
        "lightning_mlp",
        "lightning_mlp:Classifier.training_step",
        ", label_smoothing=0.1",
        "",
    ),
    "dropout_left_off": Fault(
        "lightning_mlp",
        "lightning_mlp:Classifier.forward",
        "return self.net(x)",
        "self.net[3].eval()\n    return self.net(x)",
        named=r"(?s)dropout.*(train|eval)",
    ),
    "batch_norm_momentum": Fault(
        "lightning_mlp",
        "lightning_mlp:Classifier.forward",
        "return self.net(x)",
        "self.net[1].momentum = 0.9\n    return self.net(x)",
        named=r"(?s)batch_norm.*0\.9",
    ),
    # -- timm
    "query_and_key_swapped": Fault(
        "timm_vit",
        "timm.layers.attention:Attention.forward",
        "q, k, v = qkv.unbind(0)",
        "v, k, q = qkv.unbind(0)",
        named=r"attention\.py:12[0-5]",
    ),
    "heads_before_tokens": Fault(
        "timm_vit",
        "timm.layers.attention:Attention.forward",
        ".reshape(B, N, 3, self.num_heads, self.head_dim)",
        ".reshape(B, N, 3, self.head_dim, self.num_heads).transpose(-1, -2)",
    ),
    # -- peft
    "adapter_scale": Fault(
        "peft_lora",
        "peft.tuners.lora.layer:Linear.forward",
        "lora_B(lora_A(dropout(x))) * scaling",
        "lora_B(lora_A(dropout(x))) * scaling ** 0.5",
    ),
    "adapter_reads_the_result": Fault(
        "peft_lora",
        "peft.tuners.lora.layer:Linear.forward",
        "x = self._cast_input_dtype(x, lora_A.weight.dtype)",
        "x = self._cast_input_dtype(x, lora_A.weight.dtype).flip(1)",
    ),
    # -- diffusers
    "noise_without_root": Fault(
        "diffusers_unet",
        "diffusers.schedulers.scheduling_ddpm:DDPMScheduler.add_noise",
        "sqrt_one_minus_alpha_prod = (1 - alphas_cumprod[timesteps]) ** 0.5",
        "sqrt_one_minus_alpha_prod = (1 - alphas_cumprod[timesteps]) ** 1.0",
    ),
    "sine_and_cosine_swapped": Fault(
        "diffusers_unet",
        "diffusers.models.embeddings:get_timestep_embedding",
        "torch.cat([torch.sin(emb), torch.cos(emb)], dim=-1)",
        "torch.cat([torch.cos(emb), torch.sin(emb)], dim=-1)",
    ),
    # -- PyTorch Geometric
    "pool_adds_up": Fault(
        "pyg_gat",
        "torch_geometric.nn.pool.glob:global_mean_pool",
        "reduce='mean'",
        "reduce='sum'",
        named=r"pyg_gat\.py:17|_scatter\.py|glob\.py",
    ),
    "attention_slope": Fault(
        "pyg_gat",
        "torch_geometric.nn.conv.gat_conv:GATConv.edge_update",
        "self.negative_slope",
        "self.negative_slope * 0.1",
    ),
    # -- custom Functions
    "backward_forgets_beta": Fault(
        "custom_function",
        "custom_function:Swish.backward",
        "s + ctx.beta * x",
        "s + x",
    ),
    "quantiser_lets_gradients_through": Fault(
        "custom_function",
        "custom_function:Quantiser.forward",
        "(chosen - x.detach())",
        "(chosen - x)",
    ),
    "straight_through_lost": Fault(
        "custom_function",
        "custom_function:Quantiser.forward",
        "return x + (chosen - x).detach()",
        "return chosen",
    ),
    # -- mixed precision
    "mask_before_the_scores_are_float": Fault(
        "mixed_precision",
        "mixed_precision:Attention.forward",
        ".float() / 8**0.5 + mask",
        " / 8**0.5 + mask.bfloat16()",
    ),
    "loss_not_divided": Fault(
        "mixed_precision",
        "mixed_precision:train",
        "tokens.flatten()) / 2",
        "tokens.flatten()) / 1",
    ),
    "clipped_before_unscaled": Fault(
        "mixed_precision",
        "mixed_precision:train",
        "scaler.unscale_(optimizer)\n",
        "\n",
        named=r"(?i)clip_grad_norm_|unscale_|mixed_precision\.py:5\d",
    ),
    # -- packed sequences
    "ignored_labels_counted": Fault(
        "packed_lstm",
        "packed_lstm:train",
        "labels.flatten())",
        "labels.flatten().clamp(0))",
        named=r"packed_lstm\.py:\d+ in train: .*(cross_entropy|clamp)",
    ),
    "lengths_of_the_padding": Fault(
        "packed_lstm",
        "packed_lstm:Tagger.forward",
        "self.embed(tokens), lengths,",
        "self.embed(tokens), lengths.clamp(min=4),",
        named=r"packed_lstm\.py:1[5-9]",
    ),
    # -- several processes
    "sum_for_mean": Fault(
        "ddp",
        "ddp:train",
        "(torch.cat(parts).mean() + shown)",
        "(torch.cat(parts).sum() + shown)",
    ),
    "reduced_twice": Fault(
        "ddp",
        "ddp:train",
        "dist.all_reduce(shown)",
        "dist.all_reduce(shown, op=dist.ReduceOp.MAX)",
    ),
    # -- torch.func
    "gradient_of_the_sum": Fault(
        "functional",
        "functional:train",
        "inner = torch.autograd.grad(loss_of(weights, x, y), ",
        "inner = torch.autograd.grad(loss_of(weights, x, y) * 5, ",
    ),
    # -- compiled
    "layer_norm_epsilon": Fault(
        "compiled",
        "compiled:Net.forward",
        "return self.head(",
        "self.layer.norm1.eps = 1e-3\n    return self.head(",
        options={"compile": False},
        named=r"(?s)layer_norm.*0\.001",
    ),
}


def _function(name):
    module, _, path = name.partition(":")
    value = importlib.import_module(module)
    for part in path.split("."):
        value = inspect.getattr_static(value, part)
    value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
    return inspect.unwrap(value)


def place(name):
    """file.py:LINE of the words that the fault changes."""
    fault = FAULTS[name]
    function = _function(fault.function)
    source = inspect.getsource(function)
    line = function.__code__.co_firstlineno + source[: source.index(fault.old)].count("\n")
    return f"{os.path.basename(function.__code__.co_filename)}:{line}"


def plant(name):
    """Change the code of the function in place: whoever has imported it calls the changed one."""
    fault = FAULTS[name]
    function = _function(fault.function)
    source = textwrap.dedent(inspect.getsource(function))
    if source.count(fault.old) != 1:
        raise ValueError(
            f"{name}: {fault.function} has {source.count(fault.old)} times {fault.old!r}"
        )
    tree = ast.parse(source.replace(fault.old, fault.new))
    tree.body = [each for each in tree.body if isinstance(each, ast.FunctionDef)]
    tree.body[0].decorator_list = []
    first = function.__code__.co_firstlineno
    ast.increment_lineno(tree, first - 1)
    scope = {}
    exec(compile(tree, function.__code__.co_filename, "exec"), function.__globals__, scope)
    function.__code__ = scope[tree.body[0].name].__code__
