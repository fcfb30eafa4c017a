"""Reports on small programs: what is named, and each sentence held against the two dumps."""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from recording import run_forked
from torch.utils.checkpoint import checkpoint

from msprobe.pytorch import PrecisionDebugger

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "real"))
import sentences


class Mlp(torch.nn.Module):
    def __init__(self, curve):
        super().__init__()
        self.up, self.down = torch.nn.Linear(8, 16), torch.nn.Linear(16, 8)
        self.drop = torch.nn.Dropout(0.3)
        self.curve = curve

    def forward(self, x):
        return x + self.down(self.drop(self.curve(self.up(x))))


class Net(torch.nn.Module):
    def __init__(self, curve=F.gelu, call=lambda i, mlp, x: mlp(x)):
        super().__init__()
        self.mlps = torch.nn.ModuleList(Mlp(curve) for _ in range(3))
        self.head = torch.nn.Linear(8, 4)
        self.call = call

    def forward(self, x):
        for i, mlp in enumerate(self.mlps):
            x = self.call(i, mlp, x)
        return self.head(x)


def train(folder, level, make, seed=7, steps=1):
    torch.manual_seed(seed)
    net, run = make()
    numbers = torch.Generator().manual_seed(3)
    data = torch.randn(steps, 6, 8, generator=numbers)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x in data:
        debugger.start(net)
        run(x.requires_grad_()).square().mean().backward()
        optimizer.step()
        debugger.stop()
        debugger.step()
        optimizer.zero_grad()


def plain(change=None, **keywords):
    net = Net(**keywords)
    if change is not None:
        change(net)
    return net, net


def draws_more(i, mlp, x):
    if i == 1:
        F.rrelu(x, training=True)
    return mlp(x)


def recomputed(keeps, i, mlp, x):
    return checkpoint(mlp, x, use_reentrant=False, preserve_rng_state=keeps)


class AddAux(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, aux):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        return grad, torch.ones(())


def with_aux(used, i, mlp, x):
    y = mlp(x)
    probabilities = torch.softmax(y, -1)
    added = AddAux.apply(probabilities * 2, 0.1 * probabilities.mean(0).square().sum())
    return y + (added if used else probabilities * 2)


def curve(x):
    return torch.sin(torch.tanh(x) * x) + x


def wrong_curve(x):
    return torch.sin(torch.tanh(x) * x) + 1.01 * x


def with_break(x):
    y = torch.tanh(x) * x
    torch._dynamo.graph_break()
    return torch.sin(y) + x


compiled = (
    functools.partial(torch.compile, backend="aot_eager") if hasattr(torch, "compile") else None
)


def compile_second(net):
    net.mlps[1].compile(backend="aot_eager")


def wrap_second(net):
    net.mlps[1] = compiled(net.mlps[1])


def whole(**keywords):
    net = Net(**keywords)
    return net, compiled(net)


@pytest.fixture
def reported(msprobe_bin, tmp_path):
    """The report on two recordings, of which every sentence was held against them."""

    def compare(target, golden, level="mix", language="en"):
        for name, (make, seed) in {"target": target, "golden": golden}.items():
            run_forked(train, tmp_path / name, level, make, seed)
        command = [msprobe_bin, "compare", tmp_path / "target" / "step0"]
        command += [tmp_path / "golden" / "step0", "-o", tmp_path / "out"]
        told = [
            subprocess.run([*command, *form], capture_output=True, text=True).stdout
            for form in (("--format", "json"), ("--lang", "en"), ("--lang", "zh"))
        ]
        report = json.loads(told[0])
        sentences.check(report)
        return report, " ".join(told[1].split()), told[2]

    return compare


def said(report):
    first = report["first_divergence"]
    return f"{first['source_line']} {first['why']} {first['advice']}"


def test_a_call_that_draws_too_is_named(reported):
    extra = functools.partial(plain, call=draws_more)
    report, _, chinese = reported((extra, 7), (plain, 7))
    assert "only the target calls Functional.rrelu.0.forward" in said(report)
    assert "fix the seed" not in said(report)
    assert "同样产生随机数" in chinese


def test_another_seed_is_named(reported):
    def same_weights():
        net = Net()
        for weight in net.parameters():
            torch.nn.init.constant_(weight, 0.1)
        return net, net

    report, _, _ = reported((same_weights, 8), (same_weights, 7))
    assert "the seed is 8 in the target, 7 in the golden" in said(report)
    assert "fix the seed on both sides" in said(report)


def test_a_recomputation_that_draws_other_numbers_is_named(reported):
    lost, kept = (
        functools.partial(plain, call=functools.partial(recomputed, keeps))
        for keeps in (False, True)
    )
    report, _, chinese = reported((lost, 7), (kept, 7))
    assert "recomputation (activation checkpointing) that did not restore" in said(report)
    assert "preserve_rng_state=True" in said(report)
    assert "重计算" in chinese


def test_a_result_that_is_thrown_away_is_named(reported):
    bug, right = (
        functools.partial(plain, call=functools.partial(with_aux, used)) for used in (False, True)
    )
    report, text, _ = reported((bug, 7), (right, 7))
    assert "AddAux.apply(" in report["first_divergence"]["source_line"]
    assert "its result is not used" in said(report)
    assert "AddAux (backward)" not in text.partition("rewritten:")[2]


COMPILED = {
    "module": functools.partial(plain, change=compile_second, curve=curve),
    "wrapped module": functools.partial(plain, change=wrap_second, curve=curve),
    "graph break": functools.partial(plain, change=compile_second, curve=with_break),
    "whole model": functools.partial(whole, curve=curve),
}
NEVER = ("calls nothing", "skips an operation", "rewritten:", "only in the golden:")


@pytest.mark.skipif(compiled is None, reason="needs PyTorch 2")
@pytest.mark.parametrize("kind", COMPILED)
@pytest.mark.parametrize("level", ["mix", "L1", "L0"])
def test_compiled_code_lacks_no_calls(kind, level, reported):
    golden = functools.partial(plain, curve=with_break if kind == "graph break" else curve)
    report, text, _ = reported((COMPILED[kind], 7), (golden, 7), level)
    assert report["first_divergence"] is None, said(report)
    assert not [words for words in NEVER if words in text], text
    where = "the recorded modules" if kind == "whole model" else "mlps.1 ("
    assert "compiled code" in text and where in text, text


@pytest.mark.skipif(compiled is None, reason="needs PyTorch 2")
def test_an_error_in_compiled_code_is_named_with_its_module(reported):
    wrong = functools.partial(plain, change=compile_second, curve=wrong_curve)

    def first_is_right():
        net, run = wrong()
        net.mlps[0].curve = net.mlps[2].curve = curve
        return net, run

    report, text, chinese = reported(
        (first_is_right, 7), (functools.partial(plain, curve=curve), 7)
    )
    assert "mlps.1.Mlp" in report["first_divergence"]["target_name"], said(report)
    assert "it runs compiled code in the target (torch.compile)" in said(report)
    assert not [words for words in NEVER if words in text], text
    assert "编译后的代码" in chinese


@pytest.mark.skipif(compiled is None, reason="needs PyTorch 2")
def test_an_error_in_a_compiled_function_is_named(reported):
    wrong = functools.partial(plain, curve=compiled(wrong_curve))
    report, text, _ = reported((wrong, 7), (functools.partial(plain, curve=curve), 7))
    assert "it comes out of compiled code (torch.compile) of the target in mlps.0 (Mlp)" in said(
        report
    )
    assert not [words for words in NEVER if words in text], text


class Pooled(torch.nn.Module):
    """Inductor of PyTorch 2.13 divides the last window by the whole kernel, backward."""

    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(8)
        self.pool = torch.nn.AvgPool2d(3, 2, ceil_mode=True)

    def forward(self, x):
        return self.pool(F.relu(self.norm(self.conv(x))))


def record_pooled(folder, cache):
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(cache)
    torch.manual_seed(5)
    net = torch.nn.Sequential(Pooled(), torch.nn.Flatten(), torch.nn.Linear(8 * 8 * 8, 4))
    if cache:
        net[0].compile()
    debugger = PrecisionDebugger(dump_path=str(folder), level="mix")
    debugger.start(net)
    net(torch.randn(4, 3, 16, 16)).square().mean().backward()
    debugger.stop()


@pytest.mark.campaign
def test_a_compiler_with_a_cold_cache_makes_no_calls(msprobe_bin, tmp_path):
    for name in ("cold", "warm"):
        run_forked(record_pooled, tmp_path / name, tmp_path / "cache")
    run_forked(record_pooled, tmp_path / "golden", "")

    def compare(target, golden):
        command = [msprobe_bin, "compare", tmp_path / target / "step0", tmp_path / golden / "step0"]
        done = subprocess.run(
            [*command, "-o", tmp_path / "out", "--format", "json"], capture_output=True, text=True
        )
        return json.loads(done.stdout)

    assert compare("cold", "warm")["verdict"] == "equal"
    report = compare("cold", "golden")
    sentences.check(report)
    assert report["first_divergence"]["target_name"] == "Module.0.Pooled.backward.0", said(report)
    assert "torch.compile" in said(report)
