"""Finds file names in comments and documents that no file has.

Reads all of Markdown files, comments of C++, Python, shell and CMake, and docstrings. A name is a
path from the root that begins with a folder of the project ("engine/base/text.h"), or the name of a
C++ file without its folder ("text.h"). Not checked: paths with capital letters, which are
placeholders ("tests/data/tables/VERSION"), and paths that git ignores, which a build or a run
makes. `*` and `{a,b}` stand for several files.
"""

import ast
import io
import re
import subprocess
import tokenize
from pathlib import Path

FOLDERS = "bench|cli|cmake|docs|engine|examples|fuzz|packaging|python|tests|tools"
# Not after another folder (build/cli/msprobe), a variable or the scheme of an address.
NAMED = re.compile(rf"(?<![\w./$}}\])-])(?:{FOLDERS})/[\w./*{{}},-]*[\w*}}]")
# A C++ file without its folder; not <header.h>, not the end of a path.
BARE = re.compile(r"(?<![\w./<*{}$-])[a-z]\w*(?:-inl)?\.(?:h|cc)\b(?![\w/(]|\.in\b)")
NOT_OURS = {"foreach_target.h"}  # of Highway
HASH_COMMENTS = {".sh", ".cmake", ".txt", ".yml", ".yaml"}


def _python_text(content: str) -> list:
    """(line, text) of comments and docstrings."""
    found = [
        (token.start[0], token.string)
        for token in tokenize.generate_tokens(io.StringIO(content).readline)
        if token.type == tokenize.COMMENT
    ]
    for node in ast.walk(ast.parse(content)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            constant = node.body[0].value
            lines = constant.value.split("\n")
            found += [(constant.lineno + i, line) for i, line in enumerate(lines)]
    return found


def _text(path: Path, content: str) -> list:
    if path.suffix == ".py":
        return _python_text(content)
    lines = list(enumerate(content.split("\n"), 1))
    if path.suffix == ".md":
        return lines
    mark = "//" if path.suffix in (".cc", ".h") else "#"
    return [(number, line[line.index(mark) :]) for number, line in lines if mark in line]


def named_paths(path: Path, content: str) -> list:
    """(line, path from the root) of each path that the text of a file names."""
    if path.suffix not in {".cc", ".h", ".py", ".md"} | HASH_COMMENTS:
        return []
    return [
        (number, name)
        for number, text in _text(path, content)
        for name in NAMED.findall(text)
        if not re.search(r"[A-Z]", name.replace("README.md", "").replace("CMakeLists.txt", ""))
    ]


def named_files(path: Path, content: str) -> list:
    """(line, name) of each C++ file that the text of a file names without its folder."""
    if path.suffix not in {".cc", ".h", ".py", ".md"} | HASH_COMMENTS:
        return []
    return [
        (number, name)
        for number, text in _text(path, content)
        for name in BARE.findall(text)
        if name not in NOT_OURS
    ]


def is_there(root: Path, name: str) -> bool:
    braces = re.search(r"\{([^{}]*)\}", name)
    if braces:
        begin, end = name[: braces.start()], name[braces.end() :]
        return all(is_there(root, begin + each + end) for each in braces.group(1).split(","))
    if "*" in name:
        return any(True for _ in root.glob(name))
    return (root / name).exists()


def problems(root: Path, files: list) -> list:
    """One line for each name that no file has. `files`: paths relative to the root."""
    found = [
        (path, number, name)
        for path in files
        for number, name in named_paths(path, (root / path).read_text(encoding="utf-8"))
        if not is_there(root, name)
    ]
    there = {path.name for path in files}
    missing = [
        f"{path}:{number}: names {name}, and no file is called so"
        for path in files
        for number, name in named_files(path, (root / path).read_text(encoding="utf-8"))
        if name not in there
    ]
    names = "\0".join({name for _, _, name in found})
    command = ["git", "check-ignore", "-z", "--stdin"]
    listed = subprocess.run(command, cwd=root, input=names, capture_output=True, text=True).stdout
    ignored = set(listed.split("\0"))
    return missing + [
        f"{path}:{number}: names {name}, which is not there"
        for path, number, name in found
        if name not in ignored
    ]
