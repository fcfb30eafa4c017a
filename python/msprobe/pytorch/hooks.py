"""The places where PyTorch can be observed: API names, module hooks, parameter hooks.

This file tells the engine *this object, under this name*; the engine does the rest.
"""

import inspect
import os
import sys
import types

import torch

from msprobe import ConfigError, UsageError, _engine
from msprobe._engine import message
from msprobe.core.debugger import named_roots
from msprobe.pytorch import custom_apis, optimizers, signatures
from msprobe.pytorch.process import rank

LISTS = os.path.join(os.path.dirname(__file__), "hook_module")

_KEY = "msprobe"  # the key of our hooks; the keys of other hooks are numbers
apis_added = False
_patchers_added = False
_places_added = False
_collectives_added = False
_functional_added = False
_optimizers_hooked = False
# PyTorch 2.0 does not trace hooks of modules.
_is_compiling = getattr(getattr(torch, "compiler", None), "is_compiling", lambda: False)
_autocast_hooks = []  # of the models that monitor() was given
_CATEGORIES = (
    "functional",
    "tensor",
    "torch",
    "_VF",
    "torch_npu",
    "distributed",
    "functional_collectives",
    "aten",
)
_OPERATORS = "_c10d_functional"  # the namespace of torch.ops
# (module, class, methods) of PyTorch that run in the first step only, to know shapes and to open
# connections: what they call is no call of the program.
_PREPARATIONS = [
    (
        "torch.distributed.pipelining.stage",
        "PipelineStage",
        ("_shape_inference", "_forward_metadata_inference", "_backward_metadata_inference"),
    ),
    ("torch.distributed.pipelining.schedules", "_PipelineSchedule", ("_warmup_p2p",)),
    (
        "torch.distributed.tensor._sharding_prop",
        "ShardingPropagator",
        ("propagate_op_sharding_non_cached", "_propagate_tensor_meta_non_cached"),
    ),
]
_FUNCTIONAL = "torch.distributed._functional_collectives"
# Category -> (prefix, module) of packages that the program may have imported.
_PACKAGES = {
    "torch_npu": ("NPU", "torch_npu"),
    "mindspeed": ("MindSpeed", "mindspeed.ops"),
    "npu_distributed": ("Distributed", "torch_npu.distributed"),
}


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
    for category, (prefix, module) in _PACKAGES.items():
        if module in sys.modules:
            owners[category] = (prefix, sys.modules[module])
    return owners


def _lists():
    """Category -> names, of support_wrap_ops.yaml as the user's own list changes it."""
    path = os.path.join(LISTS, "support_wrap_ops.yaml")
    own = os.environ.get("MSPROBE_WRAP_OPS")
    if own and not os.path.isfile(own):
        raise ConfigError(
            message("MSPROBE_WRAP_OPS: expected a file such as {}, found {}", path, repr(own))
        )
    return dict(_engine.read_name_lists(path, own or ""))


def _add_apis():
    """Tell the engine which functions to observe."""
    lists = _lists()
    own = os.environ.get("MSPROBE_WRAP_OPS")
    own = _engine.read_name_lists(own) if own else []
    _engine.read_api_rules(
        os.path.join(LISTS, "risk_levels.yaml"), os.path.join(LISTS, "builtin_ignore_ops.yaml")
    )
    missing = []
    owners = _owners()
    for category, (prefix, owner) in owners.items():
        moves = category == "npu_distributed"
        missing += _engine.add_apis(prefix, owner, lists.get(category, []), moves, moves)
    missing += custom_apis.add_aten(lists.get("aten", []))
    for category in lists:
        # A missing torch_npu is a warning only if a user's list names its functions.
        asked = category != "torch_npu" or any(each.lower() == category for each, _ in own)
        if category in _PACKAGES and category not in owners and asked:
            package = _PACKAGES[category][1]
            missing.append(message("category {} ({} is not imported)", category, package))
        elif category not in _CATEGORIES and category not in _PACKAGES:
            missing.append(message("category {} (not known)", category))
    if missing:
        _engine.warn(message("support_wrap_ops.yaml: not observed: {}", ", ".join(missing)))
    apply = inspect.getattr_static(torch.autograd.Function, "apply")
    # A Python function in older PyTorch 2, a builtin in 2.15. That of 1.13 is not observed.
    _engine.add_autograd_functions(getattr(apply, "__func__", apply))
    for name in ("empty", "empty_like", "empty_strided", "empty_permuted"):
        _engine.watch(torch, name, "allocate")
    for name in ("new_empty", "new_empty_strided"):
        _engine.watch(torch.Tensor, name, "allocate")
    for name in ("_foreach_copy_", "split_with_sizes_copy", "_chunk_cat"):
        if hasattr(torch, name):
            _engine.watch(torch, name, "fill")
    if hasattr(torch._C, "StorageBase"):  # since 2.0, as is the account of unwritten memory
        _engine.watch(torch._C.StorageBase, "resize_", "resize")
    _engine.watch(torch.nn.Module, "_apply", "convert")
    # Tensor.npu(), which PyTorch makes of Tensor.to(); Tensor.cuda() is no listed call either.
    backend = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "")()
    if hasattr(torch.Tensor, backend):
        _engine.watch(torch.Tensor, backend, "convert")
    _engine.warn_unmet_rules()


def _add_collectives():
    """Observe collectives, and the methods by which the program waits for asynchronous ones.

    At level L0 they have no entries: their results may not be read before the program has waited.
    """
    lists = _lists()
    c10d = torch.distributed.distributed_c10d
    _engine.add_apis(
        "Distributed",
        torch.distributed,
        lists.get("distributed", []),
        is_collective=True,
        output_is_arguments=True,
    )
    for name, kind in (("wait", "wait"), ("synchronize", "wait"), ("is_completed", "poll")):
        _engine.watch(torch.distributed.Work, name, kind)
    if hasattr(c10d, "_CoalescingManager"):
        _engine.watch(c10d._CoalescingManager, "append", "coalesce")


def _add_functional_collectives():
    """Observe what the program calls through torch.distributed._functional_collectives or DTensor,
    once it has imported them, and what PyTorch prepares in the first step."""
    global _functional_added
    if _FUNCTIONAL in sys.modules and not _functional_added:
        _functional_added = True  # to read the lists takes longer than a small step
        for name in _lists().get("functional_collectives", []):
            packet = getattr(getattr(torch.ops, _OPERATORS), name, None)
            if packet is not None:
                overloads = [getattr(packet, overload) for overload in packet.overloads()]
                waits = name == "wait_tensor"
                _engine.add_functional_collective(name, [packet, *overloads], waits)
    # What an AsyncCollectiveTensor asks of the result that it wraps is no call of the program.
    wrapper = getattr(sys.modules.get(_FUNCTIONAL), "AsyncCollectiveTensor", None)
    if wrapper is not None:
        _engine.watch(types.SimpleNamespace(make=wrapper.__new__), "make", "convert")
    for module, owner, names in _PREPARATIONS:
        owner = getattr(sys.modules.get(module), owner, None)
        for name in names:
            if hasattr(owner, name):
                _engine.watch(owner, name, "convert")


def _watch_compiler():
    """Observe torch.compile.

    Calls that it makes while it traces are not part of the training step. While it evaluates frames
    it reads and compares the code of functions, which must then be their own.
    """
    dynamo = getattr(torch._C, "_dynamo", None)
    _engine.watch(getattr(dynamo, "eval_frame", None), "set_eval_frame", "frames")
    _engine.watch(getattr(torch, "export", None), "export", "trace")
    if "torch._dynamo.convert_frame" in sys.modules:
        _watch_tracing()
    else:
        _engine.before_compiling(_watch_tracing)


def _watch_tracing():
    import torch._dynamo.convert_frame as frames  # already imported, or just being imported

    for name in ("_compile", "fullgraph_capture"):
        _engine.watch(frames, name, "trace")


def check_model(model):
    """Raise for anything but a module or a list of modules."""
    roots = named_roots(model)
    for _, root in roots or [("", model)]:
        if not isinstance(root, torch.nn.Module) or isinstance(root, torch.jit.ScriptModule):
            raise UsageError(
                message(
                    "expected a torch.nn.Module (not scripted) or a list of them as model, found "
                    "{}",
                    type(root).__name__,
                )
            )


def monitor(model):
    """Tell the engine of each step that an optimizer of this process takes."""
    global _optimizers_hooked
    torch_optimizers = sys.modules["torch.optim.optimizer"]
    if not hasattr(torch_optimizers, "register_optimizer_step_post_hook"):
        raise UsageError(
            message("monitor; expected PyTorch 2.0 or later, found {}", torch.__version__)
        )
    check_model(model)
    _engine.watch_gradients(named_roots(model))
    _watch_autocast(model)
    if not _optimizers_hooked:
        torch_optimizers.register_optimizer_step_pre_hook(_optimizer_begins)
        torch_optimizers.register_optimizer_step_post_hook(_optimizer_ends)
        _optimizers_hooked = True


def _watch_autocast(model):
    """Tell the engine when modules run under autocast, which gradients in float32 do not show."""
    for handle in _autocast_hooks:
        handle.remove()
    _autocast_hooks.clear()
    for _, root in named_roots(model):
        # Autocast may begin inside the root's forward, and may be off for its last layers.
        owners = [
            each for each in root.modules() if any(True for _ in each.parameters(recurse=False))
        ]
        for module in dict.fromkeys(owners[:1] + owners[-1:]):
            if not isinstance(module, torch.jit.ScriptModule):
                _autocast_hooks.append(module.register_forward_pre_hook(_note_autocast))


def _note_autocast(module, args):
    # torch.compile traces this hook, and leaves nothing of it in its graph.
    if _is_compiling():
        return
    parameter = next(module.parameters(recurse=False), None)  # None: another tool took them away
    dtype = None if parameter is None else _autocast_dtype(parameter.device.type)
    if dtype is not None:
        _engine.note_autocast(str(dtype))


def _autocast_dtype(device):
    """The dtype of autocast on a kind of device; None: it is off."""
    if hasattr(torch, "get_autocast_dtype"):  # from PyTorch 2.4 on
        if not torch.amp.is_autocast_available(device) or not torch.is_autocast_enabled(device):
            return None
        return torch.get_autocast_dtype(device)
    if device == "cpu":
        return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None
    return torch.get_autocast_gpu_dtype() if torch.is_autocast_enabled() else None


def _optimizer_begins(optimizer, args, kwargs):
    _engine.optimizer_begins(optimizer, rank())


def _optimizer_ends(optimizer, args, kwargs):
    _engine.optimizer_ends(optimizer)


def _hear_of_modules(hear):
    """Tell the engine of each module and parameter that is registered, or stop to do so.

    The engine's functions are written in C++, because torch.compile would trace Python functions.
    Each dict is changed by one operation, so that Ctrl-C leaves no half change.
    """
    for kind, function in (("module", _engine.module_came), ("parameter", _engine.parameter_came)):
        # From PyTorch 2.0 on.
        hooks = getattr(torch.nn.modules.module, f"_global_{kind}_registration_hooks", None)
        if hooks is not None and hear:
            hooks[_KEY] = function
        elif hooks is not None:
            hooks.pop(_KEY, None)


def begin_module_dump(module, name):
    """Until end_module_dump, record this module's own calls and nothing else."""
    if isinstance(module, (list, tuple)):
        raise UsageError(message("module_dump; expected one torch.nn.Module, found a list"))
    check_model(module)
    if not isinstance(name, str) or not name:
        raise UsageError(
            message("module_dump; expected a name for the module, found {}", repr(name))
        )
    _engine.begin_module_dump(module, name)


def end_module_dump():
    """Record everything again."""
    _engine.end_module_dump()


def _add_patchers():
    """Tell the engine, once, which functions of PyTorch set nn.Module.__call__ and restore it."""
    patcher = getattr(sys.modules.get("torch.fx._symbolic_trace"), "_Patcher", None)
    for name in ("revert_all_patches", "__exit__"):
        if hasattr(patcher, name):
            _engine.add_module_patcher(getattr(patcher, name))


def _add_places():
    """Tell the engine, once, which code of PyTorch runs around calls."""
    clip_grad = sys.modules["torch.nn.utils.clip_grad"]
    for name in ("clip_grad_norm_", "clip_grad_norm", "clip_grad_value_"):
        for function in (getattr(clip_grad, name), inspect.unwrap(getattr(clip_grad, name))):
            _engine.name_region(function.__code__, "clip_grad")
    megatron = sys.modules.get("megatron.core.optimizer")
    if hasattr(megatron, "MegatronOptimizer"):
        _engine.name_region(megatron.MegatronOptimizer.clip_grad_norm.__code__, "clip_grad")
    # Every optimizer's step() runs inside this function.
    for code in _codes_within(torch.optim.Optimizer.__dict__.values()):
        if code.co_name == "wrapper":
            _engine.name_region(code, "optimizer")


def _codes_within(objects):
    """The code objects of functions, and of the functions made in them."""
    for value in objects:
        code = getattr(getattr(value, "__func__", value), "__code__", value)
        if isinstance(code, types.CodeType):
            yield code
            yield from _codes_within(code.co_consts)


def refresh():
    """Read the configuration again if its file has changed (key dump_enable); True if it has."""
    changed = _engine.refresh(True, rank())
    if changed:
        end()
    return changed


def begin(model, rank_id=None):
    """Start collecting, if the engine wants this step and rank."""
    try:
        _begin(model, rank_id)
    except (UsageError, ConfigError):  # a mistake of the caller
        raise
    except Exception as error:  # an error of our own: the training goes on without recording
        _engine.fault(f"{type(error).__name__}: {error}")
        end()


def _begin(model, rank_id):
    global apis_added, _patchers_added, _places_added, _collectives_added
    if _engine.apis_wanted() and not apis_added:
        _add_apis()
        _engine.describe_parameters(signatures.parameter_names)
        apis_added = True
    if torch.distributed.is_available() and (_engine.apis_wanted() or _engine.modules_wanted()):
        if not _collectives_added:
            _add_collectives()
            _collectives_added = True
        _add_functional_collectives()
    if _engine.apis_wanted():
        custom_apis.add()
        _watch_compiler()
    # Level L1 follows modules, too, to say in which an API was called.
    if (_engine.apis_wanted() or _engine.modules_wanted()) and not _patchers_added:
        _add_patchers()
        _patchers_added = True
    if _engine.modules_wanted() and not _places_added:
        _add_places()
        _places_added = True
    if _engine.optimizers_wanted():
        optimizers.add()
    models = [] if model is None else named_roots(model)
    classes = _module_classes() if model is None else []
    if _engine.start(rank() if rank_id is None else rank_id, models, False, classes):
        _hear_of_modules(_engine.modules_wanted())


def _module_classes():
    """Every class of modules that the program has; not scripted ones, which run no Python."""
    classes = {torch.nn.Module}
    new = [torch.nn.Module]
    while new:
        new = [sub for cls in new for sub in cls.__subclasses__() if sub not in classes]
        new = [sub for sub in new if not issubclass(sub, torch.jit.ScriptModule)]
        classes.update(new)
    return list(classes)


def end():
    """Stop collecting; every hook is removed, no module is held."""
    _hear_of_modules(False)
    _engine.stop()
