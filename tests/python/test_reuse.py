"""A tensor that has not changed is read once ("reuse"): the dump is the same, byte for byte.

tests/conftest.py sets MSPROBE_REUSE_BYTES=1: all tests reuse numbers, also of small tensors.
"""

import json

import pytest
import torch
from recording import forked, run_forked, run_ranks
from torch.nn import functional as F

from models import gpt, lstm, resnet, toy

PARTS = 1 << 18  # float32 elements of a tensor of which the sample has many parts


def record(folder, reuse, level, task, build):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(1)
    config = folder / f"{reuse}.json"
    config.write_text(json.dumps({"task": task, "level": level, "reuse": reuse, task: {}}))
    debugger = PrecisionDebugger(str(config), dump_path=str(folder / str(reuse)))
    model, step = build()
    for _ in range(2):
        debugger.start(model=model)
        step()
        debugger.stop()
        debugger.step()


def files(folder):
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.suffix in (".json", ".pt") and path.name != "coverage.json"
    }


def reads_saved(folder, step=0):
    coverage = json.loads((folder / f"step{step}/rank/coverage.json").read_text())
    return coverage.get("reads_saved", {"tensors": 0, "bytes": 0})


def without_times(content):
    """The header of dump.json has the folder and when and where it was written."""
    return content[content.find(b'"data"') :] if b'"data"' in content[:100000] else content


def compare_folders(folder):
    on, off = files(folder / "True"), files(folder / "False")
    assert sorted(on) == sorted(off)
    for name, content in on.items():
        assert without_times(content) == without_times(off[name]), name


def example(program, **size):
    def build():
        model, batch = program.build(0, **size)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

        def step():
            optimizer.zero_grad()
            program.loss(model, batch).backward()
            optimizer.step()

        return model, step

    return build


def memory():
    """Views, in-place changes, aliases, layouts and memory that is used again."""

    def step():
        x = torch.randn(64, 96)
        y = F.relu(x)
        F.relu(y.view(96, 64))
        F.relu(y.t())
        F.relu(y[::2])
        F.relu(y.expand(2, 64, 96))
        y[3:5].mul_(2)
        F.relu(y)
        y.data.add_(1)
        F.relu(y)
        y.numpy()[:] = 5
        F.relu(y)
        z = F.relu(y.view(torch.int32).view(torch.float32))
        del y
        for _ in range(5):
            F.relu(torch.full((64, 96), 3.0))
        z.resize_(16, 96)
        F.relu(z)
        z.untyped_storage().fill_(0)
        F.relu(z)
        with torch.inference_mode():
            F.relu(F.relu(torch.ones(8, 8)))
        F.relu(F.relu(torch.randn(8, 4, 4, 3).to(memory_format=torch.channels_last)))
        F.relu(torch.randn(4, 4, dtype=torch.complex64).conj().real)

    return None, step


PROGRAMS = {
    "gpt": example(gpt, layers=2, width=32, heads=2, batch=2, length=16, vocabulary=64),
    "resnet": example(resnet, batch=2),
    "lstm": example(lstm),
    "toy": example(toy),
    "memory": memory,
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("level", "task"),
    [("L0", "statistics"), ("L1", "statistics"), ("L1", "tensor"), ("mix", "tensor")],
)
def test_the_dump_is_the_same(tmp_path, name, level, task):
    if name == "memory" and level != "L1":
        pytest.skip("has no modules")
    for reuse in (True, False):
        run_forked(record, tmp_path, reuse, level, task, PROGRAMS[name])
    compare_folders(tmp_path)
    if (name, level) != ("toy", "L0"):  # whose modules share no tensor
        assert reads_saved(tmp_path / "True")["tensors"] > 0
    assert reads_saved(tmp_path / "False")["tensors"] == 0


def test_an_activation_is_read_once(tmp_path):
    def build():
        x = torch.randn(128, 128)
        return None, lambda: F.relu(torch.abs(torch.neg(x)))

    run_forked(record, tmp_path, True, "L1", "statistics", build)
    # neg -> abs -> relu: the inputs of abs and relu are known. x is read again in each step.
    assert reads_saved(tmp_path / "True") == {"tensors": 2, "bytes": 2 * 128 * 128 * 4}
    assert reads_saved(tmp_path / "True", 1) == {"tensors": 2, "bytes": 2 * 128 * 128 * 4}


def behind_the_counter(write):
    """A call before and two after `write`, which PyTorch's counter does not see."""

    def build():
        x = torch.ones(PARTS)
        array = x.numpy()

        def step():
            F.relu(x)
            write(array)
            F.relu(x)
            F.relu(x)
            array[:] = 1

        return None, step

    return build


def input_norms(folder):
    data = json.loads((folder / "step0/rank/dump.json").read_text())["data"]
    return [entry["input_args"][0]["Norm"] for entry in data.values()]


def test_memory_that_changes_behind_the_counter(tmp_path):
    def write(array):
        array[:] = 2

    run_forked(record, tmp_path, True, "L1", "statistics", behind_the_counter(write))
    assert input_norms(tmp_path / "True") == [512.0, 1024.0, 1024.0]
    assert reads_saved(tmp_path / "True") == {"tensors": 0, "bytes": 0}, "not trusted any more"


def test_memory_of_others_is_always_read(tmp_path):
    """NumPy owns the memory of torch.from_numpy, and may change any element of it."""
    numpy = pytest.importorskip("numpy")

    def build():
        array = numpy.ones(PARTS, dtype=numpy.float32)
        x = torch.from_numpy(array)

        def step():
            F.relu(x)
            array[1000] = 100
            F.relu(x)
            array[1000] = 1

        return None, step

    run_forked(record, tmp_path, True, "L1", "statistics", build)
    before, after = input_norms(tmp_path / "True")
    assert before == 512.0
    assert after > 520
    assert reads_saved(tmp_path / "True")["tensors"] == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_write_of_two_parts_is_never_missed(tmp_path, seed):
    def write(array):
        generator = torch.Generator().manual_seed(seed)
        first = int(torch.randint(PARTS - 16384, (1,), generator=generator))
        array[first : first + 16384] = 3

    run_forked(record, tmp_path, True, "L1", "statistics", behind_the_counter(write))
    before, after, again = input_norms(tmp_path / "True")
    assert before == 512.0
    assert after == again > 512.0


@forked
def test_a_thread_that_computes_at_the_same_time(tmp_path):
    import threading

    def build():
        def work(seed):
            generator = torch.Generator().manual_seed(seed)
            x = torch.randn(300, 300, generator=generator)
            for _ in range(20):
                x = F.relu(x.add_(0.01) @ x.t() / 300)

        def step():
            threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        return None, step

    record(tmp_path, True, "L1", "tensor", build)
    data = json.loads((tmp_path / "True/step0/rank/dump.json").read_text())["data"]
    seen = 0
    for entry in data.values():
        for value in entry["input_args"] + entry["output"]:
            if "data_name" not in value or value["data_name"] == "-1":
                continue
            folder = tmp_path / "True/step0/rank/dump_tensor_data"
            tensor = torch.load(folder / value["data_name"], weights_only=True)
            assert value["Max"] == pytest.approx(tensor.max().item(), rel=1e-6)
            assert value["Norm"] == pytest.approx(tensor.double().norm().item(), rel=1e-6)
            seen += 1
    assert seen > 100


def add_up(rank, folder):
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(dump_path=str(folder), task="statistics", level="L1")
    debugger.start()
    values = torch.zeros(1 << 14)
    values[5000] = rank  # in no line that is compared
    doubled = values * 2
    torch.distributed.all_reduce(doubled)
    doubled + 1
    debugger.stop()


def test_what_another_process_adds_is_read_again(tmp_path):
    """The version counter does not tell that a collective has written."""
    run_ranks(2, add_up, tmp_path)
    for rank in (0, 1):
        data = json.loads((tmp_path / f"step0/rank{rank}/dump.json").read_text())["data"]
        assert data["Distributed.all_reduce.0.forward"]["output"][0]["Max"] == 2
        assert data["Tensor.__add__.0.forward"]["input_args"][0]["Max"] == 2
