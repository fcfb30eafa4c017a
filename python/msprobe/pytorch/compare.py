"""``from msprobe.pytorch import compare, compare_distributed``: the calls of msprobe 1.0 to 8."""

import json
import os

from msprobe import UsageError, _engine
from msprobe._engine import message

# Keyword -> flag of the older command line. The value of a flag is a text or a path.
_SWITCHES = {"highlight": "-hl", "diff_analyze": "--diff_analyze"}
_VALUES = {
    "suffix": "--suffix",
    "memory": "--memory",
    "table_format": "--table-format",
    "thresholds": "--thresholds",
    "operations": "--operations",
    "data_mapping": "--data_mapping",
    "cell_mapping": "--cell_mapping",
    "api_mapping": "--api_mapping",
    "layer_mapping": "--layer_mapping",
}


def compare(
    input_param: dict,
    output_path: str,
    stack_mode: bool = False,
    auto_analyze: bool = True,
    fuzzy_match: bool = False,
    **kwargs,
) -> None:
    """Writes the table and the advisor's text of two dumps.

    docs/reference/compare.md describes the table.

    Args:
        input_param: a dict with the keys of ``compare.json``: ``npu_path``, ``bench_path`` and
            perhaps ``stack_path``, ``is_print_compare_log``; or ``npu_json_path``,
            ``bench_json_path``, ``stack_json_path``.
        output_path: folder for the files; created when missing.
        stack_mode: show the stacks that ``stack_path`` names.
        auto_analyze: write ``advisor_TIME.txt``.
        fuzzy_match: accepted without effect; call numbers never decide which calls are partners.
        **kwargs: ``highlight``, ``suffix``, ``table_format`` ("1.0", "1.2", "8", "26" or an older
            tool's; without it "1.2" for two dumps of msprobe 1.2, else "8"), ``thresholds``
            and ``operations`` (files), ``memory`` ("4GB"), ``diff_analyze``, ``data_mapping`` and
            the other mappings (paths).

    Raises:
        msprobe.UsageError: an unknown argument; dumps that cannot be compared, or of which no
            value was compared because none has a partner.
        msprobe.ConfigError: an unknown key of ``input_param``, or a value of the wrong type.
        msprobe.FileError, msprobe.DumpError: a path that does not exist; a damaged dump.
    """
    if not isinstance(input_param, dict):
        raise UsageError(
            message("input_param: expected a dict, found {}", type(input_param).__name__)
        )
    flags = ["--output_path", os.fspath(output_path)]
    flags += ["-s"] * bool(stack_mode) + ["-c"] * (not auto_analyze) + ["-f"] * bool(fuzzy_match)
    for key, value in kwargs.items():
        if key in _SWITCHES:
            flags += [_SWITCHES[key]] * bool(value)
        elif key not in _VALUES:
            known = ", ".join([*_SWITCHES, *_VALUES])
            raise UsageError(message("compare has no argument {}; it has {}", repr(key), known))
        elif value is not None and value != "":
            flags += [_VALUES[key], _text(key, value)]
    _engine.compare(json.dumps(input_param, default=os.fspath), flags)


def compare_distributed(npu_dump_dir: str, bench_dump_dir: str, output_path: str, **kwargs) -> None:
    """:func:`compare` for two folders with several ranks (or steps), paired by number.

    Args:
        npu_dump_dir: the folder under test, for example ``runs/new/step0``.
        bench_dump_dir: the folder to trust.
        output_path: folder for the files; each rank has a table.
        **kwargs: those of :func:`compare`, except ``suffix``, which names the rank here.
    """
    if kwargs.get("suffix"):
        raise UsageError(message("compare_distributed uses suffix for the rank numbers"))
    paths = {
        "npu_path": os.fspath(npu_dump_dir),
        "bench_path": os.fspath(bench_dump_dir),
        "is_print_compare_log": bool(kwargs.pop("is_print_compare_log", False)),
    }
    compare(paths, output_path, **kwargs)


def _text(key, value):
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    raise UsageError(message("{}: expected a text or a path, found {}", key, type(value).__name__))
