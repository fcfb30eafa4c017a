"""Difference search while a program runs: "bench_path" and "diff_nums"."""

import json
import re
import shutil
import time
from pathlib import Path

import pytest
import torch
from recording import forked, read_dump, run_forked
from test_hot_reload import GIVE_UP_S, L1, Training
from torch.nn import functional

from recorded import recorded

GOLDEN_26 = recorded("dumps/26.2.0/L1_md5/base")


def train(start, stop, slope=0.01, steps=1):
    """Returns losses, weights and a random number; another slope in layer two is the fault."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Linear(5, 4))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(6, 3)
    losses = []
    for _ in range(steps):
        start(model)
        hidden = functional.leaky_relu(model[0](x.t()), 0.01)  # not contiguous
        hidden = functional.leaky_relu(model[1](hidden), slope)
        half = torch.mul(hidden.bfloat16(), 2.0)
        loss = torch.cat([half, half], dim=1).float().square().sum()
        loss = torch.add(loss, other=torch.tensor(1.0))  # without dimension
        loss.backward()
        stop()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses, [p.detach().numpy().tobytes() for p in model.parameters()], torch.rand(1).item()


def record(folder, config, **how):
    from msprobe.pytorch import PrecisionDebugger

    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))

    def stop():
        debugger.stop()
        debugger.step()

    return train(debugger.start, stop, **how)


def golden(folder, summary_mode="md5", **how):
    config = {"level": "mix", "statistics": {"summary_mode": summary_mode}}
    run_forked(record, folder / "golden", config, **how)
    return folder / "golden" / "out"


def search(folder, bench_path, level="L1", how=None, **keys):
    config = {"task": "tensor", "level": level, "tensor": {"bench_path": str(bench_path), **keys}}
    return run_forked(record, folder / "now", config, **(how or {}))


def as_26_wrote(dump_path):
    """Removes the members that only we write, so that only CRC-32 checksums can be compared."""
    for file in Path(dump_path).glob("*/*/dump.json"):
        text = re.sub(r',"fp":"[\w~]+"', "", file.read_text())
        text, count = re.subn(r'"tool": "[^"]*", ("provenance": \{.*?\}, )?', "", text)
        assert count == 1 and "md5" in text and '"fp"' not in text.split('"data"')[1]
        file.write_text(text)


def make_different(dump_path, name):
    """Changes the outputs of this call in the reference dump."""
    pattern = rf'(\n"{re.escape(name)}".*?"output":.*?"fp":")[\w~]{{4}}'
    for file in Path(dump_path).glob("*/*/dump.json"):
        text, count = re.subn(pattern, r"\g<1>AAAA", file.read_text())
        assert count == 1
        file.write_text(text)


REFERENCES = ["fingerprints", "md5", "xor"]


@pytest.fixture(scope="module", params=REFERENCES)
def reference(request, tmp_path_factory):
    mode = {"fingerprints": "statistics"}.get(request.param, request.param)
    path = golden(tmp_path_factory.mktemp(request.param), mode)
    if request.param != "fingerprints":
        as_26_wrote(path)
    return path


def test_a_run_without_fault_records_nothing(reference, tmp_path, capfd):
    search(tmp_path, reference, level="mix", diff_nums=-1)
    dump = read_dump(tmp_path / "now" / "out")
    assert dump.data == {}
    assert not dump.tensors()
    (said,) = re.findall(r"compared with .*", capfd.readouterr().err)
    xor = ", 2 calls that cannot be compared" if "xor" in str(reference) else ""
    assert re.search(rf"json: \d+ calls equal{xor}$", said), said


def test_the_faulty_call_and_only_it_is_recorded(reference, tmp_path, capfd):
    search(tmp_path, reference, diff_nums=-1, how={"slope": 0.02})
    dump = read_dump(tmp_path / "now" / "out")
    name = "Functional.leaky_relu.1.forward"
    assert dump.names == [name]
    tensors = dump.tensors()
    assert set(tensors) == {f"{name}.input.0.pt", f"{name}.output.0.pt"}
    given, made = tensors.values()
    assert torch.equal(functional.leaky_relu(given, 0.02), made)
    (frames,) = [s[1] for s in dump.side("stack.json").values() if name in s[0]]
    assert "test_bench_path.py" in "".join(frames)
    said = capfd.readouterr().err
    assert re.search(rf"{name} gives different outputs .* \(1\): .*test_bench_path\.py", said)
    assert re.search(r"json: \d+ calls equal, 1 call different, \d+ calls with other inputs", said)


@pytest.mark.parametrize(("diff_nums", "steps"), [(1, [0]), (2, [0, 1]), (-1, [0, 1, 2])])
def test_collection_ends_after_diff_nums_calls_and_training_does_not(
    diff_nums, steps, tmp_path, capfd
):
    how = {"steps": 3}
    path = golden(tmp_path, **how)
    make_different(path, "Functional.leaky_relu.1.forward")
    trained = search(tmp_path, path, diff_nums=diff_nums, how=how)
    assert trained == run_forked(train, lambda model: None, lambda: None, **how)
    found = [s for s in range(3) if (tmp_path / "now" / "out" / f"step{s}").exists()]
    assert found == steps
    for step in steps:
        assert read_dump(tmp_path / "now" / "out", step).names == [
            "Functional.leaky_relu.1.forward"
        ]
    ends = "calls that differ are recorded; the run goes on without collection"
    assert capfd.readouterr().err.count(ends) == (diff_nums > 0)


def test_a_module_is_recorded_with_its_parameters(tmp_path):
    path = golden(tmp_path)
    make_different(path, "Module.0.Linear.forward.0")
    search(tmp_path, path, level="L0")
    dump = read_dump(tmp_path / "now" / "out")
    assert dump.names == ["Module.0.Linear.forward.0"]
    assert len(dump.tensors()) == 4


def test_a_step_without_reference_is_said_and_not_searched(tmp_path, capfd):
    path = golden(tmp_path)
    search(tmp_path, path, diff_nums=-1, how={"steps": 3})
    said = capfd.readouterr().err
    assert [f"step {s} is not compared" in said for s in range(3)] == [False, True, True]
    assert not (tmp_path / "now" / "out" / "step1").exists()


def count(folder, addend):
    """Two calls of the program whose dump msprobe 26 wrote, on integers."""
    from msprobe.pytorch import PrecisionDebugger

    section = {"bench_path": str(GOLDEN_26), "diff_nums": -1}
    (folder / "config.json").write_text(json.dumps({"task": "tensor", "tensor": section}))
    debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    debugger.start()
    x = torch.tensor(0)
    x.add_(addend)
    torch.relu(x)
    debugger.stop()


@pytest.mark.parametrize(("addend", "names"), [(1, []), (2, ["Tensor.add_.0.forward"])])
def test_against_a_dump_that_26_wrote(addend, names, tmp_path, capfd):
    run_forked(count, tmp_path, addend)
    dump = read_dump(tmp_path / "out")
    assert dump.names == names
    judged = "1 call different" if names else "1 call equal"
    assert f"{judged}, 1 call without a partner" in capfd.readouterr().err
    if names:  # its input was overwritten in place
        assert set(dump.tensors()) == {"Tensor.add_.0.forward.output.0.pt"}
        assert dump.data[names[0]]["changed_in_place"] == "input.0"


def refused(folder, path):
    from msprobe import MsprobeError

    with pytest.raises(MsprobeError) as error:
        record(folder, {"task": "tensor", "tensor": {"bench_path": str(path)}})
    return str(error.value)


def test_what_cannot_be_compared_is_refused_at_once(tmp_path):
    without = GOLDEN_26.parents[1] / "L1_statistics/base"
    assert "expected checksums" in run_forked(refused, tmp_path / "a", without)
    assert "bench_path" in run_forked(refused, tmp_path / "b", tmp_path / "nowhere")
    path = golden(tmp_path)
    assert "write over" in run_forked(refused, tmp_path / "golden", path)


@forked
def test_bench_path_can_be_set_and_removed_while_the_training_runs(tmp_path, capfd):
    on = {"dump_enable": True, "task": "tensor"}
    training = Training(tmp_path, on)
    assert training.step() == L1
    (tmp_path / "golden").mkdir()  # without a step folder: for all steps
    shutil.copy(tmp_path / "out/step0/rank/dump.json", tmp_path / "golden")
    wanted = {**on, "tensor": {"bench_path": "golden", "diff_nums": -1}}
    training.write({**on, "tensor": {"bench_path": "nowhere"}})
    training.until(None)  # the configuration is refused
    training.write(wanted)
    training.until(set())  # nothing differs
    training.write(on)
    training.until(L1)
    training.debugger.start()  # in the middle of a step
    training.debugger.stop()
    training.write(wanted)
    end = time.monotonic() + GIVE_UP_S
    before, now = -1, 0
    while before != now:  # until these calls, which the reference lacks, are no longer recorded
        assert time.monotonic() < end
        training.debugger.start()
        torch.relu(torch.ones(1))
        training.debugger.stop()
        time.sleep(0.05)
        before, now = now, len(read_dump(training.out, training.steps).names)
    said = capfd.readouterr().err
    assert said.count("collection is off until the file is corrected: nowhere") == 1
    compared = re.findall("compared with (.*?): (.*)", said)
    assert {file for file, _ in compared} == {"golden/dump.json"}
    assert "without a partner" in compared[-1][1]  # the last step's second calls
