"""Measures what a fresh clone compiles: what `make demo` needs, then all C++ tests as well.

    python bench/building.py [--jobs 2]

Processor minutes of the compilers and linkers, without ccache, in a folder that is removed
afterwards. Several minutes long.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tables import table, verdict

ROOT = Path(__file__).resolve().parent.parent
# What a fresh clone builds, and its processor minutes at most.
BUILDS = (
    ("make demo", ("msprobe_cli", "_engine"), 5),
    ("make demo and all tests", ("all",), 12),
)


def run(command: list, environment: dict) -> None:
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))} failed\n{done.stdout[-2000:]}{done.stderr}")


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="compilers at a time")
    options = parser.parse_args()
    environment = {**os.environ, "CCACHE_DISABLE": "1"}
    rows = [["", "objects", "processor min", "at most", "", "min"]]
    with tempfile.TemporaryDirectory() as folder:
        run(["tools/configure.sh", folder, sys.executable, "ON"], environment)
        start, used = time.monotonic(), processor_seconds()
        for name, targets, most in BUILDS:
            run(["ninja", "-C", folder, "-j", str(options.jobs), *targets], environment)
            minutes = (processor_seconds() - used) / 60
            objects = sum(1 for _ in Path(folder).rglob("*.o"))
            rows.append(
                [
                    name,
                    str(objects),
                    f"{minutes:.1f}",
                    str(most),
                    verdict(minutes <= most),
                    f"{(time.monotonic() - start) / 60:.1f}",
                ]
            )
    table(rows)


if __name__ == "__main__":
    main()
