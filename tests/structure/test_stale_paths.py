"""tools/stale_paths.py finds names of missing files in comments and documents."""

import subprocess
from pathlib import Path

import pytest
from stale_paths import named_files, named_paths, problems

TEXTS = {
    "a comment of C++": ("a.h", '// See engine/a.cc.\nF("engine/b.cc");\n', [(1, "engine/a.cc")]),
    "a document": ("a.md", "`cli/a.cc` and [b](docs/b.md)\n", [(1, "cli/a.cc"), (1, "docs/b.md")]),
    "a docstring": (
        "a.py",
        '"""One.\n\nSee tests/a.py.\n"""\nB = "tests/b"\n',
        [(3, "tests/a.py")],
    ),
    "a comment of Python": ("a.py", 'A = "tests/b"  # not tests/c\n', [(1, "tests/c")]),
    "a comment of shell": ("a.sh", "run tools/a.sh  # see tools/b.py\n", [(1, "tools/b.py")]),
    "below another folder": ("a.md", "build/cli/msprobe $OUT/docs/a ~/docs/b\n", []),
    "what the reader fills in": ("a.md", "tests/data/VERSION/a.csv\n", []),
}


@pytest.mark.parametrize("name, content, wanted", TEXTS.values(), ids=TEXTS)
def test_what_is_a_name(name, content, wanted):
    assert named_paths(Path(name), content) == wanted


def test_names_without_a_folder():
    content = "// See b.h, <c.h>, d/e.h, f.h.in and g-inl.h.\nF(); // h.cc\n"
    assert named_files(Path("a.h"), content) == [(1, "b.h"), (1, "g-inl.h"), (2, "h.cc")]


def test_what_is_not_there_is_found(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("/docs/made.json\n")
    for name in ("engine/a.cc", "engine/a.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    text = "engine/a.cc engine/a.{cc,h} engine/*.h docs/made.json\nengine/b.cc engine/a.{cc,md}\n"
    (tmp_path / "a.md").write_text(text + "a.h, b.h\n")
    files = [Path("a.md"), Path("engine/a.cc"), Path("engine/a.h")]
    assert problems(tmp_path, files) == [
        "a.md:3: names b.h, and no file is called so",
        "a.md:2: names engine/b.cc, which is not there",
        "a.md:2: names engine/a.{cc,md}, which is not there",
    ]
