"""Counts what `msprobe compare` says of pairs of steps that differ by rounding alone.

    python bench/diagnosis/clean/run.py --pairs 10000 --json out.json

Each pair is a random small training of two steps, recorded twice in forked processes; the target
computes it in another way (changes.py). Every answer but "equal" and "noise" with nobody named is
counted, by class and by level, with its bound of 95 %.
"""

import argparse
import collections
import dataclasses
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[2] / "tools")]

import changes  # noqa: E402
import forked_jobs  # noqa: E402
import programs  # noqa: E402
import torch  # noqa: E402
import torch._dynamo  # noqa: E402  an optimizer imports it: once here, not in every child

import msprobe.pytorch  # noqa: E402

LEVELS = ("L1", "mix", "L0")
GIVE_UP_S = 20  # for each pair
STEPS = 2
CHUNK = 70  # pairs that one process records: each class equally often


@dataclasses.dataclass
class Answer:
    number: int
    kind: str
    level: str
    values: int  # that were compared, of both steps
    rounded: int  # of these: not bit-equal, and within rounding
    differs: bool  # a first divergence that has an effect, or a wrong update
    named: bool  # a call that differs without effect
    said: str


def forked(work):
    return forked_jobs.in_children([work], GIVE_UP_S)[0]


class Recorder:
    """Records trainings of one level, in one process; each becomes a folder of its own."""

    def __init__(self, folder, level):
        self.folder, self.steps = folder, 0
        self.debugger = msprobe.pytorch.PrecisionDebugger(
            dump_path=str(folder / "all"), task="statistics", level=level
        )

    def record(self, spec, ways, name):
        step = programs.Step(spec, ways)
        (self.folder / name).mkdir(parents=True)
        for number in range(STEPS):
            x, target = step.batch()
            self.debugger.start(step.net)
            step.step(x, target)
            self.debugger.stop()
            self.debugger.step()
            made = self.folder / "all" / f"step{self.steps}"
            made.rename(self.folder / name / f"step{number}")
            self.steps += 1


def in_float64(spec, ways):
    """The weights after two steps in float64, in which a rewrite shows no rounding."""
    torch.set_default_dtype(torch.float64)
    torch.ones((), requires_grad=True).exp()
    step = programs.Step(spec, dataclasses.replace(ways, autocast=""))
    torch.Tensor.float = torch.Tensor.double
    for _ in range(2):
        step.step(*step.batch())
    weights = torch.cat([p.detach().flatten() for p in step.net.parameters()])
    return {"error": "", "weights": weights.tolist()}


def compare(command, target, golden):
    with tempfile.TemporaryDirectory(dir=target) as out:
        done = subprocess.run(
            [command, "compare", target, golden, "-o", out, "--format", "json"],
            capture_output=True,
            text=True,
        )
    if done.returncode != 0:
        raise RuntimeError(f"{target} against {golden}: {done.stderr}")
    answer = json.loads(done.stdout)
    return [ranks["ranks"][""] for ranks in answer["steps"].values()]


def judge(number, kind, level, reports) -> Answer:
    values = sum(report["compared"]["values"] for report in reports)
    rounded = sum(report["rows"]["noise"] for report in reports)
    said, named, differs = "", False, False
    for report in reports:
        first = report["first_divergence"]
        if "rounding_of_step" in report or (first is None and not report.get("wrong_update")):
            continue
        effect = report["verdict"] == "differs" or bool(report.get("wrong_update"))
        differs |= effect
        named |= not effect
        if not said:
            why = first or report["wrong_update"]
            name = why.get("target_name") or why.get("golden_name") or "the update"
            said = f"{name}: {why['why']}"
    return Answer(number, kind, level, values, rounded, differs, named, said)


def pairs_of(options):
    """Numbers, classes and programs; a class that does not fit a program gets another one."""
    names = [name for name in changes.names() if not options.only or name in options.only]
    families = {"attention": "attention", "channels_last": "image", "fold of a norm": "image"}
    for number in options.numbers or range(options.first, options.first + options.pairs):
        kind = names[number % len(names)]
        for draw in range(50):
            seed = number * 64 + draw
            drawn = changes.pair(kind, programs.draw(seed, families.get(kind, "")))
            if drawn is not None:
                yield number, kind, drawn
                break


def measure_some(some, level, options):
    """The answers on some pairs, all recorded in this process."""
    torch.ones((), requires_grad=True).exp()  # autograd's engine is made again after a fork
    folder = Path(tempfile.mkdtemp(dir=options.scratch))
    recorder, answers, failed = Recorder(folder, level), [], []
    for number, kind, (spec, golden, target) in some:
        sides = folder / str(number)
        recorded = options.recordings / str(number) if options.recordings else None
        try:
            if recorded and recorded.exists():
                sides.symlink_to(recorded)
            else:
                recorder.record(spec, target, f"{number}/target")
                recorder.record(spec, golden, f"{number}/golden")
                if recorded:  # whole or not at all, also when it is stopped
                    part = recorded.with_suffix(".part")
                    shutil.copytree(sides, part, dirs_exist_ok=True)
                    part.rename(recorded)
            both = compare(options.msprobe, sides / "target", sides / "golden")
            answer = judge(number, kind, level, both)
        except (RuntimeError, ValueError, KeyError) as error:
            failed.append(f"{number} {kind} {level}: {error!r}")
            continue
        answers.append(dataclasses.asdict(answer))
        alarm = answer.differs or answer.named
        if alarm and options.verbose:
            print(f"{answer}\n    {spec}\n    {golden}\n    {target}", flush=True)
        if alarm and options.keep:
            shutil.copytree(sides, options.keep / str(number), dirs_exist_ok=True)
        sides.unlink() if sides.is_symlink() else shutil.rmtree(sides)
    shutil.rmtree(folder)
    return {"error": "", "answers": answers, "failed": failed}


def measure(options):
    answers, failed = [], []
    pairs = list(pairs_of(options))
    chunks = [
        (list(some), LEVELS[place % len(LEVELS)])
        for place, some in itertools.groupby(pairs, lambda pair: pair[0] // CHUNK)
    ]
    for begin in range(0, len(chunks), options.jobs):
        works = [
            lambda c=chunk: measure_some(*c, options)
            for chunk in chunks[begin : begin + options.jobs]
        ]
        for done in forked_jobs.in_children(works, CHUNK * GIVE_UP_S):
            answers += [Answer(**each) for each in done.get("answers", [])]
            failed += done.get("failed", []) or [done["error"]] * bool(done["error"])
        alarms = sum(each.differs for each in answers)
        print(f"  {len(answers)} pairs, {alarms} differ", file=sys.stderr, flush=True)
        if options.json:
            options.json.write_text(json.dumps([dataclasses.asdict(each) for each in answers]))
    print("\n".join(failed), file=sys.stderr)
    return answers, failed


def check(options) -> int:
    """Whether both sides of each pair end in the same weights in float64."""
    wrong = 0
    for number, kind, (spec, golden, target) in pairs_of(options):
        ends = [forked(lambda s=spec, w=ways: in_float64(s, w)) for ways in (golden, target)]
        if error := ends[0]["error"] or ends[1]["error"]:
            print(f"{number} {kind}: {error}")
            wrong += 1
            continue
        a, b = (torch.tensor(end["weights"], dtype=torch.float64) for end in ends)
        apart = ((a - b).norm() / a.norm()).item()
        if not apart < 1e-6:
            wrong += 1
            print(f"{number} {kind}: weights are apart by {apart:.1e}\n    {spec}\n    {target}")
    print(f"{wrong} of {options.pairs} pairs are not clean")
    return int(wrong > 0)


def bound(k: int, n: int) -> float:
    """Clopper and Pearson's upper bound of 95 % of a rate of which k of n were seen."""
    if k >= n:
        return 1.0
    low, high = k / n, 1.0
    for _ in range(60):  # the rate at which so few are seen in 5 of 100 campaigns
        rate = (low + high) / 2
        terms = [
            math.lgamma(n + 1)
            - math.lgamma(i + 1)
            - math.lgamma(n - i + 1)
            + i * math.log(rate)
            + (n - i) * math.log1p(-rate)
            for i in range(k + 1)
        ]
        seen = sum(map(math.exp, terms))
        low, high = (rate, high) if seen > 0.05 else (low, rate)
    return high


def table(answers) -> str:
    groups = collections.defaultdict(list)
    for each in answers:
        groups[(0, each.kind)].append(each)
        groups[(1, f"all, {each.level}")].append(each)
        groups[(2, "all")].append(each)
    order = {name: place for place, name in enumerate(changes.names())}
    lines = [
        "| pairs | how many | values | within rounding | blamed | rate, at most (95 %) | named "
        "without effect | rate, at most |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for (_, name), some in sorted(groups.items(), key=lambda g: (g[0][0], order.get(g[0][1], 99))):
        n, blamed = len(some), sum(each.differs for each in some)
        named = sum(each.named and not each.differs for each in some)
        lines.append(
            f"| {name} | {n:,} | {sum(e.values for e in some):,} | "
            f"{sum(e.rounded for e in some):,} | {blamed} | {100 * bound(blamed, n):.2f} % | "
            f"{named} | {100 * bound(named, n):.2f} % |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first pair")
    parser.add_argument("--numbers", nargs="*", type=int, default=[], help="these pairs alone")
    parser.add_argument("--only", nargs="*", default=[], help="names of classes")
    parser.add_argument(
        "--msprobe", default=shutil.which("msprobe", path=Path(sys.executable).parent)
    )
    parser.add_argument("--scratch", type=Path, help="folder of the dumps, each removed at once")
    parser.add_argument("--keep", type=Path, help="folder for the dumps of alarms")
    parser.add_argument(
        "--recordings",
        type=Path,
        help="keep all dumps here; those that are here are not made again",
    )
    parser.add_argument("--json", type=Path, help="write the answers to this file")
    parser.add_argument("--add", nargs="*", default=[], help="answers of earlier runs (--json)")
    parser.add_argument("--jobs", type=int, default=1, help="processes at the same time")
    parser.add_argument("--check", action="store_true", help="train in float64 only")
    parser.add_argument("--verbose", action="store_true", help="print each alarm")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # OpenMP's threads would not exist after a fork
    os.environ["MSPROBE_LOG_LEVEL"] = "3"
    for folder in filter(None, (options.scratch, options.keep, options.recordings)):
        folder.mkdir(parents=True, exist_ok=True)
    if options.check:
        return check(options)
    answers, failed = measure(options)
    for path in options.add:
        answers += [Answer(**each) for each in json.loads(Path(path).read_text())]
    print(table(answers))
    print(f"{len(failed)} pairs could not be measured")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
