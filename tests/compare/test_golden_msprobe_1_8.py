"""Our tables in the layout of msprobe 1.0, 1.2 and 8 against those of the tools, cell by cell.

The cases are in tests/data/tables/cases.json; record.py there recorded the tools' tables.
Deliberate differences are in tests/data/tables/VERSION/differences.json. Each entry names the row
of docs/older/differences.md with the reason; an entry that does not apply any more fails the test.
"""

import json
import subprocess

import pytest
from golden_tables import TABLES, close, colors, table

from recorded import recorded

CASES = json.loads((TABLES / "cases.json").read_text())
GENERATIONS = {"1.0.4": "1.0", "1.2.2": "1.2", "8.3.3": "8"}
# openpyxl wrote 16 digits of each number, so the recorded tables lack the 17th.
DIGITS = 1e-15


class Differences:
    """The deliberate differences of a version, and which of them occurred."""

    def __init__(self, version, name):
        known = json.loads((TABLES / version / "differences.json").read_text())
        self.tolerances = known["tolerances"]
        self.entries = [entry for entry in known["cells"] if name in entry["cases"]]
        self.met = set()

    def explains(self, row, column, ours, theirs):
        """Whether an entry allows these two cells to differ."""
        tolerance = self.tolerances.get(column, {"relative": DIGITS})["relative"]
        if ours == theirs or close(ours, theirs, tolerance):
            return True
        for i, entry in enumerate(self.entries):
            if column not in entry.get("columns", [column]):
                continue
            if not any(row.startswith(start) for start in entry.get("rows", [""])):
                continue
            if entry.get("ours", ours) != ours or entry.get("theirs", theirs) != theirs:
                continue
            self.met.add(i)
            return True
        return False

    def unmet(self):
        """Entries that did not apply to any cell."""
        return [entry for i, entry in enumerate(self.entries) if i not in self.met]


def compare(msprobe, version, name, folder):
    """Runs compare; returns our table, the advisor's text and the colors of the rows."""
    case = CASES[name]
    target, golden = (recorded(path.format(version=version)) for path in case["dumps"])
    request = {"npu_path": str(target), "bench_path": str(golden), "is_print_compare_log": False}
    if (target.parent / "stack.json").exists():
        request["stack_path"] = str(target.parent / "stack.json")
    (folder / "compare.json").write_text(json.dumps(request))
    done = subprocess.run(
        [msprobe, "-f", "pytorch", "compare", "-i", folder / "compare.json", "-o", folder / "out",
         "--format", "csv", "--table-format", GENERATIONS[version], *case["flags"]],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (book,) = (folder / "out").glob("*.xlsx")
    (advice,) = (folder / "out").glob("advisor*.txt")
    return *table(done.stdout), advice.read_text(), colors(book)


@pytest.mark.parametrize(
    ("version", "name"),
    [(version, name) for name, case in CASES.items() for version in case["versions"]],
)
def test_columns_equal_the_recorded_table(version, name, msprobe_bin, tmp_path):
    header, rows, advice, color = compare(msprobe_bin, version, name, tmp_path)
    path = TABLES / version / f"{name}.csv"
    their_header, their_rows = table(path.read_text(encoding="utf-8"))
    assert header[: len(their_header) - 1] == their_header[:-1]
    names = [row[0] for row in rows if row[0] != "N/A"]
    their_names = [row[0] for row in their_rows]
    differences = Differences(version, name)
    assert names == their_names, "the same rows in the same order"
    ours = {row[0]: [*row[: len(their_header) - 1], c] for row, c in zip(rows, color, strict=True)}
    surprises = [
        (theirs[0], column, {"theirs": b, "ours": a})
        for theirs in their_rows
        for column, a, b in zip(their_header, ours[theirs[0]], theirs, strict=True)
        if not differences.explains(theirs[0], column, a, b)
    ]
    assert not surprises
    assert not differences.unmet(), "differences.json says more than is true"
    # Compares row and name of the first failing call; the advice itself is worded differently.
    theirs = (TABLES / version / f"{name}.advisor.txt").read_text().splitlines()
    assert advice.splitlines()[:2] == theirs[:2]
    assert advice.startswith("Line: ") and "\nExpert Advice: " in advice


@pytest.mark.parametrize(
    "name", [n for n, case in CASES.items() if "1.2.2" in case["versions"] and "edges" not in n]
)
def test_nearly_all_cells_of_1_2_are_equal(name, msprobe_bin, tmp_path):
    """At least 99.5 % of the cells; deliberate differences count as different."""
    version = "1.2.2"
    _, rows, _, color = compare(msprobe_bin, version, name, tmp_path)
    text = (TABLES / version / f"{name}.csv").read_text(encoding="utf-8")
    header, their_rows = table(text)
    rows = [[*row[: len(header) - 1], c] for row, c in zip(rows, color, strict=True)]
    rows = [row for row in rows if row[0] != "N/A"]
    tolerances = Differences(version, name).tolerances
    same = sum(
        a == b or close(a, b, tolerances.get(column, {"relative": DIGITS})["relative"])
        for ours, theirs in zip(rows, their_rows, strict=True)
        for column, a, b in zip(header, ours, theirs, strict=True)
    )
    share = same / (len(header) * len(their_rows))
    assert share >= 0.995, f"{share:.2%} of {name} of {version}"


@pytest.mark.parametrize(
    ("target", "golden", "generation"),
    [
        ("1.2.2", "1.2.2", "1.2"),
        ("8.3.3", "8.3.3", "8"),
        ("1.0.4", "1.0.4", "8"),
        ("1.2.2", "8.3.3", "8"),
        ("8.3.3", "1.2.2", "8"),
    ],
)
def test_the_older_command_line_knows_dumps_of_1_2(
    target, golden, generation, msprobe_bin, root, tmp_path
):
    paths = [
        recorded(f"dumps/{version}/mix_statistics/{run}/step0/rank/dump.json")
        for version, run in ((target, "pert"), (golden, "base"))
    ]
    (tmp_path / "compare.json").write_text(
        json.dumps({"npu_path": str(paths[0]), "bench_path": str(paths[1])})
    )
    words = [msprobe_bin, "-f", "pytorch", "compare", "-i", tmp_path / "compare.json"]
    words += ["-o", tmp_path / "out", "--format", "csv"]
    tables = [
        subprocess.run([*words, *more], capture_output=True, text=True, timeout=60, check=True)
        for more in ([], ["--table-format", generation])
    ]
    assert tables[0].stdout == tables[1].stdout
    assert ("Requires_grad Consistent" in tables[0].stdout) == (generation == "8")


@pytest.mark.parametrize("version", GENERATIONS)
def test_each_difference_is_documented(version, root):
    text = (root / "docs" / "older" / "differences.md").read_text(encoding="utf-8")
    rows = {line.split("|")[1].strip() for line in text.splitlines() if line.startswith("| ")}
    known = json.loads((TABLES / version / "differences.json").read_text())
    entries = [*known["cells"], *known["tolerances"].values()]
    assert not [entry for entry in entries if entry["row_of_differences_md"] not in rows]
