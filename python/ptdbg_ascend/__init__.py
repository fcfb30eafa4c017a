"""The import name of the older generation; everything is in `msprobe.compat`."""

__version__ = "0.1"

try:
    from msprobe.compat.errors import CompareException, DumpException

    __all__ = ["CompareException", "DumpException"]
except ModuleNotFoundError as error:
    if error.name not in ("msprobe", "msprobe._engine", "msprobe.compat"):
        raise
    _missing = str(error)

    def __getattr__(name):
        """A clone in which nothing is built, or another msprobe: only the version is known."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        raise ImportError(
            f"ptdbg_ascend in {__path__[0]} has no {name} without its engine, mindstudio-probe 27 "
            f"or newer ({_missing}); type `pip install .` in the clone, and take its folder from "
            "the PYTHONPATH"
        )
