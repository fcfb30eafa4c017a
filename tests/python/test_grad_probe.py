"""Task grad_probe: gradients before the optimizer's step, against numbers from PyTorch."""

import csv
import json
import subprocess
import zlib

import numpy as np
import pytest
import torch
from recording import forked, run_forked, run_ranks
from test_bit_identity import ALL, digest, without_the_tool
from test_bit_identity import train as plain_train

from msprobe import UsageError
from msprobe.pytorch import PrecisionDebugger

STEPS = 3


def write_config(folder, level="L1", **section):
    top = {key: section.pop(key) for key in ("rank", "step") if key in section}
    section = {"grad_level": level, **section}
    file = folder / "config.json"
    dump_path = str(folder / "dump")
    file.write_text(
        json.dumps({"task": "grad_probe", "dump_path": dump_path, "grad_probe": section, **top})
    )
    return str(file)


def model_and_data():
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(5, 700), torch.nn.ReLU(), torch.nn.Linear(700, 3), torch.nn.Linear(9, 9)
    )
    model[2].bias.requires_grad_(False)
    return model, torch.randn(8, 5)


def probe(folder, **section):
    """Trains; returns the gradients of each step as they were before the optimizer's step."""
    debugger = PrecisionDebugger(write_config(folder, **section))
    model, x = model_and_data()
    debugger.monitor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    for _ in range(STEPS):
        for part in x.chunk(2):  # two backward passes in each step
            debugger.start(model)
            model[:3](part).square().sum().backward()
            debugger.stop()
            debugger.step()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        named = model.named_parameters()
        seen.append({k: p.grad.clone().numpy() for k, p in named if p.grad is not None})
        optimizer.step()
        optimizer.zero_grad()
    return seen


def table(folder, step, rank=0):
    with (folder / "dump" / f"rank{rank}" / f"grad_summary_{step}.csv").open(newline="") as file:
        return list(csv.reader(file))


def numbers(gradient):
    wide = gradient.astype(np.float64)
    return [wide.max(), wide.min(), np.linalg.norm(wide.ravel())]


def check_rows(rows, seen, extra):
    """`extra`: the columns between the name and the maximum. The last one is the dtype."""
    rows = [row[:-1] for row in rows]
    assert [row[0] for row in rows[1:]] == list(seen)
    for row in rows[1:]:
        gradient = seen[row[0]]
        cells = extra(gradient)
        assert row[1:-4] == [str(cell) for cell in cells]
        np.testing.assert_allclose([float(cell) for cell in row[-4:-1]], numbers(gradient), 1e-12)
        assert row[-1] == str(list(gradient.shape))


def files(folder):
    root = folder / "dump"
    return sorted(str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())


def test_checksums(tmp_path):
    seen = run_forked(probe, tmp_path, level="L0")
    for step in range(STEPS):
        rows = table(tmp_path, step)
        assert rows[0] == ["param_name", "MD5", "max", "min", "norm", "shape", "dtype"]
        check_rows(rows, seen[step], lambda g: [f"{zlib.crc32(g.tobytes()):08x}"])
    assert files(tmp_path) == [f"rank0/grad_summary_{step}.csv" for step in range(STEPS)]


def test_directions(tmp_path):
    seen = run_forked(probe, tmp_path)
    for step in range(STEPS):
        rows = table(tmp_path, step)
        assert rows[0] == ["param_name", "max", "min", "norm", "shape", "dtype"]
        check_rows(rows, seen[step], lambda g: [])
        directions = np.load(tmp_path / "dump" / "rank0" / f"grad_directions_{step}.npz")
        assert list(directions) == list(seen[step])
        for name, gradient in seen[step].items():
            positive = np.unpackbits(directions[name], count=gradient.size)
            np.testing.assert_array_equal(positive, gradient.ravel() > 0)
            assert len(directions[name]) == (gradient.size + 7) // 8


def test_intervals(tmp_path):
    bounds = [-0.01, 0, 1e-3]
    seen = run_forked(probe, tmp_path, level="L2", bounds=bounds)

    def shares(gradient):
        place = np.digitize(gradient.ravel(), bounds, right=True)
        counts = [*np.bincount(place, minlength=4), (gradient == 0).sum()]
        return [float(count / gradient.size) for count in counts]

    for step in range(STEPS):
        rows = table(tmp_path, step)
        head = ["(-inf, -0.01]", "(-0.01, 0]", "(0, 0.001]", "(0.001, inf)", "=0"]
        assert rows[0] == ["param_name", *head, "max", "min", "norm", "shape", "dtype"]
        check_rows(rows, seen[step], shares)
    assert len(files(tmp_path)) == STEPS * 2


class Inside(torch.nn.Module):
    """Autocast begins in the forward of the model, and ends before its last layer."""

    def __init__(self):
        super().__init__()
        self.first, self.last = torch.nn.Linear(5, 16), torch.nn.Linear(16, 3)

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            h = self.first(x).relu()
        return self.last(h.float())


def train_in_autocast(folder, compiled):
    debugger = PrecisionDebugger(write_config(folder))
    torch.manual_seed(1)
    model, x = Inside(), torch.randn(8, 5)
    debugger.monitor(model)
    called = torch.compile(model, backend="eager", fullgraph=True) if compiled else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2):
        for part in x.chunk(3):
            result = called(part) if step == 0 else model.last(part.repeat(1, 4)[:, :16])
            result.square().sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()


def test_dtype_of_a_pass_under_autocast(tmp_path):
    """Gradients that are added up and clipped do not show it."""
    run_forked(train_in_autocast, tmp_path, compiled=False)
    assert {row[-1] for row in table(tmp_path, 0)[1:]} == {"bfloat16"}
    assert {row[-1] for row in table(tmp_path, 1)[1:]} == {"float32"}


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = torch.nn.Linear(12, 32), torch.nn.Linear(32, 10)
        self.q, self.k, self.v = (torch.nn.Linear(32, 32) for _ in range(3))

    def forward(self, x, edit):
        h = self.inner(x)
        q, k, v = (part(h) for part in (self.q, self.k, self.v))
        if edit == "written out":
            scores = (q @ k.mT) / 32**0.5
            powers = (scores - scores.amax(-1, keepdim=True).detach()).exp()
            return self.head(((powers / powers.sum(-1, keepdim=True)).to(v.dtype) @ v).mean(1))
        mixed = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=edit == "mask")
        return self.head(mixed.mean(1))


def train_attention(folder, edit):
    folder.mkdir()
    debugger = PrecisionDebugger(write_config(folder))
    torch.manual_seed(1)
    model = Attention()
    debugger.monitor(model)
    x, y = torch.randn(32, 7, 12), torch.randint(0, 10, (32,))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for part, labels in zip(x.chunk(2), y.chunk(2), strict=True):
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(part, edit), labels)
        (loss / 2).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.3)
    optimizer.step()


def test_keys_bias_under_autocast(tmp_path, msprobe_bin):
    """It is zero by mathematics, and rounding of bfloat16 in practice."""
    for edit in ("", "written out", "mask"):
        run_forked(train_attention, tmp_path / (edit or "golden"), edit)

    def compared(edit):
        sides = [str(tmp_path / name / "dump") for name in (edit, "golden")]
        command = [
            msprobe_bin,
            "grad_compare",
            *sides,
            "-o",
            str(tmp_path / "o"),
            "--format",
            "json",
        ]
        return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    right, wrong = compared("written out"), compared("mask")
    assert (right["verdict"], right["may_be_rounding"]) == ("unknown", ["k.bias"])
    assert wrong["verdict"] == "falls"


def losses_in_autocast(model, x):
    with torch.autocast("cpu", torch.bfloat16):
        loss = model(x).float().square().mean()
    yield loss * 1000.3  # as a scaler does


def losses_accumulated(model, x):
    for part in x.split([5, 2, 1]):
        yield model(part).square().sum() / 8


KINDS = {"autocast": losses_in_autocast, "accumulation": losses_accumulated}
KINDS["frozen"] = losses_accumulated


def train_kind(kind, compiled, folder=None):
    """All numbers of a training; with `folder`, modules have the hook that looks for autocast."""
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.LayerNorm(16))
    model.extend([torch.nn.Dropout(0.2), torch.nn.Linear(16, 4)])
    x = torch.randn(8, 6)
    if kind == "frozen":  # the hook is on both layers
        model[0].requires_grad_(False)
        model[3].bias.requires_grad_(False)
    if folder:
        PrecisionDebugger(write_config(folder)).monitor(model)
    called = torch.compile(model, backend="aot_eager") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    numbers = {}
    for step in range(STEPS):
        for part, loss in enumerate(KINDS[kind](called, x)):
            numbers[f"loss {step}.{part}"] = loss.detach()
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        for name, parameter in model.named_parameters():
            numbers[f"{name} {step}"] = parameter.detach().clone()
            if parameter.grad is not None:
                numbers[f"{name}.grad {step}"] = parameter.grad.clone()
        optimizer.zero_grad()
    return digest([*numbers.items(), ("random", torch.get_rng_state())])


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_hook_of_autocast_changes_no_bit(kind, compiled, tmp_path):
    plain = run_forked(train_kind, kind, compiled)
    assert run_forked(train_kind, kind, compiled, tmp_path) == plain
    dtype = "bfloat16" if kind == "autocast" and not compiled else "float32"
    for step in range(STEPS):
        rows = table(tmp_path, step)[1:]
        assert {row[-1] for row in rows} == {dtype}
        assert len(rows) == (3 if kind == "frozen" else 6)


def test_the_hook_leaves_nothing_in_compiled_code(tmp_path):
    run_forked(train_in_autocast, tmp_path, compiled=True)
    assert {row[-1] for row in table(tmp_path, 0)[1:]} == {"float32"}


def test_filters(tmp_path, capfd):
    run_forked(probe, tmp_path, step=[1], param_list=["2.weight", "0.weigth"])
    assert [row[0] for row in table(tmp_path, 1)] == ["param_name", "2.weight"]
    assert files(tmp_path) == ["rank0/grad_directions_1.npz", "rank0/grad_summary_1.csv"]
    said = capfd.readouterr().err
    assert 'the model has no parameter "0.weigth"; did you mean "0.weight"?' in said
    assert "all wanted steps are recorded" in said


def as_rank(rank, folder, config):
    debugger = PrecisionDebugger(config)
    model, x = model_and_data()
    debugger.monitor(model)
    model[:3](x).sum().backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()


def test_ranks(tmp_path):
    run_ranks(2, as_rank, tmp_path, write_config(tmp_path, "L0", rank=[1]))
    assert files(tmp_path) == ["rank1/grad_summary_0.csv"]


class Outer(torch.optim.Optimizer):
    """Calls another optimizer, as ZeroRedundancyOptimizer does."""

    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure=None):
        self.inner.step()


def special(folder):
    debugger = PrecisionDebugger(write_config(folder, "L2", bounds=[]))
    model = torch.nn.Module()
    for name in ("plain", "main", "complex", "rounded", "empty"):
        dtype = {"complex": torch.complex64, "rounded": torch.bfloat16}.get(name, torch.float32)
        parameter = torch.nn.Parameter(torch.ones(0 if name == "empty" else 4, dtype=dtype))
        model.register_parameter(name, parameter)
        parameter.grad = torch.full_like(parameter, 2)
    model.plain.grad[:3] = torch.tensor([0.0, torch.nan, torch.inf])
    model.main.main_grad = torch.full((4,), 5.0)
    debugger.set_init_step(7)
    debugger.monitor(model)
    optimizer = Outer(torch.optim.SGD(model.parameters(), lr=0.0))
    optimizer.step()
    optimizer.step()


def test_special_gradients(tmp_path, capfd):
    """A main_grad, NaN, bfloat16, an empty tensor, complex numbers, a nested optimizer."""
    run_forked(special, tmp_path)
    rows = {row[0]: row[1:] for row in table(tmp_path, 7)}
    assert rows == {
        "param_name": ["=0", "max", "min", "norm", "shape", "dtype"],
        "plain": ["0.25", "nan", "nan", "nan", "[4]", "float32"],
        "main": ["0.0", "5.0", "5.0", "10.0", "[4]", "float32"],
        "rounded": ["0.0", "2.0", "2.0", "4.0", "[4]", "bfloat16"],
        "empty": ["0.0", "nan", "nan", "nan", "[0]", "float32"],
    }
    assert {file.name for file in (tmp_path / "dump" / "rank0").glob("*.csv")} == {
        "grad_summary_7.csv",
        "grad_summary_8.csv",
    }
    assert capfd.readouterr().err.count("leaves out the gradient of complex") == 1


def train(name, folder):
    debugger = PrecisionDebugger(write_config(folder, "L2"))
    hooked = []

    def monitor(model):
        if not hooked:
            debugger.monitor(model)
            hooked.append(model)

    return plain_train(name, disturb=monitor)


@pytest.mark.parametrize("name", ALL)
def test_training_is_the_same_bits(name, tmp_path):
    assert run_forked(train, name, tmp_path) == without_the_tool(name)
    assert len(list((tmp_path / "dump" / "rank0").glob("*.csv"))) == 10


@forked
def test_misuse(tmp_path):
    with pytest.raises(UsageError, match="to be constructed first"):
        PrecisionDebugger.monitor(torch.nn.Linear(2, 2))
    debugger = PrecisionDebugger(dump_path=str(tmp_path / "dump"))
    with pytest.raises(UsageError, match='expected task "grad_probe", found "statistics"'):
        debugger.monitor(torch.nn.Linear(2, 2))
    with pytest.raises(UsageError, match="found int"):
        debugger.monitor(3)


def in_a_bad_place(folder):
    (folder / "dump").mkdir()
    (folder / "dump/rank0").write_text("a file")  # detected when the first gradients are written
    return digest(enumerate(torch.tensor(g) for g in probe(folder)[-1].values()))


def test_a_fault_does_not_affect_the_training(tmp_path, capfd):
    (tmp_path / "good").mkdir()
    good = run_forked(probe, tmp_path / "good")[-1]
    bad = run_forked(in_a_bad_place, tmp_path)
    assert bad == digest(enumerate(torch.tensor(g) for g in good.values()))
    assert capfd.readouterr().err.count("collection is off, the run goes on") == 1


def sharded(rank, folder, planted):
    """Five steps under fully_shard; from step 3 on rank 1 changes its shard of a gradient."""
    from torch.distributed.device_mesh import init_device_mesh

    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:  # PyTorch 2.4 and 2.5
        from torch.distributed._composable.fsdp import fully_shard
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Linear(6, 9), torch.nn.Tanh(), torch.nn.Linear(9, 5))
    fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    PrecisionDebugger(str(folder / "config.json")).monitor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(4, 6)
    for step in range(5):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if planted and step >= 3 and rank == 1:
            model[2].weight.grad.to_local().neg_()
        optimizer.step()


def test_shards_of_a_parameter_are_compared_together(tmp_path, msprobe_bin):
    for name in ("good", "bad"):
        (tmp_path / name).mkdir()
        write_config(tmp_path / name)
        run_ranks(2, sharded, tmp_path / name, name == "bad")
    command = [msprobe_bin, "grad_compare", tmp_path / "bad/dump", tmp_path / "good/dump"]
    command += ["-o", tmp_path / "out", "--format", "json"]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    fall = found["first_fall"]
    assert (fall["rank"], fall["step"], fall["parameter"]) == (1, 3, "2.weight")
    assert fall["elements"] == 18  # of five rows, rank 1 has two
    with (tmp_path / "out/similarities.csv").open(newline="") as file:
        rows = {row[0]: row[1:] for row in csv.reader(file)}
    assert rows["2.weight"][:3] == ["1.0"] * 3
    assert float(rows["2.weight"][3]) == 1 - fall["changed"] / 45  # the whole parameter
