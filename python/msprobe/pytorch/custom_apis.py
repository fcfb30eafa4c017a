"""Functions beyond PyTorch's own: registered ones, torch.ops namespaces, Triton kernels."""

import os
import sys

import torch

from msprobe import UsageError, _engine
from msprobe._engine import message

LISTS = os.path.join(os.path.dirname(__file__), "hook_module", "custom_wrap_ops.yaml")

_listed = None  # (module, names) of the list that could not be observed yet
_missing = set()  # names that a warning has named
_looked_at = None  # how much was loaded when torch.ops was searched last


def register(module, api, prefix):
    """Observe attribute `api` of `module`."""
    prefix = prefix or getattr(module, "__name__", "Custom")
    for name, value in (("api", api), ("api_prefix", prefix)):
        if not isinstance(value, str) or not value:
            raise UsageError(
                message("register_custom_api: {}; expected a name, found {}", name, repr(value))
            )
    reason = _engine.register_api(prefix, module, api)
    if reason:
        raise UsageError(
            message("register_custom_api: {}.{} is not observed: {}", _name_of(module), api, reason)
        )


def restore(module, api):
    """Stop to observe attribute `api` of `module`."""
    if not isinstance(api, str) or not hasattr(module, api):
        raise UsageError(
            message("restore_custom_api: {} has no attribute {}", _name_of(module), repr(api))
        )
    _engine.restore_api(module, api)


def _name_of(module):
    return getattr(module, "__name__", repr(module))


def add():
    """To be called at each start: observe functions that were loaded since the last start."""
    _add_listed()
    _add_operators()
    _add_kernels()


def _add_listed():
    """Observe the functions of custom_wrap_ops.yaml whose modules are imported by now."""
    global _listed
    if _listed is None:
        _listed = _engine.read_name_lists(LISTS)
    missing, waiting = {}, []
    for module_name, names in _listed:
        module = sys.modules.get(module_name)
        for name in names:
            reason = "the module is not imported yet"
            if module is not None:
                reason = _engine.register_api(module_name, module, name)
            if reason:
                missing[f"{module_name}.{name}"] = reason
                waiting.append((module_name, [name]))
    _listed = waiting
    fresh = [f"{name} ({reason})" for name, reason in missing.items() if name not in _missing]
    _missing.update(missing)
    if fresh:
        _engine.warn(
            message("custom_wrap_ops.yaml: not observed until a later start: {}", ", ".join(fresh))
        )


def _add_operators():
    global _looked_at
    namespaces = _engine.custom_op_namespaces()
    # Operators come with a module, a library or a decorator. If none came, skip the slow search.
    loaded = (len(sys.modules), len(torch.ops.loaded_libraries), len(_defined()))
    if not namespaces or loaded == _looked_at:
        return
    _looked_at = loaded
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, operator = schema.name.partition("::")
        if namespace in namespaces:
            _add_packet(namespace, operator, getattr(getattr(torch.ops, namespace), operator))


def _add_packet(prefix, operator, packet):
    overloads = [getattr(packet, overload) for overload in packet.overloads()]
    _engine.add_operator(prefix, operator, [packet, *overloads])


def add_aten(names):
    """Observe category aten of support_wrap_ops.yaml: calls of torch.ops.aten.<name>.

    Returns the names that this PyTorch does not have.
    """
    missing = []
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            _add_packet("Aten", name, packet)
        else:
            missing.append(message("{} (this PyTorch does not have it)", f"Aten.{name}"))
    return missing


def _defined():
    return getattr(torch.library, "_defs", ())


def _add_kernels():
    """Observe every class that launches kernels, if the program has imported Triton."""
    places = (
        ("triton.runtime.jit", "JITFunction"),
        ("triton.runtime.autotuner", "Autotuner"),
        ("triton.runtime.autotuner", "Heuristics"),
    )
    for module_name, class_name in places:
        run = getattr(getattr(sys.modules.get(module_name), class_name, None), "run", None)
        reason = _engine.add_kernel_run(run) if run is not None else ""
        if reason and reason not in _missing:
            _missing.add(reason)
            _engine.warn(message("launches of {} are not recorded: {}", class_name, reason))
