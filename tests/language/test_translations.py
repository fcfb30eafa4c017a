"""The Chinese texts: their table is whole, and only what people read changes with the language."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def said(msprobe_bin, tmp_path):
    def run(*words, **environment):
        return subprocess.run(
            [msprobe_bin, *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "COLUMNS": "100", **environment},
        )

    return run


def test_the_flag_goes_before_the_environment(said):
    assert "does not exist" in said("show", "nothing", LANG="C", MSPROBE_LANG="").stderr
    assert "不存在" in said("show", "nothing", MSPROBE_LANG="zh").stderr
    assert "不存在" in said("show", "nothing", LC_ALL="zh_CN.UTF-8", MSPROBE_LANG="").stderr
    assert "does not exist" in said("show", "nothing", "--lang", "en", MSPROBE_LANG="zh").stderr
    assert "不存在" in said("show", "nothing", "--lang", "zh").stderr


def test_another_language_is_an_error_that_names_the_two(said):
    done = said("show", "nothing", "--lang", "fr")
    assert done.returncode == 2 and "en" in done.stderr and "zh" in done.stderr


def two_dumps(tmp_path):
    value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "requires_grad": False}
    for side, high in (("a", 1.0), ("b", 2.0)):
        numbers = {"Max": high, "Min": 0.0, "Mean": high / 2, "Norm": high}
        first = {"Max": 1.0, "Min": 0.0, "Mean": 0.5, "Norm": 1.0}
        call = {"input_args": [value | first], "input_kwargs": {}, "output": [value | numbers]}
        folder = tmp_path / side
        folder.mkdir()
        dump = {"task": "statistics", "level": "L1", "framework": "pytorch"}
        (folder / "dump.json").write_text(
            json.dumps(dump | {"data": {"Torch.relu.0.forward": call}})
        )


def test_what_programs_parse_stays_english(said, tmp_path):
    two_dumps(tmp_path)
    outputs = {}
    for language in ("en", "zh"):
        done = said("compare", "a", "b", "--lang", language, "--format", "json")
        outputs[language] = re.sub(r"\d{14}", "TIME", done.stdout)
        json.loads(done.stdout)
        said("compare", "a", "b", "--lang", language, "-o", language)
        (table,) = (tmp_path / language).glob("*.csv")
        outputs[language] += table.read_text()
    assert outputs["en"] == outputs["zh"]


def test_the_report_is_chinese(said, tmp_path):
    two_dumps(tmp_path)
    text = said("compare", "a", "b", "--lang", "zh").stdout
    assert "首个偏差" in text and "Torch.relu.0.forward" in text and "标杆" in text
    assert "FIRST DIVERGENCE" not in text
    assert "written:" not in text and "已写入" in text


def test_no_verb_prints_written_in_english_only():
    bare = re.compile(r'(Print\(|fmt::format\()"written')
    found = {
        f"{path.name}: {line.strip()}"
        for path in (ROOT / "cli").rglob("*.cc")
        for line in path.read_text(encoding="utf-8").splitlines()
        if bare.search(line)
    }
    assert not found


def test_reports_for_people_are_chinese_and_names_stay(said, tmp_path):
    two_dumps(tmp_path)
    for side in ("a", "b"):
        entry = {"Torch.relu.0.forward": "Module.norm.Norm.forward.0"}
        (tmp_path / side / "construct.json").write_text(json.dumps(entry))
    files = ["--markdown", "out.md", "--junit", "out.xml"]
    said("compare", "a", "b", "-o", "out", "--lang", "zh", *files)
    markdown, junit = ((tmp_path / name).read_text() for name in ("out.md", "out.xml"))
    assert "**首个偏差**: `Torch.relu.0.forward`" in markdown and "标杆 `b`" in markdown
    assert "first divergence" not in markdown.lower() and "verdict" not in markdown
    assert '<failure message="首个偏差' in junit and 'name="calls" value="1 introduced"' in junit
    assert "位于 `norm (Norm)`" in markdown and "位于 norm (Norm)" in junit
    assert "output.0 的范数偏差 50%" in junit and "(inherited)" not in junit


def test_names_that_are_words_of_the_table_stay(said, tmp_path):
    two_dumps(tmp_path)
    for side, value in (("a", 1.0), ("b", 2.0)):
        dump = json.loads((tmp_path / side / "dump.json").read_text())
        (call,) = dump["data"].values()
        call["input_kwargs"] = {"target": {"type": "float", "value": value}}
        (tmp_path / side / "dump.json").write_text(json.dumps(dump))
    text = "".join(said("compare", "a", "b", "--lang", "zh").stdout.split())
    assert "target在待比对侧为1.0" in text.replace("|", ""), text


def test_errors_of_readers_are_chinese(said, tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00")
    (tmp_path / "b.pt").write_bytes(b"PK\x03\x04" + bytes(40))
    wanted = {"a.npy": "字节的文件头", "b.pt": "zip 归档的结尾记录"}
    for name, text in wanted.items():
        done = said("show", name, "--lang", "zh")
        assert done.returncode == 2 and text in done.stderr, done.stderr
        assert "expected" not in done.stderr and "found" not in done.stderr


def test_sentences_around_names_and_numbers_are_chinese(said, tmp_path):
    for rank, time in (("0", "20260102030405"), ("0", "20260102030406"), ("1", "20260102030405")):
        name = "Torch.relu.0.forward.output.0"
        table = f"NPU Name,Bench Name,Max diff\n{name},{name},0\n"
        (tmp_path / f"compare_result_rank{rank}_{time}.csv").write_text(table)
    (tmp_path / "merge.yaml").write_text(
        "api:\n  - Torch.relu.0.forward\ncompare_index:\n  - Max diff\n"
    )
    done = said("merge_result", "-i", ".", "-o", "out", "-config", "merge.yaml", "--lang", "zh")
    assert "newer" not in done.stderr and "compare_result_rank0_20260102030405.csv" in done.stderr
    done = said("multi_run_ut", "-api_info", ".", "-n", "0", "--lang", "zh")
    assert "--num_splits" in done.stderr and "不小于 1 的数" in done.stderr
    assert "a number" not in done.stderr
    assert " run_ut" in said("multi_run_ut", "--help", "--lang", "zh").stdout.splitlines()[0]


def test_the_descriptions_of_a_completion_are_in_the_language(said):
    for shell in ("zsh", "fish"):
        assert "打印版本号" in said("completion", shell, "--lang", "zh").stdout
        assert "print the version" in said("completion", shell, "--lang", "en").stdout


def test_a_wrong_flag_of_a_command_of_parse_names_the_command(said):
    done = said("parse", "dc", "-n", "a.npy", "--nosuch", "1", "--lang", "en")
    assert 'dc has no flag "--nosuch"' in done.stderr and "msprobe dc" not in done.stderr
    assert "dc 没有选项" in said("parse", "dc", "--nosuch", "--lang", "zh").stderr
