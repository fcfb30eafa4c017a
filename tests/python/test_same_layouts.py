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
    for name in (
        "tensor_parallel",
        "fsdp_over_tp",
        "functional",
        "pipeline",
        "fsdp1",
        "fsdp2",
        "ddp_hook",
    )
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


def parallel(runs, name, rank=0):
    text = (runs[0] / f"step{NAMES.index(name)}" / f"rank{rank}" / "dump.json").read_text()
    return json.loads(text)["provenance"]["parallel"]


def test_the_header_says_how_the_processes_are_arranged(runs, msprobe_bin):
    world = {"ranks": [0, 1], "backend": "gloo"}
    for name in NAMES:
        first = parallel(runs, name)["groups"][0]
        assert {key: first[key] for key in world} == world, name
    assert parallel(runs, "fsdp2")["meshes"] == [{"ranks": [0, 1], "names": []}]
    assert [each["module"] for each in parallel(runs, "fsdp2")["wrappers"]] == [
        "",
        "blocks.0",
        "blocks.1",
    ]
    ddp = {"module": "", "kind": "DistributedDataParallel"}
    assert parallel(runs, "ddp_hook")["wrappers"] == [ddp]
    assert parallel(runs, "tensor_parallel")["wrappers"] == []
    both = parallel(runs, "fsdp_over_tp", 1)
    assert {"ranks": [[0, 1]], "names": ["dp", "tp"]} in both["meshes"]
    assert (both["groups"][0]["name"], both["groups"][0]["description"]) == ("0", "default_pg")
    assert [1] in [each["ranks"] for each in both["groups"] if each["description"] == "mesh_dp"]
    step = runs[0] / f"step{NAMES.index('fsdp2')}" / "rank1"
    shown = subprocess.run([msprobe_bin, "show", step], capture_output=True, text=True).stdout
    assert "meshes: [0, 1]" in shown and "wrappers: 3 FSDPModule" in shown


def test_what_a_shard_is_a_part_of(runs):
    """Rows of the weight: tensor parallelism has cut them first."""
    data = Dump(runs[0] / f"step{NAMES.index('fsdp_over_tp')}" / "rank0").data
    gradient = data["Module.blocks.0.up.Linear.parameters_grad.0"]["weight"][0]
    assert (gradient["shape"], gradient["global_shape"]) == ([16, 8], [32, 8])
    assert gradient["placements"] == [
        {"Shard": {"dim": 0, "split_factor": 2}},
        {"Shard": {"dim": 0}},
    ]


def test_what_fsdp_copies_is_written(runs):
    """Weights that were gathered are no unwritten memory."""
    for rank in range(2):
        data = Dump(runs[0] / f"step{NAMES.index('fsdp2')}" / f"rank{rank}").data
        given = [
            value
            for name, record in data.items()
            if name.startswith(("Module.", "Functional.linear"))
            for value in (*record.get("input_args", ()), *record.get("parameters", {}).values())
            if isinstance(value, dict)
        ]
        assert given and not [value for value in given if "unwritten" in value]
