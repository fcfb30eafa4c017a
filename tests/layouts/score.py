"""Compares the recordings with their goldens and counts: score.py BIN RECORDINGS.

A right layout must be calm. A bug is named if the first divergence is the wrong call or its direct
neighbour: one of the names that the program's table gives, or a line within three lines of the
line that the program marks.
"""

import argparse
import collections
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from catalogue import cases

NEAR = 3  # lines
LINE = re.compile(r"([^\s/]+\.py):(\d+) in ")


def compare(binary, target, golden):
    """The JSON of the comparison, or the sentence with which it was refused."""
    with tempfile.TemporaryDirectory() as out:
        command = [binary, "compare", target, golden, "-o", out, "--format", "json"]
        done = subprocess.run(command, capture_output=True, text=True)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0]


def parts_of(document):
    """All comparisons of the document, with step and rank, and the document itself."""
    found = []

    def walk(node, step, rank):
        if "verdict" in node or "first_divergence" in node:
            found.append((step, rank, node))
        for key, each in node.get("steps", {}).items():
            walk(each, key, rank)
        ranks = node.get("ranks")
        for key, each in ranks.items() if isinstance(ranks, dict) else ():
            walk(each, step, key)

    walk(document, None, None)
    return found


def first_of(document):
    """Names, lines and ranks of the first divergence; None: there is none."""
    first = document.get("first") or {}
    parts = parts_of(document)
    if "first" in document and not first:
        return None
    chosen = [
        part["first_divergence"]
        for step, rank, part in parts
        if part.get("first_divergence")
        and first.get("step", step) in (None, step)
        and first.get("rank", rank) in (None, rank)
    ]
    if not first and not chosen:
        return None
    divergence = chosen[0] if chosen else {}
    if str(first.get("name", "")).startswith("update of"):
        divergence = {}
    keys = ("target_name", "golden_name", "module")
    names = [divergence.get(key) for key in keys] + [first.get("name")]
    lines = [divergence.get(key) for key in ("source_line", "caller_line", "golden_line")]
    # A run that was joined has its ranks beside the call, and "" as the number of its one pair.
    ranks = divergence.get("ranks") or first.get("ranks") or [first.get("rank")]
    ranks = [rank for rank in ranks if rank not in (None, "")]
    return {
        "names": [name for name in names if name],
        "lines": [line for line in lines if line],
        "ranks": [int(rank) for rank in ranks] or None,
        "module": divergence.get("module"),
        "step": first.get("step"),
    }


def is_named(case, first):
    if any(re.search(pattern, name) for pattern in case.near for name in first["names"]):
        return True
    if first["module"] and not any(re.search(case.within, name) for name in first["names"]):
        return False
    for hit in map(LINE.search, first["lines"]):
        if hit and hit[1] == case.script.name:
            return any(abs(int(hit[2]) - line) <= NEAR for line in case.marked)
    return False


def said(first):
    line = LINE.search(first["lines"][0]) if first["lines"] else None
    at = f" {line[1]}:{line[2]}" if line else ""
    step = f"step {first['step']} " if first["step"] is not None else ""
    return f"{step}{(first['names'] or ['?'])[0]}{at} ranks {first['ranks']}"


def judge(case, document):
    """The kind of the answer, what is printed after it, and whether the rank is right."""
    if isinstance(document, str):
        return "refused", document, None
    first = first_of(document)
    verdicts = sorted({str(part.get("verdict")) for _, _, part in parts_of(document)})
    if first is None:
        return "calm", ", ".join(verdicts), None
    if not case.bug:
        return "BLAMED", said(first), None
    kind = "named" if is_named(case, first) else "elsewhere"
    rank = None if case.rank is None else first["ranks"] == [case.rank]
    return kind, said(first), rank


def golden_folder(case, recordings, same_layout):
    name = f"{case.program}.{case.layout}" if same_layout else case.golden
    beside = recordings.with_name(recordings.name.removesuffix("-held"))
    for folder in (recordings, beside, recordings.parent / "open"):
        if (folder / name).is_dir():
            return folder / name
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("binary", help="the program msprobe")
    parser.add_argument("recordings", type=Path)
    parser.add_argument("--only", default="", help="regular expression of names of recordings")
    parser.add_argument(
        "--same-layout", action="store_true", help="bugs against the right run of their layout"
    )
    options = parser.parse_args()
    counts = {"right layouts": collections.Counter(), "bugs": collections.Counter()}
    ranks = collections.Counter()
    for case in cases():
        target = options.recordings / case.name
        golden = golden_folder(case, options.recordings, options.same_layout)
        same = case.layout == case.against or (options.same_layout and not case.bug)
        if same or not re.search(options.only, case.name):
            continue
        if golden is None or not (target / "result.pt").exists():
            continue
        kind, text, rank = judge(case, compare(options.binary, target, golden))
        counts["bugs" if case.bug else "right layouts"][kind] += 1
        ranks[rank] += 1
        wrong = {True: "", False: f"  (rank {case.rank} is wrong)", None: ""}[rank]
        against = "" if case.against == "one" else f" against {case.against}"
        print(f"{case.name}{against}: {kind} {text}{wrong}", flush=True)
    for what, kinds in counts.items():
        each = ", ".join(f"{number} {kind}" for kind, number in sorted(kinds.items()))
        print(f"{sum(kinds.values())} {what}: {each or 'none'}")
    print(f"the rank: right {ranks[True]}, not right {ranks[False]}")


if __name__ == "__main__":
    sys.exit(main())
