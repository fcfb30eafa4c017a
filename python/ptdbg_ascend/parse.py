"""``ptdbg_ascend.parse`` is a function and, as ``python -m ptdbg_ascend.parse``, a shell."""

import sys
from types import ModuleType

from msprobe.compat.parse import parse


class _Function(ModuleType):
    """This module has the name of the function: it can be called in its place."""

    def __call__(self, pkl_file, module_name_prefix):
        """See :func:`msprobe.compat.parse.parse`."""
        return parse(pkl_file, module_name_prefix)


sys.modules[__name__].__class__ = _Function

if __name__ == "__main__":
    from msprobe import MsprobeError, _engine

    try:
        sys.exit(_engine.run(["parse", *sys.argv[1:]]))
    except MsprobeError as error:
        sys.exit(f"error: {error}")
