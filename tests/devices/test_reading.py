"""What is recorded of tensors of a device: the numbers of the host, and nothing waits for them."""

import json
import os
import re
import subprocess
import threading

import pytest
import torch
import torch.nn.functional as F
from device_runs import debugger, numbers, read_tensor, syncs, train

STATISTICS = {"task": "statistics"}
TASKS = {
    "statistics": STATISTICS,
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
}
NAN_CHECK = {"task": "nan_check"}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", ["L1", "mix"])
def test_a_training_has_the_numbers_of_the_host(on_npu, tmp_path, task, level):
    waits, loss = on_npu(train, tmp_path / "npu", "npu", TASKS[task], level)
    _, here = on_npu(train, tmp_path / "cpu", "cpu", TASKS[task], level)
    assert loss == here
    assert waits == [0]
    ours, theirs = numbers(tmp_path / "npu"), numbers(tmp_path / "cpu")
    assert list(ours) == list(theirs)
    for name, value in theirs.items():
        assert ours[name] == value, name
    weights = [
        json.loads((tmp_path / each / "step0" / "rank" / "weights.json").read_text())
        for each in ("npu", "cpu")
    ]
    assert weights[0] == weights[1]
    if task == "tensor":
        assert stored(tmp_path / "npu") == stored(tmp_path / "cpu")


def stored(folder):
    """The tensor files that a dump names, and their content."""
    text = (folder / "step0" / "rank" / "dump.json").read_text()
    names = re.findall(r'"data_name": ?"([^"]*)"', text)
    assert len(names) > 5
    return {name: read_tensor(folder / "step0" / "rank", name) for name in names}


@pytest.mark.parametrize("settings", [{"SIMNPU_ASYNC": "1", "SIMNPU_POISON": "1"}], ids=["late"])
def test_kernels_that_run_later_and_memory_that_is_used_again(on_npu, tmp_path, settings):
    on_npu(train, tmp_path / "npu", "npu", STATISTICS, **settings)
    on_npu(train, tmp_path / "cpu", "cpu", STATISTICS)
    assert numbers(tmp_path / "npu") == numbers(tmp_path / "cpu")


SPECIAL = torch.tensor([1.0, float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 2.0, 3.0])
DTYPES = (
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn),
    *(torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.bool),
    *(torch.complex64, torch.complex128, torch.uint16, torch.uint64),
)
MADE = {
    **{
        str(dtype): lambda d, dtype=dtype: torch.tensor([3, 0, 5, 0, 7, 1, 4]).to(dtype).to(d)
        for dtype in DTYPES
    },
    "special": lambda d: SPECIAL.to(d),
    "masked": lambda d: torch.tensor([1.0, -1e9, 2.0, -1e9]).to(d),
    "empty": lambda d: torch.empty(0, 3, device=d),
    "scalar": lambda d: torch.tensor(2.5).to(d),
    "transposed": lambda d: torch.arange(24.0).view(4, 6).to(d)[::2, 1::3].t(),
    "expanded": lambda d: torch.arange(3.0).to(d)[:, None].expand(3, 4),
    "conjugated": lambda d: torch.tensor([1 + 2j, 3 - 4j]).to(d).conj(),
    "requires grad": lambda d: torch.ones(3).to(d).requires_grad_(),
    "sparse": lambda d: torch.eye(3).to_sparse(),
    "100 KB": lambda d: torch.arange(25_000.0).to(d),
    "100 KB, transposed": lambda d: torch.arange(25_000.0).view(50, 500).to(d).t(),
    "100 KB, conjugated": lambda d: torch.complex(*2 * [torch.arange(9_000.0)]).to(d).conj(),
}


def record_all(folder, device, config):
    ours = debugger(folder, config)
    tensors = [make(device) for make in MADE.values()]
    ours.start()
    for tensor in tensors:
        torch.unsqueeze(tensor, 0)
    ours.stop()
    ours.step()


@pytest.mark.parametrize("task", TASKS)
def test_tensors_of_every_kind(on_npu, tmp_path, task):
    for device in ("npu", "cpu"):
        on_npu(record_all, tmp_path / device, device, TASKS[task])
    ours, theirs = numbers(tmp_path / "npu"), numbers(tmp_path / "cpu")
    assert len(theirs) == len(MADE)
    for kind, name in zip(MADE, theirs, strict=True):
        assert ours[name] == theirs[name], kind


def strides_of(folder, device, config):
    ours = debugger(folder, config)
    x = torch.randn(4, 8, 6, device=device)[:, :3].transpose(0, 1)
    ours.start()
    torch.relu(x)
    ours.stop()
    return numbers(folder)["Torch.relu.0.forward"]["input_args"][0].get("stride")


@pytest.mark.parametrize("task", TASKS)
def test_strides_are_those_of_the_tensor(on_npu, tmp_path, task):
    assert on_npu(strides_of, tmp_path / "out", "npu", TASKS[task]) == [6, 48, 1]


def large(folder, elements, config, dtype=torch.bfloat16, device="npu"):
    import torch_npu

    ours = debugger(folder, config)
    x = (torch.arange(elements) % 1000 - 500).to(dtype).to(device)
    relu, before = torch.relu(x), torch.npu.memory_allocated()
    del relu
    torch_npu.sim.reset()
    ours.start()
    torch.npu.reset_peak_memory_stats()
    y = torch.relu(x)
    waits, peak = syncs(), torch.npu.max_memory_allocated() - before
    ours.stop()
    del y
    return waits, (peak - (1 << 20)) / x.nbytes  # without the chunk of small tensors


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_statistics_of_a_large_tensor(on_npu, tmp_path, dtype):
    waits, peak = on_npu(large, tmp_path / "npu", 5 << 20, STATISTICS, dtype)
    assert (waits, peak <= 0.1) == (0, True)
    on_npu(large, tmp_path / "cpu", 5 << 20, STATISTICS, dtype, "cpu")
    ours, theirs = (
        numbers(tmp_path / each)["Torch.relu.0.forward"]["output"][0] for each in ("npu", "cpu")
    )
    assert (ours["Max"], ours["Min"]) == (theirs["Max"], theirs["Min"])
    assert ours["Mean"] == pytest.approx(theirs["Mean"], rel=1e-4)
    assert ours["Norm"] == pytest.approx(theirs["Norm"], rel=1e-4)
    assert "fp" not in ours and "zero" not in ours and "fp" in theirs


@pytest.mark.parametrize("task", ["md5", "tensor"])
def test_a_large_tensor_needs_no_memory_of_its_device(on_npu, tmp_path, task):
    waits, peak = on_npu(large, tmp_path / "out", 4 << 20, TASKS[task])
    assert waits == 0
    assert peak <= 0.1


def with_all_fingerprints(folder, device, dtype, elements):
    os.environ["MSPROBE_FINGERPRINTS"] = "all"
    import torch_npu

    ours = debugger(folder, STATISTICS)
    torch.manual_seed(1)
    x = torch.randn(elements).to(dtype).to(device)
    ours.start()
    torch.npu.reset_peak_memory_stats()
    torch_npu.sim.reset()
    before = torch.npu.memory_allocated()
    torch.neg(x)
    waits, peak = syncs(), torch.npu.max_memory_allocated() - before
    copied = {name: n for name, n in torch_npu.sim.counts()["copies"].items() if "host" in name}
    ours.stop()
    # Without the result, the chunk of small tensors and what adds up.
    return waits, (peak - (9 << 20)) / x.nbytes - 1, copied


LARGE = [
    (dtype, tail)
    for dtype in (torch.float16, torch.bfloat16, torch.float32)
    for tail in (0, 1, 4095)
]
LARGE_EVERYDAY = (torch.bfloat16, 4095), (torch.float32, 0)


@pytest.mark.parametrize(
    ("dtype", "tail"),
    [
        each if each in LARGE_EVERYDAY else pytest.param(*each, marks=pytest.mark.campaign)
        for each in LARGE
    ],
)
def test_a_device_computes_the_fingerprint_of_the_host(on_npu, tmp_path, dtype, tail):
    elements = (5 << 20) + tail
    waits, peak, _ = on_npu(with_all_fingerprints, tmp_path / "npu", "npu", dtype, elements)
    assert (waits, peak <= 0.1) == (0, True)
    on_npu(with_all_fingerprints, tmp_path / "cpu", "cpu", dtype, elements)
    ours, theirs = (numbers(tmp_path / each)["Torch.neg.0.forward"] for each in ("npu", "cpu"))
    for key in ("input_args", "output"):
        assert ours[key][0]["fp"] == theirs[key][0]["fp"]
        assert ours[key][0]["Max"] == theirs[key][0]["Max"]
        assert "zero" not in ours[key][0]  # not a copy that the host has read


def test_a_device_that_adds_integers_wrongly_is_not_believed(on_npu, tmp_path):
    given = torch.bfloat16, 5 << 20
    on_npu(with_all_fingerprints, tmp_path / "npu", "npu", *given, SIMNPU_FAULT="mul:int32:0")
    (entry,) = numbers(tmp_path / "npu").values()
    for key in ("input_args", "output"):
        assert "fp" not in entry[key][0] and entry[key][0]["Norm"] > 0


def large_weights(folder, device):
    torch.manual_seed(1)
    model = torch.nn.Linear(1200, 1201)  # 5.8 MB
    model = model.to(device)
    ours = debugger(folder, STATISTICS)
    ours.start(model)
    model(torch.ones(2, 1200).to(device))
    ours.stop()
    return json.loads((folder / "step0" / "rank" / "weights.json").read_text())


def test_the_weights_of_the_first_step_have_the_fingerprints_of_the_host(
    on_npu, tmp_path, msprobe_bin
):
    ours, theirs = (on_npu(large_weights, tmp_path / each, each) for each in ("npu", "cpu"))
    assert list(ours) == list(theirs) == ["weight", "bias"]
    for name, weight in theirs.items():
        assert ours[name]["fp"] == weight["fp"], name
        assert ours[name]["Norm"] == pytest.approx(weight["Norm"], rel=1e-4)
    assert "zero" not in ours["weight"]  # the device has added it up
    done = subprocess.run(
        [msprobe_bin, "compare", str(tmp_path / "npu"), str(tmp_path / "cpu"), "--format", "json"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(done.stdout)["first_divergence"] is None


def more_than_fits(folder):
    """More bytes under way than the pool may have."""
    ours = debugger(folder, {"task": "tensor"})
    x = torch.ones(4 << 20).npu()  # 16 MB
    ours.start()
    for _ in range(4):
        torch.relu(x)
    ours.stop()
    return json.loads((folder / "step0" / "rank" / "coverage.json").read_text())["device_waits"]


def test_the_coverage_says_how_often_the_training_waited(on_npu, tmp_path):
    waits = on_npu(more_than_fits, tmp_path / "out", SIMNPU_COPY_BYTES_PER_US="100")
    assert waits["memory"] > 0 and waits["copies"] == 0
    assert len(stored(tmp_path / "out")) == 8


def threads_that_write(folder, device):
    ours = debugger(folder, {"task": "tensor"})
    x = torch.ones(100).to(device)
    ours.start()
    before = len(os.listdir("/proc/self/task"))
    for _ in range(70):  # more than a chunk has
        torch.relu(x)
    ours.stop()
    return len(os.listdir("/proc/self/task")) - before


def test_a_thread_writes_the_tensors_of_a_device(on_npu, tmp_path):
    one_core = {"MSPROBE_THREADS": "1"}
    assert on_npu(threads_that_write, tmp_path / "cpu", "cpu", **one_core) == 0
    assert on_npu(threads_that_write, tmp_path / "npu", "npu", **one_core) == 1
    assert len(stored(tmp_path / "npu")) == 140


def without_float64(folder):
    ours = debugger(folder, STATISTICS)
    # 12 MB, of a dtype without reductions: more than is copied where the device can measure.
    x = torch.ones(3 << 20, dtype=torch.int32).npu()
    before = syncs()
    ours.start()
    F.relu(x)
    waits = syncs() - before
    ours.stop()
    return waits


def test_a_device_without_float64_costs_no_waiting(on_npu, tmp_path):
    assert on_npu(without_float64, tmp_path / "out", SIMNPU_FLOAT64="0") == 0
    (entry,) = numbers(tmp_path / "out").values()
    assert entry["output"][0]["Norm"] == pytest.approx((3 << 20) ** 0.5)
    assert "fp" in entry["output"][0]


def out_of_memory(folder):
    ours = debugger(folder, STATISTICS)
    x = torch.randn(4 << 20).bfloat16().npu()  # 8 MB; the device has 36
    ours.start()
    for _ in range(3):
        y = torch.relu(x)
        z = torch.tanh(y)
        del y
    ours.stop()
    return bool(z.cpu().isfinite().all())


def test_a_full_device_is_measured_all_the_same(on_npu, tmp_path):
    assert on_npu(out_of_memory, tmp_path / "out", SIMNPU_MEMORY_MB="36")
    assert len(numbers(tmp_path / "out")) == 6
    for entry in numbers(tmp_path / "out").values():
        assert entry["output"][0]["Norm"] > 0


def kernels_of_a_call(folder):
    import torch_npu

    ours = debugger(folder, STATISTICS)
    a, b, c = (torch.ones(4, 4).npu() * value for value in (1, 2, 3))
    ours.start()
    torch_npu.sim.reset()
    torch.addmm(a, b, c)
    return torch_npu.sim.counts()["kernels"]


def test_the_arguments_of_a_call_are_copied_together(on_npu, tmp_path):
    kernels = on_npu(kernels_of_a_call, tmp_path / "out")
    assert kernels == {"_foreach_copy_": 1, "addmm.out": 1, "copy_": 1}


def kernels_of_a_backward(folder):
    import torch_npu

    ours = debugger(folder, STATISTICS)
    x, w, b = (torch.ones(4, 4).npu().requires_grad_() for _ in range(3))
    ours.start()
    y = torch.addmm(b, x, w)
    torch_npu.sim.reset()
    y.backward(torch.ones(4, 4).npu())
    kernels = torch_npu.sim.counts()["kernels"]
    ours.stop()
    return {name: count for name, count in kernels.items() if "copy" in name}


def test_the_gradients_of_a_node_are_copied_together(on_npu, tmp_path):
    # That of the result comes before the node runs, those of the three arguments after it.
    kernels = on_npu(kernels_of_a_backward, tmp_path / "out")
    assert kernels == {"copy_": 1, "_foreach_copy_": 1}


def more_than_the_ring_has(folder):
    ours = debugger(folder, STATISTICS)
    tensors = [torch.full((15_000,), float(i)).npu() for i in range(400)]  # 24 MB, 60 KB each
    for _ in range(2):
        ours.start()
        for each in tensors:
            torch.relu(each)
        ours.stop()
        ours.step()


@pytest.mark.parametrize("later", ["0", "1"])
def test_memory_that_is_filled_again_and_again(on_npu, tmp_path, later):
    slow = {"SIMNPU_DELAY_US": "1000", "SIMNPU_COPY_BYTES_PER_US": "100"}
    settings = {"SIMNPU_ASYNC": later, **slow}
    on_npu(more_than_the_ring_has, tmp_path / "out", **settings)
    for step in ("step0", "step1"):
        data = json.loads((tmp_path / "out" / step / "rank" / "dump.json").read_text())["data"]
        assert [each["output"][0]["Max"] for each in data.values()] == list(range(400))


def derivatives(folder):
    """Bytes of the device after each step, and what is left of the program's own modes."""
    from torch.autograd import forward_ad

    ours = debugger(folder, STATISTICS)
    w, used = torch.ones(500).npu().requires_grad_(), []
    for _ in range(3):
        ours.start()
        y = torch.mul(w, 2)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(w.detach(), torch.full((500,), 3.0).npu())
            tangent = forward_ad.unpack_dual(torch.square(dual)).tangent.cpu()
        gradient = torch.autograd.grad(y.sum(), w)[0].cpu()
        kept = torch.exp(w)  # its graph has its elements
        ours.stop()
        ours.step()
        assert torch.is_grad_enabled() and y.requires_grad
        assert tangent.tolist() == [6] * 500 and gradient.tolist() == [2] * 500
        del y, dual, kept
        used.append(torch.npu.memory_allocated())
    return used


def test_copies_take_no_part_in_derivatives(on_npu, tmp_path):
    used = on_npu(derivatives, tmp_path / "out")
    assert used[1] == used[2]


def nan_check(folder, device):
    x = torch.tensor([1.0, -1.0, 0.0]).to(device).requires_grad_()
    large = (torch.arange(3 << 20) - 5).float().to(device)  # 12 MB
    ours = debugger(folder, NAN_CHECK)
    before = syncs()
    ours.start()
    y = torch.sqrt(x)
    torch.relu(large)
    torch.log(large)
    torch.neg(y).sum().backward()
    waits = syncs() - before
    ours.stop()
    return waits


def test_nan_check_waits_for_nothing(on_npu, tmp_path):
    assert on_npu(nan_check, tmp_path / "npu", "npu") == 0
    on_npu(nan_check, tmp_path / "cpu", "cpu")
    ours, theirs = numbers(tmp_path / "npu"), numbers(tmp_path / "cpu")
    assert ours == theirs
    wrong = [name for name, entry in ours.items() if entry["is_nan"]]
    assert {"Torch.sqrt.0.forward", "Torch.log.0.forward", "Torch.sqrt.0.backward"} <= set(wrong)
    assert ours["Torch.relu.0.forward"]["is_nan"] == 0


def changed_in_place(folder):
    ours = debugger(folder, STATISTICS)
    x, y = torch.zeros(4).npu(), torch.ones(4).npu()
    ours.start()
    for _ in range(3):
        x.add_(y)
    ours.stop()
    entries = numbers(folder).values()
    return [(entry["input_args"][0]["Max"], entry["output"][0]["Max"]) for entry in entries]


def test_arguments_are_read_before_the_call_changes_them(on_npu, tmp_path):
    expected = [(0, 1), (1, 2), (2, 3)]
    assert on_npu(changed_in_place, tmp_path / "out", SIMNPU_ASYNC="1") == expected


def two_streams(folder):
    ours = debugger(folder, STATISTICS)
    x = torch.ones(100).npu()
    other = torch.npu.Stream("npu")
    ours.start()
    torch.relu(x)
    with torch.npu.stream(other):
        torch.tanh(x)
    torch.neg(x)
    ours.stop()


def test_streams(on_npu, tmp_path):
    on_npu(two_streams, tmp_path / "out", SIMNPU_ASYNC="1")
    norms = [entry["output"][0]["Max"] for entry in numbers(tmp_path / "out").values()]
    assert norms == pytest.approx([1, 0.76159416, -1])


def two_threads(folder):
    ours = debugger(folder, STATISTICS)
    tensors = [torch.full((50,), float(value)).npu() for value in range(1, 401)]
    threads = [
        threading.Thread(target=lambda mine: [torch.relu(x) for x in mine], args=(tensors[i::2],))
        for i in range(2)
    ]
    ours.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ours.stop()


def test_two_threads(on_npu, tmp_path):
    on_npu(two_threads, tmp_path / "out")
    entries = numbers(tmp_path / "out").values()
    pairs = [(entry["input_args"][0]["Max"], entry["output"][0]["Max"]) for entry in entries]
    assert sorted(pairs) == [(value, value) for value in range(1, 401)]
