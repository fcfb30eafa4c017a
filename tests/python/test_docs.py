"""Runs the commands of every document, in the order in which a reader types them.

A fenced block whose info string is `bash run` is executed; one that ends in `file=NAME` is written
to that file first. All blocks of a document run in one folder, empty at first. A block `text
output` is what the block before it prints: the same words, in the same order. Numbers differ from
machine to machine and are not compared; `...` stands for anything.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?://|#)(?P<path>[^)#\s]+)")
ABORTED_AT_EXIT = ("terminate called without an active exception", "ChildFailedError")
HIDDEN = {".git", ".venv", ".cache", "build", "data", "cases", "demo_output"}


def documents():
    found = ROOT.glob("**/*.md")
    inside = [path.relative_to(ROOT) for path in found]
    return sorted(
        path
        for path in inside
        if not HIDDEN & set(path.parts) and not path.parts[0].startswith("build")
    )


def blocks(document: Path):
    """(kind, name, text) of each block that is used; kind is run, output or file (with a name)."""
    for match in FENCE.finditer((ROOT / document).read_text(encoding="utf-8")):
        words = match["info"].split()
        if words == ["bash", "run"]:
            yield "run", "", match["body"]
        if words == ["text", "output"]:
            yield "output", "", match["body"]
        for word in words[1:]:
            if word.startswith("file="):
                yield "file", word[len("file=") :], match["body"]


def without_layout(text: str) -> str:
    """The words of an output on one line, with # for each number; paths make lines longer."""
    return re.sub(r"\d+(\.\d+)?(e[+-]?\d+)?", "#", " ".join(text.replace("|", " ").split()))


def is_printed(shown: str, printed: str) -> bool:
    parts = [re.escape(without_layout(part)) for part in shown.split("...")]
    return re.search(r".*?".join(parts), without_layout(printed)) is not None


def original_of(document: Path) -> Path:
    """README.md of its translation README.zh.md."""
    return document.with_name(document.name.replace(".zh.md", ".md"))


WITH_COMMANDS = [
    path
    for path in documents()
    if path == original_of(path) and any(kind == "run" for kind, *_ in blocks(path))
]
TRANSLATIONS = [path for path in documents() if path != original_of(path)]


class AbortedAtExitError(Exception):
    """A rank whose training had ended was aborted by PyTorch, recorded or not: a thread of Gloo let
    go of a tensor after Python had ended (https://github.com/pytorch/pytorch/issues/190489).
    """


def run_commands(document: Path, folder: Path, path: str):
    printed = ""
    for kind, name, body in blocks(document):
        if kind == "file":
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(body)
            continue
        if kind == "output":
            assert is_printed(body, printed), f"{document}: expected\n{body}\nfound\n{printed}"
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", body],
            cwd=folder,
            env=dict(os.environ, PATH=path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0 and all(words in done.stderr for words in ABORTED_AT_EXIT):
            raise AbortedAtExitError(done.stderr)
        assert done.returncode == 0, f"{document}:\n{body}\n{done.stdout}\n{done.stderr}"
        printed = done.stdout.replace(f"{folder}/", "")


@pytest.mark.parametrize("document", WITH_COMMANDS, ids=str)
def test_commands_run(document, tmp_path, forked_python):
    folders = [Path(forked_python).parent, Path(sys.executable).parent, os.environ["PATH"]]
    path = os.pathsep.join(map(str, folders))
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    try:
        run_commands(document, first, path)
    except AbortedAtExitError:
        second.mkdir()
        run_commands(document, second, path)


@pytest.mark.parametrize("document", TRANSLATIONS, ids=str)
def test_a_translation_has_the_blocks_that_run(document):
    """All of them, in their order, with what they print: they are executed once."""

    def fences(path):
        return [match.group() for match in FENCE.finditer((ROOT / path).read_text("utf-8"))]

    assert fences(document) == fences(original_of(document))
    links = [LINK.findall((ROOT / path).read_text("utf-8")) for path in (document, "README.md")]
    assert set(links[0]) ^ set(links[1]) == {"README.md", "README.zh.md"}


def test_output_that_is_not_printed_is_found():
    printed = "DIFFERS\n  | a.py:3 in f: x = relu(x)  off by 1.5e-07\n"
    assert not is_printed("DIFFERS\n  | relu(x) off by 2.5\n", printed)
    assert is_printed("DIFFERS\n... in f: x = relu(x) off by 2.5\n", printed)
    assert not is_printed("a.py:3 in f: x = relu(x) off by 2.5\nDIFFERS\n", printed)


def test_the_readme_has_commands():
    assert Path("README.md") in WITH_COMMANDS
    assert Path("README.zh.md") in TRANSLATIONS


def test_the_index_has_every_page():
    linked = LINK.findall((ROOT / "docs/README.md").read_text(encoding="utf-8"))
    pages = {str(page.relative_to("docs")) for page in documents() if page.parts[0] == "docs"}
    assert pages - {"README.md"} == {link for link in linked if not link.startswith("..")}


def test_make_targets_named_in_documents_exist():
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    targets.add("install")  # a target of the Makefile that CMake writes
    for document in documents():
        text = (ROOT / document).read_text(encoding="utf-8")
        named = set(re.findall(r"`make ([a-z-]+)`", text))
        assert named <= targets, document
