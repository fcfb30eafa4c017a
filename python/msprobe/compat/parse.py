"""``parse`` of ptdbg_ascend."""

import os
import sys
import warnings

from msprobe import _engine
from msprobe._engine import message
from msprobe.compat.compare import translate
from msprobe.compat.errors import CompareException


def parse(pkl_file, module_name_prefix):
    """Prints call stacks and statistics of the calls whose names begin with a prefix.

    Example::

        parse("npu_dump.pkl", "21_Torch_batch_norm")

    Args:
        pkl_file: a file of ptdbg_ascend.
        module_name_prefix: a number at its start is the index of the call among all calls, from
            0, and is compared as a whole: ``"2_"`` is not the beginning of ``"21_Torch_add"``.

    Raises:
        CompareException: code 11 for a prefix that is not a text, 1 for a file that does not
            exist, 6 for a file that is not a dump.
    """
    if not isinstance(module_name_prefix, str):
        raise CompareException(
            CompareException.INVALID_PARAM_ERROR,
            message(
                "module_name_prefix: expected a text, found {}", type(module_name_prefix).__name__
            ),
        )
    if not isinstance(pkl_file, (str, os.PathLike)):
        raise CompareException(
            CompareException.INVALID_PARAM_ERROR,
            message("pkl_file: expected a path, found {}", type(pkl_file).__name__),
        )
    path = _engine.existing_tag(os.fspath(pkl_file))
    text, problems = translate(lambda: _engine.trace_lines(path, module_name_prefix), [path])
    for problem in problems:
        warnings.warn(message("parse: {}", problem), stacklevel=2)
    sys.stdout.write(text)
