"""`run_ut` of dumps of msprobe 1.0, 8 and 26; with `--as`, their files are made again."""

import csv
import math
import pathlib
import subprocess

import pytest

from recorded import recorded

DATA = pathlib.Path(__file__).parents[1] / "data" / "accuracy" / "run_ut"
# The older tools do not execute an LSTM. docs/reference/accuracy-check.md says so.
NOT_EXECUTED = "VF.lstm.0"


def dump_of(version):
    return recorded(f"accuracy/run_ut/{version}/dump")


def rows(path):
    with open(path, encoding="utf-8-sig", newline="") as file:
        return {row[0]: row for row in csv.reader(file)}


def is_alike(ours, theirs):
    """Equal texts, or numbers that differ by the rounding of another CPU."""
    try:
        return ours == theirs or math.isclose(float(ours), float(theirs), rel_tol=1, abs_tol=1e-5)
    except ValueError:
        return False


@pytest.mark.parametrize("version", ["1.0.4", "8.3.3", "26.2.0"])
def test_files_of_run_ut_are_made_again(version, forking_msprobe, tmp_path):
    """With `--as`: names, order, dtypes, shapes, verdicts and messages equal to the byte."""
    data = DATA / version
    rules = version[: version.index(".")].replace("1", "1.0")
    dump = dump_of(version)
    command = [forking_msprobe, "run_ut", "-api_info", dump, "-o", tmp_path, "--as", rules]
    subprocess.run(command, check=True, capture_output=True)
    for kind in ("result", "details"):
        theirs = rows(data / f"accuracy_checking_{kind}.csv")
        ours = rows(next(tmp_path.glob(f"*{kind}*.csv")))
        header = next(iter(ours.values()))
        assert header == next(iter(theirs.values()))
        kept = [name for name in theirs if NOT_EXECUTED not in name]
        assert [name for name in ours if NOT_EXECUTED not in name] == kept and len(kept) > 9
        # The columns of numbers have Chinese titles. A number depends on the CPU; that there is one
        # does not.
        texts = {at for at, title in enumerate(header) if title.isascii()}
        assert {"Status", "Message"} <= {header[at] for at in texts} or kind == "result"
        for name in kept:
            for at, (mine, older) in enumerate(zip(ours[name], theirs[name], strict=True)):
                same = mine == older if at in texts else is_alike(mine, older)
                assert same and bool(mine.strip()) == bool(older.strip()), (name, at, mine, older)


def test_a_result_that_cancels_is_not_blamed(forking_msprobe, tmp_path):
    # The gradient of a bias in front of a batch norm is zero, but for the rounding of its terms.
    command = [forking_msprobe, "run_ut", "-api_info", dump_of("8.3.3"), "-o", tmp_path]
    done = subprocess.run([*command, "--exit-code"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    table = rows(next(tmp_path.glob("*details*.csv")))
    titles = next(iter(table.values()))
    row = dict(zip(titles, table["Functional.conv2d.0.backward.output.2"], strict=True))
    assert row["Status"] == "pass"
    assert row["Message"].startswith("as exact as the inputs are; else: cosine")


def test_standard_older_makes_the_files_of_msprobe_26(forking_msprobe, tmp_path):
    """`--standard older`: the result file is that of 26.2.0 to the byte; `--as` names another."""
    made = {}
    for words in (["--standard", "older"], ["--as", "26"], ["--standard", "older", "--as", "8"]):
        folder = tmp_path / words[-1]
        command = [forking_msprobe, "run_ut", "-api_info", dump_of("26.2.0"), "-o", folder]
        subprocess.run([*command, *words], check=True, capture_output=True)
        for kind in ("result", "details"):
            made[words[-1], kind] = next(folder.glob(f"*{kind}*.csv")).read_bytes()
    theirs = (DATA / "26.2.0" / "accuracy_checking_result.csv").read_bytes()
    assert made["older", "result"] == theirs
    # Its details: test_files_of_run_ut_are_made_again, since numbers depend on the CPU's kernels.
    assert made["older", "details"] == made["26", "details"] != made["8", "details"]
