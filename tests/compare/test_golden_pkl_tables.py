"""Our table in the layout of ptdbg_ascend against the tables of its versions, cell by cell.

tests/data/tables/ptdbg_VERSION/MODE.csv has the rows that the tool wrote for the calls in
tests/data/dumps/ptdbg_VERSION/MODE. Our columns are those of 4 to 6; for an older version only the
columns that it had are compared.
"""

import json
import subprocess

import pytest
from golden_tables import TABLES, close, colors, table

from recorded import recorded

# (version, mode) -> columns with another spelling in that version: decimals, words for numbers.
RECORDED = {
    ("2.3", "all"): {"MaxAbsErr": 6, "Cosine": 6},
    ("3.4", "all"): {},
    ("4.1", "api_stack"): {},
}
# The older tool divides in float32: a row of docs/older/differences.md.
FLOAT32_DIVISION = {"MaxRelativeErr": 1e-6}
# For a plain number, 2.3 wrote a cosine of 1, and Yes.
OF_2_3 = {("Cosine", "unsupported", "1"), ("Accuracy Reached or Not", "Nan", "Yes")}


def dumps(version, mode):
    """The paths of target and golden."""
    folder = recorded(f"dumps/ptdbg_{version}/{mode}")
    return [next((folder / side).glob("*/rank*/*.pkl")) for side in ("pert", "base")]


def same(version, mode, column, ours, theirs):
    """Whether our cell has the same meaning as theirs."""
    if ours == theirs or close(ours, theirs, FLOAT32_DIVISION.get(column, 0)):
        return True
    if version == "2.3" and (column, ours, theirs) in OF_2_3:
        return True
    decimals = RECORDED[version, mode].get(column)
    return decimals is not None and f"{float(ours):.{decimals}f}" == f"{float(theirs):.{decimals}f}"


@pytest.mark.parametrize(("version", "mode"), RECORDED)
def test_columns_equal_the_recorded_table(version, mode, msprobe_bin, tmp_path):
    target, golden = dumps(version, mode)
    done = subprocess.run(
        [msprobe_bin, "compare", "-tp", target, "-gp", golden, "--table-format", "ptdbg",
         "--table-file", tmp_path / "table.csv", "--advisor", "-o", tmp_path],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    header, rows = table((tmp_path / "table.csv").read_text(encoding="utf-8"))
    their_header, their_rows = table(
        (TABLES / f"ptdbg_{version}" / f"{mode}.csv").read_text(encoding="utf-8")
    )
    assert [c for c in header if c in their_header] == their_header, "the same columns in order"
    assert [row[0] for row in rows] == [row[0] for row in their_rows]
    surprises = [
        (theirs[0], column, {"theirs": cell, "ours": ours[header.index(column)]})
        for ours, theirs in zip(rows, their_rows, strict=True)
        for column, cell in zip(their_header, theirs, strict=True)
        if not same(version, mode, column, ours[header.index(column)], cell)
    ]
    assert not surprises
    (advice,) = tmp_path.glob("advisor_*.txt")
    failing = [i for i, row in enumerate(their_rows, 2) if "No" in row]
    assert advice.read_text().startswith(f"Line: {failing[0] if failing else 'NA'}\n")


def test_a_workbook_has_the_colors_of_6_0(msprobe_bin, tmp_path):
    inputs, wrong = [1.0, 0.5, 0.75, 2.0], [9.0, 0.5, 0.75, 2.0]
    for side, outputs in (
        ("npu", ([float("inf"), 0.0, 1.0, 1.0], wrong, inputs)),
        ("bench", (inputs, inputs, inputs)),
    ):
        (tmp_path / side).mkdir()
        with open(tmp_path / side / "dump.pkl", "w") as file:
            for i, output in enumerate(outputs):
                for part, values in (("input.0", inputs), ("output", output)):
                    name = f"Torch_op_{i}_forward_{part}"
                    print(json.dumps([name, 0, [], "torch.float32", [3], values]), file=file)
    done = subprocess.run(
        [msprobe_bin, "compare", "-tp", tmp_path / "npu", "-gp", tmp_path / "bench", "--xlsx",
         "--table-format", "ptdbg", "--table-file", tmp_path / "table.xlsx"],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # For each call in turn: not a number, off by more than half of the reference, equal.
    assert colors(tmp_path / "table.xlsx") == ["", "red", "", "red", "", ""]
