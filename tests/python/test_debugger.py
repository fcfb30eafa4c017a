"""The constructor and the methods of PrecisionDebugger, as scripts of every generation use them."""

import inspect
import random
import threading

import pytest
import torch
from recording import forked, read_dump

from msprobe import UsageError
from msprobe.pytorch import PrecisionDebugger

MODEL = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
X = torch.ones(1, 2)


def train(debugger, model=MODEL, steps=1, **start):
    for _ in range(steps):
        debugger.start(model, **start)
        model(X).sum().backward()
        debugger.stop()
        debugger.step()


@forked
def test_model_in_the_constructor(tmp_path):
    debugger = PrecisionDebugger(None, "statistics", str(tmp_path), "L0", MODEL)
    debugger.start()
    MODEL(X)
    debugger.stop()
    assert read_dump(tmp_path).names[0] == "Module.0.Linear.forward.0"


@forked
def test_steps_fifth_by_position(tmp_path):
    debugger = PrecisionDebugger(None, "statistics", str(tmp_path), "L1", [1])
    train(debugger, steps=3)
    assert [path.name for path in tmp_path.iterdir()] == ["step1"]


@forked
def test_no_steps_fifth_by_position(tmp_path):
    train(PrecisionDebugger(None, None, str(tmp_path), None, []), steps=2)
    assert (tmp_path / "step0").exists() and (tmp_path / "step1").exists()


@forked
def test_several_models(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0", model=(MODEL, MODEL[0]))
    debugger.start()
    MODEL(X)
    debugger.stop()
    assert read_dump(tmp_path).names[0] == "Module.0.0.Linear.forward.0"


@forked
def test_one_per_process_called_on_the_class(tmp_path):
    first = PrecisionDebugger(dump_path=str(tmp_path))
    assert PrecisionDebugger(dump_path="elsewhere", level="mix") is first
    PrecisionDebugger.start(MODEL)
    MODEL(X)
    PrecisionDebugger.stop()
    PrecisionDebugger.step()
    assert read_dump(tmp_path).names == ["Functional.linear.0.forward", "Functional.relu.0.forward"]


@forked
def test_rank_id_names_the_folder(tmp_path):
    train(PrecisionDebugger(dump_path=str(tmp_path)), rank_id=3)
    assert [path.name for path in (tmp_path / "step0").iterdir()] == ["rank3"]


@forked
def test_steps_from(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), step=[7])
    debugger.set_init_step(6)
    train(debugger, steps=3)
    assert [path.name for path in tmp_path.iterdir()] == ["step7"]
    assert read_dump(tmp_path, 7).names[0] == "Functional.linear.0.forward"


@forked
def test_tokens(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    for _ in range(2):  # the count restarts at each start()
        debugger.start([MODEL], token_range=[1, 2])
        torch.relu(X)
        for _ in range(5):
            MODEL(X)
        debugger.stop()
        debugger.step()
    for step in range(2):
        names = read_dump(tmp_path, step).names
        assert [n for n in names if "Linear" in n] == [
            "Module.0.0.Linear.forward.0",
            "Module.0.0.Linear.forward.1",
        ]
        assert not any(name.startswith("Torch.relu") for name in names)
    debugger.start(MODEL)  # without a range, every call is recorded again
    MODEL(X)
    torch.relu(X)
    debugger.stop()
    assert read_dump(tmp_path, 2).names[-1] == "Torch.relu.0.forward"
    assert not MODEL._forward_pre_hooks


@forked
def test_gradients_of_tokens(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix")
    debugger.start(MODEL, token_range=(1, 1))
    for _ in range(3):
        MODEL(X).sum().backward()
    debugger.stop()
    names = read_dump(tmp_path).names
    assert sum("Functional.linear" in n and n.endswith(".backward") for n in names) == 1
    assert sum("parameters_grad" in name for name in names) == 2  # after the first forward


@pytest.mark.parametrize("task", ["statistics", "tensor"])
@forked
def test_threads_that_start_and_stop(task, tmp_path):
    """Measuring a large tensor releases the GIL: another thread stops meanwhile."""
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="mix", task=task)
    model = torch.nn.Sequential(torch.nn.Linear(400, 400), torch.nn.ReLU(), torch.nn.Linear(400, 2))
    failed = []

    def work(seed):
        chance = random.Random(seed)
        try:
            for _ in range(15):
                debugger.start(model)
                result = model(torch.randn(3000, 400))
                if chance.random() < 0.5:
                    result.sum().backward()
                if chance.random() < 0.3:
                    debugger.step()
                debugger.stop()
        except BaseException as error:
            failed.append(error)

    workers = [threading.Thread(target=work, args=(seed,)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    debugger.stop()
    assert not failed
    assert any(tmp_path.glob("step*/rank*/dump.json"))


@pytest.mark.parametrize(
    "action, message",
    [
        (lambda d: d.start(3), "expected a torch.nn.Module (not scripted) or a list"),
        (lambda d: d.start([]), "found list"),
        (lambda d: d.start(torch.jit.script(MODEL)), "found RecursiveScriptModule"),
        (lambda d: d.start([MODEL, None]), "found NoneType"),
        (lambda d: d.start(MODEL, token_range=[2, 1]), "token_range; expected [first, last]"),
        (lambda d: d.start(MODEL, token_range=[1]), "found [1]"),
        (lambda d: d.start(MODEL, token_range=[True, 2]), "found [True, 2]"),
        (lambda d: d.start(MODEL, rank_id=-1), "rank_id; expected a number of 0 or more, found -1"),
        (lambda d: d.start(MODEL, rank_id="0"), "found '0'"),
        (lambda d: d.set_init_step(-1), "set_init_step; expected a number from 0 to 1000000"),
        (lambda d: d.set_init_step(1.0), "found 1.0"),
    ],
)
@forked
def test_misuse(action, message, tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    with pytest.raises(UsageError) as error:
        action(debugger)
    assert message in str(error.value)


@forked
def test_token_range_needs_a_model(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    with pytest.raises(UsageError, match="token_range counts calls of the model"):
        debugger.start(token_range=[0, 1])


@forked
def test_wrong_model_in_the_constructor():
    with pytest.raises(UsageError, match="found dict"):
        PrecisionDebugger(model={})
    assert PrecisionDebugger.instance is None


@forked
def test_calls_in_the_wrong_order_are_harmless(tmp_path):
    folder = tmp_path / "run"
    debugger = PrecisionDebugger(dump_path=str(folder))
    debugger.stop()
    debugger.step()  # counts one step
    assert not folder.exists()
    debugger.start()
    debugger.start()
    MODEL(X)
    debugger.stop()
    debugger.stop()
    assert len(read_dump(folder, 1).names) == 2


@forked
def test_without_step_calls_are_counted_on(tmp_path):
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    for _ in range(2):
        debugger.start()
        torch.relu(X)
        debugger.stop()
    assert read_dump(tmp_path).names == ["Torch.relu.0.forward", "Torch.relu.1.forward"]


METHODS = [
    name
    for name, method in inspect.getmembers(PrecisionDebugger, inspect.ismethod)
    if not name.startswith("_")
]


@pytest.mark.parametrize("name", METHODS)
def test_before_construction(name):
    needed = [
        parameter
        for parameter in inspect.signature(getattr(PrecisionDebugger, name)).parameters.values()
        if parameter.default is parameter.empty
    ]
    with pytest.raises(UsageError, match="to be constructed first; add"):
        getattr(PrecisionDebugger, name)(*[1] * len(needed))
