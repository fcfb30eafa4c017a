"""Dumps of the older tools' fronts have the numbers of msprobe's own dumps and the names of the
older tool; and the fronts do not change the training."""

import json
import random
import re
import subprocess
from functools import cache
from importlib import import_module

import numpy as np
import pytest
import torch
from odd_programs import PROGRAMS
from older_scripts import RANK0, read, run_in
from test_bit_identity import digest
from torch.nn import functional as F

import ptdbg_ascend as ptdbg
from recorded import recorded


class Recorded(torch.nn.Module):
    """The net whose recordings are in tests/data/dumps."""

    def __init__(self):
        super().__init__()
        self.conv, self.bn = torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4)
        self.act, self.fc = torch.nn.ReLU(), torch.nn.Linear(4 * 8, 6)
        self.rnn = torch.nn.LSTM(6, 5, batch_first=True)
        self.head = torch.nn.Linear(5, 3)

    def forward(self, x):
        y = self.act(self.bn(self.conv(x)))
        y = y.permute(0, 2, 1, 3).reshape(2, 8, 32)
        y = F.gelu(self.fc(y))
        y, _ = self.rnn(y)
        return self.head(y.mean(dim=1))


def recorded_step():
    torch.manual_seed(0)
    if torch.__version__.startswith("1.13"):  # its oneDNN returns uninitialised LSTM gradients
        torch._C._set_mkldnn_enabled(False)
    model = Recorded()
    return model, lambda: F.cross_entropy(model(torch.randn(2, 3, 8, 8)), torch.tensor([0, 2]))


def numbered(model, step):
    ptdbg.set_dump_path("npu_dump.pkl")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON")
    step()
    ptdbg.set_dump_switch("OFF")


def counted(model, step):
    ptdbg.set_dump_path("dump")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump)
    ptdbg.set_dump_switch("ON", mode="api_stack")
    step()
    ptdbg.set_dump_switch("OFF", mode="api_stack")


def debugger(model, step):
    tool = ptdbg.PrecisionDebugger(dump_path="dump", hook_name="dump")
    tool.start()
    step()
    tool.stop()
    tool.step()


def hooks(model, step, **registration):
    npu = import_module("torch_npu.hooks")

    hook = getattr(npu, registration.pop("hook", "wrap_acc_cmp_hook"))
    npu.register_hook(model, hook, **registration)
    if hook is npu.wrap_acc_cmp_hook:
        npu.set_dump_path("lines.pkl")
    step()
    npu.step_schedule.set_schedule(lambda _: False)


def module_level(model, step):
    ptdbg.set_dump_path("dump")
    ptdbg.register_hook(model, ptdbg.acc_cmp_dump, dump_mode="model")
    ptdbg.set_dump_switch("ON")
    step()
    ptdbg.set_dump_switch("OFF")


def overflow(model, step):
    ptdbg.register_hook(model, ptdbg.overflow_check, overflow_nums=-1)
    step()


FRONTS = {
    "numbered": numbered,
    "counted": counted,
    "debugger": debugger,
    "hooks": hooks,
    "hooks in full": lambda model, step: hooks(model, step, sample=False),
    "arrays": lambda model, step: hooks(model, step, hook="wrap_async_datadump_hook"),
    "modules": module_level,
    "overflow": overflow,
}


def trained(build, front, steps=3):
    """Trains with a front that records each step, or without (None); returns all results."""
    torch.manual_seed(3)
    random.seed(3)
    np.random.seed(3)
    model, loss_of = build()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []

    def one():
        optimizer.zero_grad()
        loss = loss_of()
        if isinstance(loss, tuple):
            (loss,) = loss
        else:
            loss.backward()
        losses.append(loss)

    for index in range(steps):
        torch.manual_seed(index)  # because register_hook of torch_npu.hooks seeds
        np.random.seed(index)
        random.seed(index)
        FRONTS[front](model, _seeded(one, index)) if front else one()
        optimizer.step()
    return {
        "losses": digest(enumerate(losses)),
        "gradients": digest((k, p.grad) for k, p in model.named_parameters() if p.grad is not None),
        "state": digest(model.state_dict().items()),
        "graph": type(losses[-1].grad_fn).__name__,
        "random": (digest([("", torch.get_rng_state())]), random.getstate()),
        "numpy": np.random.get_state()[1].tobytes(),
    }


def _seeded(step, index):
    def work():
        torch.manual_seed(index)
        np.random.seed(index)
        random.seed(index)
        step()

    return work


BUILDS = {"recorded": recorded_step} | {
    name: (lambda build=build: build(3)) for name, build in PROGRAMS.items()
}


@cache
def without(name, folder):
    return run_in(folder, trained, BUILDS[name], None)[0]


@pytest.mark.parametrize("front", FRONTS)
@pytest.mark.parametrize("name", BUILDS)
def test_no_bit_of_a_training_changes(name, front, tmp_path, tmp_path_factory):
    plain = without(name, tmp_path_factory.getbasetemp() / f"plain_{name}".replace(" ", "_"))
    seen, said = run_in(tmp_path, trained, BUILDS[name], front)
    assert seen == plain
    assert "[ERROR]" not in said, said
    assert front == "overflow" or any(tmp_path.iterdir())  # otherwise the test proves nothing


def own_dump(model, step):
    from msprobe.pytorch import PrecisionDebugger

    tool = PrecisionDebugger(dump_path="own", task="tensor", level="L1")
    tool.start(model)
    step()
    tool.stop()


def one_step(front):
    model, loss_of = recorded_step()
    step = _seeded(lambda: loss_of().backward(), 1)
    (own_dump if front == "own" else FRONTS[front])(model, step)


PLACES = {
    "numbered": "npu_dump.pkl",
    "counted": f"dump/{RANK0}/api_stack_dump.pkl",
    "debugger": f"dump/{RANK0}/api_stack_dump.pkl",
    "hooks in full": "lines.pkl",
    "hooks": "lines.pkl",
}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    run_in(folder, one_step, "own")
    return folder / "own" / "step0" / "rank"


@pytest.mark.parametrize("front", PLACES)
def test_the_numbers_are_those_of_msprobes_own_dump(front, own, tmp_path, msprobe_bin):
    run_in(tmp_path, one_step, front)
    kept = [path.stem for path in tmp_path.rglob("*.npy")]
    lines = [line for line in read(tmp_path / PLACES[front]) if not line[0].endswith("_info")]
    tensors = [line[0] for line in lines if str(line[-3]).startswith("torch.")]
    assert sorted(kept) == ([] if front.startswith("hooks") else sorted(tensors))
    command = [msprobe_bin, "compare", "-tp", tmp_path / PLACES[front], "-gp", own]
    done = subprocess.run(
        [*command, "--format", "json"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = json.loads(done.stdout)
    wrong = ("noise", "differs", "unreadable", "target_only")
    assert not any(said["rows"][each] for each in wrong) and said["rows"]["equal"] > 60, said
    # The running statistics that batch_norm changes: pkl files have no place for them.
    assert said["rows"]["nothing_recorded"] == 2
    # Else only missing gradients have no partner; in the first two generations also plain numbers,
    # integer tensors and tensors without dimensions.
    counted = front in ("counted", "debugger")
    assert said["rows"]["golden_only"] == (10 if counted else 41)
    assert said["unmatched"]["golden"] == ([] if counted else ["Tensor.add_.0.forward"])


def test_forward_lines_are_those_of_ptdbg_ascend_4_1(root, tmp_path):
    """It recorded this net with this seed. For backward lines see docs/older/differences.md."""

    def program():
        torch.manual_seed(0)
        model = Recorded()
        x, labels = torch.randn(2, 3, 8, 8), torch.tensor([0, 2])
        counted(model, lambda: F.cross_entropy(model(x), labels).backward())

    run_in(tmp_path, program)
    (dump,) = recorded("dumps/ptdbg_4.1/api_stack/base").glob("*/*/*.pkl")
    theirs = {line[0]: line for line in read(dump) if "_forward_" in line[0]}
    ours = {line[0]: line for line in read(tmp_path / PLACES["counted"])}
    calls = {re.sub(r"_(input|output|stack_info).*", "", name) for name in theirs}
    more = [name for name in ours if name not in theirs and name.startswith(tuple(calls))]
    assert more == ["Tensor_mean_0_forward_input.dim"]  # a keyword argument
    assert len(theirs) > 25 and not theirs.keys() - ours.keys()
    for name, line in theirs.items():
        if name.endswith("_stack_info"):
            continue
        assert ours[name][1:5] == line[1:5]
        if "batch_norm_0_forward_input" not in name:  # overwritten; theirs are read later
            assert ours[name][5][:3] == pytest.approx(line[5], rel=1e-5, abs=1e-6)
