"""`msprobe replay` and `bisect`, `compare --noise`, `--explain`, `--why`: on recorded trainings."""

import json
import os
import shutil
import subprocess

import pytest
from recording import run_program

TRAIN = """
import sys
import torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
words = sys.argv[1:]

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = torch.nn.Linear(8, 16), torch.nn.Linear(16, 4)

    def forward(self, x):
        h = torch.nn.functional.gelu(self.a(x))
        rows = [0, 0, 2, 3] if "wrong" in words else [0, 1, 2, 3]
        h = h + 0.5 * h.detach().abs()[rows]  # other data goes into the next call
        return self.b(h).softmax(-1)

net = Net()
level = next((word for word in words if word in ("L0", "mix")), "mix")
task = "tensor" if "tensor" in words else "statistics"
debugger = PrecisionDebugger(dump_path=words[0], level=level, task=task)
x = torch.randn(4, 8)
debugger.start(net)
net(x).square().sum().backward()
debugger.stop()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with train.py and its recordings."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(TRAIN)
    for words in ("right", "wrong wrong", "right_t tensor", "wrong_t tensor wrong"):
        done = run_program("train.py", *words.split(), cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def said(forking_msprobe, runs):
    def run(*words, code=0):
        done = subprocess.run(
            [forking_msprobe, *map(str, words)], cwd=runs, capture_output=True, text=True
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code < 2 else done.stderr + done.stdout

    return run


def test_replay_of_a_right_call(said):
    report = json.loads(said("replay", "right_t", "gelu", "--format", "json"))
    assert report["nearer"] == "target" and report["golden"] is None
    target = report["target"]
    assert target["name"] == "Functional.gelu.0" and not target["made_from_statistics"]
    assert [each["place"] for each in target["outputs"]] == [
        "forward.output.0",
        "backward.output.0",
    ]
    for each in target["outputs"]:
        assert each["recorded"]["relative"] < 1e-6 and each["recorded_unlike_again"] == 0
        assert 0 <= each["again"]["ulp"] < 100
    assert "EXACT" in said("replay", "right_t", "Functional.gelu.0.forward")


def test_replay_finds_a_wrong_result(said, runs):
    import torch

    shutil.copytree(runs / "right_t", runs / "bad_t", dirs_exist_ok=True)
    data = runs / "bad_t" / "step0" / "rank" / "dump_tensor_data"
    (name,) = data.glob("Functional.gelu.0.forward.output.0.*")
    torch.save(torch.load(name).detach() * 1.001, name)
    report = json.loads(said("replay", "bad_t", "gelu", "right_t", "--format", "json"))
    assert report["nearer"] == "golden"
    assert "times nearer to float64" in report["verdict"]
    assert report["target"]["outputs"][0]["recorded_unlike_again"] > 0
    text = said("replay", "bad_t", "gelu", "right_t", "--exit-code", code=1)
    assert "msprobe replay, Functional.gelu.0: GOLDEN" in text and "train.py:" in text
    assert "NOT EXACT" in said("replay", "bad_t", "gelu")


def test_replay_names_the_arguments_that_differ(said, runs):
    for side in ("right_t", "wrong_t"):
        shutil.copytree(runs / side, runs / f"other_{side}", dirs_exist_ok=True)
    path = runs / "other_wrong_t" / "step0" / "rank" / "dump.json"
    dump = json.loads(path.read_text())
    call = next(name for name in dump["data"] if name.endswith(".softmax.0.forward"))
    dump["data"][call]["input_args"][1]["value"] = 0
    path.write_text(json.dumps(dump))
    text = said("replay", "other_wrong_t", "softmax", "other_right_t")
    assert "OTHER CALLS" in text and "dim is 0 in the target, -1 in the golden" in text


BROADCAST = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
each, weight = torch.rand(8, 5), torch.rand(8)
debugger = PrecisionDebugger(dump_path=sys.argv[1], level="mix", task="tensor")
debugger.start()
each = each.mean(dim=1)
if sys.argv[1] == "broadcast":
    each = each.reshape(-1, 1)
loss = (each * weight).mean()
debugger.stop()
"""


def test_replay_of_another_shape(said, runs):
    """Each of the two products is exact, but they are not one computation."""
    (runs / "shapes.py").write_text(BROADCAST)
    for name in ("broadcast", "plain"):
        assert run_program("shapes.py", name, cwd=runs).returncode == 0
    report = json.loads(said("replay", "broadcast", "mul", "plain", "--format", "json"))
    assert report["nearer"] == "other calls"
    assert "does not tell which one is right" in report["verdict"]
    assert report["arguments"].startswith(
        "self has shape [8, 1] in the target, [8] in the golden; Tensor.reshape.0.forward, which "
        "only the target calls, makes it ("
    )
    assert "shapes.py:10 in <module>: each = each.reshape(-1, 1))" in report["arguments"]
    assert "which only the golden calls" in said("replay", "plain", "mul", "broadcast")
    said("replay", "broadcast", "mul", "plain", "--exit-code", code=1)
    assert (
        json.loads(said("replay", "plain", "mul", "plain", "--format", "json"))["arguments"] == ""
    )


def test_replay_of_other_inputs_measures_the_call_alone(said):
    report = json.loads(said("replay", "wrong_t", "softmax", "right_t", "--format", "json"))
    assert report["nearer"] == "both"
    assert "self differs: each side" in said("replay", "wrong_t", "softmax", "right_t")


def test_replay_of_statistics_says_so(said):
    report = json.loads(said("replay", "right", "gelu", "--format", "json", code=2))
    assert report["nearer"] == "unknown" and report["target"]["made_from_statistics"]
    text = said("replay", "right", "gelu", "--exit-code", code=2)  # UNKNOWN has one exit code
    assert "UNKNOWN" in text and "made from its statistics" in text


FUNCTIONS = """
import sys
import torch

class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale, weight):
        ctx.save_for_backward(x, weight)
        ctx.scale = scale
        return x * scale * weight

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        wrong = 1.01 if "wrong" in sys.argv else 1
        return gradient * ctx.scale * weight, None, gradient * ctx.scale * x * wrong

if __name__ == "__main__":
    from msprobe.pytorch import PrecisionDebugger

    torch.manual_seed(0)
    debugger = PrecisionDebugger(dump_path=sys.argv[1], level="L1", task="tensor")
    x, weight = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
    debugger.start()
    Scaled.apply(x, 3, weight).square().sum().backward()
    debugger.stop()
else:
    open("imported", "a").write(__name__ + " ")
"""


def test_replay_of_an_autograd_function(said, runs, forked_python):
    (runs / "functions.py").write_text(FUNCTIONS)
    (runs / "twice.py").write_text(
        FUNCTIONS + "class Other:\n    class Scaled(torch.autograd.Function):\n        pass\n"
    )
    for words in ("function", "wrong_function wrong"):
        subprocess.run([forked_python, "functions.py", *words.split()], cwd=runs, check=True)
    assert not (runs / "imported").exists()
    error = said("replay", "function", "Scaled", code=2)
    assert "code of the program: msprobe replay --import MODULE" in error
    assert not (runs / "imported").exists(), "a dump alone imports nothing"
    for module in ("functions", "functions.py"):
        words = ("replay", "function", "Function.Scaled", "--import", module, "--format", "json")
        report = json.loads(said(*words))
        assert (runs / "imported").read_text().split()[-1] == "functions"
        places = [each["place"] for each in report["target"]["outputs"]]
        assert places == ["forward.output.0", "backward.output.0", "backward.output.1"]
        assert report["nearer"] == "target"
        for each in report["target"]["outputs"]:
            assert each["recorded"]["relative"] < 1e-6 and each["recorded_unlike_again"] == 0
    words = ("replay", "wrong_function", "Scaled", "function", "--import", "functions")
    assert "GOLDEN" in said(*words)
    error = said("replay", "function", "Scaled", "--import", "nosuch", code=2)
    assert "--import: ModuleNotFoundError" in error and "name a module" in error
    error = said("replay", "function", "Scaled", "--import", "json", code=2)
    assert "json defines no torch.autograd.Function called Scaled" in error
    error = said("replay", "function", "Scaled", "--import", "twice", code=2)
    assert "several classes are called Scaled: twice.Other.Scaled, twice.Scaled" in error


def test_replay_lists_candidates_and_takes_lines(said, runs):
    error = said("replay", "right_t", "linear", code=2)
    assert "2 calls" in error and "Functional.linear.0 (" in error
    lines = TRAIN.splitlines()
    line = lines.index("        h = torch.nn.functional.gelu(self.a(x))") + 1
    error = said("replay", "right_t", f"train.py:{line}", code=2)
    assert "Functional.linear.0" in error and "Functional.gelu.0" in error
    line = lines.index("        return self.b(h).softmax(-1)") + 1
    assert "Functional.linear.1" in said("replay", "right_t", f"train.py:{line}", code=2)
    assert 'no "nosuch" among' in said("replay", "right_t", "nosuch", code=2)
    error = said("replay", "right_t", "wrong_t", "gelu.0", code=2)  # as compare takes them
    assert "did you mean: msprobe replay right_t gelu.0 wrong_t" in error
    error = said("replay", "right_t", "Module.b", code=2)
    assert "found the module Module.b.Linear." in error and "does not exist" not in error
    assert "the calls inside of it are: Functional.linear.1" in error


def tensors(entry):
    """Everything with a fingerprint in an entry of dump.json, in order."""
    for value in entry.values() if isinstance(entry, dict) else entry:
        if isinstance(value, dict) and "fp" in value:
            yield value
        elif isinstance(value, (dict, list)):
            yield from tensors(value)


def other_softmax(runs, name):
    """A run whose softmax gives another result, as on another device, and what follows from it."""
    shutil.copytree(runs / "right", runs / name, dirs_exist_ok=True)
    path = runs / name / "step0" / "rank" / "dump.json"
    dump = json.loads(path.read_text())
    names = list(dump["data"])
    call = next(each for each in names if each.endswith(".softmax.0.forward"))
    at = names.index(call)
    before = {each["fp"] for earlier in names[:at] for each in tensors(dump["data"][earlier])}
    for later in names[at:]:
        for each in tensors(dump["data"][later]):
            if each["fp"] not in before and each["Max"] != each["Min"]:
                each.update(Max=each["Max"] * 1.5, Norm=each["Norm"] * 1.25)
                each["fp"] = "A" + each["fp"][1:]
                each.pop("sk", None)
    path.write_text(json.dumps(dump))
    return call


def test_bisect_writes_the_next_configuration(said, runs):
    out = runs / "by_hand"
    call = other_softmax(runs, "device")
    text = said("bisect", "device", "right", "-o", out, code=1)
    assert "RECORD MORE" in text and "train.py:" in text
    config = json.loads((out / "round1" / "config.json").read_text())
    assert config["task"] == "tensor" and config["step"] == [0] and config["rank"] == []
    names = config["tensor"]["list"]
    assert names[0] == call.removesuffix("forward") and "Functional.linear.1." in names
    assert "name a new folder" in said("bisect", "device", "right", "-o", out, code=2)
    assert "NOTHING TO NARROW" in said("bisect", "right", "right", "-o", runs / "none")
    assert not os.path.exists(runs / "none")
    limits = runs / "limits.yaml"
    limits.write_text("rounding:\n  float99: 1\n")
    assert "float99" in said("bisect", "device", "right", "--thresholds", limits, code=2)
    limits.write_text("rounding:\n  float32: 1.0e+12\n")
    # Of two environments, whose bits do not decide.
    shutil.copytree(runs / "device", runs / "elsewhere")
    (path,) = (runs / "elsewhere").rglob("dump.json")
    dump = json.loads(path.read_text())
    dump["provenance"]["threads"] = 99
    path.write_text(json.dumps(dump))
    words = ("bisect", "elsewhere", "right", "-o", runs / "loose")
    assert "RECORD MORE" in said(*words, code=1)
    text = said(*words[:-1], runs / "none", "--thresholds", limits)
    assert "NOTHING TO NARROW" in text


def test_bisect_takes_the_name_of_a_call(said, runs):
    """A call of another place than the first divergence, named as in every verb."""
    other_softmax(runs, "named")
    text = said("bisect", "named", "right", "linear.0", "-o", runs / "of_a_call", code=1)
    assert "Functional.linear.0.forward" in text and "its results agree in both runs" in text
    config = json.loads((runs / "of_a_call" / "round1" / "config.json").read_text())
    assert config["tensor"]["list"][0] == "Functional.linear.0."
    assert "Tensor.softmax.0." not in config["tensor"]["list"]
    text = said("bisect", "named", "right", "softmax", "-o", runs / "of_softmax", code=1)
    assert "softmax.0.forward" in text and "its inputs are bit-equal; " in text
    assert "COMMAND, the command of the target's run with all its arguments (no recording" in text
    text = said("bisect", "named", "right", "nosuch", "-o", runs / "of_none", code=2)
    assert "nosuch" in text and not (runs / "of_none").exists()


def test_bisect_records_until_nothing_narrows(said, runs, forked_python):
    python, train = forked_python, runs / "train.py"
    for words in ("right_0 L0", "wrong_0 L0 wrong"):
        subprocess.run([python, train, *words.split()], cwd=runs, check=True, capture_output=True)
    before = {path: path.stat().st_mtime_ns for path in (runs / "wrong_0").rglob("*")}
    flags = ["-o", runs / "rounds", "--run", f"{python} {train} unused wrong"]
    flags += ["--golden-run", f"{python} {train} unused", "--format", "json"]
    report = json.loads(said("bisect", "wrong_0", "right_0", *flags))
    names = [each["name"] for each in report["rounds"]]
    assert names[0].startswith("Module.") and names[-1].startswith("Tensor.__"), names
    assert [each["narrower"] for each in report["rounds"]][-1] is False
    assert len(names) == 2, "no recorded operation made the value"
    assert not (runs / "unused").exists(), "the configuration is ours"
    assert before == {path: path.stat().st_mtime_ns for path in (runs / "wrong_0").rglob("*")}
    assert "code that is not recorded" in report["rounds"][-1]["next"]


STEPS = """
import os
import sys
import torch
from msprobe.pytorch import PrecisionDebugger
torch.manual_seed(0)
words = sys.argv[1:]
rank = int(os.environ.get("RANK", -1))
if rank >= 0:
    store = "file://" + words[1]
    torch.distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
net = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
debugger = PrecisionDebugger(dump_path=words[0], level="mix")
for step in range(3):
    x = torch.randn(4, 8)
    if "data" in words and step == 1:
        x = x.flip(1)
    if "rate" in words and step == 1:
        optimizer.param_groups[0]["lr"] = 0.2
    debugger.start(net)
    loss = net(x).square().mean()
    if "scale" in words and rank == 1:
        loss = loss * 2
    loss.backward()
    if rank >= 0:
        for parameter in net.parameters():
            torch.distributed.all_reduce(parameter.grad)
    if not ("missed" in words and step == 1):
        optimizer.step()
    optimizer.zero_grad()
    debugger.stop()
    debugger.step()
"""


@pytest.fixture(scope="module")
def steps(runs, forked_python):
    """A folder with recordings of three steps each."""
    (runs / "steps.py").write_text(STEPS)
    for words in ("good", "data data", "missed missed", "rate rate"):
        done = run_program("steps.py", *words.split(), cwd=runs)
        assert done.returncode == 0, done.stderr
    for name, *words in (("good2",), ("scale2", "scale")):
        store = str(runs / f"{name}.store")
        ranks = [
            subprocess.Popen(
                [forked_python, "steps.py", name, store, *words],
                cwd=runs,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2"},
            )
            for rank in range(2)
        ]
        assert [each.wait() for each in ranks] == [0, 0]
    return runs


def test_bisect_points_at_the_data(said, steps):
    text = said("bisect", "data", "good", "-o", steps / "data_rounds")
    assert "AS NARROW AS IT GETS" in text and "step 1, Functional.linear.0.forward" in text
    assert "this is what the program gives to the step" in text
    assert "  next      compare the input data" in text
    assert not (steps / "data_rounds").exists()


def test_bisect_names_what_lies_between_steps(said, steps):
    text = said("bisect", "missed", "good", "-o", steps / "missed_rounds")
    assert "step 1, Optimizer.SGD.step.0.forward" in text
    assert "this call exists only in the golden" in text
    text = said("bisect", "rate", "good", "-o", steps / "rate_rounds")
    assert "step 1, Optimizer.SGD.step.0.forward" in text
    assert "its settings, such as the learning rate" in text


def test_bisect_finds_the_rank(said, steps):
    """The first rank gets the error with a sum over all ranks."""
    text = said("bisect", "scale2", "good2", "-o", steps / "rank_rounds")
    assert "step 0, rank 1, Tensor.__mul__.0." in text
    assert "only the target makes the call" in text


def test_bisect_says_what_is_missing(said, runs):
    other_softmax(runs, "device")
    assert "belong together" in said("bisect", "device", "right", "--run", "true", code=2)
    flags = ("--run", "exit 3", "--golden-run", "true")
    error = said("bisect", "device", "right", "-o", runs / "failed", *flags, code=2)
    assert "the target's run ended with exit code 3" in error
    flags = ("--run", "true", "--golden-run", "true")
    error = said("bisect", "device", "right", "-o", runs / "silent", *flags, code=2)
    assert "a recording of the target's run" in error


@pytest.mark.parametrize("kind", ["", "_t"])
def test_noise_of_repeats(said, kind):
    flags = ("--no-stacks", "-o", "out")
    text = said("compare", f"wrong{kind}", f"right{kind}", "--noise", f"right{kind}", *flags)
    assert "1 repeat of the golden has the same bits" in " ".join(text.replace("|", " ").split())
    text = said("compare", f"right{kind}", f"right{kind}", "--noise", f"wrong{kind}", *flags)
    assert "EQUAL" in text
    # What the repeat differs by is noise.
    text = said("compare", f"wrong{kind}", f"right{kind}", "--noise", f"wrong{kind}", *flags)
    assert "No divergence" in text, text


def test_the_chain_to_the_loss(said):
    text = said("compare", "wrong", "right", "-o", "out", "--explain", "loss")
    chain = text[text.index("THE WAY TO Tensor.sum.0.forward") :]
    assert "Functional.linear.1.forward  (by input)" in chain and "train.py:" in chain
    assert "\x1b" not in text, "no links in a pipe"
    text = said("compare", "right", "right", "-o", "out", "--explain", "loss")
    assert "agrees in both runs" in text
    error = said("compare", "wrong", "right", "-o", "out", "--explain", "nosuch", code=2)
    assert 'no "nosuch"' in error
    error = said("compare", "wrong", "right", "--explain", "loss", "--format", "json", code=2)
    assert "leave --format out" in error


def test_the_proof_of_a_call(said):
    flags = ("-o", "out")
    text = said("compare", "wrong", "right", *flags, "--why", "loss")
    proof = text[text.index("WHY Tensor.sum.0.forward") :]
    assert "  Tensor.sum.0.forward.output.0 is not the golden's: off by " in proof
    assert "a result of the step is made of it, with nothing right between" in proof
    assert "\n    " in proof, "what the values were made of"
    assert "bit for bit" in proof, "the walk ends at what is equal"
    text = said("compare", "right", "right", *flags, "--why", "sum.0")
    assert "output.0 is the golden's, bit for bit" in text
    assert "nothing right between" not in text
    text = said("--lang", "zh", "compare", "wrong", "right", *flags, "--why", "loss")
    assert "该步的一个结果由它得出" in text[text.index("的依据") :]
    error = said("compare", "wrong", "right", *flags, "--why", "nosuch", code=2)
    assert 'no "nosuch"' in error
    error = said("compare", "wrong", "right", "--why", "loss", "--format", "json", code=2)
    assert "leave --format out" in error


def test_exact_needs_no_memory_flag(said, runs):
    """--exact and --tolerant were read only together with --memory."""
    flags = ("--no-stacks", "-o", "out")
    assert "bits decide: as asked for" in said("compare", "wrong", "right", "--exact", *flags)
    assert "bits decide" not in said("compare", "wrong", "right", "--tolerant", *flags)
