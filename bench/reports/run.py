"""Records each program right (golden), wrong (BUG=1) and written differently (ALT=1), and compares.

`make reports` runs all programs at both levels. A part of them, with dumps and texts to read:

    python bench/reports/run.py --only gan_leftover --levels mix --keep /tmp/reports
"""

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import scoring  # noqa: E402
from tables import table  # noqa: E402

LEVELS = ("L1", "mix")
VARIANTS = ("", "BUG", "ALT")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=[], help="parts of names of programs")
    parser.add_argument("--levels", nargs="*", default=LEVELS, choices=LEVELS)
    parser.add_argument("--part", choices=("open", "held-out", "all"), default="all")
    parser.add_argument(
        "--msprobe", default=shutil.which("msprobe", path=Path(sys.executable).parent)
    )
    parser.add_argument("--keep", type=Path, help="leave dumps and texts in this folder")
    parser.add_argument("--json", type=Path, help="write all scores to this file")
    parser.add_argument("--check", action="store_true", help="check held_out.txt and truths.json")
    return parser.parse_args()


def held_out() -> list[str]:
    """The third of the programs whose names have the smallest hashes; held_out.txt lists them."""
    names = sorted(scoring.truths(), key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    return sorted(names[: len(names) // 3])


def check() -> int:
    """Whether held_out.txt is complete, and each program has a truth that fits it."""
    problems = []
    if (HERE / "held_out.txt").read_text().split() != held_out():
        problems.append(f"held_out.txt: expected {' '.join(held_out())}")
    programs = {path.stem for path in (HERE / "programs").glob("*.py")} - {"common"}
    problems += [f"truths.json: {name}" for name in programs.symmetric_difference(scoring.truths())]
    for truth in scoring.truths().values():
        try:
            truth.true_lines()
        except ValueError as error:
            problems.append(str(error))
    print("\n".join(problems) or "every program has its truth")
    return 1 if problems else 0


class Recorder:
    """The process that runs programs (recorder.py)."""

    def __init__(self, log):
        self.log = log
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", HERE / "recorder.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )

    def run(self, truth, variant, folder="", level="") -> str:
        """The digest of the training."""
        job = {"program": truth.name, "variant": variant, "ranks": truth.ranks}
        job |= {"folder": str(folder), "level": level}
        print(json.dumps(job), file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        answer = json.loads(line) if line else {"error": self.log.read_text()[-3000:]}
        if answer["error"]:
            raise RuntimeError(f"{truth.name} {variant} {level}: {answer['error']}")
        return answer["made"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(recorder, truth, levels, msprobe, folder):
    """Scores of one program, and the variants that the tool changed."""
    unobserved = {variant: recorder.run(truth, variant) for variant in VARIANTS}
    scores, changed = [], []
    for level in levels:
        dumps = {}
        for variant in VARIANTS:
            dumps[variant] = folder / truth.name / level / (variant or "golden")
            if recorder.run(truth, variant, dumps[variant], level) != unobserved[variant]:
                changed.append(f"{truth.name} {variant or 'golden'} {level}")
        for variant in VARIANTS[1:]:
            out = folder / truth.name / level / f"{variant}.out"
            reports, text = scoring.compare(msprobe, dumps[variant], dumps[""], out)
            (folder / truth.name / level / f"{variant}.txt").write_text(text)
            scores.append(scoring.score(truth, level, variant, reports, text))
    return scores, changed


def show(scores):
    rows = [["level", "bugs", "named", "innocent", "twins", "calm", "reports with false sentences"]]
    held = set((HERE / "held_out.txt").read_text().split())
    for part in (False, True):
        for level in LEVELS:
            these = [s for s in scores if s.level == level and (s.name in held) == part]
            bugs = [s for s in these if s.variant == "BUG"]
            twins = [s for s in these if s.variant == "ALT"]
            if these:
                counts = [sum(s.result == word for s in bugs) for word in ("named", "innocent")]
                calm = sum(s.result == "calm" for s in twins)
                false = sum(bool(s.false) for s in these)
                row = [level + (", held out" if part else ""), len(bugs), *counts]
                rows.append([str(cell) for cell in [*row, len(twins), calm, false]])
    table(rows)


def main():
    options = arguments()
    if options.check:
        return check()
    held = held_out()
    chosen = [
        truth
        for name, truth in scoring.truths().items()
        if (not options.only or any(part in name for part in options.only))
        and options.part in ("all", "held-out" if name in held else "open")
    ]
    scores, changed = [], []
    with tempfile.TemporaryDirectory() as scratch:
        recorder = Recorder(Path(scratch) / "recorder.log")
        try:
            for truth in chosen:
                folder = (options.keep or Path(scratch)).resolve()
                shutil.rmtree(folder / truth.name, ignore_errors=True)
                made, other = measure(recorder, truth, options.levels, options.msprobe, folder)
                for each in made:
                    print(f"{each.result:8} {each.level:3} {each.variant} {each.name}: {each.said}")
                    for text in each.false:
                        print(f"    FALSE: {text}", flush=True)
                scores, changed = scores + made, changed + other
        finally:
            recorder.close()
    show(scores)
    print("\n".join(f"THE TOOL CHANGED {each}" for each in changed) or "  training bits are equal")
    if options.json:
        options.json.write_text(json.dumps([vars(each) for each in scores], indent=1))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
