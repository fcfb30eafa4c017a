"""Installs the newest PyTorch release of PyPI that imports on this machine, without a GPU.

    .cache/torch-latest/bin/python packaging/install_latest_torch.py 2.13.0

Run it with the Python of the environment. The argument is the version that `make test` uses: when
nothing newer imports here, one line says so and the exit code is 1. Wheels of PyPI are built for
CUDA, whose libraries must be there although no GPU is; Triton, which compiles for GPUs only, is
left out. Nothing is downloaded where the newest release is installed already.
"""

import importlib
import importlib.metadata
import re
import subprocess
import sys

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.version import Version

INDEX = ("--index-url", "https://pypi.org/simple")  # no wheels of another index or folder
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-cache-dir")
FOR_GPUS_ONLY = {"triton", "cuda-bindings"}
TRIES = 3  # releases, the newest first


def install(*words: str) -> bool:
    command = [*PIP, "install", "--quiet", "--no-compile", "--no-warn-conflicts", *INDEX]
    return subprocess.run([*command, *words]).returncode == 0


def releases(newer_than: Version) -> list:
    """Versions that pip would install here, the newest first."""
    words = [*PIP, "index", "versions", "torch", *INDEX]
    done = subprocess.run(words, capture_output=True, text=True)
    listed = re.search(r"^Available versions: (.+)$", done.stdout, re.M)
    if not listed:
        sys.exit(f"error: PyPI lists no release of torch for this Python: {done.stderr.strip()}")
    found = [Version(text.strip()) for text in listed[1].split(",")]
    return sorted((v for v in found if v > newer_than), reverse=True)


def imports() -> str:
    """The version that imports and computes; "": none does."""
    words = "import torch; assert torch.ones(3).sum() == 3; print(torch.__version__)"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True)
    if done.returncode != 0:
        print("  ", (done.stderr.strip().splitlines() or ["no reason"])[-1])
    return done.stdout.strip()


def with_libraries() -> bool:
    """Installs what the installed torch asks for, except what only a GPU needs."""
    importlib.invalidate_caches()
    wanted = [Requirement(text) for text in importlib.metadata.requires("torch")]
    here = [r for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})]
    words = []
    for r in here:
        r.marker = None
        words += [str(r)] * (r.name not in FOR_GPUS_ONLY)
    return install(*words)


def main() -> int:
    tested = Version(sys.argv[1])
    newer = releases(tested)
    for version in newer[:TRIES]:
        print(f"== PyTorch {version}")
        if not install("--no-deps", f"torch=={version}"):
            continue
        if with_libraries() and imports():
            return 0
    tried = ", ".join(map(str, newer[:TRIES])) or "none is listed"
    said = f"no PyTorch newer than {tested} imports on this machine (tried: {tried})"
    print(said, file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
