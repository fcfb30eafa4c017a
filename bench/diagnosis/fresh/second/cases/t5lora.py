"""Cases of the adapters in a T5."""

import torch
from case import fault, harmless
from torch.nn import functional as F

ADAPTED = r".*\.(q|v|wo)"


@fault(
    "t5lora",
    line=[
        "moved[:, 1:] = labels[:, :-1]",
        "return moved.masked_fill(moved == IGNORED, 0)",
        "outputs = model(input_ids=source, attention_mask=known",
    ],
)
def decoder_reads_the_labels(t5lora):
    """The decoder reads the labels themselves."""
    t5lora.shifted = lambda labels: labels.masked_fill(labels == t5lora.IGNORED, 0)  # here


@fault("t5lora", module=ADAPTED, api=r"Tensor\.__mul__")
def scale_of_the_root(t5lora):
    """The adapters are scaled by the root of the rank (use_rslora)."""
    adapters = t5lora.adapters

    def other():
        config = adapters()
        config.use_rslora = True  # here
        return config

    t5lora.adapters = other


@fault("t5lora", line=["(entropy + Z * squares) / count", "count = (labels != IGNORED).sum()"])
def mean_of_means(t5lora):
    """Each micro-batch is divided by its own tokens, and the means are averaged."""

    def backward(model, source, known, labels):
        parts = zip(*(value.split(t5lora.PART) for value in (source, known, labels)), strict=True)
        for part in parts:
            count = (part[2] != t5lora.IGNORED).sum() * (t5lora.BATCH // t5lora.PART)  # here
            t5lora.loss_of(model, *part, count).backward()  # here

    t5lora.backward = backward


@fault("t5lora", line=["return entropy, (norm.square() * (labels != IGNORED)).sum()"])
def normaliser_of_the_padding(t5lora):
    """The normaliser of places without a label is penalised, too."""

    def sums(logits, labels):
        logits = logits.float()
        entropy = F.cross_entropy(
            logits.flatten(0, 1), labels.flatten(), ignore_index=t5lora.IGNORED, reduction="sum"
        )
        return entropy, logits.logsumexp(dim=-1).square().sum()  # here

    t5lora.sums = sums


@fault(
    "t5lora",
    line=[
        "nn.utils.clip_grad_norm_([w for w",
        "loss_of(model, *part, count).backward()",
        "    clip(model)",
    ],
)
def clipped_behind_each_part(t5lora):
    """Gradients are clipped behind each micro-batch."""

    def backward(model, source, known, labels):
        count = (labels != t5lora.IGNORED).sum()
        parts = zip(*(value.split(t5lora.PART) for value in (source, known, labels)), strict=True)
        for part in parts:
            t5lora.loss_of(model, *part, count).backward()  # here
            t5lora.clip(model)  # here

    t5lora.backward = backward


@fault("t5lora", api="Optimizer.AdamW.step", update=True)
def first_matrices_are_faster(t5lora):
    """The first matrices have the larger rate."""
    groups = t5lora.groups

    def exchanged(model):
        first, second = groups(model)
        first["lr"], second["lr"] = second["lr"], first["lr"]  # here
        return [first, second]

    t5lora.groups = exchanged


@fault(
    "t5lora",
    line=["outputs = model(input_ids=source, attention_mask=known"],
    module=r".*(SelfAttention|EncDecAttention|encoder)",
    api=r"Functional\.scaled_dot_product_attention|Tensor\.__add__|Functional\.softmax",
)
def source_padding_seen(t5lora):
    """The padding of the source is seen: no mask is passed."""

    def loss_of(model, source, known, labels, count):
        known = torch.ones_like(known)  # here
        read = t5lora.shifted(labels)
        outputs = model(input_ids=source, attention_mask=known, decoder_input_ids=read)  # here
        entropy, squares = t5lora.sums(outputs.logits, labels)
        return (entropy + t5lora.Z * squares) / count

    t5lora.loss_of = loss_of


@fault(
    "t5lora",
    settings={"float32": True},
    module=ADAPTED + r"|.*lora_[AB].*",
    api=r"Functional\.linear|Tensor\.to|Tensor\.__mul__|Tensor\.__add__",
)
def adapters_in_bfloat16(t5lora):
    """The adapters are in bfloat16 like the base."""
    peft_model = t5lora.get_peft_model
    t5lora.get_peft_model = lambda model, config: peft_model(
        model,
        config,
        autocast_adapter_dtype=False,  # here
    )


@fault("t5lora", module=r".*encoder\.block\.0\.layer\.1\.layer_norm", api=r".*")
def epsilon_of_another_model(t5lora):
    """The epsilon of one norm in the encoder is a tenth."""
    base = t5lora.base

    def other():
        model = base()
        model.encoder.block[0].layer[1].layer_norm.variance_epsilon = 1e-1  # here
        return model

    t5lora.base = other


@harmless("loss", "t5lora")
def entropy_by_log_softmax(t5lora):
    """The entropy is the normaliser less the label's logit."""

    def sums(logits, labels):
        logits = logits.to(torch.float32)
        norm, answered = torch.logsumexp(logits, dim=2), labels != t5lora.IGNORED
        right = logits.gather(2, labels.clamp(min=0)[..., None])[..., 0]
        return (norm - right)[answered].sum(), (norm * norm)[answered].sum()

    t5lora.sums = sums


@harmless("fused", "t5lora")
def shifted_by_transformers(t5lora):
    """transformers shifts the labels itself."""

    def loss_of(model, source, known, labels, count):
        read = model.base_model.model.prepare_decoder_input_ids_from_labels(labels)
        logits = model(source, attention_mask=known.bool(), decoder_input_ids=read).logits
        entropy, squares = t5lora.sums(logits, labels)
        return torch.addcmul(entropy, squares, torch.tensor(t5lora.Z)) / count

    t5lora.loss_of = loss_of


@harmless("fused", "t5lora")
def attention_of_transformers(t5lora):
    """The attention of transformers is written out, not that of PyTorch."""
    base = t5lora.base

    def other():
        model = base()
        model.set_attn_implementation("eager")
        return model

    t5lora.base = other


@harmless("split", "t5lora")
def gates_by_one_product(t5lora):
    """Both matrices of the gated layer are joined to one product."""
    from transformers.models.t5.modeling_t5 import T5DenseGatedActDense

    class Joined(T5DenseGatedActDense):
        def forward(self, x):
            both = F.linear(x, torch.cat([self.wi_0.weight, self.wi_1.weight]))
            gate, value = both.chunk(2, dim=-1)
            return self.wo(self.act(gate) * value)

    base = t5lora.base

    def other():
        model = base()
        for module in model.modules():
            if isinstance(module, T5DenseGatedActDense):
                module.__class__ = Joined
        return model

    t5lora.base = other


@harmless("micro batches", "t5lora", group="whole step")
def one_batch(t5lora):
    """One batch for three micro-batches."""

    def backward(model, source, known, labels):
        count = (labels != t5lora.IGNORED).sum()
        t5lora.loss_of(model, source, known, labels, count).backward()

    t5lora.backward = backward


@harmless("rows", "t5lora", group="whole step")
def rows_by_length(t5lora):
    """The rows stand by the length of their answers: micro-batches have other members."""
    backward = t5lora.backward

    def other(model, source, known, labels):
        order = (labels != t5lora.IGNORED).sum(1).argsort(stable=True)
        backward(model, source[order], known[order], labels[order])

    t5lora.backward = other


@harmless("padding", "t5lora", group="whole step")
def micro_batches_cut_to_their_length(t5lora):
    """Each micro-batch is cut to its longest source and its longest answer."""
    loss_of = t5lora.loss_of

    def other(model, source, known, labels, count):
        wide = int(known.sum(1).max())
        long = int((labels != t5lora.IGNORED).sum(1).max())
        return loss_of(model, source[:, :wide], known[:, :wide], labels[:, :long], count)

    t5lora.loss_of = other


@harmless("scaled", "t5lora", group="whole step")
def divided_behind_the_passes(t5lora):
    """Sums go backward; their gradients are divided by the tokens behind the last pass."""

    def backward(model, source, known, labels):
        parts = zip(*(value.split(t5lora.PART) for value in (source, known, labels)), strict=True)
        for part in parts:
            t5lora.loss_of(model, *part, 1.0).backward()
        count = (labels != t5lora.IGNORED).sum()
        for weight in model.parameters():
            if weight.grad is not None:
                weight.grad /= count

    t5lora.backward = backward
