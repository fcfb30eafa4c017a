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


def test_names_at_the_top_level_are_different():
    top = re.compile(r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)", re.MULTILINE)
    names = [name for text in TEXTS.values() for name in top.findall(text)]
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
