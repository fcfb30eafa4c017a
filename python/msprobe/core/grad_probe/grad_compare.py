"""``GradComparator``, under the module path of msprobe 1.0 to 8."""

import os

from msprobe import _engine
from msprobe._engine import message


class GradComparator:
    """Compares the gradients that two runs recorded with task ``grad_probe``."""

    @classmethod
    def compare_distributed(cls, path1: str, path2: str, output_dir: str, pictures=False) -> None:
        """Writes ``similarities.csv`` for each rank, and prints where the similarity first falls.

        Args:
            path1: the ``dump_path`` of the run under test.
            path2: the ``dump_path`` of the run to trust.
            output_dir: folder for the tables; created when missing.
            pictures: also write ``similarities_picture/``, a PNG file for each parameter, as
                msprobe 1.0 to 8 did; needs matplotlib.

        Raises:
            msprobe.DumpError: no rank or no step that both have; files that cannot be read (what
                can be read is compared first).
            msprobe.FileError: a path that does not exist.
        """
        words = ["grad_compare", os.fspath(path1), os.fspath(path2), "-o", os.fspath(output_dir)]
        words += ["--png"] if pictures else []
        if _engine.run(words) == 2:
            raise _engine.DumpError(
                message("some gradients could not be compared; the text above says which")
            )

    # The older tool's function for two folders of a rank; the engine sees which of both it is.
    compare = compare_distributed
