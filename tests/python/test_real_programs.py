"""Features of real programs: the same bits with the tool on, and a correct, complete dump."""

import copy
import json
import random
from functools import cache

import numpy as np
import pytest
import torch
from real_programs import PROGRAMS
from real_programs.watch import Watch
from recording import Dump, digest, run_forked

TASKS = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
}
WAYS = [(level, task) for level in ("L0", "L1", "mix") for task in TASKS]
# Calls run a second time: all of them, without a change and with one.
SECOND_RUNS = {
    f"{mode} {stage}": {
        "task": "free_benchmark",
        "free_benchmark": {"pert_mode": mode, "fuzz_stage": stage, "budget": 0},
    }
    for mode in ("no_change", "improve_precision")
    for stage in ("forward", "backward")
}
ALWAYS = ("mix", "tensor")  # the other combinations run in the campaign


def way(name, level_and_task):
    """Parameters of one test. Outside the campaign, quick programs run with one combination."""
    slow = PROGRAMS[name].slow or level_and_task != ALWAYS
    return pytest.param(
        name,
        *level_and_task,
        id="-".join((name, *level_and_task)),
        marks=[pytest.mark.campaign] if slow else [],
    )


def run(name, folder=None, level=None, task=None):
    """(results and state of the program, values that it noted)."""
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(1)
    watch = Watch()
    if folder:
        from msprobe.pytorch import PrecisionDebugger

        config = folder / "config.json"
        config.write_text(
            json.dumps(
                {"dump_path": str(folder / "dump"), "level": level, **(TASKS | SECOND_RUNS)[task]}
            )
        )
        watch = Watch(PrecisionDebugger(str(config)))
    result = PROGRAMS[name].run(watch)
    left = {
        "result": digest(result),
        "noted": digest(watch.noted),
        "torch random": digest(torch.get_rng_state()),
        "other random": (random.getstate(), np.random.get_state()[1].tobytes()),
        "modes": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }
    return left, watch.noted


@cache
def without_the_tool(name):
    return run_forked(run, name)[0]


def leaves(value, where=""):
    """(place, tensor object) for each tensor in an entry's value."""
    if isinstance(value, dict) and "dtype" in value and "shape" in value:
        yield where, value
    elif isinstance(value, (dict, list)):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, f"{where}.{key}")


def check_tensors(dump, noted):
    """Each file agrees with its entry, and with the value that the program noted at that place."""
    files = dump.tensors()
    for name, entry in dump.data.items():
        for where, leaf in leaves(entry):
            if "data_name" not in leaf:
                continue
            tensor = files[leaf["data_name"]]
            found = str(tensor.dtype).removeprefix("torch."), list(tensor.shape)
            assert found == (leaf["dtype"].removeprefix("torch."), leaf["shape"]), where
            if tensor.numel() and tensor.is_floating_point() and not tensor.isnan().any():
                found = (leaf["Max"], leaf["Min"])
                if tensor.dtype != torch.float64:  # written with as many digits as a float32 needs
                    found = tuple(torch.tensor(found).tolist())
                assert found == (tensor.max().item(), tensor.min().item()), f"{name}{where}"
    for place, value in noted.items():
        assert np.array_equal(files[f"{place}.pt"].numpy(), value), place


def check_parents(dump, program):
    """Every parent exists and has the same direction as its child."""
    construct = dump.side("construct.json")
    own = {name: parent for name, parent in construct.items() if parent is not None}
    for child, parent in own.items():
        assert parent in construct, child
        if parent.startswith("Module."):
            direction = "backward" if ".backward" in child else "forward"
            assert f".{direction}" in parent, child
    for child, parent in program.parents.items():
        assert construct[child] == parent, child
    recorded = {name for name in dump.names if ".parameters_grad" not in name}
    assert recorded <= set(construct)


CASES = [way(name, each) for name in PROGRAMS for each in WAYS]


@pytest.mark.parametrize(("name", "level", "task"), CASES)
def test_a_program_computes_the_same_and_is_recorded(name, level, task, tmp_path, capfd):
    left, noted = run_forked(run, name, tmp_path, level, task)
    plain = without_the_tool(name)
    for what in plain:
        assert left[what] == plain[what], what
    assert "collection is off" not in capfd.readouterr().err
    (folder,) = (tmp_path / "dump" / "step0").glob("rank*")
    dump, program = Dump(folder), PROGRAMS[name]
    for part in program.absent:
        assert not [entry for entry in dump.names if part in entry], part
    if task == "tensor" and level == "mix":
        check_tensors(dump, noted)
    if level == "mix":
        assert [entry for entry in program.records if entry not in dump.data] == []
        check_parents(dump, program)


QUICK = [
    pytest.param(name, marks=[pytest.mark.campaign] if PROGRAMS[name].slow else [])
    for name in PROGRAMS
]


SEES_ALL = "observers.profiler"  # it counts what the process computes, the second runs, too
# Outside the campaign, quick programs run under one of the tasks, each under the next one.
TWICE = [
    pytest.param(
        name,
        task,
        marks=[pytest.mark.campaign] if PROGRAMS[name].slow or (i + k) % len(SECOND_RUNS) else [],
    )
    for i, name in enumerate(PROGRAMS)
    for k, task in enumerate(SECOND_RUNS)
    if name != SEES_ALL
]


@pytest.mark.parametrize(("name", "task"), TWICE)
def test_a_program_computes_the_same_while_calls_run_twice(name, task, tmp_path, capfd):
    left, _ = run_forked(run, name, tmp_path, "L1", task)
    plain = without_the_tool(name)
    for what in plain:
        assert left[what] == plain[what], what
    assert "collection is off" not in capfd.readouterr().err


@pytest.mark.campaign
@pytest.mark.parametrize("name", QUICK)
def test_a_program_computes_the_same_without_the_tool(name):
    """The tests above need this: without the tool the program must be reproducible."""
    assert run_forked(run, name)[0] == copy.deepcopy(without_the_tool(name))
