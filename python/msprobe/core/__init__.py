"""What the fronts of all frameworks share; names and module paths of older tools."""

from msprobe.core.single_save.single_comparator import SingleComparator
from msprobe.core.single_save.single_saver import SingleSave

__all__ = ["SingleComparator", "SingleSave"]
