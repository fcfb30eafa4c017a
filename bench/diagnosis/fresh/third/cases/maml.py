"""Cases of the meta-learning."""

import torch
from case import fault, harmless
from torch.nn import functional as F

CHANGED = "return {name: weight - rate * bounded(gradient)"
GRADIENT = "return torch.autograd.grad(loss, list(weights.values()), create_graph=True)"
INNER = [
    CHANGED,
    GRADIENT,
    "loss = inner_loss(predicted(learner, weights, x), y)",
    "return F.cross_entropy(logits, y)",
    "return functional_call(learner.net, weights, (x,))",
]


@fault(
    "maml",
    api=r"Tensor\.(norm|square|__add__)",  # the first calls that take a gradient without a graph
    module=r"(?!.)",
    line=[*INNER, "return gradient * (LARGEST / (gradient.norm() + 1e-6)).clamp(max=1.0)"],
)
def first_order_only(maml):
    """The gradients of an inner step have no graph: nothing goes back through them. The first wrong
    numbers are in the backward pass, where a changed weight goes back to its gradient."""

    def gradients_of(learner, weights, x, y):
        loss = maml.inner_loss(maml.predicted(learner, weights, x), y)  # here
        return torch.autograd.grad(loss, list(weights.values()), retain_graph=True)  # here

    maml.gradients_of = gradients_of


@fault(
    "maml",
    api=r"Functional\.linear",
    module=r"((net\.)?first)?",
    line=[
        "total = total + IMPORTANCE[number] * outer_loss(",
        "predicted(learner, weights, query[0]), query[1]",
        "return F.cross_entropy(logits, y, label_smoothing=0.1)",  # takes the wrong labels itself
    ],
)
def learned_examples_are_asked(maml):
    """The outer loss asks for the examples that the task has learned from."""
    task_loss = maml.task_loss
    maml.task_loss = lambda learner, support, query: task_loss(learner, support, support)


@fault(
    "maml",
    line=[
        CHANGED,
        "return RATE * self.log_rates[number].exp()",
        "weights = changed(weights, gradients, learner.rates(number))",
        "sides = zip(weights.items(), gradients, rates, strict=True)",
    ],
)
def rates_not_learned(maml):
    """The rates are detached: they have no gradient."""
    changed = maml.changed
    maml.changed = lambda weights, gradients, rates: changed(
        weights,
        gradients,
        rates.detach(),  # here
    )


@fault(
    "maml",
    api=r"Functional\.linear",
    module=r"((net\.)?first)?",
    line=[CHANGED, "gradients = gradients_of(learner, weights, *support)"],
)
def each_step_from_the_begin(maml):
    """The second inner step changes the first weights, not those of the first inner step."""

    def task_loss(learner, support, query):
        first, total = dict(learner.net.named_parameters()), 0.0
        for number in range(maml.INNER):
            gradients = maml.gradients_of(learner, first, *support)  # here
            weights = maml.changed(first, gradients, learner.rates(number))  # here
            logits = maml.predicted(learner, weights, query[0])
            total = total + maml.IMPORTANCE[number] * maml.outer_loss(logits, query[1])
        return total

    maml.task_loss = task_loss


@fault("maml", line="total = total + IMPORTANCE[number] * outer_loss(")
def importance_reversed(maml):
    """The first inner step counts as much as the last should."""
    maml.IMPORTANCE = maml.IMPORTANCE[::-1]


@fault(
    "maml",
    line=["return gradient * (LARGEST / (gradient.norm() + 1e-6)).clamp(max=1.0)", CHANGED],
)
def short_gradients_grow(maml):
    """Each gradient of an inner step is made as long as the longest may be."""

    def bounded(gradient):
        return gradient * (maml.LARGEST / (gradient.norm() + 1e-6))  # here

    maml.bounded = bounded


@fault("maml", line="torch.stack(losses).mean().backward()")
def tasks_added_up(maml):
    """The losses of the tasks are added up, not averaged."""

    def backward(learner, tasks):
        losses = [maml.task_loss(learner, *task) for task in tasks]
        torch.stack(losses).sum().backward()  # here

    maml.backward = backward


@fault("maml", line="return F.cross_entropy(logits, y)")
def inner_loss_summed(maml):
    """The inner loss is a sum over the examples."""
    maml.inner_loss = lambda logits, y: F.cross_entropy(logits, y, reduction="sum")  # here


@fault(
    "maml",
    api=r"Optimizer\.(AdamW\.step|gradients_before)",
    update=True,
    line=["optimizer.zero_grad()", "torch.stack(losses).mean().backward()"],
)
def gradients_of_the_step_before(maml):
    """The gradients are not zeroed: those of the step before are added."""

    def step(learner, optimizer, batch):
        maml.backward(learner, batch)  # here
        optimizer.step()  # here

    maml.step = step


@harmless("fused", "maml")
def net_of_functions(maml):
    """The net is written out with its weights, without modules."""

    def predicted(learner, weights, x):
        h = F.linear(x, weights["first.weight"], weights["first.bias"])
        h = h - h.mean(dim=-1, keepdim=True)
        h = h * (h.square().mean(dim=-1, keepdim=True) + learner.net.norm.eps).rsqrt()
        h = torch.tanh(torch.addcmul(weights["norm.bias"], h, weights["norm.weight"]))
        inside = torch.addmm(weights["second.bias"], h, weights["second.weight"].T)
        h = h + torch.log1p(inside.exp())
        return h @ weights["out.weight"].T + weights["out.bias"]

    maml.predicted = predicted


@harmless("loss", "maml")
def losses_of_logarithms(maml):
    """Both losses by logsumexp and what is picked."""

    def inner_loss(logits, y):
        return (logits.logsumexp(dim=1) - logits.gather(1, y[:, None])[:, 0]).mean()

    def outer_loss(logits, y):
        log_p = logits - logits.logsumexp(dim=1, keepdim=True)
        right = torch.full_like(log_p, 0.1 / maml.WAYS).scatter(
            1, y[:, None], 0.9 + 0.1 / maml.WAYS
        )
        return -(right * log_p).sum() / len(y)

    maml.inner_loss, maml.outer_loss = inner_loss, outer_loss


@harmless("reordered", "maml")
def weights_of_one_call(maml):
    """The weights of an inner step are changed by one call each, the last one first."""

    def changed(weights, gradients, rates):
        made = {}
        sides = list(zip(weights, gradients, rates, strict=True))
        for name, gradient, rate in reversed(sides):
            limit = maml.LARGEST / (gradient.square().sum().sqrt() + 1e-6)
            made[name] = torch.addcmul(weights[name], gradient, -rate * limit.clamp(max=1.0))
        return {name: made[name] for name in weights}

    maml.changed = changed


@harmless("fused", "maml")
def optimizer_of_one_kernel(maml):
    """The optimizer is fused."""
    maml.optimizer = lambda learner: torch.optim.AdamW(
        maml.groups_of(learner), lr=5e-3, amsgrad=True, fused=True
    )


@harmless("rows", "maml", group="whole step")
def tasks_turned(maml):
    """The tasks stand in the other order."""
    step = maml.step
    maml.step = lambda learner, optimizer, batch: step(learner, optimizer, batch[::-1])


@harmless("rows", "maml", group="whole step")
def examples_sorted(maml):
    """The examples of each task stand by their class."""
    backward = maml.backward

    def by_class(learner, tasks):
        orders = [[y.argsort(stable=True) for _, y in task] for task in tasks]
        backward(
            learner,
            [
                tuple((x[o], y[o]) for (x, y), o in zip(task, order, strict=True))
                for task, order in zip(tasks, orders, strict=True)
            ],
        )

    maml.backward = by_class


@harmless("micro batches", "maml", group="whole step")
def task_after_task(maml):
    """Each task goes backward on its own."""

    def backward(learner, tasks):
        for task in tasks:
            (maml.task_loss(learner, *task) / len(tasks)).backward()

    maml.backward = backward


@harmless("micro batches", "maml", group="whole step")
def tasks_side_by_side(maml):
    """All tasks are computed at once: each weight has one more dimension."""

    def predicted(weights, x):
        def linear(name, h):
            return torch.baddbmm(
                weights[f"{name}.bias"][:, None], h, weights[f"{name}.weight"].transpose(1, 2)
            )

        h = F.layer_norm(linear("first", x), (maml.WIDTH,))
        h = torch.tanh(h * weights["norm.weight"][:, None] + weights["norm.bias"][:, None])
        return linear("out", h + F.softplus(linear("second", h)))

    def backward(learner, tasks):
        support, query = (
            tuple(torch.stack(part) for part in zip(*side, strict=True))
            for side in zip(*tasks, strict=True)
        )
        count, total = len(tasks), 0.0
        weights = {
            name: weight.expand(count, *weight.shape)
            for name, weight in learner.net.named_parameters()
        }
        for number in range(maml.INNER):
            logits = predicted(weights, support[0]).flatten(0, 1)
            loss = count * maml.inner_loss(logits, support[1].flatten())
            gradients = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
            rows = [
                maml.changed(
                    {name: weight[i] for name, weight in weights.items()},
                    [gradient[i] for gradient in gradients],
                    learner.rates(number),
                )
                for i in range(count)
            ]
            weights = {name: torch.stack([row[name] for row in rows]) for name in weights}
            logits = predicted(weights, query[0]).flatten(0, 1)
            total = total + maml.IMPORTANCE[number] * maml.outer_loss(logits, query[1].flatten())
        total.backward()

    maml.backward = backward


@harmless("scaled", "maml", group="whole step")
def last_query_backward_first(maml):
    """The costs after each inner step go backward one after the other, 32 times as large."""

    def backward(learner, tasks):
        costs = {number: [] for number in range(maml.INNER)}
        for support, query in tasks:
            weights = dict(learner.net.named_parameters())
            for number in range(maml.INNER):
                gradients = maml.gradients_of(learner, weights, *support)
                weights = maml.changed(weights, gradients, learner.rates(number))
                logits = maml.predicted(learner, weights, query[0])
                costs[number].append(
                    32 * maml.IMPORTANCE[number] * maml.outer_loss(logits, query[1])
                )
        for number in reversed(range(maml.INNER)):
            torch.stack(costs[number]).mean().backward(retain_graph=True)
        for weight in learner.parameters():
            weight.grad.div_(32)

    maml.backward = backward
