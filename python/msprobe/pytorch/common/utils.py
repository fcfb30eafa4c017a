"""``seed_all``, under the module path of msprobe 1.0 to 26."""

from msprobe.pytorch.reproducibility import seed_all

__all__ = ["seed_all"]
