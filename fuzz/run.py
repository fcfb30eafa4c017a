"""Fuzzes the readers, starting from recorded files, and prints a line of results for each.

    make fuzz                    # all targets, one hour in total
    make fuzz FUZZ_SECONDS=600 FUZZ="pt dump"

If a reader crashes, its input is written to the build folder, and the exit code is 1.
"""

import argparse
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

from seeds import ROOT, SEEDS, write_corpus

# Dictionaries: words that random mutations rarely produce (the default is json.dict).
WORDS = {"npy": "npy", "pt": "pickle", "pickle": "pickle", "zip": "pickle"}
# Limit of the input size in bytes: recorded dumps are larger than other inputs.
LONGEST = {"dump": 1 << 16, "recover": 1 << 16, "compare": 1 << 16}


def fuzz(build, name, seconds):
    program = (build / "fuzz" / f"{name}_fuzz").resolve()
    if not program.exists():
        sys.exit(f"{program} is not built; type: make fuzz")
    corpus = build.resolve() / "corpus" / name
    shutil.rmtree(corpus, ignore_errors=True)
    write_corpus(name, corpus)
    command = [program, corpus, f"-max_total_time={seconds}", "-print_final_stats=1"]
    command += [f"-max_len={LONGEST.get(name, 8192)}", "-rss_limit_mb=4096", "-timeout=20"]
    command += [f"-artifact_prefix={build.resolve()}/{name}-"]
    dictionary = ROOT / "fuzz" / f"{WORDS.get(name, 'json')}.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    took = time.monotonic() - started
    runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    edges = covered[-1] if covered else ("?", "?")
    print(
        f"{name:<12} {runs[-1] if runs else '?':>10} executions {edges[0]:>6} edges "
        f"{edges[1]:>6} features {took:6.0f} s  {'ok' if done.returncode == 0 else 'FAILED'}",
        flush=True,
    )
    if done.returncode != 0:
        print(done.stderr[-4000:])
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=Path, required=True, help="build folder")
    parser.add_argument("--seconds", type=int, default=3600, help="for all of them together")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(SEEDS)}")
    options = parser.parse_args()
    names = options.names or list(SEEDS)
    if unknown := set(names) - set(SEEDS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(SEEDS)}")
    results = [fuzz(options.build, name, options.seconds // len(names)) for name in names]
    print(f"{sum(results)} of {len(results)} targets without a finding")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
