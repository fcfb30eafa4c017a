"""Stands for the package of the same name: registers the simulated NPU (../sim.cc) as torch.npu.

Beside torch.npu it offers what programs and tools take from torch_npu itself: `_C`, with the
overflow flag, and a few fused operators. `torch_npu.sim` controls the simulation:

    torch_npu.sim.reset(); step(); torch_npu.sim.counts()   # {"kernels": {"mm.out": 3}, ...}
    torch_npu.sim.clocks(0)                                 # microseconds of host and device
    torch_npu.sim.spoil("gelu", "add", 1e-3)                # from now on this kernel is wrong
"""

import os
import types

import torch
import torch.nn.functional as F

from . import _sim, collectives

torch.utils.rename_privateuse1_backend("npu")


def _index(device=None):
    if device is None:
        return _sim.current_device()
    if isinstance(device, int):
        return device
    index = torch.device(device).index
    return _sim.current_device() if index is None else index


class _Device:
    """``with torch.npu.device(1):``"""

    def __init__(self, device):
        self.index = _index(device)

    def __enter__(self):
        self.before = _sim.current_device()
        _sim.set_device(self.index)

    def __exit__(self, *_error):
        _sim.set_device(self.before)


class _Stream:
    """``with torch.npu.stream(s):``"""

    def __init__(self, stream):
        self.stream = stream

    def __enter__(self):
        self.before = torch.accelerator.current_stream(self.stream.device)
        torch.accelerator.set_stream(self.stream)

    def __exit__(self, *_error):
        torch.accelerator.set_stream(self.before)


def _module():
    npu = types.ModuleType("torch.npu")
    state = {"used": False}
    generators = tuple(_sim.default_generator(i) for i in range(_sim.device_count()))

    def init():
        state["used"] = True

    def set_device(device):
        init()
        _sim.set_device(_index(device))

    def synchronize(device=None):
        init()
        _sim.synchronize(_index(device))

    def manual_seed(seed):
        generators[_sim.current_device()].manual_seed(seed)

    def manual_seed_all(seed):
        for generator in generators:
            generator.manual_seed(seed)

    def current_stream(device=None):
        return torch.accelerator.current_stream(f"npu:{_index(device)}")

    def set_rng_state(new_state, device=None):
        generators[_index(device)].set_state(new_state)

    def set_rng_state_all(states):
        for generator, given in zip(generators, states, strict=True):
            generator.set_state(given)

    npu.__dict__.update(
        init=init,
        _lazy_init=init,
        is_initialized=lambda: state["used"],
        _is_in_bad_fork=lambda: False,
        is_available=lambda: _sim.device_count() > 0,
        device_count=_sim.device_count,
        current_device=_sim.current_device,
        set_device=set_device,
        synchronize=synchronize,
        device=_Device,
        get_device_name=lambda device=None: "Simulated NPU",
        get_device_capability=lambda device=None: None,
        Stream=torch.Stream,
        Event=torch.Event,
        stream=_Stream,
        current_stream=current_stream,
        default_generators=generators,
        manual_seed=manual_seed,
        manual_seed_all=manual_seed_all,
        initial_seed=lambda: generators[_sim.current_device()].initial_seed(),
        get_rng_state=lambda device=None: generators[_index(device)].get_state(),
        set_rng_state=set_rng_state,
        get_rng_state_all=lambda: [each.get_state() for each in generators],
        set_rng_state_all=set_rng_state_all,
        memory_allocated=lambda device=None: _sim.memory(_index(device))["used"],
        max_memory_allocated=lambda device=None: _sim.memory(_index(device))["peak"],
        reset_peak_memory_stats=lambda device=None: _sim.reset_peak(_index(device)),
        empty_cache=lambda: None,
        get_amp_supported_dtype=lambda: [torch.float16, torch.bfloat16],
        is_bf16_supported=lambda: True,
        set_compile_mode=lambda jit_compile=False: None,
    )
    return npu


torch._register_device_module("npu", _module())
torch.utils.generate_methods_for_privateuse1_backend(
    for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
)

npu = torch.npu
sim = _sim


class _C:
    """The overflow flag of the device. It is watched from the first call on."""

    @staticmethod
    def _check_overflow_npu():
        return _sim.overflows() > 0

    @staticmethod
    def _clear_overflow_npu():
        _sim.clear_overflow()


def npu_swiglu(self, dim=-1):
    """One of the operators of torch_npu, composed."""
    a, b = self.chunk(2, dim)
    return F.silu(a) * b


def npu_rms_norm(self, gamma, epsilon=1e-6):
    """Another one; two results."""
    rstd = self.float().pow(2).mean(-1, keepdim=True).add(epsilon).rsqrt()
    return (self * rstd).to(self.dtype) * gamma, rstd


def _autoload():
    """Called by PyTorch, which has imported this module for it."""


def _spoil_from_environment():
    """SIMNPU_FAULT="gelu:add:1e-3,softmax:inf" for processes that a program starts."""
    for each in filter(None, os.environ.get("SIMNPU_FAULT", "").split(",")):
        op, kind, value = [*each.split(":"), "0"][:3]
        _sim.spoil(op, kind, float(value))


collectives.register()
_spoil_from_environment()
