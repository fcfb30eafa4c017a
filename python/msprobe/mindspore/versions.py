"""Which versions of MindSpore and NumPy can be observed; looked at before either is imported."""

import importlib.metadata
import os

from msprobe import UnsupportedError
from msprobe._engine import message

OLDEST = (2, 8)
_INSTALL = message("type: {}", "pip install mindspore==2.10.0 'numpy<2'")


def _numbers(version):
    return tuple(int(part) if part.isdecimal() else 0 for part in version.split(".")[:2])


def _version(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check():
    """Raise if MindSpore is missing or too old, or if NumPy is too new for it."""
    mindspore, numpy = _version("mindspore"), _version("numpy")
    if mindspore is None:
        raise UnsupportedError(
            message("msprobe.mindspore needs MindSpore, and found none; {}", _INSTALL)
        )
    if _numbers(mindspore) < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UnsupportedError(
            message(
                "msprobe.mindspore; expected MindSpore {} or later, found {}; {}",
                oldest,
                mindspore,
                _INSTALL,
            )
        )
    if numpy is not None and _numbers(numpy) >= (2, 0):
        raise UnsupportedError(
            message(
                "MindSpore {} is built for NumPy 1; expected numpy<2, found {}; {}",
                mindspore,
                numpy,
                _INSTALL,
            )
        )


def rank():
    """The rank that a launcher such as msrun has given to this process; None in a run that is not
    distributed."""
    for name, size in (("RANK_ID", "RANK_SIZE"), ("MS_NODE_ID", "MS_WORKER_NUM")):
        given = os.environ.get(name, "")
        if given.isdecimal() and os.environ.get(size, "1") not in ("", "1"):
            return int(given)
    return None
