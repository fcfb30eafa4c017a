"""Each sentence and word of the program is Chinese for a person who reads Chinese (engine/base/messages/message.h)."""

import re
from pathlib import Path

import pytest

from language.messages import (
    FILES,
    entries,
    has_words,
    messages,
    messages_of,
    missing,
    plain,
    say_keys,
)

ROOT = Path(__file__).resolve().parents[2]
PLACE = re.compile(r"\{(\d*)\}")


def test_each_message_has_its_translation():
    assert len(messages(ROOT)) > 1500, "the scan finds too little"
    assert not missing(ROOT), "add these to engine/base/translations/*.zh.po"


def test_each_translation_is_of_a_message():
    used = {plain(text) for _, text in messages(ROOT)} | set(say_keys(ROOT))
    unused = {
        path.name: english
        for path in FILES
        for english, _ in entries(path)
        if plain(english) not in used
    }
    assert not unused


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_entries_are_whole(path):
    seen = set()
    for english, chinese in entries(path):
        assert plain(english) not in seen, f"twice: {english}"
        seen.add(plain(english))
        places, wanted = PLACE.findall(plain(chinese)), len(PLACE.findall(plain(english)))
        numbers = {int(number or i) for i, number in enumerate(places)}
        assert all(number < wanted for number in numbers), (english, chinese)


def test_literals_are_found_as_the_compiler_puts_them_together():
    code = r"""
    // "no message"_t
    Says("one {}"   // a comment between
         " two {:.2g}"_t(a, "three"_t)) + R"(raw)" + "no" + '"' + "a \"quoted\" word"_t;
    /* "nor this"_t */
    """
    assert [text for _, text in messages_of(code)] == [
        "one {} two {:.2g}",
        "three",
        'a "quoted" word',
    ]


def test_what_a_place_says_does_not_count():
    assert plain("{:.2g} of {name} {{x}} {1}") == "{} of {} {{x}} {1}"
    assert has_words("{} of {}") and not has_words("{}: {}")
