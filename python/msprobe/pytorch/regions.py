"""Restricts the recording between start and stop to some forward passes of the model."""

from msprobe import UsageError, _engine

_KEY = "msprobe"  # the key of our hook; the keys of other hooks are numbers
_root = None  # the module that has our hook


def _is_count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def check(token_range, rank_id):
    """Raise for wrong arguments of start()."""
    if token_range is not None:
        pair = list(token_range) if isinstance(token_range, (list, tuple)) else []
        if len(pair) != 2 or not all(map(_is_count, pair)) or pair[0] > pair[1]:
            raise UsageError(
                "start: token_range; expected [first, last], two ascending numbers of 0 or more, "
                f" found {token_range!r}"
            )
    if rank_id is not None and not _is_count(rank_id):
        raise UsageError(f"start: rank_id; expected a number of 0 or more, found {rank_id!r}")


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
