"""End-to-end cases as data: one folder for each case under cases/, see cases/README.md.

    python tests/compare/test_cases.py --update-expected [NAME ...]

replaces the expectations by the present output; review the difference before you commit.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

CASES = Path(__file__).resolve().parent / "cases"
# Times in file names and messages: 20260102030405, or nanoseconds.
TIME = re.compile(r"(?<![\d.])20\d{12}(?!\d)|(?<=diff_analyze_)\d{19}(?=\.json)")


def cases():
    """The folders that hold a command, by name."""
    return sorted(path.parent.name for path in CASES.glob("*/command"))


def stdout_name(command):
    """The file that holds the expected standard output."""
    words = shlex.split(command)
    kind = words[words.index("--format") + 1] if "--format" in words else "table"
    return {"csv": "expected.csv", "json": "expected.json"}.get(kind, "expected.txt")


def run(name, binary):
    """Runs the case: name of expectation file -> actual text."""
    case = CASES / name
    command = (case / "command").read_text().strip()
    words = shlex.split(command)
    assert words[0] == "msprobe", f"{case}/command must begin with msprobe"
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder) / name
        shutil.copytree(case, work, ignore=shutil.ignore_patterns("expected*", "command", "README"))
        before = {path: path.read_bytes() for path in work.rglob("*") if path.is_file()}
        environment = {k: v for k, v in os.environ.items() if not k.startswith("MSPROBE_")}
        environment.update(LC_ALL="C.UTF-8", TERM="dumb", TZ="UTC")
        done = subprocess.run(
            [binary, *words[1:]], cwd=work, capture_output=True, env=environment, timeout=60
        )
        answer = {"expected.code": f"{done.returncode}\n"}
        for key, raw in ((stdout_name(command), done.stdout), ("expected.err", done.stderr)):
            if raw:
                answer[key] = TIME.sub("TIME", raw.decode())
        for path in sorted(path for path in work.rglob("*") if path.is_file()):
            if before.get(path) == path.read_bytes():
                continue
            key = "expected_files/" + TIME.sub("TIME", str(path.relative_to(work)))
            if path.suffix == ".xlsx":
                answer[key] = ""
            elif path.name.startswith("compare_finding_"):  # what --format json prints
                json.loads(path.read_text(encoding="utf-8"))
                answer[key] = "{}\n"
            else:
                answer[key] = TIME.sub("TIME", path.read_text(encoding="utf-8"))
    return answer


def expected(name):
    """The expectations of a case: name of expectation file -> text."""
    case = CASES / name
    files = [path for path in case.glob("expected*") if path.is_file()]
    files += [path for path in (case / "expected_files").rglob("*") if path.is_file()]
    return {str(path.relative_to(case)): path.read_text(encoding="utf-8") for path in files}


def update(name, binary):
    """Writes the present output of the case as its expectations."""
    case = CASES / name
    for path in case.glob("expected*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for key, text in run(name, binary).items():
        (case / key).parent.mkdir(parents=True, exist_ok=True)
        (case / key).write_text(text, encoding="utf-8")


@pytest.mark.parametrize("name", cases())
def test_case(name, msprobe_bin):
    want = expected(name)
    assert want, f"{name} has no expectations; see {CASES}/README.md"
    have = run(name, msprobe_bin)
    for key in sorted(want.keys() | have.keys()):
        assert have.get(key, "(nothing)") == want.get(key, "(nothing)"), f"{name}/{key}"


@pytest.mark.parametrize("name", cases())
def test_case_says_what_it_is(name):
    assert (CASES / name / "README").read_text().strip(), f"{name} has no README"


@pytest.mark.parametrize("name", cases())
def test_json_is_strict(name):
    """JSON output has no bare NaN or Infinity, which strict parsers refuse."""

    def refuse(word):
        raise ValueError(f"{word} is not JSON")

    for key, text in expected(name).items():
        if key.endswith(".json"):
            json.loads(text, parse_constant=refuse)


def main():
    arguments = sys.argv[1:]
    if not arguments or arguments[0] != "--update-expected":
        sys.exit(__doc__)
    binary = os.environ.get("MSPROBE_BIN", str(Path(sys.executable).parent / "msprobe"))
    for name in arguments[1:] or cases():
        update(name, binary)


if __name__ == "__main__":
    main()
