"""The files that changed since a revision, or in the last 24 hours of history.

changed_files(ROOT, "HEAD~3")       what differs from a commit, or is not committed
changed_files(ROOT, "day")          the commits of the 24 hours before HEAD
tools/changed_files.py --rooms day  on one line: their rooms that have tests in C++
"""

import subprocess
import sys
from pathlib import Path

EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"  # git's name of a folder without files


def _git(root: Path, *arguments: str) -> list:
    done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: git {' '.join(arguments)}: {done.stderr.strip()}")
    return [line for line in done.stdout.splitlines() if line]


def _day_before_head(root: Path) -> str:
    """The last commit that is more than 24 hours older than HEAD; else the empty tree."""
    now = int(_git(root, "log", "-1", "--format=%ct")[0])
    found = _git(root, "rev-list", "-1", f"--before={now - 24 * 3600}", "HEAD")
    return found[0] if found else EMPTY_TREE


def changed_files(root: Path, since: str) -> list:
    """Files that differ from a commit, the newest change first: not committed, then by commit."""
    base = _day_before_head(root) if since == "day" else since
    differing = set(_git(root, "diff", "--name-only", "--diff-filter=d", base))
    new = _git(root, "ls-files", "--others", "--exclude-standard")
    history = [] if base == EMPTY_TREE else [f"^{base}"]
    ordered = [*new, *_git(root, "diff", "--name-only", "--diff-filter=d", "HEAD")]
    ordered += _git(root, "log", "--format=", "--name-only", "HEAD", *history)
    ordered += sorted(differing)
    return [name for name in dict.fromkeys(ordered) if name in differing or name in new]


def rooms_with_tests(root: Path, names: list) -> list:
    """The folders of tests/ that test the changed sources, "compare", the newest change first."""
    found = {}
    for name in names:
        top, *parts = Path(name).parts
        if Path(name).suffix not in (".cc", ".h") or top not in ("engine", "tests", "cli"):
            continue
        room = "cli" if top == "cli" else parts[0]
        if any((root / "tests" / room).glob("*_test.cc")):
            found[room] = True
    return list(found)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent.parent
    if len(sys.argv) != 3 or sys.argv[1] != "--rooms":
        sys.exit("usage: tools/changed_files.py --rooms REVISION")
    print(*rooms_with_tests(here, changed_files(here, sys.argv[2])))
