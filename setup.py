"""python setup.py bdist_wheel: the wheel in dist/, made by the back end that pyproject.toml names.

For who is used to this command; `pip install .` is the same and needs nothing of this file. Offline
the back end has to be there: it is fetched only where this Python does not have it.
"""

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
USAGE = "python setup.py bdist_wheel [--dist-dir FOLDER]"


def wanted() -> list:
    """[(name, version)] of the back end, from pyproject.toml."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"([\w-]+)==([\d.]+)"', re.search(r"^requires = .*$", text, re.M).group())


def is_here(name: str, version: str) -> bool:
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def dist_dir(arguments: list) -> str:
    """The folder that the command line asks for; anything else it may ask for ends the program."""
    command, *rest = arguments or [""]
    rest = [part for word in rest for part in word.split("=", 1)]
    if command != "bdist_wheel" or rest[:-1] not in ([], ["--dist-dir"], ["-d"]) or len(rest) == 1:
        sys.exit(
            f"error: setup.py only makes a wheel: expected {USAGE}, "
            f"found {' '.join(arguments) or 'nothing'}; to install: python -m pip install ."
        )
    return rest[1] if rest else str(ROOT / "dist")


def main() -> int:
    folder = dist_dir(sys.argv[1:])
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, str(ROOT)]
    missing = [f"{name}=={version}" for name, version in wanted() if not is_here(name, version)]
    if missing:
        print(f"== fetching {' and '.join(missing)} to build with", flush=True)
    else:
        command.append("--no-build-isolation")
    done = subprocess.run(command)
    if done.returncode != 0:
        hints = ["the libraries it is built from: packaging/install-debian.sh"]
        if missing:
            hints.append(f"without a network, from a copy: pip install {' '.join(missing)}")
        print("error: no wheel was made, see above; it may need", file=sys.stderr)
        print("\n".join(f"  {hint}" for hint in hints), file=sys.stderr)
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
