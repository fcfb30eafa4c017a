"""Cases of the retriever."""

import torch
from case import fault, harmless
from torch.nn import functional as F

LAST = r"encoder(\.encoder.*)?|"


def gradients_of_vectors_kept(retriever):
    """Vectors are made without history; their gradients are kept, and go backward in micro-batches
    (GradCache), documents first."""

    def descend(model, words, words_known, texts, texts_known, topics):
        parts = [
            each
            for values, size in (((texts, texts_known), 4), ((words, words_known), 2))
            for each in zip(*(value.split(size) for value in values), strict=True)
        ]
        with torch.no_grad():
            vectors = torch.cat([model(*part) for part in parts])
        leaf = vectors.requires_grad_()
        scores = retriever.scores_of(model, leaf[len(texts) :], leaf[: len(texts)])
        retriever.loss_of(scores, topics).backward()
        gradients = leaf.grad.split([len(part[0]) for part in parts])
        for part, gradient in zip(parts, gradients, strict=True):
            model(*part).backward(gradient)

    retriever.descend = descend


def queries_beside_documents(retriever):
    """Queries are padded to the length of documents, and go through the encoder with them."""

    def descend(model, words, words_known, texts, texts_known, topics):
        wide = (0, retriever.DOCUMENT - retriever.QUERY)
        tokens = torch.cat([F.pad(words, wide), texts])
        known = torch.cat([F.pad(words_known, wide), texts_known])
        vectors = model(tokens, known).split([len(words), len(texts)])
        retriever.loss_of(retriever.scores_of(model, *vectors), topics).backward()

    retriever.descend = descend


@fault("retriever", line=["return (states * known).sum(dim=1) / known.sum(dim=1)"])
def mean_over_the_padding(retriever):
    """The mean is that over all places: the padding counts."""
    retriever.pooled = lambda states, known: states.mean(dim=1)  # here


@fault(
    "retriever",
    line=["return torch.arange(QUERIES) * EACH"],
    module_only=LAST,
    api=r"Functional\.cross_entropy|Functional\.one_hot",
)
def labels_without_hard_negatives(retriever):
    """The right document is taken to have the number of the query, as without hard negatives."""
    retriever.labels = lambda: torch.arange(retriever.QUERIES)  # here


@fault(
    "retriever",
    module=r"encoder|encoder\.encoder\.layer\.0\.attention\.self",
    api=r".*",
    line=["states = self.encoder(input_ids=tokens, attention_mask=known).last_hidden_state"],
)
def padding_seen(retriever):
    """The encoder gets no mask; the mean is right."""

    class Retriever(retriever.Retriever):
        def forward(self, tokens, known):
            states = self.encoder(input_ids=tokens).last_hidden_state  # here
            return F.normalize(retriever.pooled(states, known), dim=-1)

    retriever.Retriever = Retriever


@fault("retriever", module=r"encoder\.encoder\.layer\.0\.intermediate.*", api=r"Functional\.gelu")
def activation_of_another_model(retriever):
    """The activation is the approximation by tanh."""
    config = retriever.config

    def other():
        made = config()
        made.hidden_act = "gelu_pytorch_tanh"
        return made

    retriever.config = other


@fault(
    "retriever",
    beside=gradients_of_vectors_kept,
    module_only=LAST,
    line=["forth = F.cross_entropy(scores.masked_fill(too_near(topics), float"],
)
def near_documents_have_no_score(retriever):
    """The right documents of the same topic get the score 0, in place of minus infinity."""

    def loss_of(scores, topics):
        labels = retriever.labels()
        near = retriever.too_near(topics)
        forth = F.cross_entropy(scores.masked_fill(near, 0.0), labels)  # here
        back = F.cross_entropy(scores[:, labels].mT, torch.arange(retriever.QUERIES))
        return forth + retriever.BACKWARD * back

    retriever.loss_of = loss_of


@fault(
    "retriever",
    beside=queries_beside_documents,
    module_only=LAST,
    line=["return self.heat.exp().clamp(max=LARGEST)"],
)
def scale_without_exponential(retriever):
    """The scale of the scores is the parameter itself, and not its exponential."""

    class Retriever(retriever.Retriever):
        def scale(self):
            return self.heat.clamp(max=retriever.LARGEST)  # here

    retriever.Retriever = Retriever


harmless("micro batches", "retriever")(gradients_of_vectors_kept)
harmless("padding", "retriever")(queries_beside_documents)


@harmless("fused", "retriever")
def attention_of_transformers(retriever):
    """The attention of transformers is written out, not that of PyTorch."""
    config = retriever.config

    def other():
        made = config()
        made._attn_implementation = "eager"  # noqa: SLF001
        return made

    retriever.config = other


@harmless("loss", "retriever")
def entropies_by_logsumexp(retriever):
    """Both entropies are a normaliser less the right score; the mean is one product."""

    def loss_of(scores, topics):
        right = scores[:, retriever.labels()]
        hidden = scores.new_zeros(scores.shape).masked_fill(retriever.too_near(topics), -torch.inf)
        forth = torch.logsumexp(scores + hidden, dim=1) - right.diagonal()
        back = torch.logsumexp(right, dim=0) - right.diagonal()
        return torch.add(forth, back, alpha=retriever.BACKWARD).mean()

    def pooled(states, known):
        share = known.to(states.dtype)
        return torch.bmm((share / share.sum(1, keepdim=True))[:, None], states)[:, 0]

    retriever.loss_of = loss_of
    retriever.pooled = pooled
