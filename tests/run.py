"""Runs every C++ and Python test and counts them together.

    python tests/run.py --build build [--campaigns] [--only NAME]
    python tests/run.py --build build --mindspore [--campaigns] [--only NAME] [PYTEST ARGUMENTS]

The last line is ``N passed, N failed``; it is also written to build/reports/summary.txt, beside the
reports of the parts (GoogleTest's JSON, pytest's JUnit XML). A program that dies without a report
counts as one failure.

tests/mindspore needs a Python that has MindSpore, and is not part of the other tests. With
``--mindspore`` it runs alone, under the Python of this program, and the line goes to mindspore.txt.
"""

import argparse
import concurrent.futures
import dataclasses
import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import forked_python

ROOT = Path(__file__).resolve().parent.parent
MINDSPORE_TESTS = ROOT / "tests" / "mindspore"


@dataclasses.dataclass
class Count:
    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __add__(self, other):
        return Count(
            self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped
        )


def count_googletest(report: Path) -> Count:
    """Counts tests in GoogleTest's JSON; a disabled test counts as skipped."""
    suites = json.loads(report.read_text())["testsuites"]
    count = Count()
    for test in (test for suite in suites for test in suite["testsuite"]):
        if "failures" in test:
            count.failed += 1
        elif test["status"] == "NOTRUN" or test["result"] == "SKIPPED":
            count.skipped += 1
        else:
            count.passed += 1
    return count


def count_junit(report: Path) -> Count:
    """Counts cases in JUnit XML; an error, also during collection, counts as a failure."""
    count = Count()
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            count.failed += 1
        elif case.find("skipped") is not None:
            count.skipped += 1
        else:
            count.passed += 1
    return count


def run_part(name: str, command: list, report: Path, counter, env: dict, quiet: bool) -> Count:
    """Runs one part and prints its line; a quiet part shows its output only when it fails."""
    report.unlink(missing_ok=True)
    started = time.monotonic()
    output = subprocess.PIPE if quiet else None
    done = subprocess.run(
        command, cwd=ROOT, env=env, stdout=output, stderr=subprocess.STDOUT if quiet else None
    )
    count = counter(report) if report.exists() else Count()
    # pytest exits with 5 if it found no test; any other code without a failed test is a crash.
    if done.returncode not in (0, 5) and count.failed == 0:
        count.failed = 1
        print(f"   {name}: exit code {done.returncode} without a failed test in its report")
    if quiet and count.failed:
        print(done.stdout.decode(errors="replace"))
    seconds = time.monotonic() - started
    skipped = f", {count.skipped} skipped" if count.skipped else ""
    print(f"   {name:<18} {count.passed} passed, {count.failed} failed{skipped}  ({seconds:.1f} s)")
    sys.stdout.flush()
    return count


def pytest_command(options) -> list:
    command = [sys.executable, "-m", "pytest", "-q"]
    if options.campaigns:
        command += ["-m", ""]
    if options.only:
        command += ["-k", options.only]
    return command


def run_mindspore(options, more: list, reports: Path, env: dict) -> Count:
    """One process: MindSpore's own threads keep two cores busy."""
    report = reports / "mindspore.xml"
    asked = ["-p", "no:cacheprovider", f"--junitxml={report}", *more, str(MINDSPORE_TESTS)]
    command = [*pytest_command(options), *asked]
    return run_part("mindspore", command, report, count_junit, env, quiet=False)


# Files differ in time by a factor of a hundred: a core that has finished a part takes the next one.
PARTS = 10


# Tests write at most 2 GiB at a time.
MEMORY_DISK, ROOM = Path("/dev/shm"), 8 << 30


def in_memory(options, env: dict) -> str | None:
    """Where temporary files are made in memory; None: where Python makes them.

    ext4 without a journal makes files slowly where many were deleted in the last minutes: it took
    two thirds of the system time of tests/python/test_bit_identity.py, 8 s of 13. With TMPDIR=/tmp
    the files of a test that failed stay.
    """
    if options.campaigns or "TMPDIR" in env or not MEMORY_DISK.is_dir():
        return None
    available = re.search(r"MemAvailable: *(\d+) kB", Path("/proc/meminfo").read_text())
    room = min(shutil.disk_usage(MEMORY_DISK).free, int(available[1]) << 10)
    return str(MEMORY_DISK) if room >= ROOM else None


def temporary(folder: str | None) -> dict:
    """The environment in which temporary files are made there."""
    if folder is None:
        return {}
    compiled = Path(tempfile.gettempdir()) / f"torchinductor_{getpass.getuser()}"
    return {"TMPDIR": folder, "TORCHINDUCTOR_CACHE_DIR": str(compiled)}  # its place without TMPDIR


def run_python(options, reports: Path, env: dict) -> Count:
    """With two cores or more, two parts of the files at a time."""
    files = sorted(
        str(path)
        for path in (ROOT / "tests").rglob("test_*.py")
        if MINDSPORE_TESTS not in path.parents
    )
    # Campaigns take times: alone.
    parts = 1 if options.campaigns or (os.cpu_count() or 1) < 2 else PARTS
    print(f"== Python tests{', two parts at a time' if parts > 1 else ''}", flush=True)

    def run(part: int) -> Count:
        name = "python" if parts == 1 else f"python, part {part + 1}"
        report = reports / f"python{part + 1}.xml"
        asked = [*command, f"--junitxml={report}", *files[part::parts]]
        return run_part(name, asked, report, count_junit, env, quiet=parts > 1)

    memory = in_memory(options, env)
    with (
        tempfile.TemporaryDirectory(dir=memory) as folder,
        forked_python.running(Path(folder) / "bin", env | temporary(memory and folder)) as python,
        concurrent.futures.ThreadPoolExecutor(min(parts, 2)) as pool,
    ):
        env |= {forked_python.SHARED: str(python), **temporary(memory and folder)}
        command = [str(python), *pytest_command(options)[1:]]
        return sum(pool.map(run, range(parts)), Count())


def run_cpp(options, build: Path, reports: Path, env: dict) -> Count | None:
    """None if nothing is built."""
    print("== C++ tests", flush=True)
    programs = sorted(path for path in (build / "tests").glob("*/*_test") if path.is_file())
    if not programs:
        print(f"error: no test program under {build}/tests; type: make build", file=sys.stderr)
        return None
    total = Count()
    for program in programs:
        if options.only and options.only not in program.name:
            continue
        report = reports / f"{program.name}.json"
        command = [program, f"--gtest_output=json:{report}", "--gtest_brief=1"]
        total += run_part(program.name, command, report, count_googletest, env, quiet=True)
    return total


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build", help="the build folder")
    parser.add_argument("--campaigns", action="store_true", help="also the long campaigns")
    parser.add_argument("--only", help="C++ programs and Python tests whose name contains this")
    parser.add_argument("--mindspore", action="store_true", help="tests/mindspore, nothing else")
    options, more = parser.parse_known_args()
    if more and not options.mindspore:
        parser.error(f"unknown arguments: {' '.join(more)}")

    build = (ROOT / options.build).resolve()
    reports = build / "reports"
    reports.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ, MSPROBE_BUILD_DIR=str(build), PYTHONHASHSEED="0")
    # Two parts have two threads each: one that waits would keep a core from one that computes.
    env.setdefault("OMP_WAIT_POLICY", "passive")
    env.setdefault("MSPROBE_BIN", str(Path(sys.executable).parent / "msprobe"))

    if options.mindspore:
        total = run_mindspore(options, more, reports, env)
    else:
        total = run_cpp(options, build, reports, env)
        if total is None:
            return 2
        total += run_python(options, reports, env)

    line = f"{total.passed} passed, {total.failed} failed"
    if total.skipped:
        line += f", {total.skipped} skipped"
    (reports / ("mindspore.txt" if options.mindspore else "summary.txt")).write_text(line + "\n")
    print(f"\n{line}", flush=True)
    return 1 if total.failed or total.passed == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
