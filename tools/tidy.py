"""Runs clang-tidy (.clang-tidy) on the C++ sources, a room (a folder of sources) at a time.

    tools/tidy.py                            every room
    tools/tidy.py engine/formats             rooms with a file whose path begins so
    tools/tidy.py --since HEAD~3             rooms with a file that changed since HEAD~3
    tools/tidy.py --since day --seconds 120  of the last 24 hours of history, the newest first

A room is read as one file, as in a unity build: most of the time goes into the headers. Functions
whose cognitive complexity is above 25 fail, except those of tools/complexity.txt. That list may
only shrink: --shrink lowers its figures, and removes the functions that need it no longer.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from changed_files import changed_files

ROOT = Path(__file__).resolve().parent.parent
CLANG_TIDY = "clang-tidy-14"
KNOWN = "tools/complexity.txt"
MOST = 25  # .clang-tidy has the same figure
OURS = ("engine/", "cli/", "python/src/")
CPP = {".cc", ".h"}

INCLUDED = re.compile(r'^#include "(/[^"]+\.cc)"', re.MULTILINE)
# What clang cannot compile in the headers of g++, the compiler of the project, fails nothing; nor
# does a crash of clang.
FOREIGN = re.compile(r"^/usr/.*: error: .*\[clang-diagnostic-error\]$", re.MULTILINE)
CRASH = "PLEASE submit a bug report to https://github.com/llvm"
FINDING = re.compile(r"(?P<path>/[^:\n]+):(?P<line>\d+):\d+: (?:warning|error): (?P<what>.*)")
COMPLEXITY = re.compile(
    r"(?:function '(?P<name>[^']*)'|lambda) has cognitive complexity of (?P<value>\d+)"
)


@dataclass(frozen=True)
class Room:
    source: str  # what clang-tidy reads: a source, or a generated file that includes a room's
    files: tuple  # the sources of ours in it, relative to the root

    @property
    def folder(self) -> str:
        return str(Path(self.files[0]).parent)


@dataclass(frozen=True, order=True)
class Complex:
    """A function whose complexity is above the threshold."""

    path: str
    line: int
    name: str
    value: int


def configure(build: str) -> None:
    """Writes the compile commands of each room as one file; compiles nothing."""
    nanobind = subprocess.run(
        [sys.executable, "-m", "nanobind", "--cmake_dir"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    command = ["cmake", "-S", ".", "-B", build, "-G", "Ninja", "-DMSPROBE_PYTHON=ON"]
    command += ["-DMSPROBE_PCH=OFF", "-DCMAKE_UNITY_BUILD=ON"]
    command += [f"-DPython_EXECUTABLE={sys.executable}", f"-Dnanobind_DIR={nanobind}"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.stdout.buffer.write(done.stdout)
        sys.exit(f"error: {build}/ cannot be configured")


def rooms(build: str) -> list:
    found = []
    for command in json.loads((ROOT / build / "compile_commands.json").read_text()):
        source = Path(command["directory"], command["file"])
        sources = [str(source)]
        if source.suffix == ".cxx":  # made by CMake
            sources = INCLUDED.findall(source.read_text())
        relative = [os.path.relpath(each, ROOT) for each in sources]
        ours = tuple(each for each in relative if each.startswith(OURS))
        if ours:
            found.append(Room(str(source), ours))
    return found


def rooms_of(name: str, every: list) -> list:
    """The rooms that clang-tidy must read to check a file: a source, or a header."""
    if name.endswith(".cc"):
        return [room for room in every if name in room.files]
    quoted = f'#include "{name}"'
    including = [
        room
        for room in every
        if any(quoted in (ROOT / each).read_text(encoding="utf-8") for each in room.files)
    ]
    own = [room for room in including if room.folder == str(Path(name).parent)]
    return (own or including)[:1]


def select(every: list, paths: str, changed: list | None) -> dict:
    """The rooms to check, in the order of the work, and for each its files to name."""
    begins = re.compile(paths)
    wanted = {}
    if changed is None:
        for room in every:
            files = [each for each in room.files if begins.match(each)]
            if files:
                wanted[room] = files
        return wanted
    for name in changed:
        if Path(name).suffix in CPP and name.startswith(OURS) and begins.match(name):
            for room in rooms_of(name, every):
                wanted.setdefault(room, []).append(name)
    return wanted


def check(room: Room, build: str) -> str:
    command = [CLANG_TIDY, "-quiet", "-p", str(ROOT / build), room.source]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if CRASH in done.stderr:
        return done.stdout + CRASH
    if done.returncode != 0 and not FINDING.search(done.stdout):
        return done.stdout + done.stderr
    return done.stdout


def read_findings(output: str) -> tuple:
    """(functions that are too complex, the other findings with their lines) of what it printed."""
    complex_ones, others, kept = set(), [], True
    for line in output.splitlines():
        found = FINDING.match(line)
        measured = COMPLEXITY.match(found["what"]) if found else None
        if measured:
            path = os.path.relpath(found["path"], ROOT)
            name = measured["name"] or "lambda"
            complex_ones.add(Complex(path, int(found["line"]), name, int(measured["value"])))
            kept = False
        elif found:
            kept = not FOREIGN.match(line)
        if kept and (found or not others):
            others.append(line)
        elif kept:
            others[-1] += "\n" + line
    return complex_ones, others


def read_known(text: str) -> dict:
    """(path, function) -> complexities, the highest first, of the text of tools/complexity.txt."""
    known = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            path, function = line.split(" ", 1)
            name, value = function.rsplit(" ", 1)
            known.setdefault((path, name), []).append(int(value))
    return {key: sorted(values, reverse=True) for key, values in known.items()}


def by_function(found: set) -> dict:
    """(path, function) -> the functions of that name, the most complex first."""
    grouped = {}
    for each in sorted(found, key=lambda each: -each.value):
        grouped.setdefault((each.path, each.name), []).append(each)
    return grouped


def too_complex(found: set, known: dict) -> list:
    """A line for each function that is more complex than the list allows."""
    problems = []
    for key, functions in by_function(found).items():
        allowed = known.get(key, [])
        for each, most in zip_longest(functions, allowed[: len(functions)], fillvalue=MOST):
            if each.value > most:
                problems.append(
                    f"{each.path}:{each.line}: {each.name} has a cognitive complexity of "
                    f"{each.value}, expected at most {most}; name a step or a condition"
                )
    return problems


def shrunk(found: set, known: dict, checked: set) -> dict:
    """The list with lower figures where they fit. `checked`: the files that were read whole."""
    grouped, kept = by_function(found), {}
    for key, allowed in known.items():
        if key[0] not in checked and key not in grouped:
            kept[key] = allowed
            continue
        values = [each.value for each in grouped.get(key, [])]
        lower = [min(pair) for pair in zip(values, allowed, strict=False)]
        kept[key] = [value for value in lower if value > MOST]
    return kept


def write_known(kept: dict) -> None:
    old = (ROOT / KNOWN).read_text(encoding="utf-8").splitlines()
    lines = [line for line in old if line.startswith("#")]
    lines += sorted(f"{path} {name} {value}" for (path, name) in kept for value in kept[path, name])
    (ROOT / KNOWN).write_text("\n".join(lines) + "\n", encoding="utf-8")


def run(wanted: dict, options: argparse.Namespace) -> tuple:
    """(the output of each room that was checked, the rooms for which no time was left)."""
    outputs, left = {}, []
    end = time.monotonic() + options.seconds if options.seconds else None

    def check_in_time(room: Room) -> str | None:
        if end is not None and time.monotonic() > end:
            return None
        return check(room, options.build)

    with ThreadPoolExecutor(options.jobs) as pool:
        for room, output in zip(wanted, pool.map(check_in_time, wanted), strict=True):
            names = " ".join(Path(name).name for name in wanted[room])
            if output is None:
                left.append(f"{room.folder}: {names}")
            else:
                outputs[room] = output
                print(f"{room.folder}: {names}", flush=True)
    return outputs, left


def _seconds(text: str) -> float | None:
    return float(text) if text else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="?", default="", help="regular expression of paths")
    parser.add_argument("--since", default="", help="a revision, or day: the last 24 hours")
    parser.add_argument("--seconds", type=_seconds, help="begin no room after this time")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--build", default="build-tidy", help="folder for the compile commands")
    parser.add_argument("--shrink", action="store_true", help=f"lower the figures of {KNOWN}")
    options = parser.parse_args()
    if not shutil.which(CLANG_TIDY):
        sys.exit(f"error: {CLANG_TIDY} not found; type: make setup-tidy")

    configure(options.build)
    every = rooms(options.build)
    changed = changed_files(ROOT, options.since) if options.since else None
    wanted = select(every, options.paths, changed)
    title = f", files changed since {options.since}" if options.since else ""
    print(f"== clang-tidy: {len(wanted)} rooms{title}", flush=True)
    outputs, left = run(wanted, options)

    found, others = set(), []
    for room, output in outputs.items():
        if CRASH in output or FOREIGN.search(output):
            print(f"note: {room.folder}: clang 14 cannot read all of it, but g++ can")
        in_room, rest = read_findings(output.replace(CRASH, ""))
        found |= in_room
        others += rest
    known = read_known((ROOT / KNOWN).read_text(encoding="utf-8"))
    checked = {name for room in outputs if CRASH not in outputs[room] for name in room.files}
    # A header is read whole where all rooms are read. Of a file that is gone nothing is left.
    checked |= {p for p, _ in known if len(outputs) == len(every) or not (ROOT / p).exists()}
    problems, kept = too_complex(found, known), shrunk(found, known, checked)
    if options.shrink:
        write_known(kept)
    elif kept != known:
        problems += [
            f"{KNOWN}: {path} {name}: {kept[path, name] or 'none'} left of {values}; "
            "type: .venv/bin/python tools/tidy.py --shrink"
            for (path, name), values in known.items()
            if kept[path, name] != values
        ]
    for line in [*dict.fromkeys(others), *problems]:
        print(line)
    for line in left:
        print(f"not checked, the {options.seconds:.0f} s were over: {line}")
    print(
        "tidy: failed" if others or problems else f"tidy: nothing to say about {len(outputs)} rooms"
    )
    return 1 if others or problems else 0


if __name__ == "__main__":
    sys.exit(main())
