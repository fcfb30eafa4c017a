"""Cases of what is known about things."""

import torch
from case import fault, harmless
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint


@fault(
    "facts",
    line="return (head * turn - tail).abs().sum(dim=-1)",
    api=r"(Tensor|Torch)\.(mul|__mul__|conj\w*)",
)
def turned_back(facts):
    """Heads are turned in the opposite direction."""

    def distance(head, turn, tail):
        return (head * turn.conj() - tail).abs().sum(dim=-1)  # here

    facts.distance = distance


@fault(
    "facts",
    # The forward pass is the same: gradients that should not be there are those of the softmax.
    line=[
        "scores = scores.detach().masked_fill(known, -torch.inf)",
        "return (SHARP * scores).softmax(dim=1)",
        "return -(hardness(scores, known) * F.logsigmoid(-scores)).sum(dim=1)",
    ],
    api=r"(Tensor|Torch|Functional)\.(softmax|masked_fill)",
)
def hardness_learns(facts):
    """How much a wrong fact counts has a gradient."""

    def hardness(scores, known):
        scores = scores.masked_fill(known, -torch.inf)  # here
        return (facts.SHARP * scores).softmax(dim=1)  # here

    facts.hardness = hardness


@fault(
    "facts",
    # A mask is missing: the product before the softmax is the first that lacks it.
    line=[
        "scores = scores.detach().masked_fill(known, -torch.inf)",
        "return (SHARP * scores).softmax(dim=1)",
    ],
)
def known_facts_are_wrong(facts):
    """Facts that are known to be right are learned as wrong ones."""

    def hardness(scores, known):
        return (facts.SHARP * scores.detach()).softmax(dim=1)  # here

    facts.hardness = hardness


@fault(
    "facts",
    # Indices are integers: the tables that read them are the first calls with floats.
    line=[
        'heads = torch.where(of_heads, inputs["others"], inputs["head"].unsqueeze(1))',
        'tails = torch.where(of_heads, inputs["tail"].unsqueeze(1), inputs["others"])',
        "found = self.things(index) + self.names(words_of(index))",
        "heads, tails = (model.thing(index) for index in replaced(inputs))",
    ],
    api=r"Functional\.embedding|Module\.things\..*",
    module=r"(things)?",
    module_only=r"(things)?",
)
def the_other_side_is_replaced(facts):
    """Where heads should be replaced, tails are."""

    def replaced(inputs):
        of_tails = inputs["of_heads"].unsqueeze(1)
        heads = torch.where(of_tails, inputs["head"].unsqueeze(1), inputs["others"])  # here
        tails = torch.where(of_tails, inputs["others"], inputs["tail"].unsqueeze(1))  # here
        return heads, tails

    facts.replaced = replaced


@fault(
    "facts",
    line="return (SHARP * scores).softmax(dim=1)",
    api=r"(Tensor|Torch|Functional)\.softmax",
)
def facts_compete(facts):
    """The softmax is over the facts, not over what is wrong in place of one."""

    def hardness(scores, known):
        scores = scores.detach().masked_fill(known, -1e4)
        return (facts.SHARP * scores).softmax(dim=0)  # here

    facts.hardness = hardness


@fault(
    "facts",
    line="return self.words(words)",
    api=r"Functional\.embedding_bag|Torch\.embedding_bag|Module\.names\.words\..*",
    module=r"names(\.words)?",
    module_only=r"names(\.words)?",
)
def padding_is_a_word(facts):
    """The mean of a name is over its padding, too."""

    class Names(facts.Names):
        def mean(self, words):
            return F.embedding_bag(words, self.words.weight, mode="mean")  # here

    facts.Names = Names


@fault(
    "facts",
    # The total is an argument: the quotient is the first call with it.
    line=[
        'return inputs["weight"].sum(), inputs["real"].sum(), torch.tensor(CLASS_WEIGHTS)[known]',
        "return loss + KIND_WEIGHT * kind_loss(model, head, inputs) / kinds",
        'known = inputs["kinds"][inputs["kinds"] != IGNORE]',
    ],
)
def kinds_are_counted(facts):
    """The weighted sum over kinds is divided by how many there are, not by their weights."""

    def totals_of(inputs):
        known = (inputs["kinds"] != facts.IGNORE).sum()  # here
        return inputs["weight"].sum(), inputs["real"].sum(), known

    facts.totals_of = totals_of


@fault("facts", api=r"Optimizer\.Adagrad\.step", update=True)
def sums_begin_at_zero(facts):
    """The sums of squares begin at zero."""

    def make_adagrad(parameters, **more):
        return torch.optim.Adagrad(parameters, lr=facts.LR, **more)

    facts.make_adagrad = make_adagrad


@fault(
    "facts",
    # What was there before is added to: the gradient is the first wrong number.
    line=[
        "model.turner.zero_grad()",
        "model.turner.step()",
        "loss_of(model, inputs, totals_of(inputs)).backward()",
    ],
    api=r"Optimizer\.SGD\.step",
    module_only=r"(turns)?",
)
def gradients_of_turns_pile_up(facts):
    """Nobody sets the gradients of the second optimizer to zero."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        facts.backward(model, batch)  # here
        optimizer.step()
        model.turner.step()  # here
        facts.keep_in_bounds(model)
        model.schedule.step()

    facts.step = step


@fault(
    "facts",
    line=[
        "model.things.weight.renorm_(2, 0, BOUND)",
        "turns.add_(RANGE).remainder_(2 * RANGE).sub_(RANGE)",
    ],
)
def bounds_before_the_step(facts):
    """Things are kept in bounds before the weights move, not after it."""

    def step(model, optimizer, batch):
        optimizer.zero_grad()
        model.turner.zero_grad()
        facts.backward(model, batch)
        facts.keep_in_bounds(model)  # here
        optimizer.step()
        model.turner.step()
        model.schedule.step()

    facts.step = step


@harmless("split", "facts")
def complex_products_by_parts(facts):
    """Real and imaginary parts are multiplied for themselves."""

    def distance(head, turn, tail):
        real = head.real * turn.real - head.imag * turn.imag - tail.real
        imag = head.real * turn.imag + head.imag * turn.real - tail.imag
        return torch.hypot(real, imag).sum(dim=-1)

    facts.distance = distance


@harmless("fused", "facts")
def turned_by_exp(facts):
    """The turn is the exponential of an imaginary number."""

    class Facts(facts.Facts):
        def turn(self, relation):
            angle = self.turns(relation) * (torch.pi / facts.RANGE)
            return torch.complex(torch.zeros_like(angle), angle).exp()

    facts.Facts = Facts


@harmless("fused", "facts")
def names_by_masked_mean(facts):
    """The words of a name are looked up, added where they are no padding, and divided."""

    class Names(facts.Names):
        def mean(self, words):
            real = (words != 0).unsqueeze(2)
            found = F.embedding(words, self.words.weight, padding_idx=0)
            return (found * real).sum(dim=1) / real.sum(dim=1)

    facts.Names = Names


@harmless("loss", "facts")
def losses_by_softplus(facts):
    """Logarithms of sigmoids are written as softplus, and multiplied in one product."""

    def wrong_losses(scores, known):
        return torch.einsum("rk,rk->r", facts.hardness(scores, known), F.softplus(scores))

    facts.right_losses = lambda scores: F.softplus(-scores)
    facts.wrong_losses = wrong_losses


@harmless("inserted", "facts")
def bounds_by_factors(facts):
    """Things that are too large are multiplied by a factor, and angles turned by whole turns."""

    @torch.no_grad()
    def keep_in_bounds(model):
        things, turns, size = model.things.weight, model.turns.weight, facts.RANGE
        lengths = torch.linalg.vector_norm(things, dim=1, keepdim=True)
        factors = facts.BOUND / (lengths + 1e-7)  # as renorm_ does
        things.mul_(torch.where(lengths > facts.BOUND, factors, 1.0))
        turns.sub_(2 * size * torch.floor((turns + size) / (2 * size)))

    facts.keep_in_bounds = keep_in_bounds


def _rows(inputs, rows):
    return {name: value[rows] for name, value in inputs.items()}


@harmless("rows", "facts", group="whole step")
def facts_in_another_order(facts):
    """The facts are in another order."""
    backward = facts.backward
    order = [(3 * k + 4) % facts.ROWS for k in range(facts.ROWS)]
    facts.backward = lambda model, inputs: backward(model, _rows(inputs, order))


@harmless("rows", "facts", group="whole step")
def wrong_things_in_another_order(facts):
    """What is wrong in place of a thing stands in the opposite order."""
    backward = facts.backward

    def flipped(model, inputs):
        moved = {name: inputs[name].flip(1) for name in ("others", "known")}
        backward(model, inputs | moved)

    facts.backward = flipped


@harmless("micro batches", "facts", group="whole step")
def heads_and_tails_apart(facts):
    """Facts whose heads are replaced go backward first, then the others."""

    def backward(model, inputs):
        totals = facts.totals_of(inputs)
        for rows in (inputs["of_heads"], ~inputs["of_heads"]):
            facts.loss_of(model, _rows(inputs, rows), totals).backward()

    facts.backward = backward


@harmless("padding", "facts", group="whole step")
def more_that_does_not_count(facts):
    """There are two more facts without weight, and three more things that are known."""
    backward = facts.backward

    def padded(model, inputs):
        values = {"kinds": facts.IGNORE}
        more = {}
        for name, value in inputs.items():
            sides = (0, 2) if value.dim() == 1 else (0, 3, 0, 2)
            more[name] = F.pad(value, sides, value=values.get(name, 0))
        more["known"][:, facts.WRONG :] = True
        backward(model, more)

    facts.backward = padded


@harmless("scaled", "facts", group="whole step")
def divided_when_added(facts):
    """The loss is multiplied by the facts, and the gradients are divided by them."""

    def backward(model, inputs):
        totals = facts.totals_of(inputs)
        (totals[1] * facts.loss_of(model, inputs, totals)).backward()
        for p in model.parameters():
            p.grad.div_(totals[1])

    facts.backward = backward


@harmless("recomputed", "facts", group="whole step")
def distances_computed_again(facts):
    """Distances are computed again in the backward pass."""
    distance = facts.distance
    facts.distance = lambda *given: checkpoint(distance, *given, use_reentrant=False)
