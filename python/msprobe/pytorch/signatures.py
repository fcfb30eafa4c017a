"""The names of the parameters of functions that PyTorch writes in C++ or in Python.

A comparison calls an argument by the name of its parameter: ``training``, not ``input.2``.
"""

import inspect
import re
import sys

import torch

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
# What x + y calls; i and r in front: x += y, and y + x of another x.
_OPERATORS = re.compile(
    "__[ir]?(add|sub|mul|truediv|div|floordiv|mod|pow|matmul|and|or|xor|lshift|rshift)__"
    "|__(eq|ne|lt|le|gt|ge)__"
)
# As torch/_C/__init__.pyi has them: Python's own slots have no names.
_SLOTS = {"__getitem__": ["self", "indices"], "__setitem__": ["self", "indices", "val"]}
# The types of a schema, as a dump writes the values that fit; other types fit anything.
_TYPES = {
    "Tensor": "Tensor",
    "List[Tensor]": "Tensor[]",
    "int": "int",
    "SymInt": "int",
    "bool": "bool",
    "float": "float/int",
    "number": "int/float/complex/bool",
    "str": "str",
    "List[int]": "int/int[]/torch.Size",
    "List[SymInt]": "int/int[]/torch.Size",
    "ScalarType": "torch.dtype",
    "Device": "torch.device/str/int",
    "MemoryFormat": "torch.memory_format",
    "Layout": "torch.layout",
}


def parameter_names(api, functions):
    """The positional parameters of the functions that are recorded as ``api``: overloads.

    Each overload is a list of names. ``"dim: int"`` is a parameter that takes only values of that
    type, where overloads differ; ``"dims..."`` takes all arguments from its place on. An overload
    without names is left out: a function whose names nobody knows gives ``[]``.
    """
    overloads = []
    for function in functions:
        for overload in _of_python(function) or _of_schemas(api, function):
            _add(overload, overloads)
    return [[_name(each) for each in overloads[0]]] if len(overloads) == 1 else overloads


def _name(parameter):
    return parameter.partition(": ")[0]


def _word(parameter):
    return _name(parameter).rstrip(".")


def _add(overload, overloads):
    """Add an overload, or let one whose names go on as its own do take its types."""
    for i, other in enumerate(overloads):
        shorter, longer = sorted((overload, other), key=len)
        if all(_word(a) == _word(b) for a, b in zip(shorter, longer)):  # noqa: B905 (Python 3.9)
            overloads[i] = [_either(*both) for both in zip(shorter, longer)]  # noqa: B905
            overloads[i] += longer[len(shorter) :]
            return
    overloads.append(overload)


def _either(a, b):
    """One parameter that takes what both of that name take."""
    types = [each.partition(": ")[2] for each in (a, b)]
    name = max(_name(a), _name(b), key=len)
    if not all(types):
        return name
    return f"{name}: {'/'.join(dict.fromkeys('/'.join(types).split('/')))}"


def _of_python(function):
    """The overload that the function's own signature has; []: it has none."""
    try:
        # max_pool2d and others: two functions behind one that takes (*args, **kwargs).
        dispatched = sys.modules["torch._jit_internal"].boolean_dispatched
        while behind := dispatched.get(function):
            function = behind["if_true"]
        parameters = inspect.signature(function).parameters.values()
    except (AttributeError, KeyError, TypeError, ValueError):
        return []
    names = []
    for parameter in parameters:
        if parameter.kind in _POSITIONAL:
            names.append(parameter.name)
        elif parameter.kind == inspect.Parameter.VAR_POSITIONAL and parameter.name != "args":
            names.append(parameter.name + "...")
    return [names] if names else []


def _of_schemas(api, function):
    """The overloads of the ATen operator of this name, or of the operator itself."""
    name = getattr(function, "__name__", "")
    is_method = api.startswith("Tensor.")
    if is_method and name in _SLOTS:
        return [_SLOTS[name]]
    if is_method and _OPERATORS.fullmatch(name):
        return [["self", "other"]]
    own = _own_schemas(function)
    schemas_of = getattr(torch._C, "_jit_get_schemas_for_operator", lambda name: [])
    if own is None and name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    schemas = schemas_of(f"aten::{name}") if own is None else own
    if inspect.isfunction(function):
        schemas = []  # it takes (*args), and the operator a list: einsum
    overloads = [_of_schema(each, is_method) for each in schemas if _is_called(each, is_method)]
    overloads = overloads or _of_doc(api, function)
    if is_method or own is not None:
        return overloads
    # The documentation of functions says `input` for what schemas call `self`.
    return [[re.sub(r"^self\b", "input", name) for name in names] for names in overloads]


def _own_schemas(function):
    """Those of torch.ops.<namespace>.<operator>; None: the function is no such operator."""
    if isinstance(function, getattr(torch._ops, "OpOverload", ())):
        return [function._schema]  # noqa: SLF001
    if isinstance(function, getattr(torch._ops, "OpOverloadPacket", ())):
        return [getattr(function, each)._schema for each in function.overloads()]  # noqa: SLF001
    return None


def _type_of(argument):
    text = str(getattr(argument, "real_type", argument.type))
    return text[len("Optional[") : -1] if text.startswith("Optional[") else text


def _is_called(schema, is_method):
    """Whether Python can call the overload; others are of TorchScript's numbers and lists."""
    # Dimname: dimensions by name, which programs do not use.
    if schema.overload_name.startswith("prim_") or "Dimname" in str(schema):
        return False
    if is_method:
        return any(each.name == "self" and _type_of(each) == "Tensor" for each in schema.arguments)
    return any(_type_of(each) == "Tensor" for each in [*schema.arguments, *schema.returns])


def _of_schema(schema, is_method):
    arguments = [each for each in schema.arguments if not each.kwarg_only]
    if is_method:  # x.polygamma(2), aten::polygamma(int n, Tensor self)
        arguments.sort(key=lambda each: each.name != "self")
    names = []
    for argument in arguments:
        kind = _TYPES.get(_type_of(argument), "")
        names.append(f"{argument.name}: {kind}" if kind else argument.name)
    # x.view(2, 3), torch.rand(2, 3): a list at the end may be given as single numbers.
    may_be_numbers = is_method or len(arguments) == 1
    if arguments and may_be_numbers and "int[]" in names[-1]:
        names[-1] = names[-1].replace(": ", "...: ")
    return names


def _of_doc(api, function):
    """The names in the first line of the documentation: ``map_(tensor, callable)``."""
    name = getattr(function, "__name__", "")
    lines = (getattr(function, "__doc__", None) or "").strip().splitlines()
    found = re.match(rf"(?:\w+\.)*{re.escape(name)}\(([^()]*)\)", lines[0]) if lines else None
    is_method = api.startswith("Tensor.")
    if not name or not found:
        return [["self"]] if is_method else []
    names = ["self"] if is_method else []
    for part in filter(None, (each.strip() for each in found[1].split(","))):
        if part == "*" or part.startswith("**"):
            break
        word = re.match(r"\*?\w+", part)
        if part != "/" and word:
            names.append(word[0][1:] + "..." if word[0].startswith("*") else word[0])
    return [names] if names else []
