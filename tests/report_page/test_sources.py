"""What CMake needs of the page's modules: they are joined into one script (engine/report_page)."""

import re
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "engine/report_page"
MODULES = sorted((FOLDER / "page").glob("*.js"))
TEXTS = {path.stem: path.read_text() for path in MODULES}
ORDER = re.search(r"foreach\(module ([\w ]+)\)", (FOLDER / "CMakeLists.txt").read_text())[1].split()


def test_all_modules_are_joined_behind_those_that_they_import():
    assert sorted(ORDER) == sorted(TEXTS)
    for place, name in enumerate(ORDER):
        imported = re.findall(r'^import .* from "\./(\w+)\.js";$', TEXTS[name], re.MULTILINE)
        assert set(imported) <= set(ORDER[:place]), name


def declared(line):
    """Names that a line at the top level of a module declares, all of `const a = f(1, 2), b;`."""
    one = re.match(r"(?:export )?(?:async )?(?:function\*?|class) (\w+)", line)
    if one:
        return [one[1]]
    start = re.match(r"(?:export )?(?:const|let|var) ", line)
    if not start:
        return []
    names, depth, quote, fresh, at = [], 0, "", True, start.end()
    while at < len(line):
        c = line[at]
        if quote:  # in a string, where brackets and commas are text
            at += 1 if c == "\\" else 0
            quote = "" if c == quote else quote
        elif c in "\"'`":
            quote = c
        elif fresh and c in "[{":  # const [a, b] = ..., const { a, b: c } = ...
            inside = line[at + 1 : line.index("]" if c == "[" else "}", at)]
            names += [re.findall(r"\w+", part.split("=")[0])[-1] for part in inside.split(",")]
            at, fresh = at + len(inside) + 1, False
        elif fresh and (name := re.match(r"\w+", line[at:])):
            names.append(name[0])
            at, fresh = at + len(name[0]) - 1, False
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            fresh = True
        elif line.startswith("//", at):
            break
        at += 1
    return names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("const a = 1, b = 2;", ["a", "b"]),
        ("export const a = f(x, y), b = [1, 2], c = { d: 1, e: 2 };", ["a", "b", "c"]),
        ('let a = "x, y", b; // c, d', ["a", "b"]),
        ("const [a, b] = two(), { c, d: e } = three(), f = 1;", ["a", "b", "c", "e", "f"]),
        ("export async function a(b, c) {", ["a"]),
        ("class A {", ["A"]),
        ("  const a = 1;", []),
        ("a = 1, b = 2;", []),
    ],
)
def test_all_names_of_a_declaration_are_found(line, names):
    assert declared(line) == names


def test_names_at_the_top_level_are_different():
    names = [
        name for text in TEXTS.values() for line in text.splitlines() for name in declared(line)
    ]
    assert len(names) > 30
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("name", TEXTS)
def test_import_and_export_have_the_form_that_is_taken_away(name):
    text = TEXTS[name]
    for line in text.splitlines():
        if line.startswith(("import", "export")):
            assert re.match(r"(import .* from .*;$|export (async )?(function|class|const) )", line)
    # What would make text of a dump markup, ask a server, or end the script.
    for forbidden in ("innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(",
                      "fetch(", "XMLHttp", "</script", "PAGETEXT"):  # fmt: skip
        assert forbidden not in text
