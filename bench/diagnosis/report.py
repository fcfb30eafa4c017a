"""Tables of scores: for the terminal and for docs/diagnosis.md."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from case import Fault
from tables import table

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


def show(cases, scores, seconds):
    table(rows(cases, scores))
    print(f"  recorded in {seconds:.0f} s")


def wrong(cases, scores) -> list:
    return [
        each
        for each in scores
        if (not each.first if isinstance(cases[each.name], Fault) else each.blamed)
    ]


def misses(cases, scores) -> str:
    return "".join(line(cases[each.name], each) + "\n" for each in wrong(cases, scores))
