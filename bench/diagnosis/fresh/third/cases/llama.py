"""Cases of the Llama."""

import torch
from case import fault, harmless
from torch.nn import functional as F

FIRST = r"net\.model\.layers\.0"


@fault("llama", line=["(loss_of(model, *part) / total).backward()", "total = data[2][:, 1:].sum()"])
def each_part_by_its_own_tokens(llama):
    """The loss of a micro-batch is divided by its own tokens, then by the micro-batches."""

    def backward(model, data):
        for part in llama.parts_of(data):
            total = part[2][:, 1:].sum() * llama.PARTS  # here
            (llama.loss_of(model, *part) / total).backward()  # here

    llama.backward = backward


@fault("llama", line="return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:]")
def labels_shifted_twice(llama):
    """The labels are shifted before, and once more in the loss."""

    def entropies(logits, tokens):
        labels = F.pad(tokens, (0, 1))[:, 1:]  # here
        labels = F.pad(labels, (0, 1))[:, 2:]  # here
        return F.cross_entropy(logits[:, :-1].transpose(1, 2), labels, reduction="none")  # here

    llama.entropies = entropies


@fault(
    "llama",
    api=r".*",  # the mask is made where the model begins
    module=rf"net\.model|{FIRST}\.self_attn",
    line="return self.net(input_ids=tokens, attention_mask=known, position_ids=at).logits",
)
def padding_is_seen(llama):
    """The mask says that all is known: the model sees the padding on the left."""

    class Model(llama.Model):
        def forward(self, tokens, known):
            at = llama.positions(known)
            all_of_it = torch.ones_like(known)
            made = self.net(input_ids=tokens, attention_mask=all_of_it, position_ids=at)  # here
            return made.logits

    llama.Model = Model


@fault("llama", api=r".*", module=r"net\.model\.rotary_emb")
def base_of_the_positions(llama):
    """The base of the rotary positions is 100."""
    config = llama.config
    rope = {"rope_type": "default", "rope_theta": 100.0}
    llama.config = lambda **changes: config(rope_parameters=rope, **changes)


@fault(
    "llama",
    api=r"Tensor\.(__r?add__|add)|Torch\.rsqrt|Functional\.rms_norm",
    module=rf"{FIRST}\.input_layernorm",
)
def epsilon_of_the_norms(llama):
    """The norms have an epsilon of 0.01."""
    config = llama.config
    llama.config = lambda **changes: config(rms_norm_eps=1e-2, **changes)


@fault("llama", api=r"Functional\.linear", module=r"net\.lm_head")
def tied_with_the_embeddings(llama):
    """The last matrix is the table of the tokens."""
    config = llama.config
    llama.config = lambda **changes: config(tie_word_embeddings=True, **changes)


@fault(
    "llama",
    line=[
        "return (entropies(logits, tokens) * weight[:, 1:]).sum() + Z * z_loss(logits, weight)",
        "sums = logits[:, :-1].logsumexp(dim=-1)",
        "return (sums.square() * (weight[:, 1:] > 0)).sum()",
    ],
)
def sums_run_away(llama):
    """The term that holds the logarithm of the sum is dropped."""

    def loss_of(model, tokens, known, weight):
        logits = model(tokens, known).float()
        return (llama.entropies(logits, tokens) * weight[:, 1:]).sum()  # here

    llama.loss_of = loss_of


@fault("llama", api="Optimizer.AdamW.step", update=True)
def schedule_for_each_part(llama):
    """The schedule is stepped behind each micro-batch."""

    def backward(model, data):
        total = data[2][:, 1:].sum()
        for part in llama.parts_of(data):
            (llama.loss_of(model, *part) / total).backward()
            model.schedule.step()

    llama.backward = backward


@fault(
    "llama",
    api=r"Optimizer\.AdamW\.step|.*clip_grad.*",
    update=True,
    line="nn.utils.clip_grad_norm_(model.parameters(), LARGEST)",
)
def clipped_behind_each_part(llama):
    """Gradients are clipped behind each micro-batch, not once behind all."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        total = batch[2][:, 1:].sum()
        for part in llama.parts_of(batch):
            (llama.loss_of(model, *part) / total).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), llama.LARGEST)  # here
        optimizer.step()
        model.schedule.step()

    llama.step = step


@fault(
    "llama",
    settings={"float32": True},
    line=[
        "logits = model(tokens, known).float()",
        "return F.cross_entropy(logits[:, :-1].transpose(1, 2), tokens[:, 1:]",
    ],
)
def logits_of_bfloat16(llama):
    """The logits are rounded to bfloat16 before the loss."""
    forward = llama.Model.forward

    class Model(llama.Model):
        def forward(self, tokens, known):
            return forward(self, tokens, known).bfloat16()  # here

    llama.Model = Model


@harmless("fused", "llama")
def eager_attention(llama):
    """The attention of transformers is written out, not that of PyTorch."""
    config = llama.config
    llama.config = lambda **changes: config(attn_implementation="eager", **changes)


@harmless("split", "llama")
def gates_joined(llama):
    """The two products of a gated layer are one."""

    class Joined(llama.LlamaForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            for layer in self.model.layers:

                def gated(x, mlp=layer.mlp):
                    both = torch.cat([mlp.up_proj.weight, mlp.gate_proj.weight])
                    up, gate = F.linear(x, both).chunk(2, dim=-1)
                    return F.linear(up * (gate * gate.sigmoid()), mlp.down_proj.weight)

                layer.mlp.forward = gated

    llama.LlamaForCausalLM = Joined


@harmless("fused", "llama")
def norms_of_pytorch(llama):
    """The norms are PyTorch's rms_norm."""

    class Normed(llama.LlamaForCausalLM):
        def __init__(self, config):
            super().__init__(config)
            for norm in self.modules():
                if type(norm).__name__ == "LlamaRMSNorm":

                    def normed(x, norm=norm):
                        return F.rms_norm(x, (llama.WIDTH,), norm.weight, norm.variance_epsilon)

                    norm.forward = normed

    llama.LlamaForCausalLM = Normed


@harmless("loss", "llama")
def entropies_by_logsumexp(llama):
    """Entropies are the logarithm of the sum, less what is picked."""

    def entropies(logits, tokens):
        ahead = logits[:, :-1]
        picked = ahead.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        return ahead.logsumexp(dim=-1) - picked

    llama.entropies = entropies


@harmless("fused", "llama")
def optimizer_of_one_kernel(llama):
    """The optimizer is fused."""
    optimizer = llama.optimizer
    llama.optimizer = lambda model: optimizer(model, fused=True)


@harmless("micro batches", "llama", group="whole step")
def one_batch(llama):
    """One batch for two micro-batches."""
    llama.parts_of = lambda data: [data]


@harmless("rows", "llama", group="whole step")
def texts_turned(llama):
    """The texts stand in the other order."""
    backward = llama.backward
    llama.backward = lambda model, data: backward(model, [value.flip(0) for value in data])


@harmless("padding", "llama", group="whole step")
def three_more_places_of_padding(llama):
    """Texts have three more places of padding on the left."""
    parts_of = llama.parts_of
    llama.parts_of = lambda data: parts_of([F.pad(value, (3, 0)) for value in data])


@harmless("padding", "llama", group="whole step")
def texts_packed(llama):
    """The texts of a micro-batch are one row; none sees another."""

    class Model(llama.Model):
        def forward(self, tokens, known):
            count, length = tokens.shape
            text = torch.arange(count).repeat_interleave(length)
            ahead = torch.arange(count * length)
            seen = (text[:, None] == text) & (ahead[:, None] >= ahead) & known.flatten().bool()
            seen = (seen | torch.eye(count * length, dtype=torch.bool))[None, None]
            at = llama.positions(known).view(1, -1)
            row = tokens.view(1, -1)
            made = self.net(input_ids=row, attention_mask=seen, position_ids=at).logits
            return made.view(count, length, -1)

    llama.Model = Model


@harmless("recomputed", "llama", group="whole step", settings={"float32": True})
def layers_computed_again(llama):
    """The layers are computed again in the backward pass."""
    build = llama.build

    def again():
        model = build()
        model.net.gradient_checkpointing_enable({"use_reentrant": False})
        return model.train()

    llama.build = again


@harmless("scaled", "llama", group="whole step")
def divided_behind_the_passes(llama):
    """The sums go backward as they are; gradients are divided behind both passes."""

    def backward(model, data):
        for part in llama.parts_of(data):
            llama.loss_of(model, *part).backward()
        total = data[2][:, 1:].sum()
        for weight in model.parameters():
            weight.grad.div_(total)

    llama.backward = backward
