"""Cases of the intents and slots that a RoBERTa finds."""

import functools

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "intents",
    # What is made from a number alone may not be recorded: the concatenation has it.
    line=[
        "labels = torch.full((len(pieces),), IGNORE)",
        "labels[0] = slot",
        "return ids, torch.cat([none, *labels, none])",
    ],
)
def all_pieces_have_the_label(intents):
    """Each piece of a word has the slot of the word, not only the first."""

    def labels_of_word(slot, pieces):
        labels = torch.full((len(pieces),), intents.IGNORE)  # here
        labels[:] = slot  # here
        return labels

    intents.labels_of_word = labels_of_word


@fault(
    "intents",
    line=['"attention_mask": input_ids.ne(PAD).long(),'],
    # The slice of a micro-batch is first read where the mask is made.
    api=r"Torch\.ones_like",
)
def padding_is_attended(intents):
    """The mask is one everywhere: real words see the padding."""
    collate = intents.collate

    def unmasked(sentences):
        inputs = collate(sentences)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])  # here
        return inputs

    intents.collate = unmasked


@fault(
    "intents",
    line="outputs = self.roberta(input_ids=input_ids, attention_mask=attention_mask)",
    # The first that reads positions: types of tokens are gathered by them, and then embedded.
    api=r"Torch\.gather|Functional\.embedding|Torch\.embedding"
    r"|Module\.roberta\.embeddings\.position_embeddings\..*",
    module=r"roberta\.embeddings(\.position_embeddings)?",
    module_only=r"roberta(\.embeddings(\.position_embeddings)?)?",
)
def positions_from_zero(intents):
    """Positions start with zero, where RoBERTa starts behind the number of the padding."""

    class JointModel(intents.JointModel):
        def encode(self, input_ids, attention_mask):
            positions = torch.arange(input_ids.shape[1]).expand_as(input_ids)  # here
            outputs = self.roberta(  # here
                input_ids=input_ids, attention_mask=attention_mask, position_ids=positions
            )
            return outputs.last_hidden_state

    intents.JointModel = JointModel


@fault(
    "intents",
    # A choice of rows may not be recorded: the first call with its result is the layer.
    line="return self.intent_out(torch.tanh(self.intent_dense(states[:, 0])))",
    api=r"Module\.intent_dense\..*|Functional\.linear|Torch\.linear|Tensor\.__getitem__",
    module=r"(intent_dense)?",
    module_only="intent_dense",
)
def intent_of_the_last_token(intents):
    """The intent is read at the last token, which often is padding."""

    class JointModel(intents.JointModel):
        def intents(self, states):
            return self.intent_out(torch.tanh(self.intent_dense(states[:, -1])))  # here

    intents.JointModel = JointModel


@fault(
    "intents",
    line=[
        'return len(inputs["intent"]), (inputs["slots"] != IGNORE).sum()',
        "sizes = sizes_of(inputs)",
        "compute_loss(model, part, sizes).backward()",
        'first = intent_loss(intent_logits, inputs["intent"]) / sizes[0]',
        'second = slot_loss(slot_logits, inputs["slots"]) / sizes[1]',
        "return first + SLOT_LOSS * second",
    ],
)
def mean_of_means(intents):
    """Each micro-batch is divided by its own words, and by the number of micro-batches."""

    def accumulate(model, inputs):
        parts = list(intents.micro_batches(inputs))
        for part in parts:
            sizes = intents.sizes_of(part)  # here
            loss = intents.compute_loss(model, part, sizes) / len(parts)  # here
            loss.backward()

    intents.accumulate = accumulate


@fault("intents", api=r"Optimizer\.AdamW\.step", update=True)
def norms_decay(intents):
    """The norms of RoBERTa have another name than the list says, and so they decay."""
    intents.NO_DECAY = ("bias", "layer_norm.weight")


@fault(
    "intents",
    api=r"Functional\.gelu|Torch\.gelu|Module\.roberta\.encoder\.layer\.0\.intermediate\..*",
    module=r"roberta\.encoder\.layer\.0\.intermediate(\.intermediate_act_fn)?",
    module_only=r"roberta\.encoder\.layer\.0\.intermediate(\.intermediate_act_fn)?",
)
def activation_is_approximate(intents):
    """The activation is the one with a tanh, which newer models use."""
    make_config = intents.make_config

    def changed():
        return make_config(hidden_act="gelu_pytorch_tanh")

    intents.make_config = changed


@fault(
    "intents",
    api=r"Functional\.layer_norm|Torch\.layer_norm|Module\.roberta\.embeddings\.LayerNorm\..*",
    module=r"roberta\.embeddings(\.LayerNorm)?",
    module_only=r"roberta\.embeddings(\.LayerNorm)?",
)
def eps_of_the_library(intents):
    """The eps of norms is the default of the library, not that of the model that is loaded."""
    make_config = intents.make_config

    def changed():
        return make_config(layer_norm_eps=1e-12)

    intents.make_config = changed


@fault(
    "intents",
    # No call computes the wrong thing: gradients are gone when the norm is taken.
    line=[
        "for part in micro_batches(inputs):",
        "compute_loss(model, part, sizes).backward()",
        "nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)",
        "optimizer.zero_grad()",
    ],
)
def only_the_last_micro_batch(intents):
    """Gradients are set to nothing before each micro-batch: only the last one counts."""

    def accumulate(model, inputs):
        sizes = intents.sizes_of(inputs)
        for part in intents.micro_batches(inputs):  # here
            model.zero_grad()  # here
            intents.compute_loss(model, part, sizes).backward()  # here

    intents.accumulate = accumulate


@harmless("fused", "intents")
def attention_by_products(intents):
    """The attention is two products and a softmax."""
    make_config = intents.make_config

    def changed(**more):
        return make_config(attn_implementation="eager", **more)

    intents.make_config = changed


@harmless("split", "intents")
def slots_by_two_products(intents):
    """The head of slots is a product with states and one with intents."""

    class JointModel(intents.JointModel):
        def slots(self, states, intent_logits):
            of_states, of_intents = self.slot_out.weight.split([16, intents.INTENTS], dim=1)
            chances = intent_logits.softmax(dim=-1)
            shared = F.linear(chances, of_intents, self.slot_out.bias)
            return F.linear(states, of_states) + shared.unsqueeze(1)

    intents.JointModel = JointModel


@harmless("loss", "intents")
def slots_by_log_chances(intents):
    """The loss of slots takes the logarithms of chances, and the weight of each label."""

    def slot_loss(logits, slots):
        real = slots != intents.IGNORE
        chosen = slots.masked_fill(~real, 0)
        log_p = logits.log_softmax(dim=-1).gather(-1, chosen.unsqueeze(-1)).squeeze(-1)
        weight = torch.tensor(intents.SLOT_WEIGHTS, dtype=logits.dtype)[chosen]
        return -(weight * real * log_p).sum()

    intents.slot_loss = slot_loss


@harmless("reordered", "intents")
def slots_before_intent(intents):
    """The loss of slots is computed first."""

    def compute_loss(model, inputs, sizes):
        intent_logits, slot_logits = model(inputs["input_ids"], inputs["attention_mask"])
        second = intents.slot_loss(slot_logits, inputs["slots"]) / sizes[1]
        first = intents.intent_loss(intent_logits, inputs["intent"]) / sizes[0]
        return first + intents.SLOT_LOSS * second

    intents.compute_loss = compute_loss


@harmless("mask", "intents")
def mask_of_scores(intents):
    """The mask is made outside of the model: what is added to scores."""

    class JointModel(intents.JointModel):
        def encode(self, input_ids, attention_mask):
            kind = self.slot_out.weight.dtype
            added = torch.zeros(attention_mask.shape, dtype=kind)
            added = added.masked_fill(attention_mask == 0, torch.finfo(kind).min)
            added = added[:, None, None, :].expand(-1, 1, input_ids.shape[1], -1)
            return self.roberta(input_ids=input_ids, attention_mask=added).last_hidden_state

    intents.JointModel = JointModel


@harmless("rows", "intents", group="whole step")
def sentences_in_another_order(intents):
    """The sentences are in another order, and so in other micro-batches."""
    accumulate = intents.accumulate

    def shuffled(model, inputs):
        order = torch.tensor([3, 5, 0, 2, 4, 1])
        accumulate(model, {name: value[order] for name, value in inputs.items()})

    intents.accumulate = shuffled


@harmless("micro batches", "intents", group="whole step")
def all_sentences_at_once(intents):
    """There is one micro-batch."""

    def micro_batches(inputs):
        return [inputs]

    intents.micro_batches = micro_batches


@harmless("padding", "intents", group="whole step")
def padded_to_eight(intents):
    """Sentences are padded to a multiple of eight."""
    pad = intents.pad

    def longer(rows, value):
        padded = pad(rows, value)
        return F.pad(padded, (0, -padded.shape[1] % 8), value=value)

    intents.pad = longer


@harmless("scaled", "intents", group="whole step")
def loss_is_scaled(intents):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    compute_loss, clip = intents.compute_loss, intents.clip

    def scaled(model, inputs, sizes):
        return 128.0 * compute_loss(model, inputs, sizes)

    def unscaled(model):
        for p in model.parameters():
            p.grad.mul_(1 / 128.0)
        clip(model)

    intents.compute_loss, intents.clip = scaled, unscaled


@harmless("recomputed", "intents", group="whole step")
def wide_layers_computed_again(intents):
    """The wide layers are computed again in the backward pass."""
    build = intents.build

    def made():
        model = build()
        for layer in model.roberta.encoder.layer:
            layer.intermediate.forward = functools.partial(
                checkpoint, layer.intermediate.forward, use_reentrant=False
            )
        return model

    intents.build = made
