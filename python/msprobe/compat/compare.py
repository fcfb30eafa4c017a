"""``compare`` and ``compare_distributed`` of ptdbg_ascend 0.1 to 6.0."""

import os
import sys
import warnings

from msprobe import DumpError, FileError, MsprobeError, UnsupportedError, _engine
from msprobe._engine import message
from msprobe.compat.errors import CompareException

_EXIT_INCOMPLETE = 2
_HINTS = ("stack_mode", "fuzzy_match")  # accepted without effect: see compare()
_KNOWN = ("shape_flag", "auto_analyze", "suffix", "half_cosine", *_HINTS)
_PATHS = ("npu_pkl_path", "bench_pkl_path")
_FOLDERS = ("npu_dump_data_dir", "bench_dump_data_dir")


def compare(input_parma, output_path, *args, **kwargs):
    """Writes ``compare_result_TIME.csv``, and ``advisor_TIME.txt``, of two dumps.

    Example::

        compare({"npu_pkl_path": "npu/rank0/dump.pkl", "bench_pkl_path": "gpu/rank0/dump.pkl",
                 "npu_dump_data_dir": "npu/rank0/dump", "bench_dump_data_dir": "gpu/rank0/dump"},
                "./output")

    Args:
        input_parma: a dict with the two ``.pkl`` files, and the two folders of tensors; without
            these the statistics or checksums of the files are compared. ``is_print_compare_log``
            logs each row.
        output_path: an existing folder.
        *args: by position, as in the older versions. For dumps of 0.1, whose names begin with
            numbers: ``shape_flag``; for others: ``stack_mode, auto_analyze, fuzzy_match``.
        **kwargs: ``shape_flag`` (calls with values of different shapes are not partners; on by
            default for dumps of 0.1), ``auto_analyze`` (write the advisor's file), ``suffix``
            (added after ``compare_result``), ``half_cosine`` (for dumps of 0.1: cosines as
            0.5 + 0.5 cos). ``stack_mode`` and ``fuzzy_match`` are accepted without effect: the
            files tell whether there are stacks, and call numbers do not decide which calls are
            partners.

    Raises:
        CompareException: ``code`` is the number that the older versions used for the reason.
    """
    if not isinstance(input_parma, dict):
        _refuse(message("input_parma: expected a dict, found {}", type(input_parma).__name__))
    paths = [_path(input_parma, key) for key in _PATHS]
    folders = [_path(input_parma, key) if input_parma.get(key) else None for key in _FOLDERS]
    for key in input_parma.keys() - {*_PATHS, *_FOLDERS, "is_print_compare_log"}:
        warnings.warn(
            message("compare: {} of input_parma is not known, and ignored", repr(key)), stacklevel=2
        )
    output = _output_folder(output_path)
    of_paths = [_of_file(_engine.has_numbered_lines, path) for path in paths]
    numbered = all(of_paths)
    options = _options(numbered, args, kwargs, "compare")
    words = ["compare", "--target_path", paths[0], "--golden_path", paths[1], "-o", output]
    words += ["--table-format", "ptdbg-0.1" if numbered else "ptdbg"]
    if all(folders):
        words += ["--target-data", folders[0], "--golden-data", folders[1]]
    else:
        if any(folders):
            missing = _FOLDERS[folders.index(None)]
            warnings.warn(
                message("compare: {} is missing, so statistics are compared", missing), stacklevel=2
            )
        words.append("--no-tensor-files")
    words += ["--is_print_compare_log"] * bool(input_parma.get("is_print_compare_log"))
    run(words + options, paths + [f for f in folders if f])


def compare_distributed(npu_dump_dir, bench_dump_dir, output_path, **kwargs):
    """:func:`compare` for two folders of ranks; each has ``compare_result_rank0-rank0_TIME.csv``.

    Ranks are paired by number. When the two folders have no number in common, because the numbers
    are process ids, ranks are paired by order.

    Args:
        npu_dump_dir: the folder with the ranks under test, or one around it.
        bench_dump_dir: the folder with the ranks to trust, or one around it.
        output_path: an existing folder.
        **kwargs: those of :func:`compare`, except ``suffix``.

    Raises:
        CompareException: as :func:`compare`; code 1 also when the ranks cannot be paired.
    """
    if kwargs.pop("suffix", None):
        _refuse(message("compare_distributed uses suffix for the rank numbers"))
    paths = [_text("npu_dump_dir", npu_dump_dir), _text("bench_dump_dir", bench_dump_dir)]
    output = _output_folder(output_path)
    words = ["compare", "--target_path", paths[0], "--golden_path", paths[1], "-o", output]
    words += ["--table-format", "ptdbg", "--rank-order"]
    words += ["--is_print_compare_log"] * bool(kwargs.pop("is_print_compare_log", False))
    words += _options(False, (), kwargs, "compare_distributed")
    run(words, paths, usage=CompareException.INVALID_PATH_ERROR)


def run(words, paths, usage=CompareException.INVALID_PARAM_ERROR):
    """Runs ``msprobe`` in this process; an error is raised and not printed.

    Args:
        words: the words after ``msprobe`` on the command line.
        paths: the files that are read; they decide the code when one cannot be read.
        usage: the code of an error in the arguments.

    Raises:
        CompareException: with the code of the older versions.
    """
    sys.stdout.flush()
    if recorder := sys.modules.get("msprobe.compat.recorder"):
        recorder.flush()  # this process may be writing the dump that is read
    # When no value could be compared, the older tools wrote the table and raised nothing.
    words = [*words, "--allow-nothing-compared"]
    code = translate(lambda: _engine.run(words), paths, usage)
    if code == _EXIT_INCOMPLETE:
        raise CompareException(
            CompareException.INVALID_DATA_ERROR,
            message("some dumps could not be compared; the results of the others are written"),
        )


def translate(call, paths, usage=CompareException.INVALID_PARAM_ERROR):
    """Returns call(); an error of the engine becomes a :class:`CompareException`."""
    try:
        return call()
    except FileError as error:
        raise CompareException(_code_of(paths), str(error)) from None
    except DumpError as error:
        raise CompareException(CompareException.INVALID_FILE_ERROR, str(error)) from None
    except UnsupportedError as error:
        raise CompareException(CompareException.OVER_SIZE_FILE_ERROR, str(error)) from None
    except MsprobeError as error:
        raise CompareException(usage, str(error)) from None


def _code_of(paths):
    if any(not os.path.exists(path) for path in paths):
        return CompareException.INVALID_PATH_ERROR
    if any(not os.access(path, os.R_OK) for path in paths):
        return CompareException.PERMISSION_ERROR
    return CompareException.READ_FILE_ERROR


def _refuse(message, code=CompareException.INVALID_PARAM_ERROR):
    raise CompareException(code, message)


def _text(name, value):
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        _refuse(message("{}: expected a path, found {:.60}", name, repr(value)))
    path = os.fspath(value)
    if not isinstance(path, str):
        _refuse(message("{}: expected a text, found {:.60}", name, repr(path)))
    return path


def _path(paths, key):
    if key not in paths:
        _refuse(
            message(
                "input_parma has no {}; it has {}",
                key,
                ", ".join(map(str, paths)) or message("nothing"),
            )
        )
    return _of_file(_engine.existing_tag, _text(key, paths[key]))


def _of_file(call, path):
    return translate(lambda: call(path), [path])


def _output_folder(path):
    folder = _text("output_path", path)
    if not os.path.isdir(folder):
        _refuse(
            message(
                "output_path {}: expected an existing folder, found {}; mkdir -p makes it",
                folder,
                message("a file") if os.path.exists(folder) else message("nothing"),
            ),
            CompareException.INVALID_PATH_ERROR,
        )
    if not os.access(folder, os.W_OK):
        _refuse(
            message("output_path {} cannot be written to", folder),
            CompareException.PERMISSION_ERROR,
        )
    return folder


def _options(numbered, args, kwargs, name):
    """The flags for the arguments after `output_path`."""
    order = ("shape_flag", "stack_mode", "suffix") if numbered else _order_of(args)
    if len(args) > len(order):
        _refuse(message("{} takes {} arguments, found {}", name, 2 + len(order), 2 + len(args)))
    options = dict(zip(order, args, strict=False))
    for key, value in kwargs.items():
        if key in options:
            _refuse(message("{}: {} is given twice", name, key))
        if key in _KNOWN:
            options[key] = value
        else:
            warnings.warn(
                message("{}: {} is not known, and ignored", name, repr(key)), stacklevel=3
            )
    suffix = options.get("suffix") or ""
    if not isinstance(suffix, str):
        _refuse(message("suffix: expected a text, found {}", type(suffix).__name__))
    flags = ["--suffix", suffix] if suffix else []
    flags += ["--match-shapes"] * bool(options.get("shape_flag", numbered))
    if options.get("half_cosine"):
        if not numbered:
            _refuse(
                message(
                    "{}: half_cosine is only for dumps of 0.1, whose names begin with numbers", name
                )
            )
        flags.append("--half-cosine")
    return flags + ["--advisor"] * bool(options.get("auto_analyze", True))


def _order_of(args):
    """2.3 had ``suffix`` as third argument, before ``fuzzy_match``; later versions did not."""
    later = ("stack_mode", "auto_analyze", "fuzzy_match")
    texts = len(args) > 2 and isinstance(args[2], str)
    return ("stack_mode", "auto_analyze", "suffix", "fuzzy_match") if texts else later
