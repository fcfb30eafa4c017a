"""Some of the tests that docs/older/robustness.md names, one for each failure of older tools."""

import gc
import re
import weakref
from pathlib import Path

import pytest
import torch
from real_programs import PROGRAMS
from recording import read_dump, run_forked

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| .*\((?P<number>[DC]\d+)\) \|.*\| (?P<shown>[^|]+) \|$", re.MULTILINE)
ROWS = ROW.findall((ROOT / "docs/older/robustness.md").read_text())


def exists(name):
    """Whether there is a test of this name."""
    if name.startswith("programs/"):
        return name.removeprefix("programs/") in PROGRAMS
    if "::" in name:
        file, function = name.split("::")
        folder = "tests" if "/" in file else "tests/python"
        return f"\ndef {function}(" in (ROOT / folder / f"{file}.py").read_text()
    suite, test = name.split(".")
    wanted = re.compile(rf"^TEST(?:_F|_P)?\({suite}, {test}\)", re.MULTILINE)
    return any(wanted.search(path.read_text()) for path in ROOT.glob("tests/*/*_test.cc"))


def test_every_known_failure_has_a_row():
    wanted = [f"D{n}" for n in range(1, 26)] + [f"C{n}" for n in range(1, 25)]
    assert [number for number, _ in ROWS] == wanted


@pytest.mark.parametrize(("number", "shown"), ROWS, ids=[number for number, _ in ROWS])
def test_the_tests_named_are_there(number, shown):
    names = re.findall(r"`([^`]+)`", shown)
    assert names
    assert [name for name in names if not exists(name)] == []


def record_below(folder):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level="L1", task="tensor")
    debugger.start()
    torch.sin(torch.ones(2))
    debugger.stop()


@pytest.mark.parametrize(
    "name", ["with space", "größe 层", "a'b\"c", "#%&*?[]", "-x", "\\", "n\nl"]
)
def test_any_folder_name(name, tmp_path):
    run_forked(record_below, tmp_path / name)
    dump = read_dump(tmp_path / name)
    assert dump.names == ["Torch.sin.0.forward"]
    assert len(dump.tensors()) == 2


def hooks_of(model):
    """Number of hooks on modules, on parameters, and global module hooks."""
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    on_modules = sum(len(getattr(m, kind)) for m in model.modules() for kind in kinds)
    on_parameters = sum(
        len(hooks or ())
        for p in model.parameters()
        for hooks in (p._backward_hooks, p._post_accumulate_grad_hooks)
    )
    everywhere = [
        len(value)
        for name, value in vars(torch.nn.modules.module).items()
        if name.startswith("_global_") and name.endswith("_hooks")
    ]
    return on_modules, on_parameters, sum(everywhere)


def what_stays(folder):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), level="mix")
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    before = hooks_of(model)
    debugger.start(model)
    model(torch.ones(2, 3)).sum().backward()
    debugger.step()
    after = hooks_of(model)
    inner, layer = weakref.ref(model[0]), weakref.ref(model[0].weight)
    model[0] = torch.nn.Identity()
    gc.collect()
    gone = inner() is None and layer() is None
    last = weakref.ref(model)
    del model
    debugger.start(torch.nn.Identity())
    debugger.stop()
    gc.collect()
    return before, after, gone, last() is None


def test_nothing_stays_after_stop(tmp_path):
    """No hook and no module stays; the tool keeps only the model, until the next start(model)."""
    before, after, modules_are_gone, model_is_gone = run_forked(what_stays, tmp_path)
    assert after == before
    assert modules_are_gone
    assert model_is_gone
