"""Tables that the earlier tools wrote, read."""

import csv
import math
from pathlib import Path

TABLES = Path(__file__).resolve().parents[1] / "data" / "tables"


def table(text):
    """Header and rows of a csv text."""
    rows = list(csv.reader(text.splitlines(keepends=True)))
    return rows[0], rows[1:]


def close(ours, theirs, tolerance):
    """Both are numbers, or both percentages, and as near as that."""
    if ours.endswith("%") != theirs.endswith("%"):
        return False
    try:
        return math.isclose(float(ours.rstrip("%")), float(theirs.rstrip("%")), rel_tol=tolerance)
    except ValueError:
        return False
