"""``python -m ptdbg_ascend.parse``: an interactive look at dumps of ptdbg_ascend."""

import argparse
import os
import shlex
import subprocess
import sys
from pathlib import Path

from msprobe import MsprobeError, _engine
from msprobe.compat.errors import CompareException
from msprobe.compat.parse import parse

PROMPT = "Parse >>> "
QUIT = ("q", "quit", "exit", "bye")
HELP = """\
  pt -n FILE.npy                shape, dtype, maximum, minimum, mean of a tensor
  cn -m A.npy -g B.npy          where two tensors differ; -p LINES -al ABSOLUTE -rl RELATIVE, -s saves both as text
  pk -f FILE.pkl -n NAME        stacks and statistics of the calls whose names begin with NAME
  vc -m DIR -g DIR              compare two folders of operator dumps; -out DIR -asc PATH (needs CANN)
  dc -n FILE                    convert operator dumps; -f FORMAT -out DIR -asc PATH (needs CANN)
  quit                          leave; anything else runs as a command"""  # noqa: E501
_MSACCUCMP = "tools/operator_cmp/compare/msaccucmp.py"
_CANN = "/usr/local/Ascend/ascend-toolkit/latest"


class _Parser(argparse.ArgumentParser):
    """Raises an exception for a wrong argument; argparse would end the shell."""

    def error(self, message):
        raise CompareException(
            CompareException.INVALID_PARAM_ERROR, f"{self.prog}: {message}; help shows the commands"
        )

    def exit(self, status=0, message=None):
        raise _Done


class _Done(Exception):
    """The help of a command was printed."""


def main():
    """Reads commands until the input ends.

    Returns:
        The exit status, 0.
    """
    interactive = sys.stdin.isatty()
    print(f"help shows the commands, {QUIT[1]} leaves")
    while True:
        try:
            line = input(PROMPT if interactive else "").strip()
        except EOFError:
            return 0
        except KeyboardInterrupt:
            print()
            continue
        if line.lower() in QUIT:
            return 0
        try:
            _do(line)
        except (MsprobeError, CompareException) as error:
            print(f"error: {error}")
        except _Done:
            pass
        except KeyboardInterrupt:
            print()
        sys.stdout.flush()


def _do(line):
    try:
        words = shlex.split(line)
    except ValueError:  # an open quote: the system's shell gets the line as it is
        words = line.split()
    if not words:
        return
    if words[0] == "help":
        print(HELP)
    elif words[0] in _COMMANDS:
        _COMMANDS[words[0]](words[1:])
    else:
        sys.stdout.flush()
        subprocess.run(line, shell=True, check=False)


def _parser(name, *flags):
    parser = _Parser(prog=name)
    for names, options in flags:
        parser.add_argument(*names.split(), **options)
    return parser


_REQUIRED = {"required": True}


def _tensor(words):
    given = _parser("pt", ("-n --name", _REQUIRED)).parse_args(words)
    print(_engine.describe_tensor_file(given.name), end="")


def _compare(words):
    given = _parser(
        "cn",
        ("-m --my_dump_path", _REQUIRED),
        ("-g --golden_dump_path", _REQUIRED),
        ("-p --print", {"type": int, "default": 20}),
        ("-al --atol", {"type": float, "default": 0.001}),
        ("-rl --rtol", {"type": float, "default": 0.001}),
        ("-s --save", {"action": "store_true"}),
    ).parse_args(words)
    text = _engine.compare_tensor_files(
        given.my_dump_path,
        given.golden_dump_path,
        given.print,
        given.atol,
        given.rtol,
        given.save,
    )
    print(text, end="")


def _lines(words):
    given = _parser("pk", ("-f --file", _REQUIRED), ("-n --name", _REQUIRED)).parse_args(words)
    parse(given.file, given.name)


def _vector_compare(words):
    given = _parser(
        "vc",
        ("-m --my_dump_path", _REQUIRED),
        ("-g --golden_dump_path", _REQUIRED),
        ("-out --output_path", {"default": "parse_data/compare_result"}),
        ("-asc --ascend_path", {}),
    ).parse_args(words)
    _msaccucmp(
        given.ascend_path,
        ["compare", "-m", given.my_dump_path, "-g", given.golden_dump_path],
        given.output_path,
    )


def _convert(words):
    given = _parser(
        "dc",
        ("-n --name", _REQUIRED),
        ("-f --format", {}),
        ("-out --output_path", {"default": "parse_data/dump_convert"}),
        ("-asc --ascend_path", {}),
    ).parse_args(words)
    format_ = ["-f", given.format] if given.format else []
    _msaccucmp(given.ascend_path, ["convert", "-d", given.name, *format_], given.output_path)


def _msaccucmp(given, words, output):
    script = given or os.path.join(os.environ.get("ASCEND_TOOLKIT_HOME", _CANN), _MSACCUCMP)
    if not os.path.isfile(script):
        raise CompareException(
            CompareException.INVALID_PATH_ERROR,
            f"there is no {script}: operator dumps are read by msaccucmp.py of CANN; -asc names it",
        )
    Path(output).mkdir(parents=True, exist_ok=True)
    subprocess.run([sys.executable, script, *words, "-out", output], check=False)


_COMMANDS = {
    "pt": _tensor,
    "cn": _compare,
    "pk": _lines,
    "vc": _vector_compare,
    "dc": _convert,
}
