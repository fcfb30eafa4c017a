"""Reads tables that the older tools wrote."""

import csv
import math
import zipfile
from pathlib import Path
from xml.etree import ElementTree

TABLES = Path(__file__).resolve().parents[1] / "data" / "tables"


def table(text):
    """Header and rows of a csv text."""
    rows = list(csv.reader(text.splitlines(keepends=True)))
    return rows[0], rows[1:]


def close(ours, theirs, tolerance):
    """Whether both cells are numbers, or both are percentages, within the tolerance."""
    if ours.endswith("%") != theirs.endswith("%"):
        return False
    try:
        return math.isclose(float(ours.rstrip("%")), float(theirs.rstrip("%")), rel_tol=tolerance)
    except ValueError:
        return False


def colors(path):
    """The color of each row of a workbook, without the header: "red", "yellow" or ""."""
    space = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
    with zipfile.ZipFile(path) as book:
        styles = ElementTree.fromstring(book.read("xl/styles.xml"))
        sheet = ElementTree.fromstring(book.read("xl/worksheets/sheet1.xml"))
    fills = [
        fill.find(f".//{space}fgColor").get("rgb", "")
        if fill.find(f".//{space}fgColor") is not None
        else ""
        for fill in styles.find(f"{space}fills")
    ]
    formats = [int(xf.get("fillId")) for xf in styles.find(f"{space}cellXfs")]
    names = {"FFFF0000": "red", "FFFFFF00": "yellow"}
    rows = list(sheet.iter(f"{space}row"))[1:]
    return [names.get(fills[formats[int(row[0].get("s", "0"))]], "") for row in rows]
