"""The sentences and words of the program: the literals that end in _t (engine/base/message.h).

    for place, text in messages(root):
        ...   # "engine/base/file.cc:92", "a regular file"

python tests/language/messages.py prints those without a translation.
"""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ONE = r'(?:"(?:[^"\\\n]|\\.)*")'
# Literals side by side are one text; comments have none.
LITERAL = re.compile(
    rf'//[^\n]*|/\*.*?\*/|(?:{ONE}\s*)*{ONE}_t\b|{ONE}|\'(?:[^\'\\\n]|\\.)+\'', re.DOTALL
)
PLACE = re.compile(r"\{\{|\}\}|\{[^{}]*\}")


def plain(text):
    """As Catalogue::Find: what a place says does not count."""
    return PLACE.sub(lambda m: m[0] if m[0] in ("{{", "}}") else "{}", text)


def messages_of(code):
    """(line, text) of each literal of C++ with _t."""
    for found in LITERAL.finditer(code):
        if found[0].endswith("_t"):
            parts = re.findall(ONE, found[0])
            yield code.count("\n", 0, found.start()) + 1, "".join(map(ast.literal_eval, parts))


def messages(root):
    files = [p for folder in ("engine", "cli", "python") for p in (root / folder).rglob("*")]
    return [
        (f"{path.relative_to(root)}:{line}", text)
        for path in sorted(files)
        if path.suffix in (".cc", ".h")
        for line, text in messages_of(path.read_text(encoding="utf-8"))
    ]


def translations(root):
    """Chinese by the English text with plain places."""
    from language.test_translations import entries

    files = (root / "engine/base/translations").glob("*.zh.po")
    return {plain(english): chinese for path in files for english, chinese in entries(path)}


def has_words(text):
    return re.search(r"[A-Za-z]{2,}", PLACE.sub(" ", text))


def missing(root):
    known = translations(root)
    return {
        text: place
        for place, text in messages(root)
        if has_words(text) and plain(text) not in known
    }


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "tests"))
    for text, place in missing(ROOT).items():
        print(place, repr(text))
