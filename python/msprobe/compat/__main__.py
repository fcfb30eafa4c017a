"""Runs a script of the older tools: ``python -m msprobe.compat SCRIPT [ARGUMENTS]``.

For this run ``ptdbg_ascend`` and ``torch_npu.hooks`` can be imported. Apart from that the script
runs as with ``python SCRIPT [ARGUMENTS]``. ``python -m msprobe.compat -m MODULE [ARGUMENTS]`` runs
a module.
"""

import builtins
import os
import runpy
import sys
from importlib.machinery import SourceFileLoader

from msprobe._engine import message

_USAGE = "python -m msprobe.compat SCRIPT [ARGUMENTS] or ... -m MODULE [ARGUMENTS]"


def add_old_names():
    """Makes the older tools' names importable. Real packages of these names still win."""
    folder = os.path.join(os.path.dirname(__file__), "packages")
    if folder not in sys.path:
        sys.path.append(folder)
    import _msprobe_torch_npu

    _msprobe_torch_npu.add()


def _fail(text):
    print(f"{message('error')}: {text}", file=sys.stderr)
    sys.exit(2)


def _run_script(script):
    loader = SourceFileLoader("__main__", os.path.join(os.getcwd(), script))
    try:
        source = loader.get_data(script)
    except OSError as error:
        _fail(
            message(
                "expected a script of Python, found {}: {}; usage: {}",
                script,
                error.strerror,
                _USAGE,
            )
        )
    if not getattr(sys.flags, "safe_path", False):  # python -P keeps the script's folder out
        sys.path[0] = os.path.dirname(os.path.realpath(script))
    main = type(sys)("__main__")
    main.__dict__.update(
        __file__=loader.path, __loader__=loader, __builtins__=builtins, __cached__=None
    )
    sys.modules["__main__"] = main
    exec(compile(source, loader.path, "exec", dont_inherit=True), main.__dict__)


def main():
    del sys.argv[0]
    if not sys.argv or (sys.argv[0].startswith("-") and sys.argv[0] != "-m") or sys.argv == ["-m"]:
        _fail(message("expected {}; found {}", _USAGE, " ".join(sys.argv) or message("no script")))
    add_old_names()
    if sys.argv[0] == "-m":
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        _run_script(sys.argv[0])


if __name__ == "__main__":
    main()
