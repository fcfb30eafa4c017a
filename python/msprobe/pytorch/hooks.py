"""Where PyTorch lets itself be observed: API names, module hooks, parameter hooks.

Says *this object, under this name*; the engine does the rest.
"""

import os
import sys
from functools import partial

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from msprobe import UsageError, _engine
from msprobe.pytorch.process import rank

_LISTS = os.path.join(os.path.dirname(__file__), "hook_module", "support_wrap_ops.yaml")

_handles = []  # of hooks installed by begin(), removed by end()
_apis_added = False
_named_model = None  # the model whose modules the engine knows


def _owners():
    """Category of support_wrap_ops.yaml -> (prefix, namespace).

    In order of precedence for functions with two names.
    """
    owners = {
        "functional": ("Functional", torch.nn.functional),
        "_VF": ("VF", torch._VF),
        "tensor": ("Tensor", torch.Tensor),
        "torch": ("Torch", torch),
    }
    if "torch_npu" in sys.modules:
        owners["torch_npu"] = ("NPU", sys.modules["torch_npu"])
    return owners


def _add_apis():
    """Tell the engine which functions to observe."""
    lists = dict(_engine.read_name_lists(_LISTS))
    for category, (prefix, owner) in _owners().items():
        _engine.add_apis(prefix, owner, lists.get(category, []))
    if torch.distributed.is_available():
        _add_collectives(lists)


def _add_collectives(lists):
    """Collectives, and how the program waits for those that are asynchronous."""
    c10d = torch.distributed.distributed_c10d
    _engine.add_apis(
        "Distributed",
        torch.distributed,
        lists.get("distributed", []),
        is_collective=True,
        output_is_arguments=True,
    )
    for name, kind in (("wait", "wait"), ("synchronize", "wait"), ("is_completed", "poll")):
        _engine.add_wait(torch.distributed.Work, name, kind)
    if hasattr(c10d, "_CoalescingManager"):
        _engine.add_wait(c10d._CoalescingManager, "append", "hand on")


def _named_roots(model):
    """(prefix of names, root) of a model or a list of models."""
    if isinstance(model, (list, tuple)):
        return [(f"{index}.", root) for index, root in enumerate(model)]
    return [("", model)]


def check_model(model):
    """Refuse what is no module and no list of modules."""
    roots = _named_roots(model)
    for _, root in roots or [("", model)]:
        if not isinstance(root, torch.nn.Module) or isinstance(root, torch.jit.ScriptModule):
            raise UsageError(
                "expected a torch.nn.Module (not scripted) or a list of them as model, "
                f"found {type(root).__name__}"
            )


def _add_modules(model):
    _engine.forget_modules()
    for prefix, root in _named_roots(model):
        for name, module in root.named_modules():
            if module is not root:
                _engine.add_module(module, prefix + name)
                for parameter_name, parameter in module._parameters.items():
                    if parameter is not None:
                        _engine.add_parameter(module, parameter_name, parameter.requires_grad)


def _install_module_hooks(model):
    _handles.append(register_module_forward_pre_hook(_engine.enter_module))
    _handles.append(register_module_forward_hook(_engine.leave_module, always_call=True))
    for _, root in _named_roots(model):
        for module in root.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and parameter.requires_grad and module is not root:
                    hook = partial(_engine.parameter_gradient, module, name)
                    _handles.append(parameter.register_post_accumulate_grad_hook(hook))


def begin(model, rank_id=None):
    """Start collecting, if the engine wants this step and rank."""
    global _apis_added, _named_model
    if _engine.apis_wanted() and not _apis_added:
        _add_apis()
        _apis_added = True
    if _engine.modules_wanted() and model is not _named_model:
        _add_modules(model)
        _named_model = model
    if not _engine.start(rank() if rank_id is None else rank_id):
        return
    if _engine.modules_wanted() and not _handles:
        _install_module_hooks(model)
    if model is not None:
        _engine.note_weights(_named_roots(model))


def end():
    """Stop collecting; every hook is removed."""
    while _handles:
        _handles.pop().remove()
    _engine.stop()
