"""Fronts of the older tools: what `ptdbg_ascend` and `torch_npu.hooks` offer, on this engine."""
