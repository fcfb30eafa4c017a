"""The names of the parameters of functions that PyTorch writes in C++ or in Python.

A comparison calls an argument by the name of its parameter: ``training``, not ``input.2``.
"""

import inspect
import sys

import torch

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def parameter_names(api, functions):
    """Names of the positional parameters of the functions that are recorded as ``api``.

    ``""`` stands for a parameter whose name is not known, or not the same in all of them. A name
    that is not sure is left out.
    """
    each = []
    for function in functions:
        names = _of_python(function)
        each.append(_of_schemas(api, function) if names is None else names)
    common = [names[0] if len(set(names)) == 1 else "" for names in zip(*each, strict=False)]
    while common and not common[-1]:
        common.pop()
    return common


def _of_python(function):
    """The names that the function's own signature has; None: it has none."""
    try:
        # max_pool2d and others: two functions behind one that takes (*args, **kwargs).
        behind = sys.modules["torch._jit_internal"].boolean_dispatched.get(function)
        function = behind["if_true"] if behind else function
        parameters = inspect.signature(function).parameters.values()
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
    names = []
    for parameter in parameters:
        if parameter.kind not in _POSITIONAL:
            break
        names.append(parameter.name)
    return names


def _of_schemas(api, function):
    """The names in which the overloads of the ATen operator of this name agree."""
    name = getattr(function, "__name__", "")
    if name.startswith("__") and name.endswith("__"):
        name = name[2:-2]
    is_method = api.startswith("Tensor.")
    schemas_of = getattr(torch._C, "_jit_get_schemas_for_operator", lambda name: [])
    overloads = [
        _of_schema(schema, is_method)
        for schema in schemas_of(f"aten::{name}")
        if _takes_tensors(schema)
    ]
    names = []
    for index in range(max(map(len, overloads), default=0)):
        here = {overload[index] for overload in overloads if index < len(overload)}
        names.append(here.pop() if len(here) == 1 else "")
    # The documentation of functions says `input` for what schemas call `self`.
    return names if is_method else ["input" if name == "self" else name for name in names]


def _takes_tensors(schema):
    # Dimname: dimensions by name, which programs do not use.
    kinds = [str(argument.type) for argument in schema.arguments]
    return bool(kinds) and "Tensor" in kinds[0] and not any("Dimname" in kind for kind in kinds)


def _of_schema(schema, is_method):
    arguments = [each for each in schema.arguments if not each.kwarg_only]
    names = [argument.name for argument in arguments]
    # x.view(2, 3): a list at the end may be given as single numbers.
    if is_method and arguments and "List[int]" in str(arguments[-1].type):
        names[-1] = ""
    return names
