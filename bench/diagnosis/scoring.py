"""Compares the two sides of a case, and holds what was said against the declared place."""

import dataclasses
import json
import re
import subprocess
import tempfile
import time
from pathlib import Path

import case

MODES = [(kind, level) for kind in ("statistics", "tensor") for level in ("L0", "L1", "mix")]
CANDIDATES = 3
PEER = "msprobe 26, "  # begins the kind of a score of the older tool


@dataclasses.dataclass
class Score:
    name: str
    kind: str
    level: str
    place: int = 0  # 1: the culprit is named first; 0: not among those named
    blamed: bool = False
    verdict: str = ""
    seconds: float = 0.0
    said: str = ""  # the headline of the report

    @property
    def of_peer(self):
        return self.kind.startswith(PEER)

    @property
    def first(self):
        return self.place == 1

    @property
    def among_three(self):
        return 1 <= self.place <= CANDIDATES


def compare(msprobe: str, target: Path, golden: Path):
    """The reports in the order of steps and ranks, and seconds."""
    with tempfile.TemporaryDirectory() as out:
        command = [msprobe, "compare", target, golden, "-o", out, "--format", "json"]
        command.append("--allow-nothing-compared")
        began = time.perf_counter()
        done = subprocess.run(command, capture_output=True, text=True)
        seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"{target} against {golden}: {done.stderr}")
    answer = json.loads(done.stdout)
    if "steps" not in answer and "ranks" not in answer:
        return [("0", "", answer)], seconds
    reports = [
        (step, rank, report)
        for step, ranks in answer.get("steps", {"0": answer}).items()
        for rank, report in ranks["ranks"].items()
    ]
    if first := answer["first"]:  # the rank that was first stands before the others of its step
        reports.sort(key=lambda each: (int(each[0]), each[1] != first["rank"]))
    return reports, seconds


def blaming(reports) -> list:
    """Reports that name a culprit; a step that only carries another step's rounding names none."""
    return [
        (step, rank, report)
        for step, rank, report in reports
        if (report.get("first_divergence") or report.get("wrong_update"))
        and "rounding_of_step" not in report
    ]


def headline(step, rank, report) -> str:
    first = report["first_divergence"]
    where = f"step {step}" + (f" rank {rank}" if rank else "")
    if first is None:  # no call shows it
        return (
            f"{where}: the update of the weights after step {report['wrong_update']['after_step']}"
        )
    name = first["target_name"] or first["golden_name"]
    return f"{where}: {name} in {first['module']} at {first['source_line']}"


def _in_module(pattern: str, path: str | None) -> bool:
    return re.fullmatch(pattern, path or "") is not None


def _path_of(divergence) -> str:
    """The path of the module around an API: "module.up (Linear)" -> "up"."""
    return re.sub(r"^(module\.)+", "", (divergence["module"] or "").rsplit(" (", 1)[0])


def names_place(fault: case.Fault, level: str, divergence, report) -> bool:
    names = [name for name in (divergence["target_name"], divergence["golden_name"]) if name]
    lines = " ".join(str(divergence[key]) for key in ("source_line", "caller_line"))
    if any(re.search(rf"\b{re.escape(place)}\b", lines) for place in case.true_lines(fault)):
        return True
    if level == "L0":
        return _names_module(fault, names, divergence, report)
    paths = [case.module_path(name) for name in names] + [_path_of(divergence)]
    inside = not fault.module or any(_in_module(fault.module, path) for path in paths)
    return (
        bool(fault.api) and inside and any(re.fullmatch(fault.api, case.api_of(n)) for n in names)
    )


def _begins_with_other_weights(divergence, report) -> bool:
    """A parameter is wrong before its first use: the update of the step before is to blame."""
    row = (divergence["worst"] or {}).get("target_row") or ""
    return ".parameters." in row or report["beginning"]["weights"] is not None


def _names_module(fault, names, divergence, report) -> bool:
    """Level L0 sees modules only: the innermost module that contains the place is right, too."""
    if fault.update:
        return _begins_with_other_weights(divergence, report)
    paths = [case.module_path(name) for name in names]
    wanted = fault.module_only or fault.module
    if wanted:
        return any(path is not None and _in_module(wanted, path) for path in paths)
    # Outside of all modules: the outermost module. Lists of modules are no modules that are called:
    # "blocks.0" is outermost.
    return any(path is None or re.fullmatch(r"[^.]+(\.\d+)?", path) for path in paths)


def score(each: case.Case, kind, level, reports, seconds) -> Score:
    made = Score(each.name, kind, level, seconds=seconds)
    wrong = blaming(reports)
    made.verdict = reports[0][2].get("verdict", "")
    made.blamed = bool(wrong)
    if not wrong:
        made.said = "nothing was blamed"
        return made
    made.said = headline(*wrong[0])
    if isinstance(each, case.Fault):
        _, _, report = wrong[0]
        if each.update and report.get("wrong_update"):
            made.place = 1  # the screen names the update between the two steps
            return made
        named = [d for d in (report["first_divergence"], *report["runners_up"]) if d is not None]
        for place, divergence in enumerate(named, 1):
            if names_place(each, level, divergence, report):
                made.place = place
                break
    return made
