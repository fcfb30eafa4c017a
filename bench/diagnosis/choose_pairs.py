"""Writes composed.txt: which edits of one program are made together (see composed.py).

Pairs are tried in the order of a hash of their names. A pair is taken if, in float64,
- the harmless changes alone end where the right program ends,
- both together end where the fault alone ends (the right program, if both are harmless),
- every function of both edits that runs alone runs in the pair as well, and
- a changed setting, which has no function, changes the operations beside the other edit, too.
"""

import collections
import functools
import hashlib
import itertools
import sys

import case
import checks
import composed

EACH = 4  # pairs of each group for each program
USES = 2  # of a harmless change in a group
LEFT_OUT = {"environment", "compiled"}  # change no operation, or cannot be followed


def by_hash(pairs):
    return sorted(
        pairs, key=lambda pair: hashlib.sha256(" ".join(e.name for e in pair).encode()).digest()
    )


@functools.cache
def trained(program, edits, both, steps, dtype):
    widened = dtype == "float64" and case.FRESH in case.folder.parents
    return checks.side(checks.Side(program, list(edits), both, steps, dtype, widened))


def compatible(parts, dtype="float64", rounding=0.0) -> bool:
    whole = composed.compose(parts)
    if len({each.both for each in parts if each.both}) > 1:
        return False

    def run(*edits):
        names = tuple(each.name for each in edits)
        return trained(whole.program, names, whole.edits_both, whole.steps, dtype)

    right, alone, pair = run(), [run(each) for each in parts], run(*parts)
    of_dtype = checks.ROUNDING if dtype == "float64" else checks.ROUNDING_OF_FLOAT32
    rounding = rounding or of_dtype
    harmless = [a for p, a in zip(parts, alone, strict=True) if not composed.is_fault(p)]
    fault = next((a for p, a in zip(parts, alone, strict=True) if composed.is_fault(p)), None)
    if any(each["error"] for each in (right, *alone, pair)) or any(
        checks.apart(each, right) > rounding for each in harmless
    ):  # an edit that names float32 cannot be judged in float64
        return dtype == "float64" and compatible(parts, "float32")
    return (
        (fault is None or checks.apart(fault, right) > checks.FAULT)
        and checks.apart(pair, fault or right) <= rounding
        and all(set(each["ran"]) <= set(pair["ran"]) for each in alone)
        and all(each["ran"] or _has_effect(each, right, pair, alone) for each in harmless)
    )


def _has_effect(changed, right, pair, alone) -> bool:
    """Of a changed setting, which has no function that could run: whether operations differ."""
    others = [each for each in alone if each is not changed]
    return changed["seen"] != right["seen"] and all(pair["seen"] != e["seen"] for e in others)


def choose(candidates, count, per_fault):
    taken, used, faults = [], collections.Counter(), collections.Counter()
    for pair in by_hash(candidates):
        harmless = [each.name for each in pair if not composed.is_fault(each)]
        fault = next((each.name for each in pair if composed.is_fault(each)), None)
        if any(used[name] >= USES for name in harmless) or faults[fault] >= per_fault:
            continue
        order = next((p for p in (pair, pair[::-1]) if compatible(p)), None)
        print("no " if order is None else "yes", " + ".join(e.name for e in pair), flush=True)
        if order is None:
            continue
        taken.append(order)
        used.update(harmless)
        if fault:
            faults[fault] += 1
        if len(taken) == count:
            break
    return taken


def main():
    cases = [each for each in case.all_cases().values() if not each.parts]
    chosen = []
    for program in dict.fromkeys(each.program for each in cases):
        if program in {"ddp", "fsdp"}:  # several processes
            continue
        own = [each for each in cases if each.program == program]
        faults = [each for each in own if composed.is_fault(each)]
        harmless = [e for e in own if not composed.is_fault(e) and e.kind not in LEFT_OUT]
        whole = [each for each in harmless if composed.whole_step(each)]
        local = [each for each in harmless if not composed.whole_step(each)]
        chosen += choose(itertools.product(local, faults), EACH, 1)
        chosen += choose(itertools.product(whole, faults), EACH, 1)
        chosen += choose(itertools.combinations(harmless, 2), EACH, EACH)
    composed.LIST.write_text(
        "".join(" + ".join(each.name for each in pair) + "\n" for pair in chosen)
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
