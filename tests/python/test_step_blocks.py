"""`with debugger.step(model)`, and what the debugger says of steps and arguments."""

import json

import pytest
import torch
from recording import forked, read_dump, run_program, run_ranks

from msprobe import UsageError, _engine
from msprobe.pytorch import PrecisionDebugger

MODEL = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
X = torch.ones(1, 2)


def steps(folder):
    return sorted(path.name for path in folder.iterdir())


@forked
def test_each_block_is_a_step(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    for _ in range(2):
        with debugger.step(MODEL) as same:
            MODEL(X).sum().backward()
        assert same is debugger
        torch.tanh(X)  # between the steps
    assert steps(tmp_path) == ["step0", "step1"]
    for step in range(2):
        dump = read_dump(tmp_path, step=step)
        assert "Module.0.Linear.forward.0" in dump.names
        assert not any("tanh" in name for name in dump.names)


@forked
def test_a_block_that_raises_ends_its_step(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    with pytest.raises(RuntimeError, match="on purpose"), debugger.step():
        torch.relu(X)
        raise RuntimeError("on purpose")
    with debugger.step():
        torch.tanh(X)
    assert read_dump(tmp_path, step=0).names == ["Torch.relu.0.forward"]
    assert read_dump(tmp_path, step=1).names == ["Torch.tanh.0.forward"]


@forked
def test_blocks_and_calls_of_step(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1", step=[1, 3])
    with debugger.step():
        torch.relu(X)
    debugger.start()
    torch.tanh(X)
    debugger.stop()
    debugger.step()
    debugger.step()
    with PrecisionDebugger.step():
        torch.abs(X)
    assert read_dump(tmp_path, step=1).names == ["Torch.tanh.0.forward"]
    assert read_dump(tmp_path, step=3).names == ["Torch.abs.0.forward"]
    assert steps(tmp_path) == ["step1", "step3"]


@forked
def test_a_block_needs_a_debugger():
    with pytest.raises(UsageError, match="constructed first"), PrecisionDebugger.step():
        pass


HEAD = """
import torch
from msprobe.pytorch import PrecisionDebugger
model = torch.nn.Linear(2, 2)
x = torch.ones(1, 2)
def train(debugger, steps, model=None):
    for _ in range(steps):
        debugger.start(model)
        torch.relu(x)
        debugger.stop()
        debugger.step()
"""


def said(program, folder):
    done = run_program(HEAD + program, cwd=folder)
    assert done.returncode == 0, done.stderr
    return [line for line in (done.stdout + done.stderr).splitlines() if "warn" in line.lower()]


@pytest.mark.parametrize(
    ("wanted", "steps", "sentence"),
    [
        ("[5]", 4, "step 5 was asked for, the run ended at step 3: nothing was recorded"),
        ("['1', '3-4']", 3, "steps 3, 4 were asked for, the run ended at step 2"),
        ("'2-20'", 1, "steps 2, 3, 4, 5, 6 and 14 more were asked for, the run ended at step 0"),
        ("[1]", 3, None),
        ("[2]", 3, None),
        ("[]", 3, None),
    ],
)
def test_steps_that_the_run_did_not_reach(tmp_path, wanted, steps, sentence):
    lines = said(
        f"train(PrecisionDebugger(dump_path='d', level='L1', step={wanted}), {steps})", tmp_path
    )
    found = [line for line in lines if "asked for" in line]
    assert len(found) == (sentence is not None), lines
    assert sentence is None or sentence in found[0]


@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("PrecisionDebugger(dump_path='d')", "nothing was recorded: start() was never called"),
        (
            "try:\n    PrecisionDebugger(dump_path='d').start(rank_id=-1)\nexcept Exception: pass",
            "nothing was recorded: start() raised UsageError: start: rank_id; expected a number",
        ),
        (
            "try:\n    PrecisionDebugger(dump_path='d').start(token_range=[0, 1])\n"
            "except Exception: pass",
            "nothing was recorded: start() raised UsageError: level L0 and mix record modules",
        ),
        ("train(PrecisionDebugger(dump_path='d', task='grad_probe'), 1)", "task grad_probe reads"),
        ("train(PrecisionDebugger(dump_path='d', level='L1'), 1)", None),
    ],
)
def test_an_empty_recording_warns(tmp_path, program, sentence):
    lines = said(program, tmp_path)
    assert len(lines) == (sentence is not None), lines
    assert sentence is None or sentence in lines[0]


def test_the_end_of_a_recording_is_three_lines(tmp_path):
    program = HEAD + "train(PrecisionDebugger(dump_path='d', level='L1'), 3)"
    done = run_program(program, cwd=tmp_path)
    where, what, following = [line.partition("[INFO] ")[2] for line in done.stderr.splitlines()]
    assert where == "recorded in d/step0/rank"
    assert what.startswith("1 API call")
    assert following == "next: msprobe compare d GOLDEN"


def test_a_misspelt_argument_of_a_method(tmp_path):
    done = run_program(HEAD + "PrecisionDebugger(dump_path='d').start(modle=model)", cwd=tmp_path)
    assert "start has no argument modle: did you mean model?" in done.stderr


@pytest.mark.parametrize(
    ("section", "sentence"),
    [
        (
            {"list": ["Relu"]},
            '"list": no name of the 3 calls contains "Relu": nothing was recorded',
        ),
        ({"list": ["relu", "conv"]}, '"list": no name of the 3 calls contains "conv"'),
        ({"scope": ["Torch.exp.0.forward"] * 2}, "none of the 3 calls has this name: nothing"),
        ({"data_mode": ["backward"]}, "nothing was recorded: between start() and stop() no call"),
        ({"tensor_list": ["conv"]}, '"tensor_list": no name of the recorded calls contains "conv"'),
        ({"list": ["relu"], "scope": ["Torch.relu.0.forward"] * 2}, None),
    ],
)
@forked
def test_what_selects_nothing_is_named(tmp_path, capfd, section, sentence):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"dump_path": str(tmp_path / "out"), "statistics": section}))
    debugger = PrecisionDebugger(str(config))
    for _ in range(3):
        with debugger.step():
            torch.relu(torch.ones(2))
    _engine.say_end()
    lines = [line for line in capfd.readouterr().err.splitlines() if "[WARNING]" in line]
    assert len(lines) == (sentence is not None), lines
    assert sentence is None or sentence in lines[0]


def _rank_of_two(rank, folder):
    config = folder / "config.json"
    debugger = PrecisionDebugger(str(config), dump_path=str(folder / "out"))
    with debugger.step():
        torch.relu(torch.ones(2))
    _engine.say_end()


def test_ranks_that_the_run_does_not_have(tmp_path, capfd):
    (tmp_path / "config.json").write_text('{"rank": [4, 5], "statistics": {}}')
    run_ranks(2, _rank_of_two, tmp_path)
    said = [line for line in capfd.readouterr().err.splitlines() if "[WARNING]" in line]
    assert len(said) == 1 and said[0].endswith(
        "ranks 4, 5 were asked for, the run has ranks 0 to 1: nothing was recorded"
    )
    assert not (tmp_path / "out").exists()


@forked
def test_a_server_that_waits_has_begun_no_step(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    for _ in range(2):
        debugger.start(model)
        debugger.stop()
        debugger.start(model)
        model(torch.ones(1, 2))
        debugger.stop()
        debugger.step()
    debugger.start(model)
    assert steps(tmp_path) == ["step0", "step1"]
    # The weights that were read when the step began are there, though no entry had come yet.
    assert (tmp_path / "step0" / "rank" / "weights.json").exists()


def test_nothing_is_said_of_steps_when_nothing_was_asked(tmp_path):
    lines = said("PrecisionDebugger(dump_path='d', level='L1', step=[5])", tmp_path)
    assert not any("asked for" in line for line in lines)


@pytest.mark.parametrize(
    ("second", "ignored"),
    [
        ("level='mix', step=[3], model=model", "ignores level='mix', model, step=[3]"),
        ("'other.json'", "ignores config_path='other.json'"),
        ("None, None, 'd', 'L1'", None),
        ("step=(0,)", None),
        ("", None),
    ],
)
def test_arguments_of_a_second_debugger(tmp_path, second, ignored):
    lines = said(
        f"first = PrecisionDebugger(dump_path='d', level='L1', step=[0])\n"
        f"assert PrecisionDebugger({second}) is first",
        tmp_path,
    )
    found = [line for line in lines if "one PrecisionDebugger" in line]
    assert len(found) == (ignored is not None), lines
    assert ignored is None or found[0].endswith(ignored)


def test_a_model_without_modules_inside(tmp_path):
    lines = said("train(PrecisionDebugger(dump_path='d', level='L0'), 2, model)", tmp_path)
    assert sum("nothing will be recorded: level L0" in line for line in lines) == 1
    for level, other in (("mix", "model"), ("L0", "torch.nn.Sequential(model)")):
        program = f"train(PrecisionDebugger(dump_path='e', level='{level}'), 2, {other})"
        assert not any("nothing will be recorded" in line for line in said(program, tmp_path))
