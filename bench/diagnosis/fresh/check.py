"""Are the pairs of fresh/ what they claim? Trains both sides of each in float64, without recording.

A harmless change, alone or beside another one, ends where the right program ends; a fault does not;
a fault beside a harmless change ends where the fault alone ends, and both edits have a part in it.
`--quick` only makes every edit and looks up every place.

    python bench/diagnosis/fresh/check.py second --only sac/
"""

import argparse
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import case  # noqa: E402
import checks  # noqa: E402
import choose_pairs  # noqa: E402
import composed  # noqa: E402
import libraries  # noqa: E402

SETS = (
    *("first", "second", "third", "fourth", "fifth"),
    *("sixth", "seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
    *("thirteenth", "fourteenth", "fifteenth", "sixteenth", "seventeenth", "eighteenth"),
    *("nineteenth", "twentieth", "twentyfirst"),
)


def problem(each) -> str:
    """What is wrong with a case; "" if it is what it claims."""
    low = each.settings.get("float32")  # a difference of precision, which float64 does not show
    dtype, rounding = ("float32", 1e-2) if low else ("float64", checks.ROUNDING)
    if each.parts:
        fair = choose_pairs.compatible(each.parts, dtype, rounding)
        return "" if fair else "its edits are no fair pair"
    right, mine = (
        choose_pairs.trained(each.program, edits, each.edits_both, each.steps, dtype)
        for edits in ((), (each.name,))
    )
    if right["error"] or mine["error"]:
        return (right["error"] or mine["error"]).strip().splitlines()[-1]
    apart = checks.apart(mine, right)
    if composed.is_fault(each):
        return "" if apart > checks.FAULT else f"has no effect: {apart:.1e}"
    return "" if apart <= rounding else f"is not harmless: {apart:.1e}"


def places(each) -> str:
    if not composed.is_fault(each):
        return ""
    return "" if case.true_lines(each) or each.api else "expected an API or a line"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names of cases")
    parser.add_argument("--quick", action="store_true", help="check only that all can be made")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    case.use(f"fresh/{options.set}")
    cases = case.all_cases()
    absent = libraries.missing({each.program for each in cases.values()})
    listed = (case.folder / "held_out.txt").read_text().split()
    wrong = [f"held_out.txt: {name} is no case" for name in listed if name not in cases]
    for each in cases.values():
        if each.program in absent or not any(part in each.name for part in options.only):
            continue
        libraries.load(each.program)
        found = places(each) or (checks.problem(each) if options.quick else problem(each))
        wrong += [f"{each.name}: {found}"] if found else []
    print("\n".join(wrong) or "every pair is what it claims")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
