"""The older front ends: what `ptdbg_ascend` and `torch_npu.hooks` offer, on this engine."""
