"""Records the tables that msprobe 1.0, 1.2 or 8 writes of the dumps here, as csv.

    python record.py ENVIRONMENT VERSION [CASE ...]     # ENVIRONMENT/bin/msprobe is that version

Run with the Python of ENVIRONMENT (it has openpyxl). In such an environment of its own:
torch==2.13.0, then mindstudio-probe==VERSION, 'numpy<2', 'pandas<2.2' (8.3.3 sorts
the rows by name with a later one).

Cells are written as Python prints them; a colored row has its color in a last column, Color.
"""

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import openpyxl

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recorded import recorded  # noqa: E402

HERE = Path(__file__).resolve().parent
CASES = json.loads((HERE / "cases.json").read_text())


def table(path):
    """Header and rows of a workbook, with the color of each row."""
    rows = list(openpyxl.load_workbook(path).worksheets[0].iter_rows())
    yield [cell.value for cell in rows[0]] + ["Color"]
    for row in rows[1:]:
        color = row[0].fill.fgColor.rgb[2:] if row[0].fill.patternType else ""
        yield ["" if cell.value is None else str(cell.value) for cell in row] + [
            {"FF0000": "red", "FFFF00": "yellow"}.get(color, "")
        ]


def record(environment, version, name):
    """One case: its table and the advisor's text."""
    case = CASES[name]
    target, golden = (recorded(path.format(version=version)) for path in case["dumps"])
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        request = {
            "npu_path": str(target),
            "bench_path": str(golden),
            "stack_path": str(target.parent / "stack.json"),
            "is_print_compare_log": False,
        }
        (work / "compare.json").write_text(json.dumps(request))
        flags = [flag for flag in case["flags"] if version.startswith("8.") or flag != "-hl"]
        subprocess.run(
            [f"{environment}/bin/msprobe", "-f", "pytorch", "compare", "-i", work / "compare.json",
             "-o", work / "out", *flags],
            check=True, timeout=120,
        )  # fmt: skip
        rows = list(table(next((work / "out").glob("*.xlsx"))))
        advice = next((work / "out").glob("advisor*.txt")).read_text()
    out = HERE / version
    out.mkdir(exist_ok=True)
    with (out / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    (out / f"{name}.advisor.txt").write_text(advice)


if __name__ == "__main__":
    for wanted in sys.argv[3:] or CASES:
        if sys.argv[2] in CASES[wanted]["versions"]:
            record(sys.argv[1], sys.argv[2], wanted)
