"""`msprobe compare --part I/N`, `msprobe merge_result`: ranks compared by several processes."""

import random
import shutil
import subprocess

import pytest
from small_runs import RANKS, STEPS, without_files, write_runs


@pytest.fixture
def runs(tmp_path):
    return write_runs(tmp_path)


@pytest.fixture
def msprobe(msprobe_bin, runs):
    def run(*words, code=0):
        done = subprocess.run([msprobe_bin, *words], cwd=runs, capture_output=True, timeout=60)
        assert done.returncode == code, done.stdout.decode() + done.stderr.decode()
        return (done.stderr if code == 2 else done.stdout).decode()

    return run


@pytest.mark.parametrize("parts", [1, 2, 3, 9])
def test_the_report_is_that_of_one_process(msprobe, runs, parts):
    for i in range(1, parts + 1):
        said = msprobe("compare", "target", "golden", "--part", f"{i}/{parts}", "-o", "parts")
        assert f"part {i} of {parts}" in said
    merge = ("merge_result", "-i", "parts", "-o", "parts")
    alone = ("compare", "target", "golden", "-o", "alone")
    assert msprobe(*merge, "--format", "json") == msprobe(*alone, "--format", "json")
    assert without_files(msprobe(*merge)) == without_files(msprobe(*alone))
    msprobe(*merge, "--exit-code", code=1)
    msprobe(*merge, "--junit", "parts.xml")
    msprobe(*alone, "--junit", "alone.xml")
    assert (runs / "parts.xml").read_text() == (runs / "alone.xml").read_text()
    finding = sorted((runs / "parts").glob("compare_finding_*.json"))[-1]
    assert finding.read_text() == sorted((runs / "alone").glob("compare_finding_*"))[-1].read_text()
    tables = {path.name[:20] for path in (runs / "parts").glob("step*/compare_result_rank*.csv")}
    assert len(tables) == RANKS


def test_a_part_that_is_not_there_is_not_compared(msprobe, runs):
    for i in (1, 3):
        msprobe("compare", "target", "golden", "--part", f"{i}/3", "-o", "parts")
    errors = msprobe("merge_result", "-i", "parts", "-o", "parts", "--format", "json", code=2)
    assert "not compared: part 2 of 3 is missing" in errors
    assert "--part 2/3" in errors
    # It may come later, or once more.
    msprobe("compare", "target", "golden", "--part", "2/3", "-o", "parts")
    msprobe("compare", "target", "golden", "--part", "2/3", "-o", "parts")
    msprobe("merge_result", "-i", "parts", "-o", "parts")


def test_parts_that_saw_other_ranks(msprobe, runs):
    msprobe("compare", "target", "golden", "--part", "1/2", "-o", "parts")
    for side in ("target", "golden"):
        for step in range(STEPS):
            shutil.rmtree(runs / side / f"step{step}" / "rank3")
    msprobe("compare", "target", "golden", "--part", "2/2", "-o", "parts")
    errors = msprobe("merge_result", "-i", "parts", "-o", "parts", code=2)
    assert "the parts did not see the same ranks" in errors


def test_limits_are_those_of_the_parts(msprobe, runs):
    (runs / "mine.yaml").write_text("rounding:\n  float32: 3e7\n")
    flags = ("--thresholds", "mine.yaml", "--fail-on", "differs")
    for i in (1, 2):
        msprobe("compare", "target", "golden", "--part", f"{i}/2", "-o", "parts", *flags)
    alone = msprobe("compare", "target", "golden", "-o", "alone", "--format", "json", *flags)
    assert msprobe("merge_result", "-i", "parts", "-o", "parts", "--format", "json") == alone


def test_what_fits_no_part_is_refused(msprobe, runs):
    for text in ("0/3", "4/3", "a/3", "3", "1/0", "1/99999999999999999999"):
        errors = msprobe("compare", "target", "golden", "--part", text, code=2)
        assert "expected I/N with I from 1 to N" in errors
    words = ("compare", "target", "golden", "--part", "1/2")
    assert "merge_result" in msprobe(*words, "--format", "json", code=2)
    for flags in (("--html", "page.html"), ("--exit-code",), ("--allow-nothing-compared",)):
        assert "merge_result" in msprobe(*words, *flags, code=2)
    assert "files such as compare_part_1_of_2.bin" in msprobe(
        "merge_result", "-i", "golden", "-o", "parts", code=2
    )
    merge = ("merge_result", "-i", "parts", "-o", "parts", "--config_path", "merge.yaml")
    assert "leave one of them out" in msprobe(*merge, "--format", "json", code=2)
    msprobe(*words, "-o", "parts")
    msprobe("compare", "golden", "target", "--part", "2/2", "-o", "parts")
    assert "expected a part of 2" in msprobe("merge_result", "-i", "parts", "-o", "parts", code=2)


def test_damaged_parts_are_errors(msprobe_bin, msprobe, runs):
    msprobe("compare", "target", "golden", "--part", "1/1", "-o", "parts")
    file = runs / "parts" / "compare_part_1_of_1.bin"
    whole = file.read_bytes()
    source = random.Random(0)
    for i in range(150):
        bytes_ = bytearray(whole)
        if i % 3 == 0:
            del bytes_[source.randrange(len(bytes_)) :]
        else:
            for _ in range(1 + i % 4):
                bytes_[source.randrange(len(bytes_))] = source.choice((0, 1, 127, 255))
        file.write_bytes(bytes_)
        command = [msprobe_bin, "merge_result", "-i", "parts", "-o", "parts", "--format", "json"]
        done = subprocess.run(command, cwd=runs, capture_output=True, timeout=60)
        assert done.returncode in (0, 2), done
