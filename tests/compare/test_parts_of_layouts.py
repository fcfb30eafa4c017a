"""`msprobe compare --part I/N`, `msprobe merge_result` of runs in different parallel layouts: the
parts copy their ranks, which are joined when all are there."""

import json
import os
import random
import re
import shutil
import subprocess

import pytest
from joined_runs import write_joined_runs
from small_runs import without_files

PAIRS = [("bad", "one"), ("one", "bad"), ("bad", "two"), ("two", "four"), ("batch", "four")]
MERGE = ("merge_result", "-i", "parts", "-o", "merged")
JSON = ("--format", "json")


@pytest.fixture
def runs(tmp_path):
    return write_joined_runs(tmp_path)


@pytest.fixture
def msprobe(msprobe_bin, runs):
    def run(*words, code=0):
        done = subprocess.run(
            [msprobe_bin, *words], cwd=runs, capture_output=True, timeout=60, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code == 2 else done.stdout

    return run


@pytest.fixture
def compare_parts(msprobe):
    def run(target, golden, order, *flags, count=None):
        for i in order:
            words = ("compare", target, golden, "--part", f"{i}/{count or len(order)}")
            assert "dumps copied" in msprobe(*words, "-o", "parts", *flags)

    return run


def tables_in(folder):
    return {
        re.sub(r"_\d{14}", "", str(path.relative_to(folder))): path.read_text()
        for path in folder.glob("step*/compare_result*.csv")
    }


@pytest.mark.parametrize(("target", "golden"), PAIRS)
@pytest.mark.parametrize("order", [[1], [2, 1], [3, 1, 2], [5, 4, 3, 2, 1, 6, 7, 8, 9]])
def test_the_report_is_that_of_one_process(msprobe, compare_parts, runs, target, golden, order):
    if len(os.listdir(runs / target / "step0")) == len(os.listdir(runs / golden / "step0")):
        order = sorted(order)  # part 1 finds out that these are different layouts
    compare_parts(target, golden, order)
    alone = ("compare", target, golden, "-o", "alone")
    whole = msprobe(*alone, *JSON)
    assert whole.count('"ranks": {"":') == 2  # one pair a step
    text = msprobe(*alone)
    differs = int((target, golden) != ("two", "four"))  # also by their calls
    # From here on the runs themselves are not needed.
    shutil.rmtree(runs / target), shutil.rmtree(runs / golden)
    assert msprobe(*MERGE, *JSON) == whole
    assert without_files(msprobe(*MERGE)) == without_files(text)
    msprobe(*MERGE, "--exit-code", code=differs)
    assert tables_in(runs / "merged") == tables_in(runs / "alone") != {}
    findings = [
        sorted((runs / name).glob("compare_finding_*.json"))[-1].read_text()
        for name in ("merged", "alone")
    ]
    assert findings[0] == findings[1]


def test_reports_for_pipelines(msprobe, compare_parts, runs):
    compare_parts("bad", "two", [1, 2])
    msprobe(*MERGE, "--junit", "parts.xml", "--markdown", "parts.md")
    msprobe("compare", "bad", "two", "-o", "alone", "--junit", "one.xml", "--markdown", "one.md")
    assert (runs / "parts.xml").read_text() == (runs / "one.xml").read_text()
    assert (runs / "parts.md").read_text() == (runs / "one.md").read_text()


def test_ranks_of_a_part_that_is_not_there_are_not_compared(msprobe, compare_parts, runs):
    compare_parts("four", "two", [1, 3], count=3)
    errors = msprobe(*MERGE, *JSON, code=2)
    assert "not compared: part 2 of 3 is missing" in errors
    assert "msprobe compare four two --part 2/3 -o parts" in errors
    done = msprobe("compare", "four", "two", "-o", "alone", *JSON)
    compare_parts("four", "two", [2], count=3)
    assert msprobe(*MERGE, *JSON) == done


def test_part_1_decides_whether_ranks_are_joined(msprobe, compare_parts, runs):
    words = ("compare", "batch", "four", "-o", "parts", "--part")
    assert "2 of 8 pairs compared" in msprobe(*words, "2/3")
    compare_parts("batch", "four", [1], count=3)
    errors = msprobe(*MERGE, code=2)
    assert "part 2, 3 of 3 is missing" in errors
    compare_parts("batch", "four", [3], count=3)
    errors = msprobe(*MERGE, code=2)
    assert "part 2 of 3 ran before part 1 had found whether ranks are joined" in errors
    compare_parts("batch", "four", [2], count=3)
    assert msprobe(*MERGE, *JSON) == msprobe("compare", "batch", "four", "-o", "alone", *JSON)
    # Runs of one layout, in the same folder.
    for i in (1, 2, 3):
        words = ("compare", "bad", "four", "-o", "same", "--part", f"{i}/3")
        assert "pairs compared" in msprobe(*words)
    assert "different" not in msprobe("merge_result", "-i", "same", "-o", "same")


def test_flags_are_those_of_all_parts(msprobe, compare_parts, runs):
    (runs / "layout.yaml").write_text(
        "target_mesh: {tp: 4}\ngolden_mesh: {tp: 2}\nignore: ['Functional.relu.*']\n"
    )
    flags = ("--layout", "layout.yaml", "--fail-on", "differs", "--xlsx", "--suffix", "_mine")
    compare_parts("bad", "two", [1, 2], *flags)
    whole = msprobe("compare", "bad", "two", "-o", "alone", *JSON, *flags, code=1)
    assert msprobe(*MERGE, *JSON, code=1) == whole
    assert len(list((runs / "merged").glob("step*/compare_result_mine_*.xlsx"))) == 2
    # One part once more, with others.
    compare_parts("bad", "two", [2], count=2)
    errors = msprobe(*MERGE, code=2)
    assert "part 2 of 2 had other flags" in errors
    assert "--layout=layout.yaml" in errors and "found none" in errors
    compare_parts("bad", "two", [2], *flags, count=2)
    (runs / "layout.yaml").write_text("target_mesh: {tp: 4}\ngolden_mesh: {tp: 2}\n")
    errors = msprobe(*MERGE, code=2)
    assert "layout.yaml: expected the file that the parts were compared with" in errors
    compare_parts("bad", "two", [2], *flags, count=2)
    assert "was changed between part 1 and part 2" in msprobe(*MERGE, code=2)


def test_a_rank_that_cannot_be_read_is_the_error_of_one_process(msprobe, compare_parts, runs):
    (runs / "four" / "step1" / "rank2" / "dump.json").write_text('{"data": 7}')
    alone = msprobe("compare", "four", "two", "-o", "alone", *JSON, code=2)
    words = ("compare", "four", "two", "-o", "parts", "--part")
    msprobe(*words, "1/2")
    assert msprobe(*words, "2/2", code=2).splitlines()[0] == alone.splitlines()[0]
    assert msprobe(*MERGE, *JSON, code=2) == alone


def test_a_copy_has_what_a_reader_reads_and_no_more(msprobe, compare_parts, runs):
    for step in (0, 1):
        place = runs / "four" / f"step{step}" / "rank3"
        (place / "dump_tensor_data").mkdir()
        (place / "dump_tensor_data" / "a.pt").write_text("")
        (place / "notes.json").write_text("{}")
    compare_parts("four", "two", [1, 2])
    place = runs / "parts" / "compare_ranks" / "target_step0_rank3"
    # With what the step left: the weights with which the next one began.
    assert sorted(str(path.relative_to(place)) for path in place.glob("*/*/*")) == [
        "step0/rank3/dump.json",
        "step0/rank3/weights.json",
        "step1/rank3/weights.json",
    ]


def test_what_was_left_in_the_folder_is_not_read(msprobe, compare_parts, runs):
    compare_parts("four", "two", [1, 2])
    (copy,) = (runs / "parts").glob("compare_ranks/target_step0_rank3/step0/rank3")
    (copy / "stack.json").write_text("{")
    compare_parts("four", "two", [1, 2])
    assert sorted(os.listdir(copy)) == ["dump.json", "weights.json"]


def changed(path):
    text = path.read_text()
    path.write_text(text.replace("7", "8", 1))


def cut(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def linked(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize("damage", [changed, cut, linked, os.remove])
@pytest.mark.parametrize("name", ["dump.json", "weights.json"])
def test_a_damaged_copy_is_an_error(msprobe, compare_parts, runs, damage, name):
    compare_parts("four", "two", [1, 2])
    for path in (runs / "parts").glob(f"compare_ranks/golden_step*_rank1/step0/rank1/{name}"):
        damage(path)
    errors = msprobe(*MERGE, code=2)
    assert "golden_step0_rank1/step0/rank1/" + name in errors or "symbolic link" in errors


def test_damaged_parts_are_errors(msprobe_bin, msprobe, compare_parts, runs):
    compare_parts("four", "one", [1])
    outside = {path.name for path in runs.iterdir()} | {"merged"}
    whole = msprobe(*MERGE, *JSON)
    file = runs / "parts" / "compare_part_1_of_1.bin"
    bytes_ = file.read_bytes()
    source = random.Random(0)
    for i in range(150):
        damaged = bytearray(bytes_)
        if i % 3 == 0:
            del damaged[source.randrange(len(damaged)) :]
        else:
            for _ in range(1 + i % 4):
                damaged[source.randrange(len(damaged))] = source.choice((0, 1, 46, 47, 127, 255))
        file.write_bytes(damaged)
        done = subprocess.run(
            [msprobe_bin, *MERGE, *JSON], cwd=runs, capture_output=True, timeout=60
        )
        assert done.returncode in (0, 2), done
        if done.returncode == 0:  # a name of a run was changed, perhaps
            assert len(json.loads(done.stdout)["steps"]) == 2
    assert {path.name for path in runs.iterdir()} <= outside
    file.write_bytes(bytes_)
    assert msprobe(*MERGE, *JSON) == whole


@pytest.mark.parametrize("place", ["../../x", "/tmp", "..", "a/b"])
def test_names_in_a_part_stay_in_its_folder(msprobe, compare_parts, runs, place):
    compare_parts("four", "one", [1])
    file = runs / "parts" / "compare_part_1_of_1.bin"
    bytes_ = file.read_bytes()
    old = b"target_step0_rank0"
    new = place.encode()
    sizes = [len(text).to_bytes(8, "little") for text in (old, new)]
    assert sizes[0] + old in bytes_
    file.write_bytes(bytes_.replace(sizes[0] + old, sizes[1] + new))
    assert "expected files below the folder" in msprobe(*MERGE, code=2)
