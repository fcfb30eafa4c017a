"""Fuzzes the readers from seeds under tests/data and prints what came of it.

    CC=clang-14 CXX=clang++-14 cmake -S . -B build-fuzz -G Ninja -DMSPROBE_FUZZ=ON \
        -DMSPROBE_SANITIZE=address,undefined,fuzzer-no-link
    ninja -C build-fuzz pt_fuzz
    python fuzz/run.py --build build-fuzz --seconds 120 pt

A reader that crashes leaves the input in the build folder, and the exit code is 1.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"


def pickles_of(archive):
    with zipfile.ZipFile(archive) as file:
        for name in file.namelist():
            if name.endswith("data.pkl"):
                info = file.getinfo(name)
                info.CRC = None  # one golden file has none on purpose
                yield file.read(info)


def seeds(name):
    """The bytes a corpus starts from."""
    if name == "npy":
        return [path.read_bytes() for path in sorted(DATA.glob("npy/**/*.npy"))]
    if name == "safetensors":
        return [path.read_bytes() for path in sorted(DATA.glob("safetensors/**/*.safetensors"))]
    archives = [path for path in sorted(DATA.glob("pt/**/*.pt")) if zipfile.is_zipfile(path)]
    if name in ("pt", "zip"):
        return [path.read_bytes() for path in archives]
    if name == "pickle":
        return [pickle for path in archives for pickle in pickles_of(path)]
    return [path.read_bytes() for path in sorted((DATA / "dumps").glob("**/*.json"))]


def fuzz(build, name, seconds):
    program = (build / "fuzz" / f"{name}_fuzz").resolve()
    if not program.exists():
        sys.exit(f"{program} is not built; type: ninja -C {build} {name}_fuzz")
    work = build.resolve() / "corpus" / name
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    for index, content in enumerate(seeds(name)):
        (work / f"seed{index}").write_bytes(content)
    command = [program, work, f"-max_total_time={seconds}", "-max_len=8192", "-print_final_stats=1"]
    command += ["-rss_limit_mb=4096", "-timeout=20", f"-artifact_prefix={build.resolve()}/{name}-"]
    dictionary = ROOT / "fuzz" / f"{name}.dict"
    if not dictionary.exists() and name in ("pt", "pickle"):
        dictionary = ROOT / "fuzz" / "pickle.dict"
    if dictionary.exists():
        command.append(f"-dict={dictionary}")
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    runs = re.findall(r"stat::number_of_executed_units:\s*(\d+)", done.stderr)
    covered = re.findall(r"cov: (\d+) ft: (\d+)", done.stderr)
    edges = covered[-1] if covered else ("?", "?")
    print(f"{name}: {runs[-1] if runs else '?'} executions, {edges[0]} edges, {edges[1]} features")
    if done.returncode != 0:
        print(done.stderr[-4000:])
    return done.returncode == 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build folder")
    parser.add_argument("--seconds", type=int, default=120, help="for each reader")
    parser.add_argument("names", nargs="+", help="npy safetensors pt pickle zip dump")
    arguments = parser.parse_args()
    results = [fuzz(arguments.build, name, arguments.seconds) for name in arguments.names]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
