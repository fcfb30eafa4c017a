"""What a case is: a program and one edit of it, with the place that a comparison has to name.

    @fault("gpt", api="Functional.softmax", module="blocks.0.attention")
    def scores_not_scaled(gpt):
        "What is wrong, and why its first wrong number is there."
        class Attention(gpt.Attention): ...
        gpt.Attention = Attention

The edit runs in the process of the target, before the model is built; it replaces functions,
classes or settings of the program's module. A line of the edit that ends with `# here` is a true
place, too.
"""

import dataclasses
import functools
import hashlib
import importlib
import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

import composed

HERE = Path(__file__).resolve().parent
FRESH = HERE / "fresh"
folder = HERE  # of cases/ and models/: see use()


@dataclasses.dataclass
class Case:
    name: str
    program: str
    edit: Callable  # edit(module of the program): what the target does differently
    both: Callable | None  # an edit of both sides
    settings: dict  # of the target's process: threads
    steps: int
    group: str = ""  # scored apart: "whole step", or one of composed.py
    parts: tuple = ()  # of a composed pair: the cases whose edits are made, in this order

    @property
    def what(self) -> str:
        sides = self.parts or (self,)
        return " ".join(" ".join(inspect.getdoc(each.edit).split()) for each in sides)

    @property
    def edits(self) -> list[str]:
        return [each.name for each in self.parts] or [self.name]

    @property
    def edits_both(self) -> str:
        """The name of the case whose edit of both sides is made; "" for none."""
        return next((each.name for each in self.parts or (self,) if each.both), "")

    @property
    def files(self) -> list[Path]:
        """The sources that make the target differ."""
        edits = (inspect.unwrap(each.edit) for each in self.parts or (self,))
        return sorted({Path(inspect.getfile(edit)) for edit in edits})

    @property
    def held_out(self) -> bool:
        """A third of the cases, chosen by a hash of the name; held_out.txt lists them."""
        if FRESH in folder.parents:
            return self.name in _listed(folder / "held_out.txt")
        return hashlib.sha256(self.name.encode()).digest()[0] % 3 == 0


@dataclasses.dataclass
class Fault(Case):
    """A culprit, and where it has to be found.

    `api` (with `module`) or a line is right: `api` is a regular expression of the API's name
    without its number, `module` one of the path of the innermost module around it, "" outside of
    all modules; `line` is a text that one line of the program's file contains, which the target
    lacks. Level L0 has to name `module_only`, or `module` if it is empty. `update`: the fault is in
    the update of the weights, which L0 does not record: it has to say that they differ.
    """

    api: str = ""
    module: str = ""
    line: str | list = ""  # several: each is right
    module_only: str = ""
    update: bool = False
    rank: int | None = None


@dataclasses.dataclass
class Harmless(Case):
    """`kind`: the class of rewrites that it stands for (KINDS)."""

    kind: str = ""
    needs: str = ""  # "compile": torch.compile must run here


KINDS = {
    "fused": "a fused operation against composed ones",
    "split": "one product split in several, or several joined",
    "reordered": "independent calls in another order",
    "loss": "a loss decomposed",
    "recomputed": "activations computed again in the backward pass",
    "experts": "experts batched against looped",
    "mask": "a mask passed in another way",
    "inserted": "casts, copies and reshapes inserted",
    "micro batches": "other micro-batching with the same sum",
    "time steps": "time steps vectorised against looped",
    "renamed": "modules renamed or nested in another way",
    "compiled": "compiled against eager",
    "zero in theory": "values that are zero in theory and rounding in practice",
    "environment": "other thread counts and kernels",
    "initialised": "other but equal code of initialisation",
    "rows": "the rows of the batch, or the nodes of a graph, in another order",
    "scaled": "a loss scaled and its gradients unscaled, a sum divided later",
    "padding": "more padding, or texts packed in one row",
    "precision": "autocast against the same casts written out",
}
# The values between differ; only the gradients and the weights of the whole step agree.
WHOLE_STEP = {"micro batches", "recomputed", "rows", "scaled", "padding", "precision"}

CASES: dict[str, Case] = {}


@functools.cache
def _listed(path: Path) -> set[str]:
    return set(path.read_text().split())


def _with(beside, edit):
    """The edit, after a harmless one."""

    @functools.wraps(edit)
    def both(program):
        beside(program)
        edit(program)

    both.beside = beside
    return both


def _register(declared, program, **fields):
    def register(edit):
        name = f"{program}/{edit.__name__}"
        if name in CASES:
            raise ValueError(f"{name} is declared twice")
        common = {"both": None, "settings": {}, "steps": 2} | fields
        beside = common.pop("beside", None)
        made = edit if beside is None else _with(beside, edit)
        CASES[name] = declared(name=name, program=program, edit=made, **common)
        return edit

    return register


def fault(program, **fields):
    return _register(Fault, program, **fields)


def harmless(kind, program, **fields):
    if kind not in KINDS:
        raise ValueError(f"expected a kind of KINDS, found {kind!r}")
    return _register(Harmless, program, kind=kind, **fields)


def use(name: str):
    """Cases and programs of "blind/first" or "fresh/first" in place of ours: before all_cases()."""
    global folder
    folder = HERE / name
    sys.path.insert(0, str(folder))


def all_cases() -> dict[str, Case]:
    """Name -> case, in the order of files and of lines; composed pairs are the last."""
    for path in sorted((folder / "cases").glob("*.py")):
        importlib.import_module(f"cases.{path.stem}")
    return CASES | composed.pairs(CASES, folder / composed.LIST.name)


def program_file(case: Case) -> Path:
    return folder / "models" / f"{case.program}.py"


def true_lines(case: Fault) -> set[str]:
    """The places folder/file.py:LINE that a report may name."""
    edit = inspect.unwrap(case.edit)
    lines, first = inspect.getsourcelines(edit)
    file = f"cases/{Path(inspect.getfile(edit)).name}"
    marked = (index for index, text in enumerate(lines) if text.rstrip().endswith("# here"))
    places = {f"{file}:{first + index}" for index in marked}
    path = program_file(case)
    program = list(enumerate(path.read_text().splitlines(), 1))
    for wanted in [case.line] if isinstance(case.line, str) else case.line:
        if wanted:
            found = [number for number, text in program if wanted in text]
            if len(found) != 1:
                raise ValueError(f"{case.name}: {len(found)} lines of {path.name} have {wanted!r}")
            places.add(f"models/{path.name}:{found[0]}")
    return places


CALL = re.compile(r"^(.*)\.(forward|backward|parameters_grad)(\.\d+)?$")
MODULE = re.compile(r"^(?:Module|Cell)\.(.*)\.[^.]+$")


def api_of(name: str) -> str:
    """`Functional.linear.3.forward` -> `Functional.linear`; a module's name alike."""
    match = CALL.match(name)
    return (
        re.sub(r"\.\d+$", "", match[1]) if match and not match[3] else (match[1] if match else name)
    )


def module_path(name: str) -> str | None:
    """`Module.blocks.0.norm.LayerNorm.forward.0` -> `blocks.0.norm`; None for calls of APIs."""
    match = MODULE.match(api_of(name))
    return None if match is None else re.sub(r"^(module\.)+", "", match[1])
