"""Which outputs the calls of MindSpore leave unwritten on a CPU.

    python tests/mindspore/unwritten_sweep.py           # fails where the table is not true
    python tests/mindspore/unwritten_sweep.py --write   # writes it into this checkout

Every Primitive, and every function of ops and mint, is called: the examples in MindSpore's own
documents are executed, and a Primitive that they do not reach is called with tensors of a few
shapes.
Each outermost call is made three times. The first one tells the sizes of the outputs. Before the
second and the third, memory of these sizes is filled with a pattern and freed, another pattern each
time. An element that has the first pattern after the second call and the other one after the third
was not written. A Primitive with switches (arguments of its constructor that are true or false) is
also called with each of them turned.
"""

import contextlib
import doctest
import functools
import inspect
import io
import multiprocessing
import os
import sys
import warnings
from pathlib import Path

import numpy as np

import mindspore
from mindspore import Tensor, mint, nn, ops

SOURCE = Path(__file__).resolve().parents[2] / "python/msprobe/mindspore"
TABLE = "hook_module/unwritten_outputs.yaml"
PATTERNS = (0xA5, 0x5A)
BLOCKS = 8  # blocks of each size that are freed: a call also takes memory that it does not return
LARGEST = 1 << 22  # bytes of the largest output that is looked at
BATCH, GIVE_UP_S = 40, 20  # examples of a child; time for one of them
HEAD = """\
# Outputs that MindSpore {version} leaves unwritten on a CPU: the call returns what the memory held
# before. They are recorded without numbers. tests/mindspore/unwritten_sweep.py writes this file: it
# has called {tried} Primitives and functions; some {failed} others do not run on a CPU, or no
# arguments for them are known. A name is a Primitive's class, with the switch of its constructor
# that the outputs depend on, or an API; then come places of outputs.
"""


def primitives():
    """name -> class, of every Primitive that a program can reach."""
    from mindspore.ops import auto_generate, operations

    modules = [auto_generate, operations, *vars(operations).values()]
    found = {}
    for module in modules:
        for name, each in vars(module).items() if inspect.ismodule(module) else ():
            if inspect.isclass(each) and issubclass(each, ops.Primitive) and each.__module__:
                found.setdefault(name, each)
    return {name: each for name, each in found.items() if name not in ("Primitive", "Custom")}


def functions():
    """(name of the API, namespace, name there)."""
    for prefix, owner in (
        ("Functional", ops),
        ("Mint", mint),
        ("MintFunctional", mint.nn.functional),
    ):
        for name, each in vars(owner).items():
            if not name.startswith("_") and callable(each) and not inspect.isclass(each):
                yield f"{prefix}.{name}", owner, name


def documents():
    """name -> text with examples, of everything that calls operators."""
    found = dict(primitives())
    found.update((api, getattr(owner, name)) for api, owner, name in functions())
    found.update(
        (f"Tensor.{name}", getattr(Tensor, name)) for name in dir(Tensor) if name[0] != "_"
    )
    return {name: inspect.getdoc(each) or "" for name, each in found.items()}


def leaves(value):
    if isinstance(value, Tensor):
        return [value]
    return [t for item in value for t in leaves(item)] if isinstance(value, (tuple, list)) else []


def poison(sizes, pattern):
    """Fill memory that the next call may take, and free it."""
    blocks = [
        Tensor(np.full(max(1, size), pattern, np.uint8)) | Tensor(np.uint8(0))
        for size in set(sizes)
        for _ in range(BLOCKS)
    ]
    del blocks


def shows(tensor, pattern):
    """For each element whether all its bytes have the pattern."""
    array = np.ascontiguousarray(tensor.asnumpy()).reshape(-1)
    raw = array.view(np.uint8).reshape(array.size, -1) if array.size else np.zeros((0, 1))
    return (raw == pattern).all(axis=1)


def unwritten(call):
    """Places of the outputs of which an element is unwritten."""
    sizes = [tensor.nbytes for tensor in leaves(call())]
    if not sizes or max(sizes) > LARGEST:
        return set()
    seen = []
    for pattern in PATTERNS:
        poison(sizes, pattern)
        seen.append([shows(tensor, pattern) for tensor in leaves(call())])
    both = zip(*seen, strict=True)
    return {i for i, (a, b) in enumerate(both) if a.shape == b.shape and (a & b).any()}


def switches(primitive):
    """name -> value of the arguments of its constructor that are true or false."""
    made_with = getattr(primitive, "init_attrs", {})
    return {name: value for name, value in made_with.items() if isinstance(value, bool)}


class Watch:
    """Tries each outermost call of a Primitive or function while it is open."""

    def __init__(self):
        self.found = {}  # (name, ((switch, value), ...)) -> places
        self._inside = False
        self._places = []

    def __enter__(self):
        for each in {*primitives().values(), ops.Primitive}:
            if "__call__" in vars(each):
                self._replace(each, "__call__", self._call)
        for api, owner, name in functions():
            self._replace(owner, name, functools.partial(self._function, api))
        return self

    def __exit__(self, *_):
        for owner, name, before in reversed(self._places):
            setattr(owner, name, before)

    def _replace(self, owner, name, wrap):
        before = vars(owner)[name]
        self._places.append((owner, name, before))
        setattr(owner, name, wrap(before))

    def _call(self, before):
        @functools.wraps(before)
        def call(primitive, *args, **kwargs):
            if not self._inside:
                self._once(lambda: self._try(primitive, args, kwargs))
            return before(primitive, *args, **kwargs)

        return call

    def _function(self, api, before):
        @functools.wraps(before)
        def call(*args, **kwargs):
            if not self._inside and (api, ()) not in self.found:
                self._once(lambda: self._note((api, ()), lambda: before(*args, **kwargs)))
            return before(*args, **kwargs)

        return call

    def _once(self, work):
        self._inside = True
        try:
            with contextlib.suppress(Exception):  # the call itself raises it again
                work()
        finally:
            self._inside = False

    def _note(self, key, call):
        self.found[key] = unwritten(call) | self.found.get(key, set())

    def _try(self, primitive, args, kwargs):
        name, values = type(primitive).__name__, switches(primitive)
        if (name, tuple(values.items())) in self.found:
            return
        self._note((name, tuple(values.items())), lambda: primitive(*args, **kwargs))
        for switch, value in values.items():
            with contextlib.suppress(Exception):
                other = type(primitive)(**{**primitive.init_attrs, switch: not value})
                key = (name, tuple(switches(other).items()))
                self._note(key, lambda other=other: other(*args, **kwargs))


def run_example(text):
    """What its calls have left unwritten, and the first error."""
    names = {"mindspore": mindspore, "ms": mindspore, "np": np, "nn": nn, "ops": ops, "mint": mint}
    names |= {"Tensor": Tensor, "Parameter": mindspore.Parameter, "mutable": mindspore.mutable}
    failed = None
    with Watch() as watch, contextlib.redirect_stdout(io.StringIO()):
        for example in doctest.DocTestParser().get_examples(text):
            try:
                exec(compile(example.source, "example", "single"), names)
            except BaseException as error:
                failed = failed or f"{type(error).__name__}: {error}"
    return watch.found, failed


def run_guesses(name):
    """The same for a Primitive of which no example is known."""
    failed = "no arguments are known"
    primitive = primitives()[name]
    parameters = list(inspect.signature(primitive.__call__).parameters.values())[1:]
    plain = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    counts = [len(plain)] if plain else [1, 2, 3]
    random = np.random.default_rng(0)
    with Watch() as watch:
        for shape in ((4, 4), (2, 4, 4, 4), (4,)):
            for dtype in (np.float32, np.int32):
                for count in counts:
                    given = [
                        Tensor(random.uniform(1, 3, shape).astype(dtype)) for _ in range(count)
                    ]
                    with contextlib.suppress(BaseException):
                        primitive()(*given)
                        failed = None
    return watch.found, failed


def _work(pipe, batch):
    mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
    mindspore.set_device("CPU")
    warnings.simplefilter("ignore")
    for name, text in batch:
        pipe.send(run_example(text) if text else run_guesses(name))
    pipe.send(None)


def _in_children(todo, add, say):
    """Runs them in children, which may die, and gives `add(name, found, failed)` for each."""
    context = multiprocessing.get_context("fork")
    while todo:
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_work, args=(sender, todo[:BATCH]))
        child.start()
        sender.close()
        done = 0
        with contextlib.suppress(EOFError):
            while receiver.poll(GIVE_UP_S) and (answer := receiver.recv()) is not None:
                add(todo[done][0], *answer)
                done += 1
        if done < len(todo[:BATCH]):
            add(todo[done][0], {}, "the process died or did not end")
            done += 1
        child.kill()
        child.join()
        todo = todo[done:]
        say(f"{len(todo)} are left")


def sweep(say=lambda line: None):
    """(name, switches) -> places, and what could not be tried: name -> why."""
    found, failed = {}, {}

    def add(name, of_it, why):
        for key, places in of_it.items():
            found[key] = places | found.get(key, set())
        if why is not None:
            failed[name] = why

    _in_children([(n, t) for n, t in sorted(documents().items()) if ">>>" in t], add, say)
    tried = {name for name, _ in found}
    _in_children([(name, "") for name in sorted(primitives()) if name not in tried], add, say)
    tried = {name for name, _ in found}
    names = {*primitives(), *(api for api, _, _ in functions())}
    return found, {n: failed.get(n, "no example") for n in sorted(names - tried)}


def rows(found):
    """The lines of the table: name, with the switch that matters -> places."""
    table = {}
    for name in sorted({name for name, _ in found}):
        variants = [(dict(key[1]), places) for key, places in found.items() if key[0] == name]
        for place in sorted(set().union(*(places for _, places in variants))):
            left = [values for values, places in variants if place in places]
            written = [values for values, places in variants if place not in places]
            for text in _conditions(left, written):
                table.setdefault(name + text, []).append(place)
    return table


def _conditions(left, written):
    if not written:
        return [""]
    for switch, value in left[0].items():
        if all(v[switch] == value for v in left) and all(v[switch] != value for v in written):
            return [f"({switch}={value})"]
    return sorted({"(" + ", ".join(f"{k}={v}" for k, v in values.items()) + ")" for values in left})


def text_of(found, failed):
    tried = len({name for name, _ in found})
    head = HEAD.format(
        version=mindspore.__version__, tried=tried // 10 * 10, failed=(len(failed) + 9) // 10 * 10
    )
    lines = [
        f'"{name}": {places}\n' if "(" in name else f"{name}: {places}\n"
        for name, places in rows(found).items()
    ]
    return head + "".join(lines)


def shipped():
    return (SOURCE / TABLE).read_text()


def main():
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)  # MindSpore's own lines about arguments that do not fit
    text = text_of(*sweep(lambda line: print(line, flush=True)))
    if "--write" in sys.argv:
        (SOURCE / TABLE).write_text(text)
        return 0
    print(text)
    return 0 if text == shipped() else 1


if __name__ == "__main__":
    sys.exit(main())
