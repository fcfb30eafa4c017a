"""Names of the older tools that programs import and that do not exist here.

Such a name can be imported, so that a program that uses it under a condition still runs. To use it
raises one error, which says what to use in its place.
"""

from msprobe._engine import UnsupportedError, message


def missing(name, instead):
    """A class of this name: a call raises UnsupportedError, an attribute AttributeError.

    Args:
        name: as programs import it.
        instead: what there is in its place, a whole clause: a message.
    """
    text = message("{} does not exist in this version of msprobe; {}", name, instead)

    def fail(*args, **kwargs):
        raise UnsupportedError(text)

    def absent(cls, attribute):
        raise AttributeError(text)

    return type("Missing", (type,), {"__getattr__": absent})(
        name, (), {"__new__": fail, "__doc__": text}
    )
