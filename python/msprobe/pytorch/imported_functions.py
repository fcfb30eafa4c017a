"""The classes of torch.autograd.Function that modules of the user's program define.

A dump has the name of a class alone. No dump decides what is imported: the user names the modules.
"""

import importlib
import importlib.util
import pathlib
import sys

import torch

from msprobe.pytorch.execution import Unsupported


class ImportedFunctions:
    """Imports modules of the program, whose code runs, and finds their Functions.

    Args:
        modules: names such as ``"model.ops"``, or files, ``"train.py"``.

    Example::

        ImportedFunctions(["model.ops"]).apply_of("Exp")(torch.ones(2))
    """

    def __init__(self, modules):
        self._modules = [_imported(name) for name in modules]

    def apply_of(self, name):
        """What calls the Function that was recorded as ``Function.<name>``.

        Raises:
            Unsupported: no class of the modules has the name, or several have it.
        """
        found = {each for each in _subclasses(torch.autograd.Function) if self._has(each, name)}
        if len(found) == 1:
            return found.pop().apply
        modules = ", ".join(each.__name__ for each in self._modules)
        if not found:
            raise Unsupported(f"{modules} defines no torch.autograd.Function called {name}")
        names = ", ".join(sorted(f"{each.__module__}.{each.__qualname__}" for each in found))
        raise Unsupported(
            f"several classes are called {name}: {names}; import one of their modules"
        )

    def _has(self, function, name):
        if function.__name__ != name:
            return False
        return any(
            f"{function.__module__}.".startswith(f"{module.__name__}.")
            or getattr(module, name, None) is function
            for module in self._modules
        )


def _subclasses(kind):
    for each in kind.__subclasses__():
        yield each
        yield from _subclasses(each)


def _imported(name):
    if not name.endswith(".py"):
        return importlib.import_module(name)
    path = pathlib.Path(name).resolve()
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module  # pickle and dataclasses look it up
    sys.path.insert(0, str(path.parent))  # as when the file is a program
    specification.loader.exec_module(module)
    return module
