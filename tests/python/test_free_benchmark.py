"""Task free_benchmark: calls run a second time with other tensors; the training keeps its bits."""

import csv
import json
import random
import re
import sys
import time
import types

import numpy
import pytest
import torch
import torch.nn.functional as F
from recording import forked, run_forked, run_ranks
from torch import nn
from torch.utils.checkpoint import checkpoint

MODES = ["improve_precision", "add_noise", "bit_noise", "no_change", "change_value", "to_cpu"]
STAGES = ["forward", "backward"]


def debugger_of(folder, **section):
    """A debugger of the task; `budget` 0: every call is judged."""
    from msprobe.pytorch import PrecisionDebugger

    top = {key: section.pop(key) for key in ("step", "custom_op_namespaces") if key in section}
    section = {"budget": 0} | section
    config = {"task": "free_benchmark", "dump_path": str(folder / "out"), "level": "L1"}
    (folder / "config.json").write_text(json.dumps(config | top | {"free_benchmark": section}))
    return PrecisionDebugger(str(folder / "config.json"))


def rows_of(folder, step=0, rank=""):
    file = folder / f"out/step{step}/rank{rank}/free_benchmark.csv"
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def judged(folder, program, **section):
    """The rows of a program that runs in one step."""
    debugger = debugger_of(folder, **section)
    debugger.start()
    program()
    debugger.stop()
    return rows_of(folder)


def summary(capfd):
    """What the run says at its end."""
    from msprobe import _engine

    _engine.say_end()
    return capfd.readouterr().err


class Net(nn.Module):
    """Random numbers, statistics that change, in-place calls, views, a recomputed part."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.conv = nn.Conv1d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm1d(8)
        self.rnn = nn.LSTM(8, 8, batch_first=True)
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Dropout(0.2))
        self.last = nn.Linear(8, 3)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.norm(self.conv(x.transpose(1, 2))).transpose(1, 2)
        x = F.relu(x, inplace=True)
        x = x.clone().mul_(1.5)
        x[:, 0] = 0.25
        x, _ = self.rnn(F.dropout(x, 0.3))
        x = checkpoint(self.inner, x, use_reentrant=False)
        with torch.no_grad():
            scale = torch.rand(3).add_(1)
        values, _ = torch.max(x, dim=1)
        return self.last(values) * scale


def train(folder=None, autocast=False, steps=3, **section):
    """Losses, weights, gradients, buffers and the states of all generators after a training."""
    torch.manual_seed(3), random.seed(3), numpy.random.seed(3)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    debugger = debugger_of(folder, **section) if folder else None
    seen = []
    for _ in range(steps):
        if debugger:
            debugger.start(model)
        tokens, labels = torch.randint(0, 11, (4, 6)), torch.randint(0, 3, (4,))
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = F.cross_entropy(model(tokens), labels)
        optimizer.zero_grad()
        loss.backward()
        if debugger:
            debugger.stop()
        optimizer.step()
        if debugger:
            debugger.step()
        seen.append(loss.detach().numpy().tobytes())
    seen += [value.detach().numpy().tobytes() for value in model.state_dict().values()]
    seen += [value.grad.numpy().tobytes() for value in model.parameters()]
    seen += [torch.get_rng_state().numpy().tobytes(), random.getstate()]
    seen.append(numpy.random.get_state()[1].tobytes())
    return seen


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("mode", MODES)
def test_the_training_keeps_its_bits(mode, stage, autocast, tmp_path):
    plain = run_forked(train, autocast=autocast)
    observed = run_forked(train, tmp_path, autocast, pert_mode=mode, fuzz_stage=stage)
    assert plain == observed


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("stage", STAGES)
def test_a_stable_net_has_no_rows_when_nothing_is_changed(stage, autocast, tmp_path):
    run_forked(train, tmp_path, autocast, pert_mode="no_change", fuzz_stage=stage)
    rows = [row for step in range(3) for row in rows_of(tmp_path, step)]
    # oneDNN's LSTM in bfloat16, on processors with avx512_bf16, gives other gradients when it runs
    # once more: that is what free_benchmark is for.
    assert not [row for row in rows if not (autocast and row["api_name"].startswith("VF.lstm"))]


@forked
def test_what_is_judged_and_what_is_not(tmp_path, capfd):
    train(tmp_path, pert_mode="no_change")
    text = summary(capfd)
    assert re.search(
        r"free_benchmark, no_change, forward: 6\d calls judged, 0 inconsistent\n", text
    )


@forked
def test_steps_and_starts(tmp_path):
    debugger = debugger_of(tmp_path, pert_mode="change_value", step=[1])
    for _ in range(3):
        for _ in range(2):
            debugger.start()
            torch.cumsum(torch.arange(5.0), 0)
            debugger.stop()
        debugger.step()
    assert [row["api_name"] for row in rows_of(tmp_path, 1)] == [
        "Torch.cumsum.0.forward",
        "Torch.cumsum.1.forward",
    ]
    assert [row["step"] for row in rows_of(tmp_path, 1)] == ["1", "1"]
    assert not (tmp_path / "out/step0").exists()


def half_softmax():
    """Without the subtraction of the largest element: exp overflows in float16."""
    x = torch.tensor([[1.0, 12.0, 3.0]], dtype=torch.float16)
    e = torch.exp(x)
    torch.softmax(x, -1)
    torch.div(e, 2.0)


@forked
def test_an_overflow_in_half_precision(tmp_path):
    rows = judged(tmp_path, half_softmax, pert_mode="improve_precision")
    assert [(row["api_name"], row["max_rel"]) for row in rows] == [("Torch.exp.0.forward", "inf")]
    assert rows[0]["dtype"] == "torch.float16"
    assert rows[0]["shape"] == "torch.Size([1, 3])"
    assert rows[0]["output_index"] == ""


@pytest.mark.parametrize("mode", ["add_noise", "bit_noise"])
@pytest.mark.parametrize("scale", [1.0, 1e3])  # a noise of 1e-8 is lost in rounding at both
@forked
def test_a_cancellation(mode, scale, tmp_path):
    x = torch.linspace(1, 2, 50) * scale

    def program():
        torch.sub(x, x * (1 - 3e-6))  # loses six digits
        torch.add(x, x)
        torch.mul(x, 3.0)

    rows = judged(tmp_path, program, pert_mode=mode)
    assert [row["api_name"] for row in rows] == ["Torch.sub.0.forward"]
    assert float(rows[0]["max_rel"]) > 0.01


@forked
def test_a_large_tensor_is_judged_as_a_whole(tmp_path):
    """The older tools kept the ratio of the last chunk only."""
    x = torch.full((9 << 20,), 1000.0)
    y = torch.zeros_like(x)
    y[5] = 1000 * (1 - 3e-6)
    rows = judged(tmp_path, lambda: torch.sub(x, y), pert_mode="bit_noise")
    assert [row["api_name"] for row in rows] == ["Torch.sub.0.forward"]


@forked
def test_nan_on_one_side(tmp_path):
    """The next number above 1 has no acos: the older tools hid NaN."""
    one, none = torch.ones(3), torch.full((3,), torch.nan)

    def program():
        torch.acos(one)
        torch.acos(none)

    rows = judged(tmp_path, program, pert_mode="bit_noise")
    assert [(row["api_name"], row["max_rel"]) for row in rows] == [("Torch.acos.0.forward", "nan")]


def noisy_module():
    """A function of the program whose noise comes from NumPy."""
    module = types.ModuleType("noisy")
    module.times = 0

    def scaled(x):
        module.times += 1
        return x * float(1 + 1e-3 * numpy.random.rand())

    module.scaled = scaled
    sys.modules["noisy"] = module
    return module


@forked
def test_noise_from_outside_is_found_and_leaves_no_trace(tmp_path):
    noisy = noisy_module()
    numpy.random.seed(1)
    expected = [noisy.scaled(torch.ones(3)) for _ in range(3)]
    last = numpy.random.rand()
    numpy.random.seed(1)
    debugger = debugger_of(tmp_path, pert_mode="no_change")
    debugger.register_custom_api(noisy, "scaled")
    debugger.start()
    found = [noisy.scaled(torch.ones(3)) for _ in range(3)]
    debugger.stop()
    assert all(map(torch.equal, found, expected))
    assert numpy.random.rand() == last
    rows = rows_of(tmp_path)
    assert [row["api_name"] for row in rows] == [f"noisy.scaled.{i}.forward" for i in range(3)]
    assert all(0 < float(row["max_rel"]) < 1e-2 for row in rows)
    assert noisy.times == 9  # 3 without the debugger, and twice 3


def test_random_numbers_are_the_same_in_both_runs(tmp_path):
    @forked
    def run(tmp_path):
        generator = torch.Generator().manual_seed(5)

        def program():
            F.dropout(torch.ones(1000), 0.5)
            torch.rand_like(torch.ones(10))
            torch.ones(10).normal_(generator=generator)
            torch.bernoulli(torch.full((10,), 0.5), generator=generator)

        assert judged(tmp_path, program, pert_mode="no_change") == []
        other = torch.Generator().manual_seed(5)
        torch.ones(10).normal_(generator=other)
        torch.bernoulli(torch.full((10,), 0.5), generator=other)
        assert torch.equal(generator.get_state(), other.get_state())

    run(tmp_path=tmp_path)


@forked
def test_in_place_calls_are_judged_with_their_old_arguments(tmp_path, capfd):
    x = torch.arange(6.0)

    def program():
        x.add_(1).exp_()
        x[0] = 7
        y = torch.ones(2, 3)
        torch.add(y, 1, out=y)
        F.relu(y, inplace=True)

    assert judged(tmp_path, program, pert_mode="no_change") == []
    expected = torch.arange(6.0).add(1).exp()
    expected[0] = 7
    assert torch.equal(x, expected)
    text = summary(capfd)
    assert "change their arguments" not in text
    assert "fail" not in text


def twice(x):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            return gradient * 2

    return Twice.apply(x)


@forked
def test_calls_that_are_left_out_say_why(tmp_path, capfd):
    def program():
        twice(torch.ones(3))
        torch.ones(3).resize_(2)
        with torch.inference_mode():
            x = torch.zeros(2)
            x.neg()
        torch.vmap(torch.sin)(torch.ones(3))
        torch.ones(2, 2).to_sparse().neg()
        F.dropout(torch.ones(3, dtype=torch.float16))

    assert judged(tmp_path, program, pert_mode="improve_precision") == []
    text = summary(capfd)
    for reason in (
        "1 belong to a torch.autograd.Function",
        "1 return memory that nobody has written",
        "1 take tensors of the inference mode",
        "1 run inside torch.func",
        "1 draw random numbers, which differ in another precision",
    ):
        assert reason in text, (reason, text)


def _reduce(rank, folder):
    debugger = debugger_of(folder, pert_mode="no_change")
    debugger.start()
    x = torch.ones(3) * (rank + 1)
    torch.distributed.all_reduce(x)
    y = x.neg()
    debugger.stop()
    return y.tolist()


def test_collectives_run_once(tmp_path):
    folders = [tmp_path / str(rank) for rank in range(2)]
    for folder in folders:
        folder.mkdir()
    assert run_ranks(2, _reduce_in, [str(folder) for folder in folders]) == [[-3.0] * 3] * 2
    assert rows_of(folders[1], rank=1) == []


def _reduce_in(rank, folders):
    from pathlib import Path

    return _reduce(rank, Path(folders[rank]))


@pytest.mark.parametrize("mode", ["improve_precision", "to_cpu"])
@forked
def test_fix_puts_in_the_better_result(mode, tmp_path):
    a = torch.randn(64, 8).to(torch.bfloat16).requires_grad_()
    b = torch.randn(64, 8).to(torch.bfloat16)
    plain = F.cosine_similarity(a, b)
    better = F.cosine_similarity(a.detach().float(), b.float()).to(torch.bfloat16)
    assert not torch.equal(plain, better)
    debugger = debugger_of(tmp_path, pert_mode=mode, handler_type="fix")
    debugger.start()
    fixed = F.cosine_similarity(a, b)
    fixed.sum().backward()  # autograd has seen no change in place
    debugger.stop()
    assert torch.equal(fixed, better)
    assert a.grad.isfinite().all()


class SlowCalls:
    """A function of the program that takes 20 ms, and counts."""

    def __init__(self):
        self.module = types.ModuleType("slow")
        self.times = 0

        def wait(x):
            self.times += 1
            time.sleep(0.02)
            return x + 1

        self.module.wait = wait

    def run(self, folder, calls, steps, **section):
        debugger = debugger_of(folder, pert_mode="no_change", **section)
        debugger.register_custom_api(self.module, "wait")
        for _ in range(steps):
            debugger.start()
            for _ in range(calls):
                self.module.wait(torch.ones(2))
            debugger.stop()
            debugger.step()
        return self.times - calls * steps


@forked
def test_the_budget_bounds_the_second_runs(tmp_path, capfd):
    again = SlowCalls().run(tmp_path, calls=25, steps=5, budget=0.1)
    # 2.5 s of its own: 0.25 s may be added, and one second is free in the beginning.
    assert 0 < again <= 65
    text = summary(capfd)
    assert 'calls not sampled, to keep "budget" 0.1' in text
    assert f"{again} calls judged" in text


@forked
def test_without_a_budget_every_call_runs_twice(tmp_path):
    assert SlowCalls().run(tmp_path, calls=30, steps=1, budget=0) == 30


@forked
def test_preheat_finds_limits_first(tmp_path, capfd):
    """The CPU gives the same numbers: the first limit, 2.05, stays for this API."""
    debugger = debugger_of(
        tmp_path, pert_mode="add_noise", if_preheat=True, preheat_step=2, max_sample=1
    )
    x = torch.linspace(1, 2, 50)
    y = x * (1 - 3e-6)
    for _ in range(3):
        debugger.start()
        for _ in range(2):
            torch.sub(x, y)
        debugger.stop()
        debugger.step()
    assert [rows_of(tmp_path, step) for step in range(3)] == [[], [], []]
    text = summary(capfd)
    assert '2 set limits ("if_preheat")' in text
    assert "2 calls judged, 0 inconsistent" in text


@forked
def test_a_call_that_raises_is_the_program_s(tmp_path, capfd):
    def program():
        for stage in (torch.float32, torch.bfloat16):
            with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
                torch.mm(torch.ones(2, 3, dtype=stage), torch.ones(2, 3, dtype=stage))
        torch.neg(torch.ones(3))

    assert judged(tmp_path, program, pert_mode="no_change") == []
    assert "1 calls judged, 0 inconsistent\n" in summary(capfd)


@forked
def test_only_listed_calls(tmp_path, capfd):
    def program():
        torch.cumsum(torch.arange(5.0), 0)
        torch.relu(torch.arange(5.0))

    section = {"fuzz_device": "npu", "fuzz_level": "L1", "list": ["relu"]}
    rows = judged(tmp_path, program, pert_mode="change_value", **section)
    assert [row["api_name"] for row in rows] == ["Torch.relu.0.forward"]
    assert "Torch.relu.0.forward of step 0" in summary(capfd)


@forked
def test_the_worst_call_has_its_source_line(tmp_path, capfd):
    judged(tmp_path, half_softmax, pert_mode="improve_precision")
    text = summary(capfd)
    assert "1 inconsistent" in text
    assert "the worst inconsistent call: Torch.exp.0.forward of step 0, max_rel inf: " in text
    assert "test_free_benchmark.py" in text
    assert "e = torch.exp(x)" in text


@forked
def test_gradients_that_are_unstable(tmp_path):
    """The gradient of a norm of almost equal numbers, in bfloat16."""
    torch.manual_seed(0)
    x = torch.randn(8, 32).to(torch.bfloat16).requires_grad_()

    def program():
        F.cosine_similarity(x, x.detach() + 0.01).float().square().sum().backward()
        torch.relu(x).sum().backward()

    rows = judged(tmp_path, program, pert_mode="improve_precision", fuzz_stage="backward")
    names = {row["api_name"] for row in rows}
    assert "Functional.cosine_similarity.0.backward" in names
    assert "Torch.relu.0.backward" not in names
    assert {row["stage"] for row in rows} == {"backward"}


@forked
def test_the_calls_of_the_older_tools(tmp_path):
    """The program and the rows of msprobe 8.3.3 with change_value, step 0."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    first, last = nn.Linear(8, 16), nn.Linear(16, 4)
    x, labels = torch.randn(5, 8), torch.tensor([0, 1, 2, 3, 0])

    def program():
        h = F.softmax(F.relu(first(x)), dim=-1)
        z = h.bfloat16()
        z = F.cosine_similarity(z, torch.roll(z, 1, 0) - 0.06, dim=-1)
        F.cross_entropy(last(h + z.float()[:, None]), labels).backward()

    rows = judged(tmp_path, program, pert_mode="change_value")
    assert [row["api_name"] for row in rows] == [
        "Functional.linear.0.forward",
        "Functional.relu.0.forward",
        "Functional.softmax.0.forward",
        "Tensor.bfloat16.0.forward",
        "Torch.roll.0.forward",
        "Tensor.__sub__.0.forward",
        "Functional.cosine_similarity.0.forward",
        "Tensor.float.0.forward",
        "Tensor.__add__.0.forward",
        "Functional.linear.1.forward",
        "Functional.cross_entropy.0.forward",
    ]
    assert list(rows[0]) == [
        "rank",
        "pert_mode",
        "stage",
        "step",
        "api_name",
        "max_rel",
        "dtype",
        "shape",
        "output_index",
    ]
    values = {row["api_name"]: row["max_rel"] for row in rows}
    assert values["Functional.linear.0.forward"] == "symbol_flipping"
    assert float(values["Functional.relu.0.forward"]) == pytest.approx(9.111755, rel=1e-5)
    assert float(values["Functional.softmax.0.forward"]) == pytest.approx(0.403006, rel=1e-5)
