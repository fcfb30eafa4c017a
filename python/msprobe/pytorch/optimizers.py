"""The places where a program changes its weights: optimizers, gradient clipping, GradScaler."""

import inspect
import sys

import torch

from msprobe import _engine

# As OptimizerApi::Role.
_CLIP, _UNSCALE, _SCALER_STEP, _SCALER_UPDATE, _MADE = range(1, 6)
_CLIPS = ("clip_grad_norm_", "clip_grad_value_", "_clip_grads_with_norm_")
_SCALER_METHODS = {"unscale_": _UNSCALE, "step": _SCALER_STEP, "update": _SCALER_UPDATE}

_functions_added = False


def add():
    """Tell the engine which functions to observe; classes may have come since the last call."""
    global _functions_added
    if not _functions_added:
        _functions_added = True
        _engine.set_generator(_again)
        _add_functions()
    for optimizer in _with_subclasses(torch.optim.Optimizer):
        _engine.follow_optimizers(optimizer)
    for scaler in _with_subclasses(_grad_scaler()):
        for method, role in _SCALER_METHODS.items():
            if method in vars(scaler):
                _engine.add_optimizer_function(
                    vars(scaler)[method], f"GradScaler.{method}", role, [], False
                )


def _add_functions():
    made = [
        vars(torch.optim.Optimizer)[name]
        for name in ("_patch_step_function", "_hook_for_profile")  # the second before PyTorch 2.1
        if name in vars(torch.optim.Optimizer)
    ]
    for function in made:
        _engine.add_optimizer_function(function, function.__name__, _MADE, [], False)
    clip_grad = sys.modules["torch.nn.utils.clip_grad"]
    for name in _CLIPS:
        decorated = getattr(clip_grad, name, None)
        function = inspect.unwrap(decorated)
        if inspect.isfunction(function):
            arguments = list(inspect.signature(function).parameters)
            named = name.removeprefix("_")
            _engine.add_optimizer_function(
                function, named, _CLIP, arguments, function is not decorated
            )


def _grad_scaler():
    amp = sys.modules.get("torch.amp")
    return getattr(amp, "GradScaler", None) or torch.cuda.amp.GradScaler


def _with_subclasses(cls):
    found = [cls]
    for each in found:
        found += [new for new in type.__subclasses__(each) if new not in found]
    return found


def _again(values, error):
    yield from values
    if error is not None:
        raise error
