"""The tables of many ranks: they have only the rows that differ."""

import csv
import re
import subprocess

import pytest
from small_runs import CALLS, STEPS, without_files, write_runs

MANY = 65  # one more than have all rows
VALUES = 2 * len(CALLS)  # of a rank and step


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return write_runs(tmp_path_factory.mktemp("runs"), MANY)


@pytest.fixture
def msprobe(msprobe_bin, runs):
    def run(*words, code=0, errors=False):
        done = subprocess.run([msprobe_bin, *words], cwd=runs, capture_output=True, timeout=120)
        assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
        return (done.stderr if errors else done.stdout).decode()

    return run


@pytest.fixture
def rows(runs):
    """The names in the table of each rank, of a step."""

    def read(folder, step=0):
        tables = {}
        for path in (runs / folder / f"step{step}").glob("compare_result_rank*.csv"):
            with open(path, encoding="utf-8") as file:
                names = [row["NPU Name"] for row in csv.DictReader(file)]
            tables[int(re.search(r"rank(\d+)", path.name)[1])] = names
        return tables

    return read


SIDES = ("compare", "target", "golden")
WRONG = {
    1: [f"{CALLS[1]}.0.forward.output.0"]
    + [f"{call}.0.forward.{value}.0" for call in CALLS[2:] for value in ("input", "output")],
    3: [f"{CALLS[2]}.0.forward.output.0"]
    + [f"{CALLS[3]}.0.forward.{value}.0" for value in ("input", "output")],
}
LEFT_OUT = STEPS * (MANY * VALUES - sum(map(len, WRONG.values())))


def test_only_rows_that_differ_are_written(msprobe, rows, runs):
    said = msprobe(*SIDES, "-o", "few")
    for step in range(STEPS):
        assert rows("few", step) == {rank: WRONG.get(rank, []) for rank in range(MANY)}
    line = "rows that agree are left out of the tables: {} of {}; --all-rows writes them"
    assert line.format(LEFT_OUT, STEPS * MANY * VALUES) in said
    (summary,) = (runs / "few").glob("compare_summary_*.csv")
    with open(summary, encoding="utf-8") as file:
        left_out = {row["Rank"]: row["Rows left out"] for row in csv.DictReader(file)}
    assert [left_out["0"], left_out["1"], left_out["3"]] == [
        str(VALUES - len(WRONG.get(rank, []))) for rank in (0, 1, 3)
    ]


def test_all_rows(msprobe, rows):
    said = msprobe(*SIDES, "-o", "all", "--all-rows")
    assert {len(names) for names in rows("all").values()} == {VALUES}
    assert "left out" not in said
    for how in ((), ("--exit-code",)):  # what is found does not depend on the rows that are written
        few = msprobe(*SIDES, "-o", "json1", "--format", "json", *how, code=len(how))
        every = msprobe(
            *SIDES, "-o", "json2", "--format", "json", "--all-rows", *how, code=len(how)
        )
        assert few == every


@pytest.mark.parametrize(
    "words",
    [
        ("compare", "-tp", "target", "-gp", "golden"),
        ("compare", "--target_path=target", "--golden_path=golden"),
        (*SIDES, "--suffix", "_mine"),
        (*SIDES, "--table-format", "8"),
        (*SIDES, "--rank", "0-63"),
    ],
    ids=["short", "long", "suffix", "generation", "64"],
)
def test_command_lines_of_older_tools_and_few_ranks_write_all(msprobe, runs, words, request):
    folder = request.node.callspec.id
    assert "left out" not in msprobe(*words, "-o", folder)
    lines = {
        path.read_text(encoding="utf-8").count("\n")
        for path in (runs / folder).glob("step*/compare_result*rank*.csv")
    }
    assert lines == {VALUES + 1}


def test_differing_rows_of_few_ranks(msprobe, rows):
    words = ("compare", "-tp", "target", "-gp", "golden", "--rank", "0-1", "--differing-rows")
    assert "--all-rows writes them" in msprobe(*words, "-o", "two")
    assert rows("two") == {0: [], 1: WRONG[1]}
    refused = msprobe(*words, "--all-rows", "-o", "two", code=2, errors=True)
    assert "--all-rows and --differing-rows exclude each other" in refused


def test_parts_write_what_one_process_writes(msprobe, rows):
    for part in ("1/2", "2/2"):
        msprobe(*SIDES, "-o", "parts", "--part", part)
    alone = msprobe(*SIDES, "-o", "alone")
    assert rows("parts") == rows("alone")
    merged = msprobe("merge_result", "-i", "parts", "-o", "parts")
    assert without_files(merged) == without_files(alone)
    assert "--all-rows writes them" in merged


def test_rows_side_by_side_say_what_is_missing(msprobe, runs):
    (runs / "merge.yaml").write_text(f"api:\n  - {CALLS[3]}\n")
    (runs / "none.yaml").write_text(f"api:\n  - {CALLS[0]}\n")
    msprobe(*SIDES, "-o", "side", "--step", "0")
    merge = ("merge_result", "-i", "side", "-o", "merged", "--config_path")
    assert "--all-rows" in msprobe(*merge, "merge.yaml", errors=True)
    assert "--all-rows" in msprobe(*merge, "none.yaml", code=2, errors=True)
