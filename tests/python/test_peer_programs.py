"""Our dump of each program against the dumps of msprobe 1.0.4, 8.3.3 and 26.2.0.

Names, counters, order, values, parents and stacks are equal, except for the rows of
docs/older/differences.md that tests/data/programs/differences.json names. How the older tools'
dumps were recorded: README in the same folder.
"""

import json
import re
import subprocess
import sys

import peer_programs
import pytest
import torch

from recorded import recorded

VERSIONS = ("1.0.4", "8.3.3", "26.2.0")


@pytest.fixture(scope="module")
def programs(root):
    if not torch.__version__.startswith("2.13."):
        pytest.skip("theirs were recorded with PyTorch 2.13, which makes other calls inside")
    return root / "tests/data/programs"


@pytest.fixture(scope="module")
def ours(programs, tmp_path_factory):
    """All dumps of record.py, recorded in new processes with their own CPU settings."""
    folder = tmp_path_factory.mktemp("ours")
    command = [sys.executable, programs / "record.py", folder]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def rules(programs):
    return json.loads((programs / "differences.json").read_text())


def dumps(folder) -> list:
    """(program/level_mode, step/rank) of every dump in a folder."""
    parts = (path.parent.relative_to(folder).parts for path in sorted(folder.glob("**/dump.json")))
    return [("/".join(each[:2]), "/".join(each[2:])) for each in parts]


def applies(rule: dict, version: str, place: str, line: str) -> bool:
    if version not in rule.get("versions", VERSIONS):
        return False
    if not re.fullmatch(rule.get("where", ".*"), place):
        return False
    return bool(re.fullmatch(rule["match"], line, re.S))


@pytest.fixture(scope="module")
def found(programs, ours):
    """(version, setting, line) of every deviation."""
    lines = []
    for version in VERSIONS:
        recordings = recorded(f"programs/{version}")
        for setting, place in dumps(recordings):
            theirs, mine = recordings / setting, ours / setting
            exact = peer_programs.result_of(theirs) == peer_programs.result_of(mine)
            for line in peer_programs.deviations(theirs / place, mine / place, exact):
                lines.append((version, f"{setting}/{place}", line))
    return lines


@pytest.mark.parametrize("version", VERSIONS)
def test_the_same_dumps(programs, ours, version):
    assert dumps(ours) == dumps(recorded(f"programs/{version}"))


@pytest.mark.parametrize("version", VERSIONS)
def test_every_deviation_is_a_deliberate_one(found, rules, version):
    unexplained = [
        f"{place}: {line}"
        for found_in, place, line in found
        if found_in == version and not any(applies(rule, version, place, line) for rule in rules)
    ]
    assert not unexplained, "\n".join(unexplained[:40])


def test_every_rule_applies(found, rules):
    idle = [
        rule
        for rule in rules
        for version in rule.get("versions", VERSIONS[-1:])
        if not any(applies(rule, version, *rest) for at, *rest in found if at == version)
    ]
    assert not idle


def test_every_rule_is_a_row_of_the_docs(rules, root):
    text = (root / "docs/older/differences.md").read_text()
    assert not [rule["row"] for rule in rules if f"\n| {rule['row']} |" not in text]


def test_parents_of_gradients_are_those_of_the_calls(ours):
    """Where our parents differ from theirs, backward has the same tree as forward."""
    for setting, place in dumps(ours):
        parents = peer_programs.read(ours / setting / place, "construct.json")
        for name, parent in parents.items():
            if ".backward" in name:
                expected = parents[name.replace(".backward", ".forward")]
                assert parent == (expected and expected.replace(".forward", ".backward")), name
