"""``msprobe.compare``: the object that a notebook shows."""

import sys
import types
from pathlib import Path

import pytest

import msprobe

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report_page"))

from page_tools import HOSTILE, WRONG, write_dump


@pytest.fixture
def dumps(tmp_path):
    write_dump(tmp_path / "target", wrong=True, extra=True, hostile=[f"{HOSTILE}.0.forward"])
    write_dump(tmp_path / "golden", hostile=[f"{HOSTILE}.0.forward"])
    return tmp_path / "target", tmp_path / "golden"


def test_it_says_what_the_command_says(dumps):
    found = msprobe.compare(*dumps)
    assert found.verdict == "differs"
    assert found.first_divergence["target_name"] == WRONG[0]
    assert found.first_divergence["source_line"].startswith("train.py:3")
    assert repr(found) == f"<msprobe.Comparison: differs, first at {WRONG[0]}>"


def test_values_and_calls_without_pandas(dumps, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = msprobe.compare(*dumps)
    assert isinstance(found.values, list)
    culprit = [call for call in found.calls if call["call"] == WRONG[0]]
    assert [call["class"] for call in culprit] == ["introduced"]
    assert culprit[0]["values"] == 2
    assert culprit[0]["roundings"] > 1000
    assert sum(call["values"] for call in found.calls) == len(found.values)
    assert len(found.calls) == 14
    assert isinstance(found.values[0]["NPU max"], float)


def test_they_are_data_frames_if_pandas_is_there(dumps, monkeypatch):
    made = types.SimpleNamespace(DataFrame=lambda rows: ("frame", rows))
    monkeypatch.setitem(sys.modules, "pandas", made)
    found = msprobe.compare(*dumps)
    assert found.values[0] == found.calls[0] == "frame"
    assert "<svg" in found._repr_html_()


def test_the_card_has_no_markup_of_a_dump(dumps):
    card = msprobe.compare(*dumps)._repr_html_()
    assert WRONG[0] in card
    assert card.count("<rect") >= 5
    assert "<img" not in card
    assert "<script" not in card


def test_equal_runs(dumps):
    found = msprobe.compare(dumps[1], dumps[1])
    assert found.verdict == "equal"
    assert found.first_divergence is None
    assert "<rect" not in found._repr_html_()


def test_flags_and_errors_are_those_of_the_command(dumps, tmp_path):
    assert msprobe.compare(*dumps, "--tolerant").json["exact"] is None
    with pytest.raises(msprobe.UsageError, match="no-such-flag"):
        msprobe.compare(*dumps, "--no-such-flag")
    with pytest.raises(msprobe.FileError, match="missing"):
        msprobe.compare(tmp_path / "missing", dumps[1])
