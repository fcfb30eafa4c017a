"""How a program is written, and what it says of itself.

A program is a function of one argument, `watch`, which returns all it has computed. What stands in
`with watch(model):` is one step, recorded when the tool is on; the program does not know:

    @program("Functional.relu.0.forward", "Module.0.Linear.forward.0")   # recorded under mix
    def small(watch):
        model = nn.Sequential(nn.Linear(2, 2))
        with watch(model):
            y = watch.note("Functional.relu.0.forward.output.0", F.relu(model(torch.ones(2))))
        return y
"""

from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Program:
    run: object
    records: tuple  # names that the first step holds under mix
    parents: dict = field(default_factory=dict)  # some of them -> the parent, in construct.json
    absent: tuple = ()  # parts of names that no entry has
    slow: bool = False  # takes seconds: runs in the campaign only


class Watch:
    """`debugger` is None when the tool is off."""

    def __init__(self, debugger=None):
        self.debugger = debugger
        self.noted = {}  # place in the dump of step 0 -> the value, seen by the program itself

    @contextmanager
    def __call__(self, model):
        if self.debugger is None:
            yield
            return
        self.debugger.start(model)
        try:
            yield
        finally:
            self.debugger.stop()
            self.debugger.step()

    def note(self, place, tensor):
        """This is what the dump must hold at `place`, the name of a file without its `.pt`."""
        self.noted[place] = tensor.detach().numpy().copy()
        return tensor


def program(*records, parents=None, absent=(), slow=False):
    """Marks a function as a program."""

    def mark(run):
        run.program = Program(run, records, parents or {}, absent, slow)
        return run

    return mark


def gather(*modules):
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value.program
        for module in modules
        for name, value in vars(module).items()
        if hasattr(value, "program")
    }


def state_of(*models):
    """Weights, buffers and gradients."""
    return [
        (dict(model.state_dict()), {name: p.grad for name, p in model.named_parameters()})
        for model in models
    ]
