"""A GPT of megatron-core's tensor-parallel layers (version 0.16.1 of PyPI), on gloo."""

import torch
import torch.distributed as dist
from common import launch, whole
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

LAYOUTS = {"one": 1, "tp2": 2, "tp4": 4, "sp2": 2}
NEEDS = ("megatron.core",)
ROUNDING = 1e-6  # its cross entropy computes in float32
BUGS = {
    "output_reduced_twice": {
        "layout": "tp2",
        "within": r"layers\.0",
        "near": [r"layers\.0\.mlp\.down", r"layers\.0\.mlp \("],
    },
    "dense_shards_swapped": {
        "layout": "tp2",
        "within": r"layers\.1",
        "near": [r"layers\.1\.attention\.dense"],
    },
    "word_shard_stale": {"layout": "tp4", "rank": 2, "near": ["words", "Adam", "update of"]},
    "probabilities_scaled": {
        "layout": "tp2",
        "rank": 1,
        "within": r"layers\.1",
        "near": [r"layers\.1\.attention"],
    },
    "norm_gradients_local": {"layout": "sp2", "near": ["Adam", "norm.*grad"]},
}
SIZE, HEADS, WORDS, LENGTH, BATCH, LAYERS = 32, 4, 64, 8, 2, 2


def prepare():
    """Megatron's groups. On the CPU it asks for the current GPU in sequence parallelism only."""
    from megatron.core import parallel_state

    if not parallel_state.is_initialized():
        torch.cuda.current_device = lambda: torch.device("cpu")
        parallel_state.initialize_model_parallel(dist.get_world_size())


def settings(run):
    from megatron.core.model_parallel_config import ModelParallelConfig

    return ModelParallelConfig(
        tensor_model_parallel_size=run.ranks,
        sequence_parallel=run.layout == "sp2",
        use_cpu_initialization=True,
        params_dtype=torch.get_default_dtype(),
        perform_initialization=False,
    )


def filled(layer, dim, weight, run):
    """The layer with this rank's part of the whole weight; its bias is small."""
    parts = weight if dim is None else weight.chunk(run.ranks, dim)[run.rank]
    layer.weight.data.copy_(parts)
    if getattr(layer, "bias", None) is not None:
        layer.bias.data.zero_()
    layer.cut = dim
    return layer


def column(run, inputs, outputs):
    weight = torch.randn(outputs, inputs) * 0.15
    if run.ranks == 1:
        return filled(skip_init(nn.Linear, inputs, outputs), 0, weight, run)
    from megatron.core.tensor_parallel import ColumnParallelLinear

    options = {"config": settings(run), "init_method": nn.init.zeros_, "gather_output": False}
    return filled(ColumnParallelLinear(inputs, outputs, **options), 0, weight, run)


def row(run, inputs, outputs):
    weight = torch.randn(outputs, inputs) * 0.15
    if run.ranks == 1:
        return filled(skip_init(nn.Linear, inputs, outputs), 1, weight, run)
    from megatron.core.tensor_parallel import RowParallelLinear

    options = {"config": settings(run), "init_method": nn.init.zeros_, "bias": True}
    options |= {"input_is_parallel": True, "skip_bias_add": False}
    return filled(RowParallelLinear(inputs, outputs, **options), 1, weight, run)


def vocabulary(run):
    weight = torch.randn(WORDS, SIZE) * 0.2
    if run.ranks == 1:
        return filled(skip_init(nn.Embedding, WORDS, SIZE), 0, weight, run)
    from megatron.core.tensor_parallel import VocabParallelEmbedding

    options = {"config": settings(run), "init_method": nn.init.zeros_}
    options["reduce_scatter_embeddings"] = run.layout == "sp2"
    return filled(VocabParallelEmbedding(WORDS, SIZE, **options), 0, weight, run)


def first(output):
    """Megatron's layers return their bias, too."""
    return output[0] if isinstance(output, tuple) else output


class Attention(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.qkv, self.dense = column(run, SIZE, 3 * SIZE), row(run, SIZE, SIZE)
        self.heads, self.times = HEADS // run.ranks, None

    def forward(self, x):
        mixed = first(self.qkv(x))
        time, batch, _ = mixed.shape
        q, k, v = mixed.view(time, batch, self.heads, -1).permute(1, 2, 0, 3).chunk(3, -1)
        scores = (q @ k.transpose(2, 3)) * (SIZE // HEADS) ** -0.5
        scores = scores + torch.full((time, time), float("-inf")).triu(1)
        probabilities = torch.softmax(scores, -1)
        if self.times:
            probabilities = probabilities * self.times  # bug: probabilities_scaled
        context = (probabilities @ v).permute(2, 0, 1, 3).reshape(time, batch, -1)
        return first(self.dense(context))  # bug: dense_shards_swapped


class Mlp(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.up, self.down = column(run, SIZE, 4 * SIZE), row(run, 4 * SIZE, SIZE)
        self.again = None

    def forward(self, x):
        y = first(self.down(F.gelu(first(self.up(x)))))  # bug: output_reduced_twice
        return self.again(y) if self.again else y  # bug: output_reduced_twice


class TransformerLayer(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.input_norm, self.mlp_norm = nn.LayerNorm(SIZE), nn.LayerNorm(SIZE)
        self.attention, self.mlp = Attention(run), Mlp(run)

    def forward(self, x):
        x = x + self.attention(self.input_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class GptModel(nn.Module):
    def __init__(self, run):
        super().__init__()
        self.run = run
        self.words = vocabulary(run)
        self.layers = nn.ModuleList([TransformerLayer(run) for _ in range(LAYERS)])
        self.final_norm = nn.LayerNorm(SIZE)
        self.output = column(run, SIZE, WORDS)

    def forward(self, words, labels):
        x = self.words(words)  # bug: word_shard_stale
        if self.run.layout != "sp2":
            x = x.transpose(0, 1)
        for layer in self.layers:
            x = layer(x)
        logits = first(self.output(self.final_norm(x)))
        labels = labels.transpose(0, 1).contiguous()
        if self.run.ranks == 1:
            return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        from megatron.core.tensor_parallel import vocab_parallel_cross_entropy

        return vocab_parallel_cross_entropy(logits.contiguous(), labels).mean()


def plant(run, model):
    from megatron.core.tensor_parallel import reduce_from_tensor_model_parallel_region

    if run.bug("output_reduced_twice"):
        model.layers[0].mlp.again = reduce_from_tensor_model_parallel_region
    if run.bug("dense_shards_swapped"):
        weight = model.layers[1].attention.dense.weight.data
        weight.copy_(whole(weight, 1).chunk(2, 1)[1 - run.rank])
    if run.bug("probabilities_scaled", 1):
        model.layers[1].attention.times = 1.1


def add_norm_gradients(run, model):
    """In sequence parallelism what is whole on each rank saw a part of the sequence."""
    if run.layout == "sp2" and not run.bug("norm_gradients_local"):
        for name, parameter in model.named_parameters():
            if "norm" in name or name.endswith(("dense.bias", "down.bias")):
                dist.all_reduce(parameter.grad)  # bug: norm_gradients_local


def train(run):
    if run.ranks > 1:
        prepare()
    torch.manual_seed(97)
    model = GptModel(run)
    plant(run, model) if run.bug_name else None
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    numbers = torch.Generator().manual_seed(1234)
    losses = []
    for _ in range(run.steps):
        words = torch.randint(WORDS, (BATCH, LENGTH + 1), generator=numbers)
        kept = model.words.weight.detach().clone()
        with run.step(model):
            loss = model(words[:, :-1], words[:, 1:])
            loss.backward()
            add_norm_gradients(run, model)
            optimizer.step()  # bug: norm_gradients_local, word_shard_stale
            optimizer.zero_grad()
        if run.bug("word_shard_stale", 2):
            model.words.weight.data.copy_(kept)
        losses.append(loss.item())
    weights = {}
    for name, each in model.named_parameters():
        owner, _, own = name.rpartition(".")
        cut = getattr(model.get_submodule(owner), "cut", None)
        weights[name] = whole(each, None if own == "bias" and cut == 1 else cut)
    return losses, weights


if __name__ == "__main__":
    launch(train, LAYOUTS, BUGS)
