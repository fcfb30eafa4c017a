"""The sentences and words of the program: the literals that end in _t, and in the fronts the first
argument of message() (engine/base/messages/message.h).

    for place, text in messages(root):
        ...   # "engine/base/file.cc:92", "a regular file"

python tests/language/messages.py prints those without a translation.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "engine/base/translations").glob("*.zh.po"))
ONE = r'(?:"(?:[^"\\\n]|\\.)*")'
# Literals side by side are one text; comments have none.
LITERAL = re.compile(
    rf"//[^\n]*|/\*.*?\*/|(?:{ONE}(?:\s*//[^\n]*\n)?\s*)*{ONE}_t\b|{ONE}|\'(?:[^\'\\\n]|\\.)+\'",
    re.DOTALL,
)
PLACE = re.compile(r"\{\{|\}\}|\{[^{}]*\}")


def plain(text):
    """As Catalogue::Find: what a place says does not count."""
    return PLACE.sub(lambda m: m[0] if m[0] in ("{{", "}}") else "{}", text)


def messages_of(code):
    """(line, text) of each literal of C++ with _t."""
    for found in LITERAL.finditer(code):
        if found[0].startswith('"') and found[0].endswith("_t"):
            parts = re.findall(ONE, found[0])
            yield code.count("\n", 0, found.start()) + 1, "".join(map(ast.literal_eval, parts))


def messages_of_front(code):
    """(line, text) of each call of message() in Python."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            text = node.args[0]
            if name == "message" and isinstance(text, ast.Constant):
                yield node.lineno, text.value


def messages(root):
    files = [p for folder in ("engine", "cli", "python") for p in (root / folder).rglob("*")]
    scans = {".cc": messages_of, ".h": messages_of, ".py": messages_of_front}
    return [
        (f"{path.relative_to(root)}:{line}", text)
        for path in sorted(files)
        if path.suffix in scans
        for line, text in scans[path.suffix](path.read_text(encoding="utf-8"))
    ]


def entries(path):
    """(English, Chinese) of a .po file, without its header."""
    found, key, texts = [], None, {}
    for line in [*path.read_text(encoding="utf-8").splitlines(), 'msgid ""']:
        word, _, text = line.partition(" ") if line.startswith("msg") else (key, "", line)
        if line.startswith("msgid") and texts.get("msgstr"):
            found.append((texts["msgid"], texts["msgstr"]))
            texts = {}
        if not text.startswith('"'):
            continue
        key = word
        texts[key] = texts.get(key, "") + ast.literal_eval(text)
    return [(english, chinese) for english, chinese in found if english]


def translations():
    """Chinese by the English text with plain places."""
    return {plain(english): chinese for path in FILES for english, chinese in entries(path)}


def page_texts(root):
    """The literals of the page: its script looks up its own sentences and words of its data."""
    page = root / "engine/report_page"
    files = [*sorted((page / "page").glob("*.js")), *sorted(page.glob("*.cc"))]
    code = "\n".join(path.read_text(encoding="utf-8") for path in files)
    texts = {ast.literal_eval(text) for text in re.findall(ONE, code)}
    return {plain(text) for text in texts} | {plain(text.strip(" ,;:.")) for text in texts}


def has_words(text):
    return re.search(r"[A-Za-z]{2,}", PLACE.sub(" ", text))


def missing(root):
    known = translations()
    return {
        text: place
        for place, text in messages(root)
        if has_words(text) and plain(text) not in known
    }


if __name__ == "__main__":
    for text, place in missing(ROOT).items():
        print(place, repr(text))
