"""Where in the model a divergence begins: its module, the module's mode, the argument's name."""

import json
import subprocess

import pytest
import torch
from recording import forked, read_dump, run_forked

from msprobe.pytorch import PrecisionDebugger

F = torch.nn.functional


class Block(torch.nn.Module):
    def __init__(self, p):
        super().__init__()
        self.fc = torch.nn.Linear(4, 4)
        self.dropout = torch.nn.Dropout(p)
        self.scale = 1.0

    def forward(self, x):
        return x + self.dropout(F.gelu(self.fc(x))) * self.scale


class Net(torch.nn.Module):
    def __init__(self, p=0.5):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block(p) for _ in range(3))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x.sum()


def record(folder, level, change, config=None):
    torch.manual_seed(0)
    model = Net().eval()
    change(model)
    path = None
    if config is not None:
        path = folder.with_suffix(".json")
        path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(path, dump_path=str(folder), level=level)
    debugger.start(model)
    torch.manual_seed(1)
    model(torch.ones(2, 4)).backward()
    debugger.stop()


def compare(msprobe_bin, tmp_path, *more):
    command = [msprobe_bin, "compare", tmp_path / "target", tmp_path / "golden"]
    command += ["-o", tmp_path / "out", *more]
    return subprocess.run(list(map(str, command)), capture_output=True, text=True).stdout


def first_divergence(msprobe_bin, tmp_path, level, change, **config):
    for side, changed in (("target", change), ("golden", lambda model: None)):
        run_forked(record, tmp_path / side, level, changed, config or None)
    return json.loads(compare(msprobe_bin, tmp_path, "--format", "json"))["first_divergence"]


def wrong_scale(model):
    model.layers[1].scale = 1.5


def dropout_left_on(model):
    model.layers[1].dropout.train()


@pytest.mark.parametrize("level", ["L1", "mix"])
def test_the_module_of_an_api(tmp_path, msprobe_bin, level):
    first = first_divergence(msprobe_bin, tmp_path, level, wrong_scale)
    assert first["target_name"] == "Tensor.__mul__.1.forward"
    assert first["module"] == "layers.1 (Block)"
    assert "| in layers.1 (Block)\n" in compare(msprobe_bin, tmp_path)


@forked
def test_no_module_entries_at_l1(tmp_path):
    record(tmp_path / "run", "L1", wrong_scale)
    dump = read_dump(tmp_path / "run")
    assert not any(name.startswith("Module.") for name in dump.names)
    modules = {name: entry.get("module") for name, entry in dump.data.items()}
    assert modules["Functional.linear.2.forward"] == "Module.layers.2.fc.Linear"
    assert modules["Functional.gelu.0.forward"] == "Module.layers.0.Block"
    assert modules["Tensor.sum.0.forward"] is None  # in the model itself, which has no name
    assert dump.side("construct.json") == {}


@forked
def test_the_module_after_an_exception_and_a_stop_inside(tmp_path):
    class Fails(torch.nn.Module):
        def forward(self, x):
            raise ValueError("on purpose")

    class Stops(torch.nn.Module):
        def forward(self, x):
            debugger.stop()
            debugger.start(model)
            return torch.relu(x)

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fails, self.stops = Fails(), Stops()

        def forward(self, x):
            try:
                self.fails(x)
            except ValueError:
                x = torch.tanh(x)
            return torch.exp(self.stops(x))

    model = torch.nn.Sequential(Outer())
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    debugger.start(model)
    model(torch.ones(2))
    torch.abs(torch.ones(2))
    debugger.stop()
    data = read_dump(tmp_path).data
    assert data["Torch.tanh.0.forward"]["module"] == "Module.0.Outer"
    # A start inside a running module does not know the modules around it.
    for name in ("Torch.relu", "Torch.exp", "Torch.abs"):
        assert "module" not in data[f"{name}.0.forward"]


def compile_the_second(model):
    """Beside modules whose classes have a __call__ of their own, as compiled graphs do."""
    for number in range(20):
        own = type(f"Own{number}", (torch.nn.Linear,), {"__call__": torch.nn.Linear.__call__})
        model.add_module(f"own_{number}", own(4, 4))
    model.layers[1].compile(backend="aot_eager")


def test_the_module_after_compiled_code(tmp_path):
    """While a compiler traces, it puts a function of its own in the place of Module.__call__."""
    run_forked(record, tmp_path / "dump", "L1", compile_the_second)
    dump = read_dump(tmp_path / "dump")
    modules = {name: entry.get("module") for name, entry in dump.data.items()}
    assert modules["Functional.linear.0.forward"] == "Module.layers.0.fc.Linear"
    assert modules["Functional.linear.1.forward"] == "Module.layers.2.fc.Linear"
    assert modules["Functional.gelu.1.forward"] == "Module.layers.2.Block"


@forked
def test_no_module_without_extra_info(tmp_path):
    record(tmp_path / "run", "L1", wrong_scale, {"extra_info": False})
    dump = read_dump(tmp_path / "run")
    assert not any("module" in entry for entry in dump.data.values())
    assert not (dump.folder / "signatures.json").exists()


@forked
def test_modules_say_their_mode(tmp_path):
    record(tmp_path / "run", "mix", dropout_left_on)
    modes = {
        name: entry["training"]
        for name, entry in read_dump(tmp_path / "run").data.items()
        if "training" in entry
    }
    assert modes.pop("Module.layers.1.dropout.Dropout.forward.0") is True
    assert set(modes.values()) == {False}
    assert all(".forward." in name for name in modes) and len(modes) == 8


@forked
def test_a_mode_that_is_code_is_not_run(tmp_path):
    class Odd(torch.nn.Module):
        @property
        def training(self):
            raise AssertionError("the program's code must not run")

        @training.setter
        def training(self, mode):
            pass

        def forward(self, x):
            return x * 2

    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L0")
    model = torch.nn.Sequential(Odd())
    debugger.start(model)
    model(torch.ones(2))
    debugger.stop()
    assert "training" not in read_dump(tmp_path).data["Module.0.Odd.forward.0"]


MODE = "layers.1.dropout (Dropout) is in train mode in the target, in eval mode in the golden"


def test_dropout_left_on(tmp_path, msprobe_bin):
    first = first_divergence(msprobe_bin, tmp_path, "mix", dropout_left_on)
    assert first["target_name"] == "Functional.dropout.1.forward"
    assert "training is True in the target, False in the golden" in first["why"]
    assert MODE in first["why"]
    assert first["module"] == "layers.1.dropout (Dropout)"
    assert "model.train() or model.eval()" in first["advice"]


def test_dropout_left_on_seen_by_modules(tmp_path, msprobe_bin):
    first = first_divergence(msprobe_bin, tmp_path, "L0", dropout_left_on)
    assert first["target_name"] == "Module.layers.1.dropout.Dropout.forward.0"
    assert first["class"] == "introduced" and MODE in first["why"]


def test_dropout_left_on_seen_by_apis(tmp_path, msprobe_bin):
    first = first_divergence(msprobe_bin, tmp_path, "L1", dropout_left_on)
    assert first["target_name"] == "Functional.dropout.1.forward"
    assert "training is True in the target, False in the golden" in first["why"]
    assert first["module"] == "layers.1.dropout (Dropout)"


def test_another_mode_without_effect(tmp_path, msprobe_bin):
    for side, mode in (("target", True), ("golden", False)):

        def change(model, mode=mode):
            model.train(mode)
            for layer in model.layers:
                layer.dropout.p = 0.0
                layer.dropout.eval()

        run_forked(record, tmp_path / side, "L0", change)
    report = json.loads(compare(msprobe_bin, tmp_path, "--format", "json"))
    assert report["first_divergence"] is None
    said = report["beginning"]["settings"]
    assert said.startswith("layers.0.fc (Linear) is in train mode in the target")
    assert said.endswith("and 5 more modules likewise")


@forked
def test_names_of_parameters(tmp_path):
    record(tmp_path / "run", "mix", wrong_scale)
    names = read_dump(tmp_path / "run").side("signatures.json")
    assert names["Functional.dropout"] == ["input", "p", "training", "inplace"]
    assert names["Functional.linear"] == ["input", "weight", "bias"]
    assert names["Tensor.__add__"][:2] == ["self", "other"]
    assert "Torch.relu" not in names  # it was not called


@forked
def test_names_of_parameters_of_an_own_function(tmp_path):
    import types

    module = types.ModuleType("own")
    module.scaled = lambda value, factor, *rest, bias=0: value * factor
    debugger = PrecisionDebugger(dump_path=str(tmp_path), level="L1")
    debugger.register_custom_api(module, "scaled", "Own")
    debugger.start()
    module.scaled(torch.ones(2), 3)
    debugger.stop()
    assert read_dump(tmp_path).side("signatures.json")["Own.scaled"] == [
        "value",
        "factor",
        "rest...",
    ]


def test_a_damaged_list_of_names(tmp_path, msprobe_bin):
    for side in ("target", "golden"):
        run_forked(record, tmp_path / side, "L1", dropout_left_on)
    (tmp_path / "target/step0/rank/signatures.json").write_text('{"Torch.relu": 3}')
    command = [msprobe_bin, "compare", tmp_path / "target", tmp_path / "golden"]
    done = subprocess.run([*command, "-o", tmp_path / "out"], capture_output=True, text=True)
    assert done.returncode == 2 and "signatures.json" in done.stderr
