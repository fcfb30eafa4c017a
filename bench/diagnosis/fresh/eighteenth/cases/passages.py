"""Cases of the passages that answer questions."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault(
    "passages",
    # The comparison is missing; the likeness is the first that lacks it.
    line=[
        "return (tokens != PAD) & ~torch.isin(tokens, torch.tensor(PUNCTUATION))",
        "likeness = likeness.masked_fill(~kept[None, :, None], -torch.inf)",
    ],
)
def padding_is_compared(passages):
    """Words of questions may be most similar to the padding of a short passage."""

    def compared(tokens):
        return ~torch.isin(tokens, torch.tensor(passages.PUNCTUATION))  # here

    passages.compared = compared


@fault(
    "passages",
    # A mask is no number that learns: the first attention is the first that has it.
    line=[
        "return model(tokens, tokens != MASK)",
        "states = self.bert(tokens, attention_mask=seen.long()).last_hidden_state",
    ],
    api=r"Functional\.scaled_dot_product_attention|Torch\.scaled_dot_product_attention",
    module=r"bert\.encoder\.layer\.0\.attention\.self",
    module_only=r"bert(\.encoder(\.layer\.0(\.attention(\.self)?)?)?)?",
)
def words_look_at_masks(passages):
    """The words of a question look at the masks behind it, too."""

    def embed_questions(model, tokens):
        return model(tokens, tokens != passages.PAD)  # here

    passages.embed_questions = embed_questions


@fault(
    "passages",
    # Labels are numbers of Python and a range: the loss is the first call with them.
    line=[
        "labels = WAYS * torch.arange(len(scores))",
        "return F.cross_entropy(scores / TEMP, labels)",
    ],
)
def one_passage_for_each_question(passages):
    """The right passages are counted as if each question had one."""

    def contrasted(scores):
        labels = torch.arange(len(scores))  # here
        return F.cross_entropy(scores / passages.TEMP, labels)  # here

    passages.contrasted = contrasted


@fault("passages", line="return likeness.max(dim=3).values.sum(dim=2)")
def mean_of_the_best(passages):
    """The score is the mean over the words of a question, not the sum."""

    def scores_of(questions, told, kept):
        likeness = questions.unsqueeze(1) @ told.unsqueeze(0).mT
        likeness = likeness.masked_fill(~kept[None, :, None], -torch.inf)
        return likeness.max(dim=3).values.mean(dim=2)  # here

    passages.scores_of = scores_of


@fault(
    "passages",
    # The quotient is missing; the softmax is the first that lacks it.
    line="wanted = (teacher / TEACHER_TEMP).log_softmax(dim=1)",
)
def teacher_is_too_sure(passages):
    """What the teacher says is not softened."""
    passages.TEACHER_TEMP = 1.0


@fault(
    "passages",
    line='return F.kl_div(own.log_softmax(dim=1), wanted, reduction="batchmean", log_target=True)',
)
def divided_by_all_passages(passages):
    """The divergence is divided by the number of passages, not of questions."""

    def distilled(scores, teacher):
        rows = torch.arange(len(scores))
        own = scores.unflatten(1, (-1, passages.WAYS))[rows, rows].log_softmax(dim=1)
        wanted = (teacher / passages.TEACHER_TEMP).log_softmax(dim=1)
        return F.kl_div(own, wanted, reduction="mean", log_target=True)  # here

    passages.distilled = distilled


@fault(
    "passages",
    # The forward pass is the same; the gradient that is given to the second pass is another.
    line=[
        'second_pass(model, embed_passages, inputs["passages"], passages.grad)',
        "embed(model, part).backward(gradient)",
        "return F.normalize(x, dim=-1)",
        "return self.unit(self.project(states))",
    ],
    api=r"Functional\.normalize",
    module="",
    module_only=r"(project)?",
)
def gradients_of_first_passages_first(passages):
    """Gradients that were kept are ordered by rank, the passages by question."""

    def accumulate(model, inputs):
        asked = passages.first_pass(model, passages.embed_questions, inputs["questions"])
        told = passages.first_pass(model, passages.embed_passages, inputs["passages"])
        passages.loss_of(asked, told, inputs).backward()
        passages.second_pass(model, passages.embed_questions, inputs["questions"], asked.grad)
        gradients = told.grad.unflatten(0, (-1, passages.WAYS)).transpose(0, 1)  # here
        gradients = gradients.flatten(0, 1)  # here
        passages.second_pass(  # here
            model, passages.embed_passages, inputs["passages"], gradients
        )

    passages.accumulate = accumulate


@fault(
    "passages",
    # Words are no numbers that learn: what reads them first embeds them.
    line=[
        "return torch.cat([words.new_tensor([CLS, mark]), words, words.new_tensor([SEP])])",
        "row[: len(tokens)] = tokens",
        "return nn.utils.rnn.pad_sequence(passages, batch_first=True, padding_value=PAD)",
        "states = self.bert(tokens, attention_mask=seen.long()).last_hidden_state",
    ],
    api=r"Functional\.embedding|Torch\.embedding|Module\.bert\.embeddings\.word_embeddings\..*",
    module=r"bert\.embeddings(\.word_embeddings)?",
    module_only=r"bert(\.embeddings(\.word_embeddings)?)?",
)
def mark_replaces_the_first_word(passages):
    """The mark is written over the first word, and not put before it."""

    def marked(words, mark):
        ends = words.new_tensor([passages.CLS, mark]), words.new_tensor([passages.SEP])
        return torch.cat([ends[0], words[1:], ends[1]])  # here

    passages.marked = marked


@fault("passages", line="return F.normalize(x, dim=-1)", api=r"Functional\.normalize", module="")
def length_over_all_words(passages):
    """What has the length one is a coordinate of all words, not a word."""

    class Encoder(passages.Encoder):
        def unit(self, x):
            return F.normalize(x, dim=1)  # here

    passages.Encoder = Encoder


@fault("passages", api=r"Optimizer\.AdamW\.step", update=True)
def norms_decay(passages):
    """Norms decay: their names are written in another way than those of the library."""

    def decays(name):
        return not name.endswith("bias") and "layer_norm" not in name

    passages.decays = decays


@harmless("fused", "passages")
def attention_by_products(passages):
    """The attention is two products and a softmax."""
    make_bert = passages.make_bert
    passages.make_bert = lambda: make_bert(attn_implementation="eager")


@harmless("inserted", "passages")
def lengths_by_squares(passages):
    """Embeddings are multiplied by one divided by the root of their squares."""

    class Encoder(passages.Encoder):
        def unit(self, x):
            return x * x.square().sum(dim=-1, keepdim=True).rsqrt()

    passages.Encoder = Encoder


@harmless("split", "passages")
def one_question_at_a_time(passages):
    """Each question is compared with all words of all passages."""

    def scores_of(questions, told, kept):
        words = told.flatten(0, 1)
        rows = []
        for question in questions:
            likeness = (words @ question.T).unflatten(0, kept.shape)
            likeness = torch.where(kept.unsqueeze(2), likeness, -torch.inf)
            rows.append(likeness.max(dim=1).values.sum(dim=1))
        return torch.stack(rows)

    passages.scores_of = scores_of


@harmless("mask", "passages")
def mask_is_added(passages):
    """Padding and punctuation get a number that is very small and that is added."""

    def scores_of(questions, told, kept):
        far = torch.zeros(kept.shape, dtype=told.dtype).masked_fill(~kept, -torch.inf)
        likeness = torch.einsum("qmd,pnd->qpmn", questions, told) + far[:, None]
        return likeness.max(dim=-1).values.sum(dim=-1)

    passages.scores_of = scores_of


@harmless("loss", "passages")
def divergence_by_chances(passages):
    """The divergence is a sum of chances and of differences of their logarithms."""

    def distilled(scores, teacher):
        own = scores.unflatten(1, (-1, passages.WAYS)).diagonal(dim1=0, dim2=1).mT
        wanted = (teacher / passages.TEACHER_TEMP).log_softmax(dim=1)
        missing = wanted - own.log_softmax(dim=1)
        return (wanted.exp() * missing).sum() / len(scores)

    passages.distilled = distilled


@harmless("reordered", "passages")
def all_questions_before_the_own_one(passages):
    """The loss over all questions is computed first."""

    def loss_of(questions, told, inputs):
        scores = passages.scores_of(questions, told, passages.compared(inputs["passages"]))
        loss = passages.CONTRASTED * passages.contrasted(scores)
        return loss + passages.DISTILLED * passages.distilled(scores, inputs["teacher"])

    passages.loss_of = loss_of


@harmless("rows", "passages", group="whole step")
def questions_in_another_order(passages):
    """The questions are in another order, each with its passages."""
    collate = passages.collate
    passages.collate = lambda rows: collate([rows[k] for k in (2, 0, 3, 1)])


@harmless("micro batches", "passages", group="whole step")
def one_pass_with_its_graph(passages):
    """All embeddings are computed once, with their graph."""

    def accumulate(model, inputs):
        asked = passages.embed_questions(model, inputs["questions"])
        told = passages.embed_passages(model, inputs["passages"])
        passages.loss_of(asked, told, inputs).backward()

    passages.accumulate = accumulate


@harmless("micro batches", "passages", group="whole step")
def all_in_one_part(passages):
    """Each of the two passes has one part."""
    passages.in_parts = lambda tokens: [tokens]


@harmless("padding", "passages", group="whole step")
def longer_passages(passages):
    """Passages have four more places of padding."""
    pad_passages = passages.pad_passages
    passages.pad_passages = lambda told: F.pad(pad_passages(told), (0, 4), value=passages.PAD)


@harmless("scaled", "passages", group="whole step")
def loss_is_scaled(passages):
    """The loss is scaled, and gradients are unscaled before they are clipped."""
    loss_of, clip = passages.loss_of, passages.clip
    passages.loss_of = lambda asked, told, inputs: 256.0 * loss_of(asked, told, inputs)

    def unscaled(model):
        for p in model.parameters():
            p.grad.div_(256.0)
        clip(model)

    passages.clip = unscaled


@harmless("recomputed", "passages", group="whole step")
def layers_computed_again(passages):
    """The layers are computed again in the backward pass."""
    build = passages.build

    def made():
        model = build()
        model.bert.gradient_checkpointing_enable({"use_reentrant": False})
        return model

    passages.build = made
