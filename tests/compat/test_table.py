"""docs/older/compat.md: each requirement has a row, each row names a test, each test has a row."""

import re

import pytest

ROW = re.compile(r"\| (R-\S+) \| (.+) \| `(test_\w+)` \| (.+) \|")
IDS = [
    *(f"R-A{number:02}" for number in range(1, 44)),
    *(f"R-B{number:02}" for number in range(1, 34)),
    *(f"R-C-U{number}" for number in range(1, 3)),
    *(f"R-C-Q{number}" for number in range(1, 5)),
    *(f"R-C-E{number}" for number in range(1, 20)),
    *(f"R-D-P{number}" for number in range(1, 4)),
    *(f"R-D-G{number}" for number in range(1, 6)),
    *(f"R-D-S{number}" for number in range(1, 6)),
    *(f"R-D-E{number}" for number in range(1, 3)),
    *(f"R-D-O{number}" for number in range(1, 3)),
    *(f"R-D-M{number}" for number in range(1, 6)),  # their tests are in tests/mindspore
    *(f"R-X{number:02}" for number in range(1, 11)),
]


@pytest.fixture(scope="module")
def rows(root):
    text = (root / "docs" / "older" / "compat.md").read_text().splitlines()
    return [ROW.fullmatch(line).groups() for line in text if line.startswith("| R-")]


@pytest.fixture(scope="module")
def tests(root):
    """Read, not imported: those of MindSpore need an environment of their own."""
    return {
        name
        for folder in ("compat", "mindspore")
        for path in (root / "tests" / folder).glob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", path.read_text(), re.M)
    }


def test_each_requirement_has_one_row_in_order(rows):
    assert [row[0] for row in rows] == IDS


def test_each_row_names_a_test_that_is_there(rows, tests):
    for requirement, _, test, _ in rows:
        assert f"{requirement.replace('-', '_')}_" in test
    assert [row[0] for row in rows if not any(test.startswith(row[2]) for test in tests)] == []


def test_rows_of_mindspore_name_tests_of_its_folder(rows, root):
    paths = (root / "tests" / "mindspore").glob("test_*.py")
    texts = [path.read_text() for path in paths]
    for requirement, _, test, _ in rows:
        if requirement.startswith("R-D-M"):
            assert any(f"\ndef {test}" in text for text in texts), requirement


def test_each_test_of_a_requirement_has_a_row(tests):
    named = {
        each
        for test in tests
        for each in re.findall(r"R_(?:[ABX]\d+|C_[UQE]\d+|D_[GOM]\d+)(?=_)", test)
    }
    assert len(named) > 100 and {each.replace("_", "-") for each in named} <= {*IDS}
