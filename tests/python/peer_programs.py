"""Finds the differences between the dump of an older tool and our dump of the same program.

A deviation is one line, `<kind> <entry> <place>: <theirs> | <ours>`; rules in
tests/data/programs/differences.json say which deviations are deliberate.
"""

import difflib
import json
import math
import re
from pathlib import Path

import numpy

KINDS = (
    "header",
    "only_theirs",
    "only_ours",
    "order",
    "value",
    "places",
    "nodes",
    "parent",
    "frames",
)
STATISTICS = ("Max", "Min", "Mean", "Norm")
# Members of a tensor.
OURS_ONLY = {"nan", "pos_inf", "neg_inf", "zero", "fp", "sk", "stride", "unwritten"}
OURS_ONLY |= {"extremes", "rest_max", "rest_min", "rest_norm"}
NARROW = {"torch.float32", "torch.float16", "torch.bfloat16"}
# Members of a record; docs/reference/dump-format.md marks them "ours".
RECORD_OURS_ONLY = {"stack", "group", "training", "module", "random_state", "precision"}
HEADER = ("task", "level", "framework", "dump_data_dir")
EPSILON = 2.0**-23  # the older tools accumulate in float32
ROUNDINGS = 16
MISSING = "(missing)"


class Deviations:
    """The lines found. `exact`: numbers must have the same bits."""

    def __init__(self, exact: bool):
        self.lines = []
        self.exact = exact

    def add(self, kind: str, place: str, theirs="", ours=""):
        assert kind in KINDS
        self.lines.append(f"{kind} {place}: {short(theirs)} | {short(ours)}")


def short(value) -> str:
    """Tensors as dtype and shape, everything else as JSON."""
    if is_tensor(value):
        return f"{value['dtype']}{value['shape']}"
    return value if isinstance(value, str) else json.dumps(value)


def is_tensor(value) -> bool:
    return isinstance(value, dict) and "dtype" in value and "shape" in value


def group_of(name: str) -> str:
    """The group in which order is compared: module hooks of the older tools run later than ours."""
    if ".parameters_grad" in name:
        return "parameters"
    direction = "backward" if ".backward" in name else "forward"
    return (
        f"module {direction}"
        if name.startswith("Module.") and direction != "forward"
        else direction
    )


def close(theirs, ours, allowed: float) -> bool:
    if theirs is None or ours is None or isinstance(theirs, bool):
        return theirs is ours
    if math.isnan(theirs) or math.isinf(theirs):
        return repr(float(theirs)) == repr(float(ours))
    return abs(theirs - ours) <= allowed


def compare_tensors(theirs: dict, ours: dict, place: str, found: Deviations):
    for key in {**theirs, **ours}:
        if key in OURS_ONLY and key not in theirs:
            continue
        left, right = theirs.get(key, MISSING), ours.get(key, MISSING)
        if key in ("Max", "Min") and isinstance(right, float) and ours["dtype"] in NARROW:
            right = float(numpy.float32(right))  # written with as many digits as a float32 needs
        same = left == right and isinstance(left, bool) == isinstance(right, bool)
        if key in STATISTICS and MISSING not in (left, right) and not same:
            size = max(abs(ours[name]) for name in STATISTICS if ours[name] is not None)
            if key in ("Mean", "Norm"):
                same = close(left, right, ROUNDINGS * EPSILON * size)
            elif not found.exact or (isinstance(left, float) and math.isnan(left)):
                same = close(left, right, 1e-4 * size)
        if not same and (found.exact or key not in ("md5", *STATISTICS) or left in (None, MISSING)):
            found.add("value", f"{place} {key}", left, right)


def same_tensor(theirs, ours, exact: bool) -> bool:
    trial = Deviations(exact)
    compare_values(theirs, ours, "", trial)
    return not trial.lines


def compare_gradients(theirs: list, ours: list, place: str, found: Deviations):
    """Outputs of a backward entry. "places": the same tensors in other places; else "nodes"."""
    trial = Deviations(found.exact)
    compare_values(theirs, ours, place, trial)
    wanted = [tensor for tensor in theirs if tensor is not None]
    if not trial.lines:
        return
    rest = list(ours)
    for tensor in wanted:
        match = next((other for other in rest if same_tensor(tensor, other, found.exact)), None)
        if match is None:
            break
        rest.remove(match)
    kind = "places" if len(rest) == len(ours) - len(wanted) else "nodes"
    found.add(kind, place, [short(each) for each in theirs], [short(each) for each in ours])


def compare_values(theirs, ours, place: str, found: Deviations):
    if is_tensor(theirs) and is_tensor(ours):
        compare_tensors(theirs, ours, place, found)
    elif isinstance(theirs, list) and isinstance(ours, list):
        for index in range(max(len(theirs), len(ours))):
            left = theirs[index] if index < len(theirs) else MISSING
            right = ours[index] if index < len(ours) else MISSING
            compare_values(left, right, f"{place}.{index}", found)
    elif isinstance(theirs, dict) and isinstance(ours, dict) and not is_tensor(theirs):
        for key in {**theirs, **ours}:
            left, right = theirs.get(key, MISSING), ours.get(key, MISSING)
            compare_values(left, right, f"{place}.{key}", found)
    elif theirs != ours:
        found.add("value", place, theirs, ours)


def compare_records(theirs: dict, ours: dict, found: Deviations):
    for name in theirs:
        if name not in ours:
            found.add("only_theirs", name)
    for name in ours:
        if name not in theirs:
            found.add("only_ours", name)
    for name, record in theirs.items():
        for key in {**record, **ours.get(name, record)}:
            if name in ours and (key not in RECORD_OURS_ONLY or key in record):
                left, right = record.get(key, MISSING), ours[name].get(key, MISSING)
                handed_on = key == "output" and group_of(name).endswith("backward")
                compare = compare_gradients if handed_on else compare_values
                compare(left, right, f"{name} {key}", found)


def compare_order(theirs: list, ours: list, found: Deviations):
    """Reports the names that are not in the same order on both sides."""
    common = set(theirs) & set(ours)
    left = [name for name in theirs if name in common]
    right = [name for name in ours if name in common]
    matcher = difflib.SequenceMatcher(None, left, right, autojunk=False)
    kept = {
        name for block in matcher.get_matching_blocks() for name in left[block.a :][: block.size]
    }
    for name in left:
        if name not in kept:
            found.add("order", name, left.index(name), right.index(name))


def compare_parents(theirs: dict, ours: dict, one_sided: set, found: Deviations):
    for name in {**theirs, **ours}.keys() - one_sided:
        left, right = theirs.get(name, MISSING), ours.get(name, MISSING)
        if left != right:
            found.add("parent", name, left, right)


def stacks_of(stacks: dict) -> dict:
    """Entry -> its frames, for any generation. Without line numbers, so that programs can move."""
    if "0" in stacks:
        pairs = ((name, frames) for names, frames in stacks.values() for name in names)
    else:
        pairs = stacks.items()
    return {
        name: [re.sub(r", line \d+,", ",", frame) for frame in frames] for name, frames in pairs
    }


def compare_stacks(theirs: dict, ours: dict, one_sided: set, found: Deviations):
    left, right = stacks_of(theirs), stacks_of(ours)
    for name in {**left, **right}.keys() - one_sided:
        if left.get(name, MISSING) != right.get(name, MISSING):
            found.add("frames", name, left.get(name, MISSING), right.get(name, MISSING))


def read(folder: Path, name: str) -> dict:
    return json.loads((folder / name).read_text())


def result_of(folder: Path) -> dict:
    """The bits of the loss and of the gradients, as record.py wrote them."""
    return read(folder, "result.json")


def deviations(theirs: Path, ours: Path, exact: bool) -> list:
    """The lines for two folders, each with a dump.json: the older tool's and ours."""
    found = Deviations(exact)
    left, right = read(theirs, "dump.json"), read(ours, "dump.json")
    for key in HEADER:
        if left.get(key, MISSING) != right.get(key, MISSING):
            found.add("header", key, left.get(key, MISSING), right.get(key, MISSING))
    left, right = left["data"], right["data"]
    compare_records(left, right, found)
    for group in sorted({group_of(name) for name in left}):
        compare_order(
            [name for name in left if group_of(name) == group],
            [name for name in right if group_of(name) == group],
            found,
        )
    one_sided = left.keys() ^ right.keys()
    for name, compare in (("construct.json", compare_parents), ("stack.json", compare_stacks)):
        compare(read(theirs, name), read(ours, name), one_sided, found)
    return found.lines
