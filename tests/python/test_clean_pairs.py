"""Pairs of bench/diagnosis/clean that differ by rounding alone, and once were blamed for it."""

import json
import subprocess
import sys

import pytest

# Numbers of pairs, by what rounding makes of them.
PAIRS = {
    30: "another kernel of attention, which no argument chooses",
    61: "Adam divides a sum that cancels by its own size",
    72: "attention takes exponentials of large products",
    98: "what Adam made of noise is an argument of the next step",
    20089: "tanh of large numbers",
    20163: "the gradient of a normalisation, of nearly equal elements",
    20215: "a bias of few elements is added to each row",
    20435: "the golden computed in bfloat16 what code without records used",
    20086: "an equal gradient is divided by a state that is not",
    30838: "as many rows as weights: the gradient that arrives is no part of theirs",
    30837: "modules alone: what arrives in backward was computed in any dtype",
    133: "a gradient that is noise stays noise when it is multiplied",
    1011: "modules alone: a gradient that cancels over the rows",
    1035: "modules alone: a module makes many roundings",
    1063: "the bias of keys has no gradient, and Adagrad divides it by its own size",
    1073: "the first average of gradients is a gradient that a call made",
}


@pytest.fixture(scope="module")
def answers(root, tmp_path_factory, msprobe_bin):
    folder = tmp_path_factory.mktemp("clean")
    command = [sys.executable, str(root / "bench/diagnosis/clean/run.py"), "--msprobe", msprobe_bin]
    command += ["--scratch", str(folder), "--json", str(folder / "out.json")]
    command += ["--numbers", *map(str, PAIRS)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {each["number"]: each for each in json.loads((folder / "out.json").read_text())}


@pytest.mark.parametrize("number", PAIRS)
def test_rounding_alone_is_blamed_on_nobody(number, answers):
    assert not answers[number]["differs"], answers[number]["said"]
