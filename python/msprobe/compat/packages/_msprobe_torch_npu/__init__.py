"""Answers `from torch_npu.hooks import ...` when no real package has that name.

The rule, in the order in which an import is answered:

1. Real packages win: all other finders are asked first.
2. `torch_npu.hooks` is the folder `hooks` beside this file.
3. `torch_npu` is answered only while Python imports `torch_npu.hooks` or a module of it, for which
   it needs a parent package. Before and after, `find_spec("torch_npu")` is None and
   `import torch_npu` fails: programs that look for an NPU in this way must still find none.

With msprobe-old-names installed, each start of Python imports this file: it must stay small.
"""

import sys

_HOOKS = "torch_npu.hooks"


def _leave():
    """Removes our parent package."""
    if isinstance(sys.modules.get("torch_npu"), _Parent):
        del sys.modules["torch_npu"]


class _Parent(type(sys)):
    """The package torch_npu while its hooks are imported.

    After the import Python sets the attribute `hooks`; then the package is removed.
    """

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "hooks":
            _leave()


class _ParentLoader:
    @staticmethod
    def create_module(spec):
        # If the hooks cannot be imported, the error comes here, before sys.modules has torch_npu.
        import msprobe.compat.torch_npu_hooks  # noqa: F401

        return _Parent(spec.name)

    @staticmethod
    def exec_module(module):
        pass


class HooksFinder:
    """The first finder of sys.meta_path. It asks the others before it answers."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if not name.startswith("torch_npu"):
            return None
        if name.startswith(f"{_HOOKS}."):
            _leave()  # the import of torch_npu.hooks has added the parent package again
            return None  # PathFinder finds the module in the package
        if name not in ("torch_npu", _HOOKS):
            return None
        from importlib import _bootstrap
        from importlib.machinery import ModuleSpec, PathFinder

        for finder in sys.meta_path:
            spec = None if finder is cls else finder.find_spec(name, path, target)
            if spec is not None:
                return spec
        if name == _HOOKS:
            return PathFinder.find_spec(name, __path__)
        # Python holds a lock of a module's name while it imports the module.
        locks = list(getattr(_bootstrap, "_module_locks", ()))
        if any(lock == _HOOKS or lock.startswith(f"{_HOOKS}.") for lock in locks):
            return ModuleSpec(name, _ParentLoader, is_package=True)
        return None


def add():
    """Puts the finder into sys.meta_path, once."""
    if HooksFinder not in sys.meta_path:
        sys.meta_path.insert(0, HooksFinder)
