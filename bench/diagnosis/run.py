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
import report  # noqa: E402
import scoring  # noqa: E402
from recordings import Recordings  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of cases")
    parser.add_argument("--modes", nargs="*", default=[], help="for example statistics-mix")
    parser.add_argument(
        "--msprobe", default=shutil.which("msprobe", path=Path(sys.executable).parent)
    )
    parser.add_argument("--cache", type=Path, default=ROOT / ".cache" / "diagnosis")
    parser.add_argument("--json", type=Path, help="write all scores to this file")
    parser.add_argument("--misses", type=Path, help="write misses and false alarms to this file")
    parser.add_argument("--docs", type=Path, help="replace the table in this Markdown file")
    parser.add_argument("--verbose", action="store_true", help="one line for each case and mode")
    return parser.parse_args()


def chosen(options):
    cases = case.all_cases().values()
    if options.only:
        cases = [each for each in cases if any(part in each.name for part in options.only)]
    modes = [m for m in scoring.MODES if not options.modes or "-".join(m) in options.modes]
    return list(cases), modes


def measure(cases, modes, options):
    recordings, scores, failed = Recordings(options.cache), [], []
    try:
        for number, each in enumerate(cases, 1):
            for kind, level in modes:
                try:
                    target = recordings.target(each, kind, level)
                    golden = recordings.golden(each, kind, level)
                    reports, spent = scoring.compare(options.msprobe, target, golden)
                except RuntimeError as error:
                    failed.append(f"{each.name}, {kind}, {level}: {error}")
                    continue
                scores.append(scoring.score(each, kind, level, reports, spent))
                if options.verbose:
                    print(report.line(each, scores[-1]), flush=True)
            if not options.verbose and number % 10 == 0:
                print(f"  {number} of {len(cases)} cases", flush=True)
    finally:
        recordings.close()
    return scores, failed, recordings.seconds


def main():
    options = arguments()
    cases, modes = chosen(options)
    scores, failed, seconds = measure(cases, modes, options)
    by_name = {each.name: each for each in cases}
    report.show(by_name, scores, seconds)
    for text in failed:
        print(f"not measured: {text}")
    if options.json:
        options.json.write_text(json.dumps([vars(each) for each in scores], indent=1))
    if options.misses:
        options.misses.write_text(report.misses(by_name, scores))
    if options.docs:
        report.replace(options.docs, report.markdown(by_name, scores))


if __name__ == "__main__":
    main()
