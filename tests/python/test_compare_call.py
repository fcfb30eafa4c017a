"""``msprobe.pytorch.compare`` and ``compare_distributed``: the calls of msprobe 1.0 and 8."""

import json
import shutil
import subprocess
import zipfile

import pytest

import msprobe
from msprobe.pytorch import compare, compare_distributed
from recorded import recorded

DUMPS = "dumps/8.3.3/L0_statistics"


@pytest.fixture
def paths(root):
    """Target and golden dump.json."""
    return tuple(recorded(DUMPS) / run / "step0" / "rank" / "dump.json" for run in ("pert", "base"))


def names(folder):
    """Names of the files in a folder, without the time in each name."""
    return sorted("".join(c for c in path.name if not c.isdigit()) for path in folder.iterdir())


@pytest.mark.parametrize("keys", [("npu_path", "bench_path"), ("npu_json_path", "bench_json_path")])
def test_both_spellings_of_the_keys_write_table_and_advice(keys, paths, tmp_path):
    compare({**dict(zip(keys, paths, strict=True)), "is_print_compare_log": False}, tmp_path / "o")
    assert names(tmp_path / "o") == ["advisor_.txt", "compare_result_.xlsx"]


def test_arguments_reach_the_engine(paths, tmp_path):
    request = {"npu_path": paths[0], "bench_path": paths[1], "is_print_compare_log": False}
    out = tmp_path / "o"
    compare(request, out, True, False, fuzzy_match=True, suffix="_x", highlight=True)
    assert names(out) == ["compare_result_x_.xlsx"]


@pytest.mark.parametrize("version", ["1.0.4", "1.2.2", "8.3.3"])
def test_the_sheet_is_that_of_the_command_line(version, root, msprobe_bin, tmp_path):
    """The tables are equal; other tests compare the command's tables with recorded ones."""
    dumps = recorded(f"dumps/{version}/mix_statistics")
    npu, bench = (dumps / run / "step0" / "rank" / "dump.json" for run in ("pert", "base"))
    request = {"npu_path": str(npu), "bench_path": str(bench), "is_print_compare_log": False}
    compare(request, tmp_path / "python")
    (tmp_path / "compare.json").write_text(json.dumps(request))
    words = [msprobe_bin, "-f", "pytorch", "compare", "-i", tmp_path / "compare.json"]
    words += ["-o", tmp_path / "command"]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    sheets = []
    for folder in ("python", "command"):
        (book,) = (tmp_path / folder).glob("*.xlsx")
        with zipfile.ZipFile(book) as files:
            sheets.append(files.read("xl/worksheets/sheet1.xml"))
    assert sheets[0] == sheets[1]
    assert (b"NPU Requires_grad" in sheets[0]) == (version != "1.2.2"), "1.0 is written as 8"


def test_folders_are_paired_by_rank(paths, tmp_path, capfd):
    for side, path in zip(("new", "old"), paths, strict=True):
        for rank in (0, 1):
            shutil.copytree(path.parent, tmp_path / side / f"rank{rank}")
    compare_distributed(str(tmp_path / "new"), str(tmp_path / "old"), str(tmp_path / "out"))
    written = names(tmp_path / "out")
    assert written.count("advisor_rank_.txt") == written.count("compare_result_rank_.xlsx") == 2
    assert "rank" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"npu_path": "gone.json"}, msprobe.FileError, "gone.json"),
        ({"npu_pth": "a"}, msprobe.ConfigError, "npu_path"),
        ({"npu_path": 3}, msprobe.ConfigError, "a path"),
    ],
)
def test_bad_input_is_one_exception_that_says_what(change, error, words, paths, tmp_path):
    request = {"npu_path": str(paths[0]), "bench_path": str(paths[1]), **change}
    with pytest.raises(error, match=words):
        compare(request, tmp_path / "o")


def test_bad_arguments(paths, tmp_path):
    request = {"npu_path": str(paths[0]), "bench_path": str(paths[1])}
    with pytest.raises(msprobe.UsageError, match="hightlight"):
        compare(request, tmp_path / "o", hightlight=True)
    with pytest.raises(msprobe.UsageError, match="such as 4GB"):
        compare(request, tmp_path / "o", memory="much")
    with pytest.raises(msprobe.UsageError, match="a dict"):
        compare("compare.json", tmp_path / "o")
    with pytest.raises(msprobe.UsageError, match="suffix"):
        compare_distributed("a", "b", tmp_path / "o", suffix="x")


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("nothing_recorded_on_one_side", "nothing was compared: a dump without records"),
        ("nothing_in_common_levels", "nothing of .* was compared: no value has a partner"),
        ("nothing_in_common_names", "nothing of .* was compared: no value has a partner"),
        ("nothing_in_common_ranks", "none of 2 pairs .* was compared: no value"),
    ],
)
def test_nothing_compared_is_an_error(case, words, root, tmp_path):
    """Where the command exits with 2, compare raises; nothing is left behind."""
    folder = root / "tests" / "compare" / "cases" / case
    request = {"npu_path": folder / "target", "bench_path": folder / "golden"}
    if case != "nothing_in_common_ranks":
        request = {key: path / "dump.json" for key, path in request.items()}
    with pytest.raises(msprobe.UsageError, match=words):
        compare({**request, "is_print_compare_log": False}, tmp_path / "o")
    assert not (tmp_path / "o").exists()


def test_one_rank_of_two_is_a_comparison(root, tmp_path):
    folder = root / "tests" / "compare" / "cases" / "nothing_in_common_one_rank"
    compare_distributed(folder / "target", folder / "golden", tmp_path / "o")
    assert any(name.startswith("compare_summary") for name in names(tmp_path / "o"))
