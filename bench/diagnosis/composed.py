"""Pairs of edits of one program: a harmless change with a fault, or with another harmless change.

`composed.txt` names them, one pair a line, in the order in which the edits are made.
choose_pairs.py writes it: it takes pairs by a hash, and only those whose edits do not replace
one another.
"""

import dataclasses
from pathlib import Path

LIST = Path(__file__).resolve().parent / "composed.txt"
# Groups of cases that are scored apart.
LOCAL, WHOLE, QUIET = "composed, local", "composed, whole step", "composed, harmless"
GROUPS = (LOCAL, WHOLE, QUIET)


def is_fault(each) -> bool:
    return hasattr(each, "api")


def whole_step(each) -> bool:
    from case import WHOLE_STEP

    return not is_fault(each) and each.kind in WHOLE_STEP


def compose(parts):
    """One case of two: the place is that of the fault, and the last part if both are harmless."""
    judged = next((each for each in parts if is_fault(each)), parts[-1])
    other = parts[1] if judged is parts[0] else parts[0]
    beside = WHOLE if whole_step(other) else LOCAL
    return dataclasses.replace(
        judged,
        name=f"{judged.program}+{other.name.split('/')[1]}+{judged.name.split('/')[1]}",
        both=other.both or judged.both,
        settings=other.settings | judged.settings,
        steps=max(other.steps, judged.steps),
        group=beside if is_fault(judged) else QUIET,
        parts=tuple(parts),
    )


def pairs(cases, listed=LIST) -> dict:
    """Name -> case, in the order of a composed.txt."""
    made = {}
    for line in listed.read_text().splitlines() if listed.exists() else []:
        parts = [cases.get(name) for name in line.split(" + ")]
        if len(parts) != 2 or None in parts:
            raise ValueError(f"composed.txt: expected the names of two cases, found {line!r}")
        each = compose(parts)
        if each.name in made:
            raise ValueError(f"composed.txt: {each.name} stands there twice")
        made[each.name] = each
    return made
