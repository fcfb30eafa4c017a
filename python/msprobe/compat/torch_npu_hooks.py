"""What `torch_npu.hooks` offers, on this engine."""

__all__ = []
