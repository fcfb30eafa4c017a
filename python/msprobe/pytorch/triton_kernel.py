"""A Triton kernel for :mod:`msprobe.pytorch.device_kernels`: one launch a tensor.

It was run in Triton's interpreter on a CPU only, never on a GPU or an NPU.
"""

import torch
import triton
import triton.language as tl

from msprobe.pytorch.device_kernels import BLOCK_BYTES, CHUNK, DeviceKernel


@triton.jit
def _measure_chunk(
    elements, words, low_keys, high_keys, sums, numbers, counts, all_blocks, blocks: tl.constexpr
):
    chunk = tl.program_id(0).to(tl.int64)
    x = tl.load(elements + chunk * 4096 + tl.arange(0, 4096)).to(tl.float32)
    tl.store(numbers + chunk * 4, tl.sum(x, axis=0))
    tl.store(numbers + chunk * 4 + 1, tl.sum(x * x, axis=0))
    is_nan = x != x
    infinity = float("inf")
    tl.store(numbers + chunk * 4 + 2, tl.max(tl.where(is_nan, -infinity, x), axis=0))
    tl.store(numbers + chunk * 4 + 3, tl.min(tl.where(is_nan, infinity, x), axis=0))
    tl.store(counts + chunk * 4, tl.sum(is_nan.to(tl.int32), axis=0))
    tl.store(counts + chunk * 4 + 1, tl.sum((x == infinity).to(tl.int32), axis=0))
    tl.store(counts + chunk * 4 + 2, tl.sum((x == -infinity).to(tl.int32), axis=0))
    tl.store(counts + chunk * 4 + 3, tl.sum((x == 0).to(tl.int32), axis=0))
    column = tl.arange(0, 8)
    place = tl.arange(0, 64)[:, None] * 8 + column[None, :]
    low_key = tl.load(low_keys + place)
    high_key = tl.load(high_keys + place)
    for i in range(blocks):
        block = chunk * blocks + i
        word = tl.load(words + block * 512 + place)
        low = (word + low_key) & 0xFFFFFFFF
        high = ((word + high_key) >> 32) & 0xFFFFFFFF
        tl.store(sums + block * 8 + column, tl.sum(low * high, axis=0))
        tl.store(sums + (all_blocks + block) * 8 + column, tl.sum(word, axis=0))


class TritonKernel(DeviceKernel):
    """Statistics, counts and fingerprint of float16, bfloat16 and float32."""

    name = "triton"

    def supports(self, dtype):
        return dtype in (torch.float16, torch.bfloat16, torch.float32)

    def measure(self, tensor, slot):
        blocks = CHUNK * tensor.element_size() // BLOCK_BYTES
        chunks = tensor.numel() // CHUNK
        _measure_chunk[(chunks,)](
            tensor,
            tensor.view(torch.int64),
            slot.low_keys,
            slot.high_keys,
            slot.sums,
            slot.numbers,
            slot.counts,
            chunks * blocks,
            blocks=blocks,
        )
