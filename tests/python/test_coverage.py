"""coverage.json: the operations that were recorded, those that were not, and why."""

import ctypes
import json
import subprocess
from pathlib import Path

import pytest
import torch
from recording import forked, run_forked, run_ranks
from torch.nn import functional as F

from msprobe import _engine

CONFIG = {"task": "statistics", "level": "L1"}


def record(folder, body, steps=1, level="L1", model=None, **section):
    from msprobe.pytorch import PrecisionDebugger

    config = folder / "config.json"
    config.write_text(json.dumps(CONFIG | {"level": level, "statistics": section}))
    debugger = PrecisionDebugger(str(config), dump_path=str(folder / "dump"))
    prepared = body()
    for _ in range(steps):
        debugger.start(model)
        prepared()
        debugger.stop()
        debugger.step()


def coverage(folder, step=0):
    return json.loads((folder / f"dump/step{step}/rank/coverage.json").read_text())


def unseen(report):
    return {item["operation"]: (item["count"], item["reason"]) for item in report["not_observed"]}


def plain():
    x, w = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)

    def body():
        y = F.linear(x, w).view(16)  # view is not in the list
        F.gumbel_softmax(y, dim=0).sum().backward()  # itself calls functions of the list

    return body


def test_every_operation_is_accounted_for(tmp_path):
    run_forked(record, tmp_path, plain)
    report = coverage(tmp_path)
    assert report["apis"]["recorded"] == 3
    assert report["apis"]["nested"] > 0
    assert report["gradients"] == {"recorded": 3, "ignored": 0, "missing": 0}
    operations = report["operations"]
    assert operations["recorded"] == 3
    assert operations["nested"] > 3
    assert operations["gradient"] > 3
    assert operations["ignored"] == 0
    assert unseen(report)["aten::view"] == (1, "not in support_wrap_ops.yaml")
    assert operations["not_observed"] == sum(count for count, _ in unseen(report).values())


def test_what_the_configuration_leaves_out(tmp_path):
    run_forked(record, tmp_path, plain, list=["linear"])
    report = coverage(tmp_path)
    assert (report["apis"]["recorded"], report["apis"]["ignored"]) == (1, 2)
    assert report["operations"]["ignored"] > 1
    assert report["operations"]["recorded"] == 1


@forked
def test_what_overflow_check_only_looks_at(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    (tmp_path / "config.json").write_text('{"overflow_check": {"overflow_nums": -1}}')
    debugger = PrecisionDebugger(
        str(tmp_path / "config.json"), "overflow_check", str(tmp_path / "dump"), "L1"
    )
    x = torch.tensor([1.0, 4.0], requires_grad=True)
    debugger.start()
    torch.sqrt(torch.mul(x, 2.0)).sum().backward()
    zero = torch.zeros(2, requires_grad=True)
    torch.sqrt(zero).sum().backward()  # its gradient is infinite
    debugger.stop()
    report = coverage(tmp_path)
    data = json.loads((tmp_path / "dump/step0/rank/dump.json").read_text())["data"]
    assert [name for name in data if "backward" in name] == ["Torch.sqrt.1.backward"]
    assert (report["apis"]["recorded"], report["apis"]["ignored"]) == (0, 5)
    assert report["gradients"] == {"recorded": 1, "ignored": 4, "missing": 0}


@forked
def test_what_level_debug_saves(tmp_path):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="debug")
    x = torch.ones(2, requires_grad=True)
    for value in (x, [x * 2], 3, object()):
        debugger.save(value, "v")
    (x * 3).sum().backward()
    debugger.step()
    report = coverage(tmp_path)
    assert report["saves"] == {"recorded": 3, "refused": 1}
    assert report["gradients"] == {"recorded": 1, "ignored": 0, "missing": 1}
    assert report["operations"] is None and "save()" in report["why_no_operations"]


def test_operations_are_observed_in_the_first_step_only(tmp_path):
    run_forked(record, tmp_path, plain, steps=2)
    first, second = coverage(tmp_path, 0), coverage(tmp_path, 1)
    assert first["operations"]
    assert second["operations"] is None
    assert second["why_no_operations"]
    for key in ("apis", "modules", "gradients"):
        assert first[key] == second[key]


def compiled():
    function = torch.compile(lambda t: torch.relu(t * 2).sum(), backend="aot_eager")
    x = torch.randn(4)
    function(x)
    return lambda: function(x)


def test_compiled_code_is_not_observed(tmp_path):
    run_forked(record, tmp_path, compiled)
    report = coverage(tmp_path)
    assert report["operations"]["compiled_regions"] == 1
    assert report["apis"]["recorded"] == 0
    assert unseen(report)["aten::relu"] == (1, "inside compiled code")


def compiled_backward():
    """The wrapper of compiled code reads the strides of the gradient."""
    function = torch.compile(lambda t: torch.relu(t.t() * 2), backend="aot_eager")
    x = torch.randn(2, 4, requires_grad=True)
    function(x)
    return lambda: function(x).sum().backward()


def test_wrappers_of_compiled_code_are_counted_apart(tmp_path):
    run_forked(record, tmp_path, compiled_backward)
    report = coverage(tmp_path)
    assert report["apis"]["wrappers"] == 1
    assert report["apis"]["recorded"] == 1


def foreign():
    torch.library.define("coverage_test::twice", "(Tensor x) -> Tensor")
    torch.library.impl("coverage_test::twice", "cpu")(lambda x: x.clone())
    x = torch.randn(4)
    return lambda: torch.ops.coverage_test.twice(x)


def test_operators_of_other_libraries(tmp_path):
    run_forked(record, tmp_path, foreign)
    count, reason = unseen(coverage(tmp_path))["coverage_test::twice"]
    assert count == 1
    assert "custom_op_namespaces" in reason


def test_level_l0_counts_what_modules_hold(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    run_forked(
        record, tmp_path, lambda: lambda: model(torch.ones(2, 4)) * 2, level="L0", model=model
    )
    report = coverage(tmp_path)
    assert report["modules"]["recorded"] == 2
    assert unseen(report)["aten::mul"] == (1, "outside of every recorded module")
    assert "aten::relu" not in unseen(report)


def communicate(rank, folder):
    """DDP's reducer, which is not recorded as a call; and functional collectives, which are."""
    import torch.distributed._functional_collectives as functional
    from distributed_programs import train

    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder / "dump"), level="L1")
    debugger.start()
    everyone = torch.distributed.group.WORLD
    gathered = functional.all_gather_tensor(torch.ones(2) + rank, 0, everyone)
    assert functional.all_reduce(gathered, "sum", everyone).tolist() == [2, 2, 4, 4]
    train("ddp", rank, 2, 1, debugger)


def test_communication_that_is_not_recorded_is_named(tmp_path):
    run_ranks(2, communicate, tmp_path)
    for rank in range(2):
        folder = tmp_path / f"dump/step0/rank{rank}"
        seen = unseen(json.loads((folder / "coverage.json").read_text()))
        count, reason = seen["c10d::allreduce_"]
        assert count >= 1 and "DDP" in reason  # as many as there are buckets
        assert not [name for name in seen if name.startswith("_c10d_functional::all")]
        assert not [name for name in seen if "reducer" in name]  # a profiler range, not an operator


def is_dispatcher_watched():
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    watched = library._ZN2at18hasGlobalCallbacksEv
    watched.restype = ctypes.c_bool
    return watched()


@pytest.mark.parametrize("breaks", [False, True])
@forked
def test_the_dispatcher_is_not_observed_after_stop(tmp_path, breaks):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"), level="L1")
    debugger.start()
    assert is_dispatcher_watched()
    if breaks:
        _engine.fault("a test")
    debugger.stop()
    assert not is_dispatcher_watched()


def test_show_prints_it(tmp_path, msprobe_bin):
    run_forked(record, tmp_path, plain)
    command = [msprobe_bin, "show", tmp_path / "dump/step0", "--limit", "1"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "API calls: 3 recorded" in text
    assert "1 aten::view: not in support_wrap_ops.yaml" in text
