"""Bad configuration: one message with file, line, expected, found; nothing is written."""

import json
import os
import resource
import signal
import subprocess

import pytest
import torch
from recording import read_dump, run_forked

import msprobe

TASKS = 'expected "statistics", "tensor"'
KEYS = 'expected "task", "dump_path", "rank", "step", "level", "extra_info", '

# name: (text of config.json, parts of the message, besides the file's name)
FILES = {
    "unknown key": ('{\n"levels": "L0"}', [":2", '"levels"', KEYS, 'did you mean "level"?']),
    "key out of its place": ('{"list": []}', [":1", '"list"', '"statistics": {"list": ...}']),
    "unknown key of the task": ('{"statistics": {\n\n"lst": []}}', [":3", '"lst"', '"list"?']),
    "key twice": ('{"level": "L0",\n"level": "L1"}', [":2", '"level"', "twice"]),
    "unknown task": ('{"task": "tensr"}', [":1", TASKS, 'found "tensr"', '"tensor"?']),
    "old task": ('{"task": "acc_check"}', [":1", TASKS, "this version does not support"]),
    "unknown level": ('{"level": "l1"}', [":1", '"L0", "L1", "mix" or "debug"', '"l1"']),
    "unknown mode": ('{"statistics": {"summary_mode": "md4"}}', [":1", '"md5"', 'found "md4"']),
    "unknown direction": ('{"statistics": {"data_mode": ["sideways"]}}', [":1", '"forward"']),
    "all and more": ('{"statistics": {"data_mode": ["all", "input"]}}', [":1", '"all" alone']),
    "old key": ('{"tensor": {\n\n"online_run_ut": true}, "task": "tensor"}',
                [":3", '"online_run_ut"', "not possible", "remove"]),
    "level a number": ('{"level": 1}', [":1", '"level"', "expected a string", "found 1"]),
    "dump_path a list": ('{"dump_path": ["a"]}', [":1", '"dump_path"', "expected a string"]),
    "dump_path empty": ('{"dump_path": ""}', [":1", '"dump_path"', "expected a folder"]),
    "step a number": ('{"step": 3}', [":1", '"step"', "expected a list", "found 3"]),
    "step negative": ('{"step": [-1]}', [":1", '"step"', "0 to 1000000", '-1']),
    "step backwards": ('{"step": ["6-3"]}', [":1", '"step"', 'found "6-3"']),
    "rank true": ('{"rank": [true]}', [":1", '"rank"', "found true"]),
    "list a text": ('{"statistics": {"list": "relu"}}', [":1", "list of strings", '"relu"']),
    "list of an empty text": ('{"statistics": {"list": [""]}}', [":1", "not empty"]),
    "scope of three": ('{"statistics": {"scope": ["a", "b", "c"]}}', [":1", "two entry names"]),
    "scope of modules": (
        '{"statistics": {"scope": ["Module.a.B.forward.0", "Module.a.B.forward.0"]}}',
        [":1", '"Functional.relu.0.forward" (level L1)', "Module.a.B.forward.0"],
    ),
    "structure, and no files for it": (
        '{"task": "structure", "extra_info": false}',
        ["stack.json", 'remove "extra_info"'],
    ),
    "structure of a list": (
        '{"task": "structure", "structure": {\n"list": ["relu"]}}',
        [":2", '"list"', "task structure has no keys"],
    ),
    "unknown level of gradients": (
        '{"task": "grad_probe", "grad_probe": {\n"grad_level": "l1"}}',
        [":2", '"grad_level"', '"L0", "L1" or "L2"', 'did you mean "L1"?'],
    ),
    "bounds that descend": (
        '{"task": "grad_probe", "grad_probe": {\n"bounds": [0,\n-1]}}',
        [":3", '"bounds"', "ascending numbers such as [-1, 0, 1]", "found -1"],
    ),
    "key beside grad_level": (
        '{"task": "grad_probe", "grad_probe": {\n"grad_levels": "L1"}}',
        [":2", '"grad_levels"', 'did you mean "grad_level"?'],
    ),
    "section a list": ('{"statistics": []}', [":1", '"statistics"', "expected an object"]),
    "extra_info a text": ('{"extra_info": "no"}', [":1", "expected true or false", 'found "no"']),
    "not an object": ("[1]", [":1", "expected an object"]),
    "truncated": ('{"task": "statistics",\n "level": "L', [":2", "expected", "end of the file"]),
    "truncated after a key": ('{"task"', [":1", "expected ':'", "end of the file"]),
    "empty file": ("", [":1", "expected", "end of the file"]),
    "trailing text": ('{"level": "L0"}}', [":1", "expected", "found"]),
    "a comment": ('{"level": "L0" // modules\n}', [":1", "expected"]),
    "binary": ("\0\1\2", [":1", "expected"]),
}  # fmt: skip


def refused(folder, *arguments, **keywords):
    """Type and text of the exception; afterwards a valid construction must work."""
    from msprobe.pytorch import PrecisionDebugger

    os.chdir(folder)
    try:
        PrecisionDebugger(*arguments, **keywords)
    except Exception as error:
        found = type(error).__name__, str(error)
    else:
        return "nothing was raised", ""
    left = sorted(path.name for path in folder.rglob("*"))
    PrecisionDebugger(dump_path=str(folder / "good"), level="L1").start()
    torch.relu(torch.ones(2))
    PrecisionDebugger.stop()
    assert read_dump(folder / "good").names == ["Torch.relu.0.forward"]
    return *found, left


def check_message(text, pieces):
    for piece in pieces:
        assert piece in text, text
    lines = text.splitlines()
    assert len(lines) <= 2 and all(line.startswith("hint:") for line in lines[1:]), text


@pytest.mark.parametrize("case", FILES)
def test_a_bad_file(case, tmp_path):
    content, pieces = FILES[case]
    (tmp_path / "config.json").write_text(content)
    kind, text, left = run_forked(refused, tmp_path, "config.json")
    assert kind == "ConfigError"
    assert text.startswith("config.json:"), text
    check_message(text, pieces)
    assert left == ["config.json"]  # no dump_path folder


def test_a_missing_file(tmp_path):
    kind, text, left = run_forked(refused, tmp_path, "nowhere.json")
    assert (kind, left) == ("FileError", [])
    check_message(text, ["nowhere.json"])


def test_a_folder_for_a_file(tmp_path):
    (tmp_path / "config.json").mkdir()
    kind, text, left = run_forked(refused, tmp_path, "config.json")
    assert (kind, left) == ("FileError", ["config.json"])
    check_message(text, ["config.json"])


ARGUMENTS = {
    "task": ({"task": "tensr"}, ["task", TASKS, 'found "tensr"']),
    "level": ({"level": "L9"}, ["level", '"L0", "L1", "mix" or "debug"', 'found "L9"']),
    "dump_path": ({"dump_path": ""}, ["dump_path", "expected a folder"]),
    "step": ({"step": ["a"]}, ["step", 'found "a"']),
    "negative step": ({"step": [-2]}, ["step", 'found "-2"']),
    "misspelt": ({"levle": "L1"}, ["no argument levle", "did you mean level?"]),
    "unknown": ({"colour": "L1"}, ["no argument colour", "there is config_path, task"]),
    "a key of the file": ({"rank": [4]}, ["no argument rank", "keys of the file that config_path"]),
}


@pytest.mark.parametrize("case", ARGUMENTS)
def test_a_bad_argument(case, tmp_path):
    keywords, pieces = ARGUMENTS[case]
    kind, text, left = run_forked(refused, tmp_path, **keywords)
    assert (kind, left) == ("UsageError", [])
    check_message(text, pieces)


WRONG_TYPES = [
    {"level": 1},
    {"task": ["tensor"]},
    {"dump_path": 7},
    {"config_path": 3},
    {"step": [1.5]},
    {"step": [True]},
]


@pytest.mark.parametrize("keywords", WRONG_TYPES, ids=str)
def test_an_argument_of_the_wrong_type(keywords, tmp_path):
    """Raises a usage error that names the argument, as the docstring of the class says."""
    kind, text, *_ = run_forked(refused, tmp_path, **keywords)
    assert kind == "UsageError", text
    check_message(text, [*keywords, "expected"])


@pytest.mark.parametrize("method", ["start", "stop", "step", "forward_backward_dump_end"])
def test_a_method_before_the_construction(method):
    from msprobe.pytorch import PrecisionDebugger

    with pytest.raises(msprobe.UsageError, match=r"expected PrecisionDebugger\(\.\.\.\)"):
        getattr(PrecisionDebugger, method)()


def start_with(folder, model):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder / "out"), level="mix")
    try:
        debugger.start(model)
    except msprobe.UsageError as error:
        return str(error)
    return None


@pytest.mark.parametrize("model", [3, torch.ones(2), [torch.nn.ReLU(), "x"], torch.nn.ReLU])
def test_a_model_that_is_none(model, tmp_path):
    text = run_forked(start_with, tmp_path, model)
    check_message(text or "nothing was raised", ["expected a torch.nn.Module", "found"])
    assert not (tmp_path / "out").exists()


def train_anyway(folder, dump_path):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=dump_path)
    for _ in range(3):
        debugger.start()
        torch.relu(torch.ones(2))
        debugger.stop()
        debugger.step()


def construct_at(folder, dump_path):
    import msprobe
    from msprobe.pytorch import PrecisionDebugger

    with pytest.raises(msprobe.FileError) as raised:
        PrecisionDebugger(dump_path=dump_path)
    return str(raised.value)


def errors(capfd):
    return [line for line in capfd.readouterr().err.splitlines() if "[ERROR]" in line]


# Permissions do not stop root, so a file is created in place of the folder.
@pytest.mark.parametrize("below", ["", "/a", "/a/b"])
def test_an_unwritable_dump_path(below, tmp_path, capfd):
    (tmp_path / "blocked").write_text("mine")
    text = run_forked(construct_at, tmp_path, f"{tmp_path}/blocked{below}")
    # Detected at construction, not after hours of training.
    check_message(text, [f"{tmp_path}/blocked", "Not a directory", "dump_path"])
    assert errors(capfd) == []
    assert (tmp_path / "blocked").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [tmp_path / "blocked"]


def test_a_file_of_the_dump_that_cannot_be_made(tmp_path, capfd):
    (tmp_path / "step0/rank/dump.json").mkdir(parents=True)
    run_forked(train_anyway, tmp_path, str(tmp_path))
    (line,) = errors(capfd)
    check_message(line, ["step0/rank/dump.json", "Is a directory"])
    assert "dump.json" in [path.name for path in (tmp_path / "step0/rank").iterdir()]


def fill_the_disk(folder):
    """Trains until a limit on file sizes (the full disk) is reached; returns the last sum."""
    from msprobe.pytorch import PrecisionDebugger

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    debugger = PrecisionDebugger(dump_path=str(folder / "out"))
    debugger.start()
    total = torch.zeros(1)
    for _ in range(200):
        total = total + torch.relu(torch.ones(1))
    debugger.stop()
    debugger.step()
    debugger.start()
    return total.item()


def test_a_full_disk_does_not_stop_the_training(tmp_path, msprobe_bin, capfd):
    assert run_forked(fill_the_disk, tmp_path) == 200.0
    said = capfd.readouterr().err
    assert said.count("collection is off, the run goes on") == 1
    assert "dump.json" in said
    shown = subprocess.run([msprobe_bin, "show", tmp_path / "out"], capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    assert "Torch.relu.5.forward" in shown.stdout
    recovered = [msprobe_bin, "recover", tmp_path / "out/step0/rank"]
    assert subprocess.run(recovered, capture_output=True).returncode == 0
    kept = json.loads((tmp_path / "out/step0/rank/dump.json").read_text())["data"]
    assert len(kept) > 10
    assert not (tmp_path / "out/step1").exists()
