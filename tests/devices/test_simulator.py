"""The simulated NPU itself: what the other tests of this folder rely on."""

import copy
from itertools import chain

import pytest
import simnpu_build
import torch
import torch.nn.functional as F
from torch import nn


def total(which):
    import torch_npu

    return sum(torch_npu.sim.counts()[which].values())


def test_a_read_of_device_memory_on_the_host_ends_the_process(npu_program):
    code = (
        "import torch, torch_npu, ctypes\n"
        "x = torch.ones(4).npu()\n"
        "assert x.sum().item() == 4\n"
        "ctypes.string_at(x.data_ptr(), 4)\n"
    )
    assert npu_program(code).returncode == -11


def test_pytorch_imports_the_package_itself(npu_program):
    done = npu_program("import torch\nprint(torch.ones(2, device='npu').sum().item())")
    assert (done.returncode, done.stdout) == (0, "2.0\n"), done.stderr


def train(amp):
    torch.manual_seed(1)
    layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Flatten(), nn.LayerNorm(144)]
    here = nn.Sequential(*layers, nn.Linear(144, 5))
    there = copy.deepcopy(here).npu()
    x, y = torch.randn(2, 3, 8, 8), torch.tensor([1, 4])
    for model, device in ((here, "cpu"), (there, "npu")):
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(3):
            optimizer.zero_grad()
            with torch.autocast(device, torch.bfloat16, enabled=amp):
                loss = F.cross_entropy(model(x.to(device)), y.to(device))
            loss.backward()
            optimizer.step()
    for a, b in zip(here.parameters(), there.parameters(), strict=True):
        # The lists of autocast differ.
        assert torch.allclose(a, b.cpu(), atol=1e-2) if amp else torch.equal(a, b.cpu())


@pytest.mark.parametrize("amp", [False, True])
def test_a_training_has_the_bits_of_the_host(on_npu, amp):
    on_npu(train, amp)


def counted():
    import torch_npu

    x = torch.ones(8).npu()
    torch_npu.sim.reset()
    y = torch.relu(x) + 1
    assert (total("kernels"), total("syncs")) == (2, 0)
    assert y[0].item() == 2 and y.cpu()[1] == 2 and bool((y == 2).all())
    assert y.nonzero().numel() == 8
    assert torch_npu.sim.counts()["syncs"] == {"item": 2, "copy to host": 1, "nonzero": 1}


def test_waits_and_kernels_are_counted(on_npu):
    on_npu(counted)


def viewed():
    import torch_npu

    x = torch.ones(4, 6).npu().requires_grad_()
    torch_npu.sim.reset()
    for view in (x.t(), x[0], x.detach(), x.view(-1), x.narrow(0, 1, 2), x.expand(2, 4, 6)):
        assert view.device.type == "npu"
    assert (total("kernels"), torch_npu.sim.busy()) == (0, 0)


def test_a_view_is_no_work_for_the_device(on_npu):
    on_npu(viewed)


def copied():
    x = torch.arange(6.0).npu()
    early = x.to("cpu", non_blocking=True)
    event = torch.Event("npu")
    event.record()
    assert early.isnan().all()
    event.synchronize()
    assert early.tolist() == x.tolist()


def test_a_copy_to_pinned_memory_arrives_when_somebody_has_waited(on_npu):
    on_npu(copied)


def spoiled(kind, value):
    import torch_npu

    x = torch.randn(6, 4).npu()
    right = [F.gelu(x * k).tolist() for k in (1, 2, 3, 4)]
    torch_npu.sim.spoil("gelu", kind, value)
    return right, [F.gelu(x * k).tolist() for k in (1, 2, 3, 4)]


@pytest.mark.parametrize("kind", ["add", "inf", "swap", "stale", "stride", "noise", "ulp"])
def test_wrong_kernels(on_npu, kind):
    right, wrong = on_npu(spoiled, kind, 2)
    assert right != wrong
    if kind in ("swap", "stride"):  # no statistic changes
        for a, b in zip(right, wrong, strict=True):
            assert sorted(chain(*a)) == sorted(chain(*b))


def random_numbers():
    torch.manual_seed(5)
    state = torch.npu.get_rng_state()
    a = torch.rand(4, device="npu")
    torch.npu.set_rng_state(state)
    return state.numel() == 16 and torch.equal(a, torch.rand(4, device="npu"))


def test_random_numbers_have_a_state_of_16_bytes(on_npu):
    assert on_npu(random_numbers)


SETTINGS = [
    {"SIMNPU_ASYNC": "1", "SIMNPU_POISON": "1"},
    {"SIMNPU_FLOAT64": "0"},
    {"SIMNPU_MEMORY_MB": "1"},
]


def with_settings():
    x = torch.randn(50, 50)
    y = x.npu()
    for _ in range(5):
        y = torch.softmax(y @ y, -1)
        x = torch.softmax(x @ x, -1)
    assert torch.equal(x, y.cpu())
    try:
        torch.ones(600, 600, device="npu", dtype=torch.float64) + 1
    except Exception as error:
        return str(error)
    return ""


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: next(iter(each)))
def test_settings(on_npu, settings):
    failed = on_npu(with_settings, **settings)
    assert ("Double" in failed) == ("SIMNPU_FLOAT64" in settings), failed
    assert ("out of memory" in failed) == ("SIMNPU_MEMORY_MB" in settings), failed


def test_it_is_compiled_once(simulated, monkeypatch):
    def compiles(*_arguments, **_keywords):
        raise AssertionError("it is compiled again")

    monkeypatch.setattr(simnpu_build.subprocess, "run", compiles)
    assert simnpu_build.build() == simulated
