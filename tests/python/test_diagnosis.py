"""Ten cases of bench/diagnosis, lists of bench/reports: faults are named, twins are calm."""

import json
import subprocess
import sys

import pytest

NAMED = [
    "gpt/repeat_for_repeat_interleave",
    "gpt/clipped_to_a_tenth",
    "bert/gelu_of_tanh",
    "resnet/label_smoothing_lost",
    "lstm/memory_without_tanh",
    "moe/softmax_over_tokens",
    "graph/slope",
]
QUIET = ["resnet/shortcut_first", "unet/two_threads", "unet/loss_written_out"]


@pytest.fixture(scope="module")
def scores(root, tmp_path_factory, msprobe_bin):
    folder = tmp_path_factory.mktemp("diagnosis")
    command = [sys.executable, str(root / "bench/diagnosis/run.py"), "--modes", "statistics-mix"]
    command += ["--cache", str(folder), "--json", str(folder / "scores.json"), "--no-peer"]
    command += ["--msprobe", msprobe_bin, "--only", *NAMED, *QUIET]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {each["name"]: each for each in json.loads((folder / "scores.json").read_text())}


@pytest.mark.parametrize("name", NAMED)
def test_the_culprit_is_named_first(name, scores):
    assert scores[name]["place"] == 1, scores[name]["said"]


@pytest.mark.parametrize("name", QUIET)
def test_a_harmless_change_is_blamed_on_nothing(name, scores):
    assert not scores[name]["blamed"], scores[name]["said"]


@pytest.mark.parametrize(
    "command",
    [
        "diagnosis/run.py --check",
        "reports/run.py --check",
        "diagnosis/blind/check.py first --quick",
        "diagnosis/blind/check.py second --quick",
        pytest.param("diagnosis/fresh/check.py first --quick", marks=pytest.mark.campaign),
        pytest.param("diagnosis/fresh/check.py second --quick", marks=pytest.mark.campaign),
        pytest.param("diagnosis/fresh/check.py third --quick", marks=pytest.mark.campaign),
    ],
)
def test_the_cases_are_complete(command, root):
    """Lists fit the hash of the names, every fault declares a place that exists; of diagnosis, all
    edits can be made, and both edits of a composed pair run."""
    program, *options = command.split()
    command = [sys.executable, str(root / "bench" / program), *options]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("option", ["--verbose", "--only=mae/", "--json=scores.json"])
def test_a_closed_set_takes_no_option_that_tells_names(option, root):
    command = [sys.executable, str(root / "bench/diagnosis/run.py"), "--blind", "second", option]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--blind second prints totals: expected none of" in done.stderr
