"""Writes two small dumps whose calls take every kind of plain value, equal and not.

    python scalars.py FOLDER      ->  FOLDER/{statistics,md5}/{target,golden}/dump.json

What msprobe 26 refuses is left out: a text that begins with + - = % or @, lists of two lengths.
"""

import json
import sys
from pathlib import Path

INF, NAN = float("inf"), float("nan")


def value(kind, content):
    """The entry of a plain value."""
    return {"type": kind, "value": content}


FORMAT = {"type": "torch.memory_format", "format": "preserve_format"}
GROUP = {"type": "torch.ProcessGroup", "group_ranks": [0, 1], "group_id": "dp"}
# One call each: the argument on the target's side and on the golden's.
FLOATS = [
    (0.1, 0.1), (0.1, 0.2), (-0.0, -0.0), (1e22, 1e22), (1e16, 1e16), (123456789.0, 123456789.5),
    (1e-5, 1e-7), (5e-324, 5e-324), (1.5e308, 1.0), (INF, INF), (-INF, -INF),
    (NAN, NAN), (INF, 1.0), (1.0, -INF), (INF, -INF), (NAN, 1.0), (2.0, 0.0), (1 / 3, -1 / 3),
]  # fmt: skip
INTS = [(1, 1), (1, 2), (-1, -1), (0, 3), (2**40, 2**40), (2**70, 2**70), (5, -5)]
TEXTS = [
    ("sum", "sum"), ("sum", "mean"), ("", ""), ("", "sum"), ("12", "12"), ("12", "13"),
    ("True", "True"), ("ij,jk->ik", "ij,jk->ik"), ("cuda:0", "npu:1"), ("é", "é"),
    ('"q"', "'q'"), ("torch.float16", "torch.float32"),
]  # fmt: skip
SLICES = [
    ([None, None, None], [None, None, None]), ([0, 1, None], [0, 1, None]), ([1, 2, 3], [1, 2, 3]),
    ([0, 4, 2], [0, 5, 2]), ([None, -1, None], [0, -1, None]),
]  # fmt: skip
ARGUMENTS = [
    *[(value("float", a), value("float", b)) for a, b in FLOATS],
    *[(value("int", a), value("int", b)) for a, b in INTS],
    *[(value("str", a), value("str", b)) for a, b in TEXTS],
    *[(value("slice", a), value("slice", b)) for a, b in SLICES],
    *[(value("bool", a), value("bool", b)) for a, b in [(True, True), (False, True)]],
    (value("torch.Size", [2, 3]), value("torch.Size", [2, 3])),
    (value("torch.Size", []), value("torch.Size", [])),
    (value("ellipsis", "..."), value("ellipsis", "...")),
    (FORMAT, FORMAT),
    (GROUP, GROUP),
    (None, None),
]
# What t[1:2, None, ..., 0:3] = -inf gives, and t[:, [1, 2]] = nan.
INDICES = [
    [value("slice", [1, 2, None]), None, value("ellipsis", "..."), value("slice", [0, 3, None])],
    [value("slice", [None, None, None]), [value("int", 1), value("int", 2)]],
]


def tensor(mode):
    """The entry of the tensor that each call takes and gives."""
    entry = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
    entry.update(Max=1.0, Min=0.0, Mean=0.5, Norm=1.0, requires_grad=False)
    return {**entry, "md5": "12345678"} if mode == "md5" else entry


def call(mode, *arguments, **kwargs):
    """The entry of a call."""
    return {
        "input_args": [tensor(mode), *arguments],
        "input_kwargs": kwargs,
        "output": [tensor(mode)],
    }


def write(folder, mode, side):
    """One side's dump."""
    data = {}
    for number, pair in enumerate(ARGUMENTS):
        data[f"Torch.argument{number}.0.forward"] = call(mode, pair[side])
        data[f"Torch.keyword{number}.0.forward"] = call(mode, key=pair[side])
    data["Tensor.__setitem__.0.forward"] = call(mode, INDICES[0], value("float", -INF))
    data["Tensor.__setitem__.1.forward"] = call(mode, INDICES[1], value("float", NAN))
    header = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    folder.mkdir(parents=True)
    (folder / "dump.json").write_text(json.dumps({**header, "data": data}))
    (folder / "stack.json").write_text("{}")


def main(folder):
    """All four."""
    for mode in ("statistics", "md5"):
        for side, name in enumerate(("target", "golden")):
            write(Path(folder) / mode / name, mode, side)


if __name__ == "__main__":
    main(sys.argv[1])
