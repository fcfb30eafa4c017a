"""Real programs: a run that is repeated is equal, training is not changed, a planted bug is named.

`make test-real` runs this in an environment that has the libraries (requirements.txt).
"""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest
import sentences

import faults

HERE = pathlib.Path(__file__).parent
MSPROBE = os.environ.get("MSPROBE_BIN", "msprobe")
PROGRAMS = sorted(path.stem for path in (HERE / "programs").glob("*.py"))

# Changes that no operation is to blame for: (program, options or settings of the target).
HARMLESS = {
    "threads": ("hf_llama", {"threads": 2}),
    "threads, autocast": ("mixed_precision", {"threads": 2}),
    "oneDNN": ("timm_vit", {"onednn": False}),
    "oneDNN, autocast": ("timm_vit", {"onednn": False, "both": {"bf16": True}}),
    "autocast": ("mixed_precision", {"options": {"bf16": False}}),
    "Trainer in bfloat16": ("hf_llama", {"options": {"bf16": True}}),
    "channels last": ("timm_vit", {"options": {"layout": "channels_last"}}),
    "compiled": ("compiled", {"options": {"compile": False}}),
    "eager attention": ("hf_llama", {"options": {"attention": "eager"}}),
    "checkpointing": ("hf_llama", {"options": {"checkpointing": True}}),
    "sharded in bfloat16": ("fsdp2", {"options": {"bf16": True}}),
    "foreach optimizer": ("mixed_precision", {"options": {"foreach": False}}),
}


class Server:
    """A process that has imported a program and runs jobs (runner.py)."""

    def __init__(self, program, log):
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-W", "ignore", HERE / "runner.py", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, folder="", task="statistics", level="mix", **job):
        return self.ask({"folder": str(folder), "task": task, "level": level, **job})

    def place(self, fault):
        return self.ask({"place": fault})["place"]

    def ask(self, job):
        print(json.dumps(job), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        assert answer, f"{self.log}: {self.log.read_text()[-2000:]}"
        answer = json.loads(answer)
        assert not answer["error"], answer["error"]
        return answer


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    servers, folder = {}, tmp_path_factory.mktemp("logs")

    def get(program):
        # Tests come in the order of programs: one server at a time is kept.
        if program not in servers:
            close()
            servers[program] = Server(program, folder / f"{program}.log")
        return servers[program]

    def close():
        for each in servers.values():
            each.process.stdin.close()
            each.process.wait()
        servers.clear()

    yield get
    close()


@pytest.fixture(scope="session")
def golden(server, tmp_path_factory):
    """Records a program as it should be, once for each set of settings."""
    kept = {}

    def get(program, **settings):
        key = program + json.dumps(settings, sort_keys=True)
        if key not in kept:
            folder = tmp_path_factory.mktemp(program) / "golden"
            kept[key] = folder, server(program).run(folder, **settings)
        return kept[key]

    return get


def compare(target, golden, out):
    """Each step and rank: (name, the report as JSON)."""
    command = [MSPROBE, "compare", target, golden, "-o", out, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    if "steps" not in answer and "ranks" not in answer:
        return [("", answer)]
    return [
        (f"step{step}/rank{rank}", report)
        for step, ranks in answer.get("steps", {"": answer}).items()
        for rank, report in ranks["ranks"].items()
    ]


def text_of(target, golden, out):
    command = [MSPROBE, "compare", target, golden, "-o", out]
    return subprocess.run(command, capture_output=True, text=True).stdout


RECORDED = [("statistics", "L0"), ("statistics", "L1"), ("statistics", "mix"), ("tensor", "mix")]


@pytest.mark.parametrize("task,level", RECORDED)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_repeated_run_is_equal(program, task, level, server, golden, tmp_path):
    unobserved = server(program).run(fill=17)
    folder, first = golden(program, task=task, level=level)
    second = server(program).run(tmp_path / "again", task=task, level=level, fill=201)
    for observed in (first, second):
        assert observed["weights"] == unobserved["weights"], "training changed"
        assert observed["losses"] == unobserved["losses"], "training changed"
    for name, report in compare(tmp_path / "again", folder, tmp_path / "out"):
        assert report["verdict"] == "equal", (name, report["first_divergence"], report["rows"])
        sentences.check(report, tmp_path / "again", folder)


@pytest.mark.parametrize("change", HARMLESS)
def test_a_harmless_change_is_blamed_on_nothing(change, server, golden, tmp_path):
    program, settings = HARMLESS[change]
    settings = dict(settings)
    both = settings.pop("both", {})
    folder, _ = golden(program, **({"options": both} if both else {}))
    settings["options"] = {**both, **settings.get("options", {})}
    server(program).run(tmp_path / "changed", **settings)
    for name, report in compare(tmp_path / "changed", folder, tmp_path / "out"):
        blamed = report["first_divergence"] is not None and "rounding_of_step" not in report
        assert not blamed, (name, headline(report))
        sentences.check(report, tmp_path / "changed", folder)


def headline(report):
    first = report["first_divergence"] or {}
    return "\n".join(str(first.get(key, "")) for key in ("target_name", "source_line", "why"))


@pytest.mark.parametrize(
    "task,level", [("statistics", "L1"), ("statistics", "mix"), ("tensor", "mix")]
)
@pytest.mark.parametrize("fault", sorted(faults.FAULTS, key=lambda f: faults.FAULTS[f].program))
def test_a_bug_is_named(fault, task, level, server, golden, tmp_path):
    bug = faults.FAULTS[fault]
    same = {"task": task, "level": level} | ({"options": bug.options} if bug.options else {})
    folder, _ = golden(bug.program, **same)
    server(bug.program).run(tmp_path / "wrong", fault=fault, **same)
    reports = compare(tmp_path / "wrong", folder, tmp_path / "out")
    wrong = [(name, report) for name, report in reports if report["first_divergence"]]
    assert wrong, "no divergence was found"
    name, report = wrong[0]
    said = headline(report)
    expected = bug.named or re.escape(server(bug.program).place(fault))
    assert re.search(expected, said), f"{name}: expected {expected}\n{said}"
    sentences.check(report, tmp_path / "wrong", folder)
    if name:  # of one step alone the answer is the same
        one = compare(tmp_path / "wrong" / name, folder / name, tmp_path / "one")[0][1]
        assert headline(one) == said, f"{name} alone: {headline(one)}\n{said}"
