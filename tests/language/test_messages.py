"""Every sentence and word of the program has its Chinese, and the scan finds each of them."""

import os
import subprocess
import sys
from pathlib import Path

from language.messages import messages, missing

ROOT = Path(__file__).resolve().parents[2]


def test_each_message_is_chinese():
    assert not missing(ROOT), "add these to engine/base/translations/*.zh.po"
    assert len(messages(ROOT)) > 700, "the scan finds too little"


def test_messages_of_both_languages_are_found(tmp_path):
    for name, code in (
        ("cli/made.cc", 'return "a {} of "\n    "two parts"_t(n);  // "no"_t\nreturn "name";\n'),
        ("python/made.py", 'raise ValueError(message("{} is " "wrong", repr(n)), other("name"))\n'),
    ):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(code)
    assert messages(tmp_path) == [
        ("cli/made.cc:1", "a {} of two parts"),
        ("python/made.py:1", "{} is wrong"),
    ]


CODE = """
from msprobe._engine import message
print(message("{}: {} has no effect here", "start", "target"))
print(message("seeded with {}, as the configuration asks", 7))
print(message("qwerty {:.60} uiop", "{}" * 100))
try:
    message("{} and {}", "one")
except ValueError as error:
    print(error)
"""


def test_a_front_says_a_message_in_the_language_of_the_reader():
    said = {
        language: subprocess.run(
            [sys.executable, "-c", CODE],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "MSPROBE_LANG": language},
        ).stdout.splitlines()
        for language in ("en", "zh")
    }
    assert said["en"][:2] == [
        "start: target has no effect here",
        "seeded with 7, as the configuration asks",
    ]
    assert said["zh"][:2] == ["start\uff1atarget 在这里不起作用", "已按配置设置随机种子 7"]
    for lines in said.values():
        assert lines[2:] == [
            "qwerty " + "{}" * 30 + " uiop",
            "message: the sentence has another number of places",
        ]
