"""Our csv against the tables that msprobe 26.2.0 wrote from the same dumps, cell by cell.

Deliberate differences are in tests/data/tables/26.2.0/differences.json. An entry that does not
apply any more fails the test, so that the list is always correct.
"""

import csv
import json
import math
import subprocess

import pytest

from recorded import recorded

CASES = [
    f"{level}_{mode}" for level in ("L0", "L1", "mix") for mode in ("statistics", "md5", "tensor")
] + ["scalars_statistics", "scalars_md5"]


def read(text):
    """The header and the rows of a csv text."""
    rows = list(csv.reader(text.splitlines(keepends=True)))
    return rows[0], rows[1:]


def dumps_of(data, case):
    """The folders of target and golden."""
    if case.startswith("scalars"):
        scalars = data / "tables" / "scalars" / case.removeprefix("scalars_")
        return scalars / "target", scalars / "golden"
    there = recorded("dumps/26.2.0") / case
    if there.is_dir():
        return there / "pert" / "step0", there / "base" / "step0"
    here = recorded("tables/26.2.0/dumps") / case
    return here / "pert", here / "base"


def close(ours, theirs, tolerance):
    """Whether both are finite numbers within the tolerance."""
    try:
        return math.isclose(float(ours), float(theirs), rel_tol=tolerance)
    except ValueError:
        return False


@pytest.mark.parametrize("case", CASES)
def test_columns_equal_the_recorded_table(case, root, msprobe_bin):
    data = root / "tests" / "data"
    target, golden = dumps_of(data, case)
    done = subprocess.run(
        [msprobe_bin, "compare", "-tp", target, "-gp", golden, "--format", "csv"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    header, rows = read(done.stdout)
    table = (data / "tables" / "26.2.0" / f"{case}.csv").read_text(encoding="utf-8")
    their_header, their_rows = read(table)
    differences = json.loads((data / "tables" / "26.2.0" / "differences.json").read_text())
    allowed = {
        (row, column): d
        for d in differences["cells"]
        if case in d["cases"]
        for row in d.get("rows", [d.get("row")])
        for column in d.get("columns", [d.get("column")])
    }

    assert header[: len(their_header)] == their_header
    names = [row[0] for row in rows if row[0] != "N/A"]
    assert names == [row[0] for row in their_rows], "the same rows in the same order"
    surprises, met = [], set()
    ours_by_name = {row[0]: row for row in rows}
    for theirs in their_rows:
        ours = ours_by_name[theirs[0]]
        for column, our_cell, their_cell in zip(their_header, ours, theirs, strict=False):
            if our_cell == their_cell:
                continue
            key = (theirs[0], column)
            tolerance = differences["tolerances"].get(column)
            if key in allowed and (allowed[key]["ours"], allowed[key]["theirs"]) == (
                our_cell,
                their_cell,
            ):
                met.add(key)
            elif tolerance is None or not close(our_cell, their_cell, tolerance["relative"]):
                surprises.append((*key, {"theirs": their_cell, "ours": our_cell}))
    assert not surprises
    assert met == allowed.keys(), "differences.json lists cells that no longer differ"
