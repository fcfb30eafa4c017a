"""Tables of scores: for the terminal and for docs/explain/diagnosis.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import case
import composed
from case import Fault
from scoring import MODES
from tables import table

WHOLE_STEPS = "whole step"
HEADING = ["mode", "cases", "first", "first three", "harmless", "false alarms", "s a pair"]


def line(each, score) -> str:
    if isinstance(each, Fault):
        word = "first" if score.first else f"place {score.place}" if score.place else "MISSED"
    else:
        word = "BLAMED" if score.blamed else "quiet"
    return f"{word:8} {score.kind}-{score.level:4} {each.name}  [{score.verdict}] {score.said}"


def percent(part, whole) -> str:
    return "-" if whole == 0 else f"{part} ({100 * part / whole:.0f} %)"


def row(name, cases, scores) -> list:
    faults = [each for each in scores if isinstance(cases[each.name], Fault)]
    harmless = [each for each in scores if not isinstance(cases[each.name], Fault)]
    return [
        name,
        str(len(faults)),
        percent(sum(each.first for each in faults), len(faults)),
        percent(sum(each.among_three for each in faults), len(faults)),
        str(len(harmless)),
        str(sum(each.blamed for each in harmless)),
        f"{sum(each.seconds for each in scores) / max(1, len(scores)):.2f}",
    ]


def rows(cases, scores) -> list:
    """A row for each mode, first of the cases that are looked at; then the same held out."""
    made = [HEADING]
    modes = list(dict.fromkeys((each.kind, each.level) for each in scores))
    for part, held_out in (("", False), (", held out", True)):
        for kind, level in modes:
            chosen = [
                each
                for each in scores
                if (each.kind, each.level) == (kind, level)
                and cases[each.name].held_out == held_out
            ]
            if chosen:
                made.append(row(f"{kind}, {level}{part}", cases, chosen))
    return made


def grouped(cases, scores) -> list:
    """(group, its scores): the single cases, single changes of a whole step, composed pairs."""
    groups = ("", WHOLE_STEPS, *composed.GROUPS)
    made = [(group, [e for e in scores if cases[e.name].group == group]) for group in groups]
    return [(group, those) for group, those in made if those]


def rows_of_groups(cases, scores) -> list:
    """Of the groups after the first: their modes, the same held out."""
    made = [["pairs", *HEADING]]
    for group, those in grouped(cases, scores):
        if group:
            made += [[group, *cells] for cells in rows(cases, those)[1:]]
    return made


def show(cases, scores, seconds):
    for group, those in grouped(cases, scores):
        if group:
            print(f"{group}:")
        table(rows(cases, those))
    if scores:
        print(f"  recorded in {seconds:.0f} s")


def show_blind(cases, scores, seconds):
    """Totals of both halves of a set of blind/; its blind_a.txt lists the first."""
    listed = set((case.folder / "blind_a.txt").read_text().split())
    scores = sorted(scores, key=lambda each: (each.kind, each.level))
    made = [HEADING]
    for name, first_half in (("blind_a", True), ("blind_b", False)):
        half = [each for each in scores if (each.name in listed) == first_half]
        for kind, level in dict.fromkeys((each.kind, each.level) for each in half):
            those = [each for each in half if (each.kind, each.level) == (kind, level)]
            made.append(row(f"{name}, {kind}, {level}", cases, those))
    table(made)
    print(f"  recorded in {seconds:.0f} s")


def show_fresh(cases, scores, seconds):
    """Totals of all pairs, then of each group of pairs."""
    scores = sorted(scores, key=lambda each: (each.kind, each.level))
    table(rows(cases, scores))
    alone = [each for each in scores if not cases[each.name].group]
    table(rows_of_groups(cases, scores) + [["alone", *cells] for cells in rows(cases, alone)[1:]])
    print(f"  recorded in {seconds:.0f} s")


def wrong(cases, scores) -> list:
    return [
        each
        for each in scores
        if (not each.first if isinstance(cases[each.name], Fault) else each.blamed)
    ]


def misses(cases, scores) -> str:
    return "".join(line(cases[each.name], each) + "\n" for each in wrong(cases, scores))


def reason(each, score) -> str:
    """Why a case is not counted as right, in one line."""
    if not isinstance(each, Fault):
        return f"blamed: {score.said}"
    if not score.blamed:
        return "no divergence: nothing that was recorded differs, or it is taken for rounding"
    if score.place:
        return f"is number {score.place}, behind {score.said}"
    return f"instead: {score.said}"


def explained() -> dict:
    """Name -> sentence, of explained.txt."""
    lines = (Path(__file__).resolve().parent / "explained.txt").read_text().splitlines()
    return dict(each.split(": ", 1) for each in lines if each and not each.startswith("#"))


def _modes(scores) -> str:
    return ", ".join(dict.fromkeys(f"{each.kind} {each.level}" for each in scores))


def _markdown_table(made) -> list:
    named = next(index for index, title in enumerate(made[0]) if title == "cases")
    text = ["| " + " | ".join(made[0]) + " |"]
    text += ["| --- " * named + "| ---: " * (len(made[0]) - named) + "|"]
    return text + ["| " + " | ".join(cells) + " |" for cells in made[1:]] + [""]


def markdown(cases, scores, peer_scores, failed) -> str:
    """The tables, and a line for each miss and false alarm."""
    single = [each for each in scores if not cases[each.name].group]
    text = _markdown_table(rows(cases, single)) if single else []
    if len(single) < len(scores):
        text += ["Changes of a whole step, and composed pairs:", ""]
        text += _markdown_table(rows_of_groups(cases, scores))
    if peer_scores:
        text += ["msprobe 26 on the same pairs, `-da`:", ""]
        text += _markdown_table(rows(cases, peer_scores))
    absent = [mode for mode in MODES if mode not in {(each.kind, each.level) for each in scores}]
    if absent:
        names = ", ".join(f"{kind} {level}" for kind, level in absent)
        text += [f"Not measured in the run that wrote this page: {names}.", ""]
    if not peer_scores:
        text += ["msprobe 26 was not measured in the run that wrote this page.", ""]
    text += ["## What was missed, and why", ""]
    by_line = {}
    for score in wrong(cases, single):  # those of pairs: --misses
        each = cases[score.name]
        by_line.setdefault((score.name, _plain(reason(each, score))), []).append(score)
    sentences = explained()
    for (name, why), those in by_line.items():
        text.append(f"- `{name}` ({_modes(those)}): {cases[name].what} {why}")
        if name in sentences:
            text.append(f"  {sentences[name]}")
    text += [f"- not measured: {_plain(each)}" for each in failed]
    return "\n".join(text) + "\n"


def _plain(text: str) -> str:
    """Without folders, and what Markdown would take for its own."""
    words = text.split("\n", 1)[0].replace(str(Path(__file__).resolve().parent) + "/", "")
    return (
        words.replace("](", "] (")
        .replace("`", "'")
        .replace("|", "/")
        .replace("__", r"\_\_")
        .replace("*", r"\*")
    )


def replace(path, text):
    """Writes the text between the marks of a Markdown file."""
    first, last = "<!-- diagnosis: written by make diagnosis -->", "<!-- end of diagnosis -->"
    whole = path.read_text()
    before, _, rest = whole.partition(first)
    _, end, after = rest.partition(last)
    if not end:
        raise SystemExit(f"error: {path}: expected the lines {first} and {last}")
    path.write_text(f"{before}{first}\n{text}{last}{after}")
