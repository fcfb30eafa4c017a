"""Plants faults and makes harmless changes in small programs; counts what `msprobe compare` names.

`make diagnosis` runs all cases. A part of them:

    python bench/diagnosis/run.py --only gpt/missing_mask --modes statistics-mix --verbose
"""

import argparse
import json
import shutil
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

import case  # noqa: E402
import compiles  # noqa: E402
import libraries  # noqa: E402
import peer_pairs  # noqa: E402
import report  # noqa: E402
import scoring  # noqa: E402
from recordings import Recordings  # noqa: E402

# Further sets of pairs: their levels, for which places are declared.
SETS = {
    "blind": [("statistics", level) for level in ("L0", "L1", "mix")],
    "fresh": [("statistics", level) for level in ("L1", "mix")],
}
CLOSED = ("blind/second",)  # nobody looks at what is said of their pairs


def refuse(parser, options, switch, others):
    given = [name for name in others if getattr(options, name) != parser.get_default(name)]
    told = ", ".join(f"--{name.replace('_', '-')}" for name in given)
    if told:
        parser.error(f"{switch} prints totals: expected none of {told} with it")


def sets_of(kind) -> list[str]:
    return sorted(path.parent.name for path in (HERE / kind).glob("*/cases"))


def chosen_set(parser, options) -> str:
    """The folder of the further set that is asked for, for example "fresh/first"; "" for none."""
    names = [f"{kind}/{getattr(options, kind)}" for kind in SETS if getattr(options, kind)]
    if len(names) > 1:
        parser.error("expected one of --blind and --fresh, found both")
    if not names:
        return ""
    own = ("json", "add", "misses", "docs", "peer", "check", "no_peer", "write_held_out")
    telling = ("only", "verbose") if names[0] in CLOSED else ()
    refuse(parser, options, f"--{names[0].replace('/', ' ')}", (*telling, *own))
    return names[0]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of cases")
    parser.add_argument("--modes", nargs="*", default=[], help="for example statistics-mix")
    parser.add_argument(
        "--msprobe", default=shutil.which("msprobe", path=Path(sys.executable).parent)
    )
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "diagnosis")
    parser.add_argument("--json", type=Path, help="write all scores to this file")
    parser.add_argument("--add", nargs="*", default=[], help="scores of earlier runs (--json)")
    parser.add_argument("--misses", type=Path, help="write misses and false alarms to this file")
    parser.add_argument("--docs", type=Path, help="replace the table in this Markdown file")
    parser.add_argument("--peer", type=Path, help="the Python of msprobe 26's environment")
    parser.add_argument("--no-peer", action="store_true", help="say nothing of the peer")
    parser.add_argument("--check", action="store_true", help="check held_out.txt and the places")
    parser.add_argument("--write-held-out", action="store_true", help="write held_out.txt")
    parser.add_argument("--verbose", action="store_true", help="one line for each case and mode")
    for kind, words in (
        ("blind", "the pairs of blind/first, or totals alone of blind/second"),
        ("fresh", "the pairs of a set of fresh/, in two halves"),
    ):
        parser.add_argument(f"--{kind}", choices=sets_of(kind), help=words)
    options = parser.parse_args()
    options.set = chosen_set(parser, options)
    return options


def chosen(options):
    cases = case.all_cases().values()
    if options.only:
        cases = [each for each in cases if any(part in each.name for part in options.only)]
    modes = [m for m in scoring.MODES if not options.modes or "-".join(m) in options.modes]
    return list(cases), modes


def needs(each) -> bool:
    return isinstance(each, case.Harmless) and each.needs == "compile"


def held_out() -> str:
    return "".join(f"{each.name}\n" for each in case.all_cases().values() if each.held_out)


def check() -> int:
    """Whether held_out.txt is complete, each fault has a place, and all edits can be made."""
    import checks  # imports PyTorch

    several = ("ddp", "fsdp")  # need several processes
    each_alone = (e for e in case.all_cases().values() if e.program not in several)
    problems = [text for text in map(checks.problem, each_alone) if text]
    if (HERE / "held_out.txt").read_text() != held_out():
        problems.append("held_out.txt does not fit the cases; type: run.py --write-held-out")
    for each in case.all_cases().values():
        if isinstance(each, case.Fault) and not (case.true_lines(each) or each.api):
            problems.append(f"{each.name}: expected an API or a line that is the true place")
    problems += [
        f"explained.txt: expected the name of a case, found {name!r}"
        for name in report.explained()
        if name not in case.all_cases()
    ]
    print("\n".join(problems) or "every case is complete")
    return 1 if problems else 0


def measure(cases, modes, options):
    recordings, scores, failed = Recordings(options.cache), [], []
    try:
        for number, each in enumerate(cases, 1):
            for kind, level in modes:
                if each.group and kind == "tensor":
                    continue  # whole steps and composed pairs are scored as statistics
                try:
                    target = recordings.target(each, kind, level)
                    golden = recordings.golden(each, kind, level)
                    reports, spent = scoring.compare(options.msprobe, target, golden)
                    if isinstance(each, case.Harmless) and not recordings.alike(target, golden):
                        raise RuntimeError("the two sides do not train alike: it is not harmless")
                except RuntimeError as error:
                    failed.append(f"{each.name}, {kind}, {level}: {error}")
                    continue
                scores.append(scoring.score(each, kind, level, reports, spent))
                if kind == "tensor":
                    shutil.rmtree(target)  # 16 MB; only those of statistics and of goldens are kept
                if options.verbose:
                    print(report.line(each, scores[-1]), flush=True)
            if not options.verbose and number % 10 == 0:
                print(f"  {number} of {len(cases)} cases", flush=True)
    finally:
        recordings.close()
    return scores, failed, recordings.seconds


def further_set(options) -> int:
    """Totals of both halves of a set; --verbose names the pairs of those that may be read."""
    case.use(options.set)
    options.cache = options.cache.with_name(options.set.replace("/", "-"))
    cases, modes = chosen(options)
    modes = [mode for mode in modes if mode in SETS[case.folder.parent.name]]
    if absent := libraries.missing({each.program for each in cases}):
        print(f"LEFT OUT, type make test-real for their libraries: {', '.join(absent)}")
        cases = [each for each in cases if each.program not in absent]
    scores, failed, seconds = measure(cases, modes, options)
    if options.fresh:
        report.show_fresh(case.all_cases(), scores, seconds)
    else:
        report.show_blind(case.all_cases(), scores, seconds)
    if options.set in CLOSED:
        shutil.rmtree(options.cache)  # the dumps have names
        print(f"{len(failed)} not measured: type bench/diagnosis/blind/check.py second --record")
        return 1 if failed else 0
    for text in failed:
        print(f"not measured: {text}")
    return 1 if failed else 0


def main():
    options = arguments()
    if options.set:
        return further_set(options)
    cases, modes = chosen(options)
    if options.write_held_out:
        (HERE / "held_out.txt").write_text(held_out())
        return 0
    if options.check:
        return check()
    compile_problem = compiles.problem(options.cache) if any(needs(each) for each in cases) else ""
    if compile_problem:
        left_out = [each.name for each in cases if needs(each)]
        print(f"LEFT OUT, torch.compile does not run here ({compile_problem}): {left_out}")
        cases = [each for each in cases if not needs(each)]
    scores, failed, seconds = measure(cases, modes, options)
    by_name = {each.name: each for each in case.all_cases().values()}
    for path in options.add:
        earlier = [scoring.Score(**each) for each in json.loads(Path(path).read_text())]
        scores += [each for each in earlier if each.name in by_name]
    peer_scores = [each for each in scores if each.of_peer]
    scores = [each for each in scores if not each.of_peer]
    scores.sort(key=lambda each: (each.kind, each.level))
    if options.peer:
        peer_scores += peer_pairs.measure(
            [each for each in cases if not each.group], options, failed
        )
    elif not options.no_peer and not peer_scores:
        print("LEFT OUT: msprobe 26, which is not installed; type: make bench-peer")
    report.show(by_name, scores, seconds)
    report.show(by_name, peer_scores, 0)
    for text in failed:
        print(f"not measured: {text}")
    if options.json:
        options.json.write_text(json.dumps([vars(each) for each in scores + peer_scores], indent=1))
    if options.misses:
        options.misses.write_text(report.misses(by_name, scores))
    if options.docs:
        report.replace(options.docs, report.markdown(by_name, scores, peer_scores, failed))
    return 0


if __name__ == "__main__":
    sys.exit(main())
