"""``compare`` of torch_npu.hooks.tools, and its command line."""

import argparse
import os
import sys
import warnings

from msprobe._engine import message
from msprobe.compat.compare import run
from msprobe.compat.errors import CompareException


def compare(
    pkl_path1=None, pkl_path2=None, output_path=None, shape_flag=False, half_cosine=False, **kwargs
):
    """Writes a csv file with Cosine, RMSE and MAPE of each value of two dumps.

    Calls that only one side has do not disturb the others: they have rows of their own.

    Example::

        compare("npu.pkl", "cpu.pkl", "result.csv", shape_flag=True)

    Args:
        pkl_path1: the dump under test; also called ``npu_pkl_path``.
        pkl_path2: the trusted dump; also called ``bench_pkl_path``.
        output_path: the csv file.
        shape_flag: calls with values of different shapes are not partners; without it the cells of
            such values say ``cannot be calculated``.
        half_cosine: cosines as 0.5 + 0.5 cos, like those in the tables of torch_npu.hooks.
        **kwargs: the two other names; any other keyword is a warning.

    Raises:
        CompareException: ``code`` is 1 for a path that does not exist, 6 for a file that is not a
            dump.
    """
    paths = []
    for name, other, value in (
        ("pkl_path1", "npu_pkl_path", pkl_path1),
        ("pkl_path2", "bench_pkl_path", pkl_path2),
        ("output_path", None, output_path),
    ):
        if other in kwargs:
            if value is not None:
                _refuse(message("{} and {} are the same; give one of them", name, other))
            value = kwargs.pop(other)
        if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
            _refuse(message("{}: expected a path, found {:.60}", name, repr(value)))
        paths.append(os.fspath(value))
    for key in kwargs:
        warnings.warn(message("compare: {} is not known, and ignored", repr(key)), stacklevel=2)
    folder = os.path.dirname(paths[2]) or "."
    if not os.path.isdir(folder) or os.path.isdir(paths[2]):
        _refuse(
            message("output_path {}: expected a file in an existing folder", paths[2]),
            CompareException.INVALID_PATH_ERROR,
        )
    words = ["compare", "--target_path", paths[0], "--golden_path", paths[1]]
    words += ["--table-format", "hooks", "--table-file", paths[2]]
    words += ["--match-shapes"] * bool(shape_flag) + ["--half-cosine"] * bool(half_cosine)
    run(words, paths[:2])


def main(argv=None):
    """``python -m torch_npu.hooks.tools --npu_pkl A --bench_pkl B --out_path C [--shape]``.

    Returns:
        0, or the code of the error, which is printed.
    """
    parser = argparse.ArgumentParser(
        prog="python -m torch_npu.hooks.tools",
        description="Compares two dumps of torch_npu.hooks and writes a csv file.",
    )
    parser.add_argument("--npu_pkl", required=True, help="the dump under test")
    parser.add_argument("--bench_pkl", required=True, help="the trusted dump")
    parser.add_argument("--out_path", required=True, help="the csv file")
    parser.add_argument("--shape", action="store_true", help="pair only calls with equal shapes")
    given = parser.parse_args(argv)
    try:
        compare(given.npu_pkl, given.bench_pkl, given.out_path, given.shape)
    except CompareException as error:
        print(f"error: {error}", file=sys.stderr)
        return error.code
    return 0


def _refuse(message, code=CompareException.INVALID_PARAM_ERROR):
    raise CompareException(code, message)
