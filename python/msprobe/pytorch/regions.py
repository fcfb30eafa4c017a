"""Restricts the recording between start and stop to some forward passes of the model."""

from msprobe import _engine

_KEY = "msprobe"  # the key of our hook; the keys of other hooks are numbers
_root = None  # the module that has our hook


def begin(model, token_range):
    """To be called before the engine starts."""
    global _root
    end()
    _engine.set_token_range(*(token_range or (None, None)))
    if token_range is not None:
        _root = model[0] if isinstance(model, (list, tuple)) else model
        _root._forward_pre_hooks[_KEY] = _engine.begin_token


def end():
    """Remove every hook."""
    global _root
    if _root is not None:
        _root._forward_pre_hooks.pop(_KEY, None)
        _root = None
