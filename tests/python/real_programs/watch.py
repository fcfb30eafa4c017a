"""How to write a program, and how it declares the expected records.

A program is a function with one argument, `watch`, and returns everything it has computed. The body
of `with watch(model):` is one step. It is recorded if the tool is on; the program cannot tell:

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
    records: tuple  # names of records in the first step under level mix
    parents: dict = field(default_factory=dict)  # some of them -> their parent in construct.json
    absent: tuple = ()  # substrings that no entry name may have
    slow: bool = False  # takes seconds: runs only in the campaign


class Watch:
    """`debugger` is None when the tool is off."""

    def __init__(self, debugger=None):
        self.debugger = debugger
        self.noted = {}  # place in the dump of step 0 -> the value that the program saw

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
        """The dump must have this tensor at `place`, the name of a file without `.pt`."""
        self.noted[place] = tensor.detach().numpy().copy()
        return tensor


def program(*records, parents=None, absent=(), slow=False):
    """Decorator that marks a function as a program."""

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
