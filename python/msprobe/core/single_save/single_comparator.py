"""``SingleComparator``: what two runs saved by name, under the module path of msprobe 26."""

import os
from dataclasses import dataclass

from msprobe import _engine
from msprobe._engine import message


@dataclass
class CompareResult:
    """Two arrays; percentages are of their elements, an index is the first unequal element."""

    max_abs_error: float
    max_relative_error: float
    same_percentage: float
    first_mismatch_index: int | None
    percentage_within_thousandth: float
    percentage_within_hundredth: float


class SingleComparator:
    """Compares what two runs saved with :class:`SingleSave`."""

    result_header = _engine.KEY_DATA_COLUMNS

    @classmethod
    def compare(cls, dir1, dir2, output_path="./msprobe_compare_output", num_processes=8):
        """Write a table ``<key>.xlsx`` for each key, a row for each value that both runs have.

        Args:
            dir1: the ``dump_path`` of one run.
            dir2: that of the other run.
            output_path: folder for the tables; created when missing.
            num_processes: has no effect: the engine is fast enough without other processes.

        Raises:
            msprobe.FileError: a run has no folder ``data``; a table cannot be written.
            msprobe.DumpError: files that cannot be read; the others are compared first.
        """
        keys, values, unequal, only_one, errors = _engine.compare_key_data(
            os.fspath(dir1), os.fspath(dir2), os.fspath(output_path)
        )
        _engine.log(
            message(
                "SingleComparator: {} values of {} keys compared, {} differ, {} are in one "
                "run only: {}",
                values,
                keys,
                unequal,
                only_one,
                output_path,
            )
        )
        if errors:
            raise _engine.DumpError(
                message("some values could not be compared: {}", "; ".join(errors))
            )

    @classmethod
    def compare_arrays(cls, array1, array2):
        """Compare two arrays.

        Args:
            array1: anything that NumPy takes; of different shapes the common part is compared.
            array2: the other one.
        """
        return CompareResult(*_engine.compare_key_values(array1, array2))
