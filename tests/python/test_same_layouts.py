"""Two recordings of one program on several processes: the comparison finds them equal.

What differs between two such runs is what nobody has computed: memory that a collective still
writes, memory that nobody has written.
"""

import json
import subprocess

import pytest
from distributed_programs import PROGRAMS, train
from recording import Dump, run_ranks

from msprobe.pytorch import PrecisionDebugger

NAMES = [
    name
    for name in ("tensor_parallel", "functional", "pipeline", "fsdp1", "fsdp2", "ddp_hook")
    if name in PROGRAMS
]
# Level and task of a recording.
RECORDINGS = [("mix", "statistics"), ("L0", "tensor")]


def record(rank, folder, level, task):
    config = {"dump_path": str(folder / "dump"), "level": level, "task": task}
    path = folder / f"config{rank}.json"
    path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(path))
    for name in NAMES:
        train(name, rank, 2, 1, debugger)


@pytest.fixture(scope="module", params=RECORDINGS, ids="-".join)
def runs(request, tmp_path_factory):
    folders = [tmp_path_factory.mktemp(side) for side in ("target", "golden")]
    for folder in folders:
        run_ranks(2, record, folder, *request.param)
    return [folder / "dump" for folder in folders]


@pytest.mark.skipif(not NAMES, reason="this PyTorch has none of the programs")
def test_two_runs_of_one_program_are_equal(runs, msprobe_bin, tmp_path):
    target, golden = runs
    run = subprocess.run(
        [msprobe_bin, "compare", target, golden, "-o", tmp_path, "--exit-code"],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"{len(NAMES)} steps, 2 ranks" in run.stdout


def test_every_value_has_numbers(runs):
    """What was in flight when it was recorded, too."""
    for step, name in enumerate(NAMES):
        for rank in range(2):
            text = (runs[0] / f"step{step}" / f"rank{rank}" / "dump.json").read_text()
            assert "not waited for" not in text, name


def test_functional_collectives_of_a_program(runs):
    """In forward and in backward, with the results that arrived."""
    for rank in range(2):
        data = Dump(runs[0] / f"step{NAMES.index('functional')}" / f"rank{rank}").data
        if not any(name.startswith("Tensor.") for name in data):
            pytest.skip("level L0 has no calls")
        prefix = "Distributed.functional_"
        calls = {name: record for name, record in data.items() if name.startswith(prefix)}
        apis = {name.split(".")[1].removeprefix("functional_") for name in calls}
        assert apis >= {"all_gather_into_tensor", "reduce_scatter_tensor", "all_reduce"}
        for name, call in calls.items():
            assert (call["async"], call["group"]["rank"]) == ("waited for", rank), name
            assert all(value["Norm"] is not None for value in call["output"]), name


def test_the_shapes_of_a_pipeline_are_no_calls_of_the_step(runs):
    """The first step runs each stage on memory that nobody has written."""
    for rank in range(2):
        data = Dump(runs[0] / f"step{NAMES.index('pipeline')}" / f"rank{rank}").data
        batches = [name for name in data if "LayerNorm.forward" in name]
        assert len(batches) == 2, batches  # one for each micro-batch
