"""Compares two runs of a program, and holds what is said against the truth of the program."""

import dataclasses
import json
import re
import subprocess
from pathlib import Path

import claims

HERE = Path(__file__).resolve().parent

CONFIDENT = 0.5  # a module that is named with less confidence is not accused


@dataclasses.dataclass
class Truth:
    """What is right for a program: an entry of truths.json."""

    name: str
    what: str  # the report, in a sentence
    lines: list[str]  # texts of single lines of the program: these, or a neighbour, may be named
    update: bool = False  # the update of the weights between two steps may be named, too
    ranks: int = 1  # processes
    says: str = ""  # a regular expression that the text of the comparison has to contain
    never: list[str] = dataclasses.field(default_factory=list)  # ... and must not contain

    @property
    def path(self) -> Path:
        return HERE / "programs" / f"{self.name}.py"

    def true_lines(self) -> set[int]:
        """The numbers of the lines that may be named: those of `lines`, and their neighbours."""
        text, numbers = self.path.read_text(), set()
        for part in self.lines:
            if text.count(part) != 1:
                raise ValueError(f"{self.path.name}: {text.count(part)} places have {part!r}")
            numbers.add(text[: text.index(part)].count("\n") + 1)
        return {number + by for number in numbers for by in (-1, 0, 1)}


@dataclasses.dataclass
class Score:
    name: str
    level: str
    variant: str
    result: str  # BUG: "named", "missed", "innocent"; ALT: "calm", "blamed", "differs" (by verdict)
    said: str
    false: list[str]  # sentences that are false, or that are missing


def truths() -> dict[str, Truth]:
    table = json.loads((HERE / "truths.json").read_text())
    return {name: Truth(name, **fields) for name, fields in table.items()}


def compare(msprobe, target, golden, out):
    """The reports in the order of steps and ranks, and the text that a person sees."""
    command = [msprobe, "compare", target, golden, "-o", out]
    text = subprocess.run(command, capture_output=True, text=True)
    done = subprocess.run([*command, "--format", "json"], capture_output=True, text=True)
    if text.returncode != 0 or done.returncode != 0:
        raise RuntimeError(f"{target} against {golden}: {text.stderr}{done.stderr}")
    answer = json.loads(done.stdout)
    if "steps" not in answer and "ranks" not in answer:
        return [("0", "", answer)], text.stdout
    reports = [
        (step, rank, report)
        for step, ranks in answer.get("steps", {"0": answer}).items()
        for rank, report in ranks["ranks"].items()
    ]
    if first := answer["first"]:  # the rank that was first stands before the others of its step
        reports.sort(key=lambda each: (int(each[0]), each[1] != first["rank"]))
    return reports, text.stdout


def blaming(reports):
    """Reports that name a culprit; a step that only carries another step's rounding names none."""
    return [
        each
        for each in reports
        if (each[2].get("first_divergence") or each[2].get("wrong_update"))
        and "rounding_of_step" not in each[2]
    ]


def headline(step, rank, report) -> str:
    where = f"step {step}" + (f" rank {rank}" if rank else "")
    if update := report.get("wrong_update"):
        return f"{where}: update of the weights after step {update['after_step']}"
    first = report["first_divergence"]
    name = first["target_name"] or first["golden_name"]
    place = (first["source_line"] or "no line").replace(f"{HERE}/programs/", "")
    return f"{where}: {name} in {first['module']} at {place} ({first['confidence']:.0%})"


def names_place(truth, report) -> bool:
    if report.get("wrong_update"):
        return truth.update
    first = report["first_divergence"]
    named = " ".join(str(first[key]) for key in ("source_line", "caller_line"))
    numbers = re.findall(rf"\b{re.escape(truth.path.name)}:(\d+)", named)
    return bool(truth.true_lines().intersection(map(int, numbers)))


def score(truth, level, variant, reports, text) -> Score:
    wrong = blaming(reports)
    said = headline(*wrong[0]) if wrong else "nothing was blamed"
    if variant == "ALT":
        verdicts = {each.get("counts_as", each["verdict"]) for _, _, each in reports}
        result = "blamed" if wrong else "differs" if "differs" in verdicts else "calm"
    elif not wrong:
        result = "missed"
    elif names_place(truth, wrong[0][2]):
        result = "named"
    else:
        first = wrong[0][2]["first_divergence"]
        sure = wrong[0][2].get("wrong_update") or first["confidence"] >= CONFIDENT
        result = "innocent" if sure else "missed"
    return Score(
        truth.name, level, variant, result, said, claims.false_ones(truth, variant, reports, text)
    )
