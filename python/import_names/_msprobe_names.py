"""Answers `import ptdbg_ascend` and `import torch_npu.hooks` where no other package does.

Imported by msprobe-names.pth at every start of Python: it must stay light and import nothing.
The packages lie in msprobe/compat/packages/. What anybody else offers under these names wins, but
for a bare folder, such as a clone that is called ptdbg_ascend. Without a real torch_npu there is
no module torch_npu: who asks for it in order to find an NPU must go on finding none.
"""

import sys

_HOOKS = "torch_npu.hooks"
_BELOW = frozenset((f"{_HOOKS}.hooks", f"{_HOOKS}.tools", f"{_HOOKS}.tools.acc_compare"))
_NAMES = _BELOW | {"ptdbg_ascend", "torch_npu", _HOOKS}
_PACKAGES = __file__.rpartition("/")[0] + "/msprobe/compat/packages"


class NameFinder:
    """Stands before the finder of folders: a bare folder on the path would end the search there."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name not in _NAMES:
            return None
        if name in _BELOW:
            leave()  # importing the package above brought the parent back
        for finder in sys.meta_path:
            spec = None if finder is cls else _ask(finder, name, path, target)
            if spec is not None and spec.loader is not None:
                return spec
        meant = name != "torch_npu" or _hooks_are_meant(sys._getframe(1))
        return _ours(name) if meant and name not in _BELOW else None


def _ask(finder, *arguments):
    find_spec = getattr(finder, "find_spec", None)
    return find_spec(*arguments) if find_spec else None


def _ours(name):
    from importlib.machinery import PathFinder

    return PathFinder.find_spec(name, [f"{_PACKAGES}/torch_npu" if name == _HOOKS else _PACKAGES])


def leave():
    """Takes the parent that stands in for torch_npu away again."""
    found = getattr(sys.modules.get("torch_npu"), "__file__", None) or ""
    if found.startswith(_PACKAGES):
        del sys.modules["torch_npu"]


def _is_hooks(name):
    return isinstance(name, str) and (name == _HOOKS or name.startswith(_HOOKS + "."))


def _hooks_are_meant(frame):
    """Whether torch_npu is looked for only as the parent of its hooks.

    The importing functions on the stack say so; but for `import torch_npu.hooks` once the hooks are
    loaded: then only the statement itself does.
    """
    while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
        if frame.f_code.co_name == "_find_and_load" and _is_hooks(frame.f_locals.get("name")):
            return True
        frame = frame.f_back
    if frame is None:
        return False
    import dis

    steps = [step for step in dis.get_instructions(frame.f_code) if step.offset >= frame.f_lasti]
    if not steps or steps[0].opname != "IMPORT_NAME":
        return False
    return _is_hooks(steps[0].argval) or (
        # from torch_npu import hooks
        steps[0].argval == "torch_npu"
        and len(steps) > 1
        and (steps[1].opname, steps[1].argval) == ("IMPORT_FROM", "hooks")
    )


def _add():
    names = [getattr(finder, "__name__", "") for finder in sys.meta_path]
    place = names.index("PathFinder") if "PathFinder" in names else len(names)
    sys.meta_path.insert(place, NameFinder)


_add()
