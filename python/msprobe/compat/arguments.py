"""Checks the arguments of ``ptdbg_ascend``'s functions and converts them to one form."""

import itertools

from msprobe import _engine
from msprobe._engine import message
from msprobe.compat.errors import RegistrationError

MODES = ("all", "list", "range", "stack", "acl", "api_list", "api_stack")
_NUMBERS = {1: "all", 2: "list", 3: "range", 4: "stack", 5: "acl", 6: "api_list"}
_PARTS = ("forward", "backward", "input", "output")


def mode_word(mode):
    """The word for a mode, which may be given as a number as well."""
    if mode is None:
        return "all"
    word = _NUMBERS.get(mode) if isinstance(mode, int) and not isinstance(mode, bool) else mode
    if word not in MODES:
        known = ", ".join(f'"{each}"' for each in MODES)
        raise RegistrationError(
            message("mode; expected 1 to 6 or one of {}; found {}", known, repr(mode))
        )
    if mode == 6:
        _engine.warn(
            message(
                "set_dump_switch: mode 6 had no meaning in ptdbg_ascend; here it means api_list"
            )
        )
    return word


def names_of(argument, names):
    """A list of names of calls, or of the numbers in front of them."""
    if names is None or isinstance(names, (str, int)):
        names = [] if names is None else [names]
    if not isinstance(names, (list, tuple)) or not all(
        isinstance(name, (str, int)) and not isinstance(name, bool) and name != "" for name in names
    ):
        raise RegistrationError(message("{}; expected names, found {}", argument, repr(names)))
    return [f"{name}_" if isinstance(name, int) else name for name in names]


def check_scope(mode, scope, api_list):
    """Raise unless the scope has as many names as the mode needs."""
    counts = {"list": (1, None), "range": (2, 2), "acl": (1, 1), "stack": (0, 2)}
    least, most = counts.get(mode, (0, None))
    if len(scope) < least or (most is not None and len(scope) > most):
        wanted = {
            "list": message("names of calls"),
            "range": message("the first and the last name"),
            "acl": message("one name"),
            "stack": message("no name, one, or the first and the last"),
        }[mode]
        raise RegistrationError(
            message('scope of mode "{}"; expected {}, found {}', mode, wanted, repr(scope))
        )
    if mode == "api_list" and not api_list:
        raise RegistrationError(
            message('api_list of mode "api_list"; expected parts of names, found none')
        )


def check_numbers(mode, scope):
    """For version 0.1, whose ranges are ranges of numbers: raise for names without numbers."""
    if mode == "range" or (mode == "stack" and len(scope) == 2):
        numbers = [int("".join(itertools.takewhile(str.isdigit, name)) or -1) for name in scope]
        if not 0 <= numbers[0] <= numbers[1]:
            raise RegistrationError(
                message(
                    'scope of mode "{}"; expected two names with numbers in front, the smaller '
                    'first, such as "3_Functional_relu_forward"; found {}',
                    mode,
                    repr(scope),
                )
            )


def is_true(argument, value):
    if not isinstance(value, bool):
        raise RegistrationError(
            message("{}; expected True or False, found {}", argument, repr(value))
        )
    return value


def is_on(argument, switch):
    if switch not in ("ON", "OFF"):
        raise RegistrationError(
            message('{}; expected "ON" or "OFF", found {}', argument, repr(switch))
        )
    return switch == "ON"


def parts_of(argument, given):
    """Directions and sides as a list; without a direction (or a side) both of them."""
    words = "all" if given is None else given
    words = list(words) if isinstance(words, (list, tuple)) else [words]
    unknown = [word for word in words if word not in (*_PARTS, "all")]
    if unknown or not words:
        raise RegistrationError(
            message(
                "{}; expected some of all, {}; found {}", argument, ", ".join(_PARTS), repr(given)
            )
        )
    if "all" in words:
        return list(_PARTS)
    for pair in (_PARTS[:2], _PARTS[2:]):
        if not any(word in words for word in pair):
            words += pair
    return words


def check_overflow_nums(number):
    if not isinstance(number, int) or isinstance(number, bool) or not (number > 0 or number == -1):
        raise RegistrationError(
            message(
                "overflow_nums; expected a number of 1 or more, or -1 for no end; found {}",
                repr(number),
            )
        )


def check_rank(rank):
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool) or rank < 0):
        raise RegistrationError(
            message("rank; expected a number of 0 or more, found {}", repr(rank))
        )
