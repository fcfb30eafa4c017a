"""The key dump_enable: the configuration is read again while the training runs."""

import atexit
import json
import os
import time

import pytest
import torch
from recording import forked, read_dump, run_forked

GIVE_UP_S = 60
L1 = {"Functional.linear.0.forward", "Functional.linear.0.backward"}
L0 = {
    "Module.0.Linear.forward.0",
    "Module.0.Linear.backward.0",
    "Module.0.Linear.parameters_grad.0",
}


class Training:
    """A training loop whose configuration changes between its steps."""

    def __init__(self, folder, config, with_model=True, **keywords):
        from msprobe.pytorch import PrecisionDebugger

        os.chdir(folder)
        self.out = folder / "out"
        self.write(config)
        self.debugger = PrecisionDebugger("config.json", **keywords)
        self.model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        self.given = self.model if with_model else None
        self.steps = 0

    def write(self, config):
        text = config if isinstance(config, str) else json.dumps({"dump_path": "out", **config})
        with open("config.new", "w") as file:
            file.write(text)
        os.replace("config.new", "config.json")

    def step(self):
        """Runs a step; returns the names that it recorded, or None."""
        self.model.zero_grad()
        self.debugger.start(self.given)
        self.model(torch.ones(1, 2)).sum().backward()
        self.debugger.stop()
        self.debugger.step()
        self.steps += 1
        if not (self.out / f"step{self.steps - 1}").exists():
            return None
        return {name for name in read_dump(self.out, self.steps - 1).names if "sum" not in name}

    def until(self, names):
        """Runs steps until one records these names."""
        end = time.monotonic() + GIVE_UP_S
        while (found := self.step()) != names:
            assert time.monotonic() < end, f"still {found}"
            time.sleep(0.05)
        return True


def switch(folder):
    training = Training(folder, {"dump_enable": False})
    first = training.step()
    training.write({"dump_enable": True})
    training.until(L1)
    training.write({"dump_enable": True, "level": "mix"})
    training.until(L1 | L0)
    training.write({"dump_enable": True, "level": "L0", "statistics": {"list": ["forward"]}})
    training.until({"Module.0.Linear.forward.0"})
    training.write({"level": "L1"})  # without the key dump_enable: nothing changes
    training.until(L1)
    training.write({"dump_enable": False})
    training.until(None)
    training.write({"level": "L0"})
    training.step()
    time.sleep(3.1)
    last = [training.step(), training.step()]
    hooks = len(training.model[0]._forward_hooks) + len(training.model[0]._backward_hooks)
    return first, last, hooks


def test_every_key_can_change(tmp_path):
    assert run_forked(switch, tmp_path) == (None, [None, None], 0)
    for folder in (tmp_path / "out").iterdir():
        json.loads((folder / "rank" / "dump.json").read_text())  # each dump is complete


def mistakes(folder):
    training = Training(folder, {"dump_enable": True})
    training.until(L1)
    training.write('{"level": ')
    training.until(None)
    training.write({"dump_enable": True})
    training.until(L1)
    os.remove("config.json")
    training.until(None)
    training.write({"dump_enable": True, "level": "L0"})
    training.until(L0)
    training.write({"dump_enable": True, "task": "grad_probe"})
    training.until(None)
    training.write({"dump_enable": True})
    return training.until(L1)


def test_a_file_that_cannot_be_used_turns_collection_off_until_it_can(tmp_path, capfd):
    assert run_forked(mistakes, tmp_path)
    said = capfd.readouterr().err
    assert said.count("collection is off until the file is corrected") == 3
    assert "config.json:1: expected" in said
    assert 'expected a task that records calls, as at the construction, found "grad_probe"' in said


def without_model(folder):
    training = Training(folder, {"dump_enable": True}, with_model=False)
    training.until(L1)
    training.write({"dump_enable": True, "level": "mix"})
    return training.until(L1 | L0)


def test_a_level_that_needs_a_model_finds_it(tmp_path, capfd):
    assert run_forked(without_model, tmp_path)
    assert "start() was given no model: " in capfd.readouterr().err


@forked
def test_arguments_stay_in_force(tmp_path):
    training = Training(tmp_path, {"dump_enable": True}, level="L0")
    training.until(L0)
    training.write({"dump_enable": True, "level": "mix", "statistics": {"list": ["forward"]}})
    training.until({"Module.0.Linear.forward.0"})


@forked
def test_without_the_key_the_file_is_read_once(tmp_path):
    training = Training(tmp_path, {})
    training.step()
    training.write({"level": "L0"})
    time.sleep(0.6)
    training.step()
    assert training.step() == L1


def within_a_step(folder, change):
    """Changes the configuration between two start() calls of one step."""
    training = Training(folder, {"dump_enable": True})
    debugger, model = training.debugger, training.model
    for n in range(2):
        debugger.start(model)
        model(torch.ones(1, 2))
        debugger.stop()
        if n == 0:
            training.write({"dump_enable": True, **change})
            time.sleep(0.6)
    debugger.step()
    debugger.start(model)
    model(torch.ones(1, 2))
    debugger.stop()


@pytest.mark.parametrize(
    ("change", "this", "next_step"),
    [
        ({"statistics": {"list": ["nothing"]}}, ["Functional.linear.0.forward"], []),
        (
            {"level": "L0"},  # would change the header
            ["Functional.linear.0.forward", "Functional.linear.1.forward"],
            ["Module.0.Linear.forward.0"],
        ),
    ],
)
def test_what_a_step_has_recorded_stays(change, this, next_step, tmp_path):
    run_forked(within_a_step, tmp_path, change)
    assert read_dump(tmp_path / "out", 0).names == this
    assert read_dump(tmp_path / "out", 1).names == next_step


@forked
def test_reading_again_leaves_nothing_behind(tmp_path):
    training = Training(tmp_path, {"dump_enable": True})
    training.step()
    before = atexit._ncallbacks()
    for n in range(3):
        training.write({"dump_enable": True, "statistics": {"list": [f"linear.0.f{n}"]}})
        time.sleep(0.51)
        training.step()
    assert atexit._ncallbacks() == before
