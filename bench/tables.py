"""Prints tables of figures."""

import sys


def table(rows: list) -> None:
    """Prints rows of cells, heading first; all columns except the first are right-aligned."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  " + "  ".join(cells))
    sys.stdout.flush()


def verdict(met: bool) -> str:
    return "meets" if met else "MISSES"
