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
HELP = """usage: python setup.py [-q | -v] COMMAND [OPTIONS] [COMMAND ...]

commands
  bdist_wheel  make the wheel; -d FOLDER, --dist-dir FOLDER: put it there (dist/)
  install      install with pip; --user, --prefix FOLDER, --root FOLDER and -f, --force go to pip
  build        nothing of its own: bdist_wheel and install compile what they need
  clean        nothing of its own: pip compiles in a temporary folder; make clean removes build/

-q, --quiet and -v, --verbose go to pip. --version, --name, --fullname, --description and --license
print what pyproject.toml holds. The same without this file: python -m pip install ."""

# Options of a command: name -> its long name; "=" ends the name of one that takes a value.
GLOBAL = {"-q": "--quiet", "--quiet": "--quiet", "-v": "--verbose", "--verbose": "--verbose"}
OPTIONS = {
    "bdist_wheel": {"-d=": "--dist-dir", "--dist-dir=": "--dist-dir"},
    "install": {
        "--user": "--user",
        "--prefix=": "--prefix",
        "--root=": "--root",
        "-f": "--force-reinstall",
        "--force": "--force-reinstall",
    },
    "build": {},
    "clean": {"-a": "--all", "--all": "--all"},
}


def fail(message: str):
    sys.exit(f"error: setup.py: {message}; see: python setup.py --help")


def about() -> dict:
    """`key = "text"` of pyproject.toml's [project]: tomllib is newer than our oldest Python."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project]")[1]
    return dict(re.findall(r'^([\w-]+) = (?:\{ text = )?"(.*?)"', text.split("\n[")[0], re.M))


def asked(word: str) -> str:
    """The answer to an option that only asks, such as --version; empty: `word` is none."""
    project = about()
    answers = {
        "--version": project["version"],
        "-V": project["version"],
        "--name": project["name"],
        "--fullname": f"{project['name']}-{project['version']}",
        "--description": project["description"],
        "--license": project["license"],
        "--help": HELP,
        "-h": HELP,
        "--help-commands": HELP,
    }
    return answers.get(word, "")


def take_option(words: list, known: dict, command: str) -> list:
    """Takes one option of `command` off `words`: [long name] or [long name, value]."""
    word = words.pop(0)
    if word in known:
        return [known[word]]
    name, is_joined, value = word.partition("=")
    if word[:2] in GLOBAL and set(word[1:]) <= {"q", "v"}:  # -qq
        return [GLOBAL[word[:2]]] * (len(word) - 1)
    if not word.startswith("--") and f"{word[:2]}=" in known and len(word) > 2:  # -dFOLDER
        name, is_joined, value = word[:2], True, word[2:]
    if f"{name}=" not in known:
        allowed = ", ".join(option.rstrip("=") for option in known)
        fail(f"expected {allowed} after {command or 'setup.py'}, found {word}")
    if not is_joined:
        if not words:
            fail(f"expected a folder after {word}, found nothing")
        value = words.pop(0)
    return [known[f"{name}="], value]


def parse(words: list) -> tuple:
    """([pip's -q and -v], [(command, its options)])."""
    words, loudness, commands = list(words), [], []
    while words:
        if not words[0].startswith("-"):
            if words[0] not in OPTIONS:
                hint = "; type: python -m pip install -e ." if words[0] == "develop" else ""
                fail(f"expected a command of {', '.join(OPTIONS)}, found {words[0]}{hint}")
            commands.append((words.pop(0), []))
            continue
        command, options = commands[-1] if commands else ("", [])
        taken = take_option(words, {**GLOBAL, **OPTIONS.get(command, {})}, command)
        (loudness if taken[0] in GLOBAL.values() else options).extend(taken)
    return loudness, commands


def pip(arguments: list) -> int:
    """Runs pip on this folder, with the back end that is here or with the one that pip fetches."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    requires = re.search(r"^requires = .*$", text, re.M).group()
    missing = [
        f"{name}=={version}"
        for name, version in re.findall(r'"([\w-]+)==([\d.]+)"', requires)
        if not is_here(name, version)
    ]
    command = [sys.executable, "-m", "pip", *arguments, str(ROOT)]
    if not missing:
        command.append("--no-build-isolation")
    elif "--quiet" not in arguments:
        print(f"== fetching {' and '.join(missing)} for the build", flush=True)
    done = subprocess.run(command)
    if done.returncode != 0:
        hints = ["the libraries that it uses: packaging/install-debian.sh"]
        if missing:
            hints.append(f"without a network, from a copy: pip install {' '.join(missing)}")
        print("error: the wheel was not built, see above; the build may need", file=sys.stderr)
        print("\n".join(f"  {hint}" for hint in hints), file=sys.stderr)
    return done.returncode


def is_here(name: str, version: str) -> bool:
    try:
        return importlib.metadata.version(name) == version
    except importlib.metadata.PackageNotFoundError:
        return False


def run(command: str, options: list, loudness: list) -> int:
    if command == "bdist_wheel":
        folder = options[-1] if options else str(ROOT / "dist")
        return pip(["wheel", "--no-deps", "--wheel-dir", folder, *loudness])
    if command == "install":
        return pip(["install", "--no-deps", *options, *loudness])
    return 0


def main() -> int:
    words = sys.argv[1:]
    answers = [asked(word) for word in words if asked(word)]
    if answers:
        print("\n".join(answers))
        return 0
    loudness, commands = parse(words)
    names = [command for command, _ in commands]
    if not commands:
        fail(f"expected a command of {', '.join(OPTIONS)}, found {' '.join(words) or 'nothing'}")
    if "build" in names and not {"bdist_wheel", "install"} & set(names):
        fail("expected bdist_wheel or install after build, which compile what they need")
    for command, options in commands:
        status = run(command, options, loudness)
        if status != 0:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
