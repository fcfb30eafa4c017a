"""Kernels of your own that measure large tensors of a device in one pass.

    from msprobe.pytorch import device_kernels, triton_kernel
    device_kernels.register(triton_kernel.TritonKernel())     # before the first start()

Without one, PyTorch's operations measure a tensor of more than 4 MB: three reductions, and eight
kernels for each 4 MB where its fingerprint is asked for (docs/explain/devices.md).
"""

import dataclasses
import functools

from msprobe import _engine

CHUNK = 4096  # elements
BLOCK_BYTES = 4096


@dataclasses.dataclass(frozen=True)
class Slot:
    """Where a kernel writes; every tensor lies on the device of the tensor that is measured.

    A chunk has CHUNK elements, a block BLOCK_BYTES bytes: 512 words of 64 bits, little endian, seen
    as 64 rows of 8. In each block word ``w`` at row ``r`` and column ``j`` meets the keys ``low =
    low_keys[r, j]`` and ``high = high_keys[r, j]``. Integers wrap around.

    Attributes:
        sums: int64 [2, blocks, 8]. ``sums[0, b, j]`` is the sum over the rows of
            ``((w + low) & 0xffffffff) * ((w + high) >> 32 & 0xffffffff)``, ``sums[1, b, j]``
            that of ``w``.
        numbers: float32 [chunks, 4]: sum, sum of squares, largest and smallest element.
        counts: int32 [chunks, 4]: elements that are NaN, infinite, negative infinite, zero.
        low_keys, high_keys: int64 [64, 8].
    """

    sums: object
    numbers: object
    counts: object
    low_keys: object
    high_keys: object


class DeviceKernel:
    """What :func:`register` takes."""

    name = ""

    def supports(self, dtype):
        """Whether it measures tensors of this dtype: torch.float16, bfloat16 or float32."""
        raise NotImplementedError

    def measure(self, tensor, slot):
        """Fills a :class:`Slot` on the current stream, without waiting.

        Args:
            tensor: One dimension, contiguous, a multiple of CHUNK elements, without a graph.
        """
        raise NotImplementedError


def _measure(kernel, tensor, *slot):
    kernel.measure(tensor, Slot(*slot))


def register(kernel):
    """Measures large tensors of this process by ``kernel``; None: by PyTorch's operations.

    Its sums are compared once for each dtype and device with those of the host, on a known tensor;
    a warning says when they differ. A kernel that raises is not called again.
    """
    if kernel is None:
        _engine.set_device_kernel("", None, None)
    else:
        _engine.set_device_kernel(kernel.name, functools.partial(_measure, kernel), kernel.supports)
