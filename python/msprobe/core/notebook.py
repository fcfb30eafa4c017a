"""``msprobe.compare(target, golden)``: a comparison as an object, for notebooks and scripts."""

import csv
import html
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from msprobe import _engine

# A process of its own: what the command prints is its answer, and its memory is given back.
_RUN = """
import sys
from msprobe._engine import MsprobeError, run
try:
    sys.exit(run(sys.argv[1:]))
except MsprobeError as error:
    sys.exit(f"{type(error).__name__}\\n{error}")
"""
_WIDTH, _HEIGHT = 800, 120  # of the curve
_COLORS = {"introduced": "#d7263d", "inherited": "#f4a259", "unknown": "#999", "noise": "#4a90d9"}


class Comparison:
    """What :func:`compare` found.

    Attributes:
        verdict: ``"equal"``, ``"noise"``, ``"structure"``, ``"unknown"`` or ``"differs"``.
        first_divergence: the dict of docs/reference/compare-json.md, or ``None``.
        json: the whole document of docs/reference/compare-json.md.
        values: the rows of the result table; numbers are numbers. A pandas DataFrame if pandas is
            installed, else a list of dicts.
        calls: for each call ``call``, ``class``, ``roundings`` (the largest), ``source`` and
            ``values`` (how many); in execution order, as ``values``.
    """

    def __init__(self, document: dict, rows: list[dict]):
        self.json = document
        self.verdict = document["verdict"]
        self.first_divergence = document["first_divergence"]
        self._calls = _calls_of(rows)
        self.values = _frame(rows)
        self.calls = _frame(self._calls)

    def __repr__(self) -> str:
        return f"<msprobe.Comparison: {self.verdict}{self._at()}>"

    def _at(self) -> str:
        first = self.first_divergence
        return f", first at {first['target_name'] or first['golden_name']}" if first else ""

    def _repr_html_(self) -> str:
        """The verdict, the first divergence and the curve of the error, without JavaScript."""
        parts = [f"<p><b>msprobe</b> <b>{html.escape(self.verdict)}</b></p>"]
        if self.first_divergence:
            first = self.first_divergence
            name = first["target_name"] or first["golden_name"]
            parts.append(f"<h3>{html.escape(name)}</h3>")
            for key in ("source_line", "caller_line", "golden_line", "why", "advice"):
                if first[key]:
                    tag = "code" if key.endswith("_line") else "span"
                    before = "in the golden " if key == "golden_line" else ""
                    parts.append(f"<p>{before}<{tag}>{html.escape(first[key])}</{tag}></p>")
        return "<div>" + "".join(parts) + _curve(self._calls) + "</div>"


def compare(target, golden, *flags: str) -> Comparison:
    """Compares two dumps, each of one rank and step, as ``msprobe compare TARGET GOLDEN`` does.

    Args:
        target: the run under test: a dump.json or its folder, or a checkpoint.
        golden: the trusted run, the same kind of path.
        *flags: further flags of the command, such as ``"--tolerant"``.

    Raises:
        msprobe.UsageError: a flag that the command does not have; dumps that cannot be compared.
        msprobe.FileError, msprobe.DumpError: a path that does not exist; a damaged dump.

    Example:
        >>> found = msprobe.compare("runs/new/step0/rank0", "runs/good/step0/rank0")
        >>> found.first_divergence["source_line"]
    """
    with tempfile.TemporaryDirectory(prefix="msprobe_compare_") as folder:
        table = Path(folder) / "values.csv"
        command = [sys.executable, "-c", _RUN, "compare", os.fspath(target), os.fspath(golden)]
        command += ["--format", "json", "-o", folder, "--table-file", str(table), *flags]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        try:
            document = json.loads(done.stdout)
        except ValueError:
            raise _error(done.stderr.strip()) from None
        with table.open(newline="") as file:
            rows = [
                {key: _number(cell) for key, cell in row.items()} for row in csv.DictReader(file)
            ]
    return Comparison(document, rows)


def _error(text: str) -> Exception:
    name, _, message = text.partition("\n")
    kind = getattr(_engine, name, None) if name.isidentifier() else None
    return kind(message) if kind else _engine.UsageError(text.removeprefix("error: "))


def _number(cell: str):
    try:
        return int(cell)
    except ValueError:
        pass
    try:
        return float(cell[:-1]) / 100 if cell.endswith("%") else float(cell)
    except ValueError:
        return cell


def _frame(rows: list[dict]):
    try:
        import pandas
    except ImportError:
        return rows
    return pandas.DataFrame(rows)


def _call_of(row: dict) -> str:
    """The call of a value: its name up to the last part that names an argument or a result."""
    name = str(row["Bench Name"] if row["NPU Name"] in ("", "N/A") else row["NPU Name"])
    for part in (".input", ".output", ".kwargs", ".parameters"):
        at = name.find(part, name.rfind("ward"))
        if at >= 0:
            return name[:at]
    return name.rpartition(".")[0] if ".parameters_grad" in name else name


def _calls_of(rows: list[dict]) -> list[dict]:
    calls = []
    for row in rows:
        name = _call_of(row)
        if not calls or calls[-1]["call"] != name:
            calls.append(
                {
                    "call": name,
                    "class": row["Class"],
                    "roundings": math.nan,
                    "source": "",
                    "values": 0,
                }
            )
        call = calls[-1]
        call["values"] += 1
        call["source"] = call["source"] or str(row.get("Source Line") or "")
        severity = row["Severity"]
        if isinstance(severity, (int, float)) and not severity <= call["roundings"]:
            call["roundings"] = float(severity)
    return calls


def _curve(calls: list[dict]) -> str:
    """The error of each call as a picture: logarithmic, one bar for each column of pixels."""
    step = max(1, math.ceil(len(calls) / _WIDTH))
    groups = [calls[i : i + step] for i in range(0, len(calls), step)]
    bars = []
    for x, group in enumerate(groups):
        worst = max(group, key=lambda call: _level(call["roundings"]))
        level = _level(worst["roundings"])
        color = _COLORS.get(worst["class"])
        if color is None or level <= 0:
            continue
        width, height = _WIDTH / len(groups), max(2.0, level * _HEIGHT)
        title = html.escape(
            f"{worst['call']}: {worst['class']}, {worst['roundings']:.3g} roundings"
        )
        bars.append(
            f'<rect x="{x * width:.1f}" y="{_HEIGHT - height:.1f}" width="{max(1.0, width):.1f}" '
            f'height="{height:.1f}" fill="{color}"><title>{title}</title></rect>'
        )
    return (
        '<svg role="img" aria-label="error of each call, in roundings" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="100%" height="{_HEIGHT}" '
        f'preserveAspectRatio="none">{"".join(bars)}</svg>'
    )


def _level(roundings: float) -> float:
    """0 for no error, 1 for 1e12 roundings and more."""
    if not roundings > 0:
        return 0.0
    return min(1.0, max(0.02, (math.log10(min(roundings, 1e12)) + 2) / 14))
