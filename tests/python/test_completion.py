"""`msprobe completion SHELL`: what the shells complete, and that the scripts know every flag.

bash is tested on every machine; zsh and fish where they are installed.
"""

import fcntl
import os
import pty
import re
import select
import shutil
import subprocess
import termios
import time

import pytest

SHELLS = ["bash", "zsh", "fish"]


def said(msprobe_bin, *words):
    return subprocess.run([msprobe_bin, *words], check=True, capture_output=True, text=True).stdout


def verbs(msprobe_bin):
    return re.findall(
        r"^  (\w+)  +\w", said(msprobe_bin, "--help").split("usage:")[1], re.MULTILINE
    )


@pytest.fixture(scope="module")
def folder(msprobe_bin, tmp_path_factory):
    """A folder with the program, the scripts and files to complete."""
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        (folder / f"script.{shell}").write_text(said(msprobe_bin, "completion", shell))
    (folder / "bin").mkdir()
    (folder / "bin/msprobe").symlink_to(msprobe_bin)
    (folder / "target run/step0").mkdir(parents=True)
    (folder / "golden").mkdir()
    (folder / "mapping.yaml").write_text("")
    return folder


def in_bash(folder, line):
    """The words that bash offers for the end of the line, other than paths."""
    script = f"""
source script.bash
compopt() {{ echo "(paths)"; }}
COMP_WORDS=({line})
[[ '{line}' == *' ' ]] && COMP_WORDS+=('')
COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_msprobe
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
    done = subprocess.run(["bash", "-c", script], cwd=folder, capture_output=True, text=True)
    assert done.stderr == "", done.stderr
    return done.stdout.split()


def in_fish(folder, line):
    """The same for fish: the words without their descriptions."""
    script = f"source script.fish; complete -C '{line}'"
    environment = os.environ | {"HOME": str(folder)}
    done = subprocess.run(
        ["fish", "--no-config", "-c", script],
        cwd=folder, capture_output=True, text=True, env=environment,
    )  # fmt: skip
    assert done.stderr == "", done.stderr
    return [word.split("\t")[0] for word in done.stdout.splitlines()]


def typed(command, folder, line, prepare):
    """What an interactive shell makes of the line after the tabulator key."""
    main, end = pty.openpty()
    path = f"{folder}/bin:{os.environ['PATH']}"
    environment = os.environ | {"HOME": str(folder), "TERM": "dumb", "PS1": "", "PATH": path}

    def own_terminal():
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    child = subprocess.Popen(
        command, stdin=end, stdout=end, stderr=end, cwd=folder, env=environment,
        start_new_session=True, preexec_fn=own_terminal,
    )  # fmt: skip
    os.close(end)
    text = ""

    def read_until(mark):
        nonlocal text
        deadline = time.monotonic() + 30
        while mark not in text:
            assert time.monotonic() < deadline, f"no {mark!r} in {text!r}"
            if select.select([main], [], [], 0.1)[0]:
                text += os.read(main, 1 << 16).decode(errors="replace")

    try:
        # The mark is not in the typed text, only in what echo prints.
        os.write(main, f"{prepare}; echo re''ady\n".encode())
        read_until("ready")
        text = ""
        os.write(main, f"{line}\t".encode())
        time.sleep(1.5)  # shells drop what is typed while they complete
        os.write(main, b"\x01echo '<'\x05'>'\n")
        read_until("\n<")
        time.sleep(0.2)
        read_until(">")
    finally:
        child.kill()
        child.wait()
        os.close(main)
    return text.split("\n<")[-1].split(">")[0].split("\r")[0].strip()


@pytest.mark.parametrize("shell", SHELLS)
def test_every_flag_of_every_verb_is_known(msprobe_bin, folder, shell):
    script = (folder / f"script.{shell}").read_text()
    names = verbs(msprobe_bin)
    assert {"compare", "show", "recover", "completion", "version"} <= set(names)
    for verb in names:
        assert re.search(rf"\b{verb}\b", script)
        usage = said(msprobe_bin, verb, "--help-all")
        flags = set(re.findall(r"(?<=[ ,])--?[A-Za-z][\w-]*", "\n".join(
            line for line in usage.splitlines() if re.match(r"  (?:[A-Z]+, )?-", line)
        )))  # fmt: skip
        for flag in flags:
            # fish has no dashes before names.
            spelled = flag.lstrip("-") if shell == "fish" else flag
            assert re.search(rf"(?<![\w-]){re.escape(spelled)}(?![\w-])", script), (verb, flag)


BASH = [
    ("msprobe com", ["compare", "completion"]),
    ("msprobe recover --h", ["--help", "--help-all"]),
    ("msprobe compare --fo", ["--format"]),
    ("msprobe compare -t", ["-tp", "-tensor_log"]),
    ("msprobe compare --format ", ["table", "json", "csv"]),
    ("msprobe compare --format = j", ["json"]),
    ("msprobe compare a b --format c", ["csv"]),
    ("msprobe compare a b --rank ", []),
    ("msprobe compare ", ["(paths)"]),
    ("msprobe compare a b -o ", ["(paths)"]),
    ("msprobe compare -cm --out", ["--output_path"]),
    ("msprobe -f pytorch compa", ["compare"]),
    ("msprobe -f pytorch compare --xl", ["--xlsx"]),
    ("msprobe completion ", ["bash", "zsh", "fish"]),
    ("msprobe selfcheck ", ["(paths)"]),
    ("msprobe version ", []),
    ("msprobe nosuch --x", []),
]


@pytest.mark.parametrize("line, offered", BASH, ids=lambda value: str(value)[:40])
def test_bash(folder, line, offered):
    found = in_bash(folder, line)
    if line == "msprobe com":
        found = [word for word in found if word != "config_check"]
    assert found == offered


@pytest.mark.parametrize(
    "line, completed",
    [
        ("msprobe recov", "msprobe recover"),
        ("msprobe compare target", "msprobe compare target\\ run/"),
        ("msprobe compare a b --thresholds map", "msprobe compare a b --thresholds mapping.yaml"),
        ("msprobe compare a b --format=js", "msprobe compare a b --format=json"),
    ],
)
@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_typed_in_a_shell(folder, shell, line, completed):
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    if shell == "bash":
        command, prepare = ["bash", "--norc", "--noprofile", "-i"], "source script.bash"
    else:
        command = ["zsh", "-f", "-i"]
        prepare = "autoload -U compinit; compinit -D -u; source script.zsh"
    # echo removes the backslash, and zsh the slash at the end.
    found = typed(command, folder, line, prepare)
    assert found.rstrip("/") == completed.replace("\\", "").rstrip("/")


@pytest.mark.parametrize(
    "line, offered",
    [
        ("msprobe recov", ["recover"]),
        ("msprobe compare --fo", ["--format"]),
        ("msprobe compare --format ", ["table", "json", "csv"]),
        ("msprobe compare -t", ["-tp", "-tensor_log"]),
        ("msprobe compare gol", ["golden/"]),
        ("msprobe compare a b --thresholds map", ["mapping.yaml"]),
        ("msprobe completion ", ["bash", "zsh", "fish"]),
        ("msprobe ver", ["version"]),
    ],
)
def test_fish(folder, line, offered):
    if shutil.which("fish") is None:
        pytest.skip("fish is not installed")
    assert sorted(in_fish(folder, line)) == sorted(offered)


def test_an_unknown_shell_is_refused(msprobe_bin):
    done = subprocess.run([msprobe_bin, "completion", "csh"], capture_output=True, text=True)
    assert done.returncode == 2 and 'expected bash, zsh or fish, found "csh"' in done.stderr
