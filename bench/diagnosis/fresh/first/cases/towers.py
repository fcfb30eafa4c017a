"""Cases of the two towers."""

import torch
from case import fault, harmless
from torch.nn import functional as F


@fault("towers", line=["scores = scores - self.log_popularity(candidates)"])
def popularity_added(towers):
    """The logarithm of the popularity is added to the scores."""

    class Towers(towers.Towers):
        def forward(self, user, positive, sampled):
            candidates = torch.cat([positive, sampled])
            self.count(candidates)
            scores = self.scores(self.user(*user), self.item(candidates))
            scores = scores + self.log_popularity(candidates)  # here
            return towers.hide_accidental_hits(scores, positive, candidates)

    towers.Towers = Towers


@fault(
    "towers",
    line=[
        "self.count(candidates)",
        "self.seen.index_add_(0, items",
        "return (self.seen / self.seen.sum())",
    ],
)
def counted_behind_the_scores(towers):
    """Items are counted behind their use: the first popularity is that of the step before."""

    class Towers(towers.Towers):
        def forward(self, user, positive, sampled):
            candidates = torch.cat([positive, sampled])
            scores = self.scores(self.user(*user), self.item(candidates))
            scores = scores - self.log_popularity(candidates)  # here
            self.count(candidates)  # here
            return towers.hide_accidental_hits(scores, positive, candidates)

    towers.Towers = Towers


@fault(
    "towers", line=["return torch.cat([lengths.new_zeros(1)", "summed = self.words(hashed(words)"]
)
def bags_shifted_by_the_first(towers):
    """Bags begin at the sums less the first length: each bag has the words of the next ones."""
    towers.offsets_of = lambda lengths: lengths.cumsum(0) - lengths[0]  # here


@fault(
    "towers",
    line=[
        "return scores.masked_fill(same & ~own",
        "return hide_accidental_hits(",
        "losses = F.cross_entropy(scores",
    ],
)
def accidental_hits_stay(towers):
    """The user's own item counts as a negative where another user has it."""
    towers.hide_accidental_hits = lambda scores, positive, candidates: scores  # here


@fault(
    "towers",
    line=["same = positive[:, None] == candidates[None]", "return scores.masked_fill(same & ~own"],
)
def hits_of_rows_for_columns(towers):
    """The own item is looked for along the wrong dimension, which hides the own positive."""

    def hide_accidental_hits(scores, positive, candidates):
        same = positive[:, None] == candidates[None]
        own = torch.zeros_like(same)  # here
        own[: len(positive), 0] = True  # here
        return scores.masked_fill(same & ~own, towers.HIDDEN)  # here

    towers.hide_accidental_hits = hide_accidental_hits


@fault("towers", line=["v = F.normalize(items, dim=-1)"])
def items_normalised_over_the_batch(towers):
    """Item vectors are normalised along the candidates."""

    class Towers(towers.Towers):
        def scores(self, users, items):
            u = F.normalize(users, dim=-1)
            v = F.normalize(items, dim=0)  # here
            return u @ v.T / towers.TEMPERATURE

    towers.Towers = Towers


@fault("towers", line=["return (losses * ratings).sum() / ratings.sum()"])
def ratings_divided_by_the_rows(towers):
    """The weighted loss is divided by the number of rows."""

    def retrieval_loss(scores, ratings):
        losses = F.cross_entropy(scores, torch.arange(len(scores)), reduction="none")
        return (losses * ratings).mean()  # here

    towers.retrieval_loss = retrieval_loss


@fault("towers", api="Optimizer.AdamW.step", update=True)
def dense_decay_of_another_library(towers):
    """The decay of the dense weights is not multiplied by the learning rate: 10 for 0.02."""
    optimizer = towers.optimizer

    def changed(model):
        made = optimizer(model)
        model.dense_optimizer.param_groups[0]["weight_decay"] = 10.0
        return made

    towers.optimizer = changed


@harmless("fused", "towers")
def bags_padded(towers):
    """Bags are padded, looked up word by word, and added with their weights."""

    class UserTower(towers.UserTower):
        def bags(self, words, lengths, weights):
            padded = torch.nn.utils.rnn.pad_sequence(
                words.split(lengths.tolist()), batch_first=True
            )
            weight = torch.nn.utils.rnn.pad_sequence(
                weights.split(lengths.tolist()), batch_first=True
            )
            vectors = F.embedding(towers.hashed(padded), self.words.weight)
            return (vectors * weight[..., None]).sum(1) / lengths[:, None]

    towers.UserTower = UserTower


@harmless("loss", "towers")
def loss_of_the_diagonal(towers):
    """The loss as logsumexp less the diagonal."""

    def retrieval_loss(scores, ratings):
        losses = scores.logsumexp(1) - scores.diagonal()
        return torch.dot(losses, ratings) / ratings.sum()

    towers.retrieval_loss = retrieval_loss


@harmless("rows", "towers", group="whole step")
def candidates_turned(towers):
    """The sampled items are in another order."""
    step = towers.step

    def changed(model, optimizer, batch):
        user, positive, sampled, ratings = batch
        step(model, optimizer, (user, positive, sampled[[3, 1, 4, 0, 2]], ratings))

    towers.step = changed


@harmless("rows", "towers", group="whole step")
def users_turned(towers):
    """Users and their items are in another order."""
    step = towers.step
    turn = torch.tensor([5, 2, 0, 1, 4, 3])

    def changed(model, optimizer, batch):
        (words, lengths, weights, age, income), positive, sampled, ratings = batch
        words, weights = words.split(lengths.tolist()), weights.split(lengths.tolist())
        words = torch.cat([words[i] for i in turn])
        weights = torch.cat([weights[i] for i in turn])
        user = (words, lengths[turn], weights, age[turn], income[turn])
        step(model, optimizer, (user, positive[turn], sampled, ratings[turn]))

    towers.step = changed


@harmless("split", "towers")
def scores_of_two_kinds(towers):
    """Positives and sampled items go through the tower apart."""

    class Towers(towers.Towers):
        def forward(self, user, positive, sampled):
            users = self.user(*user)
            candidates = torch.cat([positive, sampled])
            self.count(candidates)
            near = self.scores(users, self.item(positive)) - self.log_popularity(positive)
            far = self.scores(users, self.item(sampled)) - self.log_popularity(sampled)
            scores = torch.cat([near, far], dim=1)
            return towers.hide_accidental_hits(scores, positive, candidates)

    towers.Towers = Towers
