"""Are the pairs of a set of blind/ what they claim? Trains both sides of each, without recording.

A harmless change ends where the right program ends, within rounding in float64 (in float32, by the
program's ROUNDING, where it names dtypes); a fault does not. `--record`: the recorder takes each
side as well, and no side takes longer than SECONDS. `--write`: writes blind_a.txt, half of the
cases of each program, chosen by a hash. Nothing here asks `msprobe compare`.

    python bench/diagnosis/blind/check.py first --only packing/
"""

import argparse
import hashlib
import importlib
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import case  # noqa: E402
import checks  # noqa: E402
import libraries  # noqa: E402
from recordings import Recordings  # noqa: E402

SECONDS = 2.0


def sides(each, dtype):
    return [
        checks.side(checks.Side(each.program, edits, each.edits_both, each.steps, dtype))
        for edits in ([], each.edits)
    ]


def found(each) -> tuple[str, str]:
    """(what is wrong with a case, the differences of its sides)."""
    program = importlib.import_module(f"models.{each.program}")
    fallback = getattr(program, "ROUNDING", checks.ROUNDING_OF_FLOAT32)
    said = []
    for dtype, rounding, effect in (
        ("float64", checks.ROUNDING, checks.FAULT),
        ("float32", fallback, 10 * checks.FAULT),
    ):
        right, other = sides(each, dtype)
        if right["error"] or other["error"]:
            said.append(f"{dtype}: {(right['error'] or other['error']).strip().splitlines()[-1]}")
            continue
        apart = checks.apart(other, right)
        said.append(f"{dtype}: {apart:.1e}")
        is_fault = isinstance(each, case.Fault)
        beside = getattr(each.edit, "beside", None)
        if beside and not any(name.startswith(f"{beside.__name__}:") for name in other["ran"]):
            functions = [c for c in beside.__code__.co_consts if hasattr(c, "co_code")]
            if functions:
                return f"{beside.__name__} is replaced", said[-1]
        if apart > effect if is_fault else apart <= rounding:
            return "", said[-1]
    return "not what it claims", "; ".join(said)


def recorded(each, recordings) -> str:
    spent, made = {}, {}
    for name in ("golden", "target"):
        before = recordings.seconds
        made[name] = getattr(recordings, name)(each, "statistics", "mix")
        spent[name] = recordings.seconds - before
    wrong = [f"{name} takes {s:.1f} s" for name, s in spent.items() if s > SECONDS]
    if isinstance(each, case.Harmless) and not recordings.alike(made["target"], made["golden"]):
        wrong.append("the two sides do not train alike")
    return ", ".join(wrong)


def halves(cases) -> str:
    """The names of half of the faults and half of the harmless changes of each program."""
    by_program = {}
    for each in cases:
        by_program.setdefault((each.program, type(each)), []).append(each.name)
    taken = {
        name
        for names in by_program.values()
        for name in sorted(names, key=lambda n: hashlib.sha256(n.encode()).digest())[::2]
    }
    return "".join(f"{each.name}\n" for each in cases if each.name in taken)


def lists(cases) -> list[str]:
    """What is wrong with the number of cases, with blind_a.txt, or with declared places."""
    wrong = [
        f"{each.name}: expected an API or a line that is the true place"
        for each in cases
        if isinstance(each, case.Fault) and not (case.true_lines(each) or each.api)
    ]
    if len(cases) != 100:
        wrong.append(f"expected 100 cases, found {len(cases)}")
    if (case.folder / "blind_a.txt").read_text() != halves(cases):
        wrong.append("blind_a.txt does not fit the cases; type: blind/check.py SET --write")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=("first", "second"))
    parser.add_argument("--only", nargs="*", default=[""], help="parts of names of cases")
    parser.add_argument("--record", action="store_true", help="record them at mix, too")
    parser.add_argument("--quick", action="store_true", help="check only that all can be made")
    parser.add_argument("--write", action="store_true", help="write blind_a.txt")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    case.use(f"blind/{options.set}")
    cases = list(case.all_cases().values())
    if options.write:
        (case.folder / "blind_a.txt").write_text(halves(cases))
        return 0
    absent = libraries.missing({each.program for each in cases})
    if absent:
        print(f"LEFT OUT, type make test-real for their libraries: {', '.join(absent)}")
    here = [each for each in cases if each.program not in absent]
    for program in dict.fromkeys(each.program for each in here):
        libraries.load(program)
    if options.quick:
        wrong = [text for text in map(checks.problem, here) if text] + lists(cases)
        print("\n".join(wrong) or "every case is complete")
        return 1 if wrong else 0
    problems = 0
    with tempfile.TemporaryDirectory() as folder:
        recordings = Recordings(Path(folder))
        for each in here:
            if not any(part in each.name for part in options.only):
                continue
            problem, said = found(each)
            if options.record:
                try:
                    problem += recorded(each, recordings)
                except RuntimeError as error:
                    problem += str(error).strip().splitlines()[-1]
            problems += bool(problem)
            print(f"{problem or 'right':20} {each.name}  {said}", flush=True)
        recordings.close()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
