"""Each sentence and word of the program has its Chinese (engine/base/messages/message.h)."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from language.messages import (
    FILES,
    entries,
    has_words,
    messages,
    missing,
    page_texts,
    plain,
)

ROOT = Path(__file__).resolve().parents[2]
PLACE = re.compile(r"\{(\d*)\}")


def test_each_message_has_its_chinese():
    assert len(messages(ROOT)) > 2000, "the scan finds too little"
    assert not missing(ROOT), "add these to engine/base/translations/*.zh.po"


def test_each_entry_is_of_a_message():
    used = {plain(text) for _, text in messages(ROOT)}
    for path in FILES:
        own = used | page_texts(ROOT) if path.name.startswith("page") else used
        unused = [english for english, _ in entries(path) if plain(english) not in own]
        assert not unused, path.name


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_entries_are_whole(path):
    seen = set()
    for english, chinese in entries(path):
        assert plain(english) not in seen, f"twice: {english}"
        seen.add(plain(english))
        places, wanted = PLACE.findall(plain(chinese)), len(PLACE.findall(plain(english)))
        numbers = {int(number or i) for i, number in enumerate(places)}
        assert all(number < wanted for number in numbers), (english, chinese)


MADE = {
    "cli/made.cc": r"""
// "no message"_t
Says("one {}"   // a comment between
     " two {:.2g}"_t(a, "three"_t)) + "no" + '"' + "a \"quoted\" word"_t;
/* "nor this"_t */
""",
    "python/made.py": 'raise ValueError(message("{} is " "wrong", repr(n)), other("name"))\n',
}


def test_messages_of_both_languages_are_found(tmp_path):
    for name, code in MADE.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(code)
    assert messages(tmp_path) == [
        ("cli/made.cc:3", "one {} two {:.2g}"),
        ("cli/made.cc:4", "three"),
        ("cli/made.cc:4", 'a "quoted" word'),
        ("python/made.py:1", "{} is wrong"),
    ]
    assert list(missing(tmp_path)) == [
        "one {} two {:.2g}",
        "three",
        'a "quoted" word',
        "{} is wrong",
    ]


def test_what_a_place_says_does_not_count():
    assert plain("{:.2g} of {name} {{x}} {1}") == "{} of {} {{x}} {}"
    assert has_words("{} of {}") and not has_words("{}: {}")


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
