"""Checks the layout of our source files; with --fix, formats them where a tool can do it.

Checks: clang-format on C++, ruff on Python, tsc and oxlint on JavaScript, shell syntax, no trailing
blanks, no marks of a merge, a newline at the end, functions of at most 80 lines and files of at
most 600 (exceptions and their reasons: LONGER), names that two files of a folder have for
themselves, that files named in comments and documents exist, and that links between documents have
a page and a heading. Data files are not checked, except for the links of their documents.
"""

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import doc_links
import function_lengths
import local_names
import stale_paths

ROOT = Path(__file__).resolve().parent.parent
MOST_LINES = 80  # in a function
MOST_LINES_OF_FILE = 600
# Functions and files that may be longer, and why: tables and switches have a line for each case.
LONGER = {
    "engine/formats/tensors/pickle.cc: Unpickler::Step": "a switch: the opcodes",
    "python/src/capture_bindings.cc: BindCapture": "a table: names and what they are bound to",
    "python/src/front_bindings.cc: BindFront": "a table: names and what they are bound to",
}
CPP = {".cc", ".h"}
TEXT = CPP | {".py", ".sh", ".md", ".txt", ".cmake", ".toml", ".yaml", ".yml"}
# Where messages and comments name pages, besides Markdown.
LINKING = {".cc", ".h", ".py", ".po", ".json", ".yaml", ".cmake", ".txt"}
# Recorded or expected output, whose exact bytes matter.
DATA = ("tests/data/", "fuzz/corpus/")
DATA_PARTS = {"cases", "corpus"}


def our_files() -> list:
    """Files that git tracks or would add, relative to the root."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split("\0")
    return [Path(name) for name in sorted(set(listed)) if name and (ROOT / name).is_file()]


def is_data(path: Path) -> bool:
    return path.as_posix().startswith(DATA) or bool(DATA_PARTS & set(path.parts[:-1]))


def is_shell(path: Path) -> bool:
    if path.suffix == ".sh":
        return True
    if path.suffix:
        return False
    with open(ROOT / path, "rb") as file:
        first = file.readline()
    return first.startswith(b"#!") and b"sh" in first


def run(title: str, command: list) -> bool:
    """Runs a checker in the root folder; the checker prints its own findings."""
    print(f"== {title}", flush=True)
    return subprocess.run(command, cwd=ROOT).returncode == 0


def clang_format_agrees(files: list) -> bool:
    """Prints one line for each file, because `make format` fixes all places at once."""
    print(f"== clang-format: {len(files)} files", flush=True)
    command = [clang_format(), "--dry-run", "--Werror", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    places = Counter(line.split(":")[0] for line in done.stderr.splitlines() if ": error: " in line)
    for name, count in places.items():
        print(f"{name}: {count} places laid out differently")
    if done.returncode != 0 and not places:
        print(done.stderr)
    return done.returncode == 0


def without_raw_literals(lines: list) -> list:
    """(number, line) of those without a part of R"(...)": nobody can break that."""
    found, inside = [], False
    for number, line in enumerate(lines, 1):
        begins = re.search(r'R"\w*\(', line)
        if not inside and not begins:
            found.append((number, line))
        if begins:
            inside = ")" not in line[begins.end() :] or '"' not in line[begins.end() :]
        elif inside:
            inside = not re.search(r'\)\w*"', line)
    return found


def text_problems(path: Path) -> list:
    content = (ROOT / path).read_text(encoding="utf-8")
    lines = content.split("\n")
    problems = [
        f"{path}:{number}: blanks at the end of the line"
        for number, line in enumerate(lines, 1)
        if line != line.rstrip()
    ]
    problems += [
        f"{path}:{number}: a mark of a merge"
        for number, line in enumerate(lines, 1)
        if line.startswith(("<" * 7 + " ", ">" * 7 + " "))
    ]
    if path.suffix in CPP:
        problems += [
            f"{path}:{number}: {len(line)} columns, at most 100"
            for number, line in without_raw_literals(lines)
            if len(line) > 100
        ]
    if content and not content.endswith("\n"):
        problems.append(f"{path}:{len(lines)}: no newline at the end of the file")
    return problems


def length_problems(files: list) -> list:
    """Functions and files that are too long, and entries of LONGER that are not needed."""
    problems, needed = [], set()
    for path in files:
        lines = (ROOT / path).read_text(encoding="utf-8").count("\n")
        if lines > MOST_LINES_OF_FILE:
            needed.add(str(path))
            problems.append((str(path), f"{path}: {lines} lines", MOST_LINES_OF_FILE))
        if path.suffix == ".sh":
            continue
        for function in function_lengths.functions(ROOT / path):
            if function.length > MOST_LINES:
                name = f"{path}: {function.name}"
                needed.add(name)
                found = f"{path}:{function.line}: {function.name} has {function.length} lines"
                problems.append((name, found, MOST_LINES))
    return [
        *(
            f"{found}, expected at most {most}; give its steps names, or say in tools/lint.py why"
            for name, found, most in problems
            if name not in LONGER
        ),
        *(f"tools/lint.py: {name} needs no exception" for name in LONGER.keys() - needed),
    ]


def clang_format() -> str:
    found = shutil.which("clang-format-14")
    if not found:
        sys.exit("error: clang-format-14 not found; type: make setup")
    return found


def scripts_agree() -> bool:
    """Checks the page's modules with tsc and oxlint, where `make browser` has installed them."""
    page = ROOT / "engine/report_page/page"
    oxlint = Path(sys.executable).parent / "oxlint"
    good = []
    for name, program, *arguments in (
        ("tsc", shutil.which("tsc"), "-p", str(page)),
        ("oxlint", str(oxlint), "--deny-warnings", "--silent", str(page)),
    ):
        if program and Path(program).exists():
            good.append(run(f"{name}: {page.relative_to(ROOT)}", [program, *arguments]))
        else:
            print(f"== {name}: skipped, it is not installed; type: make browser", flush=True)
    return all(good)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fix", action="store_true", help="rewrite the files")
    options = parser.parse_args()

    files = [path for path in our_files() if not is_data(path)]
    cpp = [str(path) for path in files if path.suffix in CPP]
    python = [str(path) for path in files if path.suffix == ".py"]
    ruff = str(Path(sys.executable).parent / "ruff")
    if options.fix:
        done = [
            run("clang-format", [clang_format(), "-i", *cpp]),
            run("ruff format", [ruff, "format", "--quiet", *python]),
            run("ruff check --fix", [ruff, "check", "--fix", *python]),
        ]
        return 0 if all(done) else 1

    good = [
        clang_format_agrees(cpp),
        run(
            f"ruff check: {len(python)} files",
            [ruff, "check", "--quiet", "--output-format=concise", *python],
        ),
        run("ruff format", [ruff, "format", "--check", "--quiet", *python]),
        scripts_agree(),
    ]
    shell = [path for path in files if is_shell(path)]
    print(f"== shell syntax: {len(shell)} files", flush=True)
    for path in shell:
        good.append(subprocess.run(["bash", "-n", str(path)], cwd=ROOT).returncode == 0)
    text = [path for path in files if path.suffix in TEXT or path.name in ("Makefile", "run")]
    print(f"== text: {len(text)} files", flush=True)
    linking = [path for path in our_files() if path.suffix == ".md"]
    linking += [path for path in files if path.suffix in LINKING]
    problems = [problem for path in text for problem in text_problems(path)]
    problems += length_problems([path for path in text if path.suffix in CPP | {".py", ".sh"}])
    problems += local_names.problems(ROOT, text)
    problems += stale_paths.problems(ROOT, text)
    problems += doc_links.problems(ROOT, linking)
    good.append(not problems)
    for problem in problems:
        print(problem)
    if all(good):
        print("lint: nothing to say")
        return 0
    print("lint: failed; `make format` mends layout", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
