"""Provenance in a dump: facts of the run, and fingerprints of its initial weights."""

import json
import subprocess

import torch
from recording import read_dump, run_forked


def record(folder, seed=1, scale=1.0, level="mix", models=False):
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    with torch.no_grad():
        model[0].bias.mul_(scale)
    debugger = PrecisionDebugger(dump_path=str(folder), level=level)
    for _ in range(2):
        debugger.start([model, model[0]] if models else model)
        model(torch.ones(5, 4)).sum().backward()
        debugger.stop()
        debugger.step()


def test_the_header_says_where_the_run_came_from(tmp_path):
    run_forked(record, tmp_path, seed=1234)
    provenance = read_dump(tmp_path).header["provenance"]
    assert provenance["torch"] == torch.__version__
    assert provenance["seed"] == 1234
    assert provenance["device"] == "cpu"
    assert provenance["threads"] == 1
    assert provenance["deterministic"] is False
    assert len(provenance["random_state"]) == 16
    assert not {"host", "user", "path"} & provenance.keys()


def test_weights_are_recorded_when_each_step_begins(tmp_path):
    run_forked(record, tmp_path)
    weights = json.loads((tmp_path / "step0/rank/weights.json").read_text())
    names = ["0.weight", "0.bias", "1.weight", "1.bias", "1.running_mean", "1.running_var"]
    assert list(weights) == [*names, "1.num_batches_tracked"]
    assert all(len(weight["fp"]) == 11 for weight in weights.values())
    later = json.loads((tmp_path / "step1/rank/weights.json").read_text())
    differ = {name for name in later if later[name]["fp"] != weights[name]["fp"]}
    assert differ == {"1.running_mean", "1.running_var", "1.num_batches_tracked"}


def test_names_in_a_list_of_models_carry_its_place(tmp_path):
    run_forked(record, tmp_path, level="L1", models=True)
    weights = json.loads((tmp_path / "step0/rank/weights.json").read_text())
    assert {"0.0.weight", "1.weight"} <= weights.keys()


def odd_models():
    """Models whose own methods name their parameters and buffers in ways of their own."""

    class Renamed(torch.nn.Linear):
        def named_parameters(self, *args, **kwargs):
            for name, parameter in super().named_parameters(*args, **kwargs):
                yield name.upper(), parameter

    class Hidden(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Linear(2, 2)

        def named_modules(self, memo=None, prefix="", remove_duplicate=True):
            yield prefix, self  # not the module inside

    class Some(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.some = torch.nn.Linear(2, 2)

        def _named_members(self, *args, **kwargs):
            yield "alone", self.some.weight

    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3, bias=False))
    tied[1].weight = tied[0].weight
    tied.append(tied[0])
    tied.register_module("none", None)
    tied.register_buffer("nothing", None)
    tied.register_buffer("shared", torch.ones(2))
    tied[1].register_buffer("again", tied.shared)
    lists = torch.nn.Module()
    lists.numbers = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(i)) for i in (1, 2)])
    lists.table = torch.nn.ParameterDict({"b": torch.ones(1), "a": torch.ones(2)})
    parametrized = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    scripted = torch.jit.script(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU()))
    replaced = torch.nn.Linear(2, 2)
    replaced.named_parameters = lambda: iter([("mine", replaced.bias)])
    return {
        "tied": tied,
        "lists": lists,
        "parametrized": parametrized,
        "renamed": Renamed(2, 2),
        "renamed inside": torch.nn.Sequential(Renamed(2, 2), torch.nn.BatchNorm1d(2)),
        "hidden": torch.nn.Sequential(Hidden(), torch.nn.BatchNorm1d(2)),
        "some": Some(),
        "replaced": replaced,
        "scripted inside": torch.nn.Sequential(scripted, torch.nn.Linear(2, 2)),
    }


def record_odd_models(folder):
    from msprobe.pytorch import PrecisionDebugger

    expected = {}
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1")
    for step, (name, model) in enumerate(odd_models().items()):
        with torch.no_grad():
            tensors = [*model.named_parameters(), *model.named_buffers()]
            expected[f"step{step}"] = (name, {key: list(t.shape) for key, t in tensors})
        debugger.start(model)
        torch.ones(1).abs()
        debugger.stop()
        debugger.step()
    (folder / "expected.json").write_text(json.dumps(expected))


def test_weights_have_the_names_that_the_model_gives_them(tmp_path):
    run_forked(record_odd_models, tmp_path)
    expected = json.loads((tmp_path / "expected.json").read_text())
    assert len(expected) == 9
    for step, (name, tensors) in expected.items():
        weights = json.loads((tmp_path / step / "rank/weights.json").read_text())
        found = {key: weight["shape"] for key, weight in weights.items()}
        assert list(found.items()) == list(tensors.items()), name


def began(target, golden, msprobe_bin, folder):
    command = [msprobe_bin, "compare", "-tp", target, "-gp", golden, "-o", folder / "out"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return next(line for line in lines if line.startswith("  began "))


def test_compare_tells_whether_the_weights_were_the_same(tmp_path, msprobe_bin):
    for name, scale in (("a", 1.0), ("b", 1.0), ("c", 1.5)):
        run_forked(record, tmp_path / name, scale=scale)
    a, b, c = (tmp_path / name / "step0" for name in "abc")
    assert "from the same weights (7) and the same data" in began(a, b, msprobe_bin, tmp_path)
    assert "other weights (1 of 7 differ, first 0.bias)" in began(a, c, msprobe_bin, tmp_path)
