"""Programs on several processes (distributed_programs.py): recording changes none of them."""

import json
import multiprocessing
import os

import pytest
import torch
import torch.distributed as dist
from distributed_programs import PROGRAMS, train
from recording import Dump, read_dump, run_ranks, run_together

from msprobe.pytorch import PrecisionDebugger

STEPS = 2
TASKS = {
    "statistics": {"task": "statistics"},
    "md5": {"task": "statistics", "statistics": {"summary_mode": "md5"}},
    "tensor": {"task": "tensor"},
}
# Programs in which every process has the same entries.
ALIKE = {"ddp", "ddp_hook", "fsdp1", "fsdp2", "tensor_parallel", "functional"} & PROGRAMS.keys()


def train_all(rank, ranks, folder, level, task):
    """Trains all programs without a debugger, then with it; returns both results."""
    plain = {name: train(name, rank, ranks, STEPS) for name in PROGRAMS}
    config = {"dump_path": str(folder / "dump"), "level": level, **TASKS[task]}
    path = folder / f"config{rank}.json"
    path.write_text(json.dumps(config))
    debugger = PrecisionDebugger(str(path))
    return plain, {name: train(name, rank, ranks, STEPS, debugger) for name in PROGRAMS}


def first_step(name):
    return list(PROGRAMS).index(name) * STEPS


def check(ranks, folder, level, task):
    """Trains; returns the records of one step of each program, by name and rank."""
    results = run_ranks(ranks, train_all, ranks, folder, level, task)
    for rank, (plain, recorded) in enumerate(results):
        for name in PROGRAMS:
            assert recorded[name] == plain[name], f"{name} on rank {rank}"
    steps = {f"step{step}" for step in range(len(PROGRAMS) * STEPS)}
    assert set(os.listdir(folder / "dump")) == steps
    dumps = {}
    for name in PROGRAMS:
        step = first_step(name)
        folders = set(os.listdir(folder / "dump" / f"step{step}"))
        assert folders == {f"rank{rank}" for rank in range(ranks)}
        dumps[name] = [read_dump(folder / "dump", step, rank) for rank in range(ranks)]
        # What PyTorch prepares in the first step is no call of the program.
        again = [read_dump(folder / "dump", step + 1, rank).names for rank in range(ranks)]
        assert [sorted(dump.names) for dump in dumps[name]] == [sorted(each) for each in again], (
            name
        )
    for name in ALIKE:
        for dump in dumps[name][1:]:
            assert dump.names == dumps[name][0].names, name
    return {name: [dump.data for dump in each] for name, each in dumps.items()}


@pytest.fixture(scope="module")
def mix(tmp_path_factory):
    return check(2, tmp_path_factory.mktemp("mix"), "mix", "statistics")


def test_training_is_the_same_bits_with_modules_and_calls(mix):
    for name, ranks in mix.items():
        for data in ranks:
            kinds = {entry.split(".")[0] for entry in data}
            assert "Module" in kinds or (name == "pipeline_by_hand" and not data), name
            assert len(kinds) > 1, name


@pytest.mark.parametrize(("level", "task"), [("L0", "tensor"), ("L1", "md5")])
def test_training_is_the_same_bits(level, task, tmp_path, capfd):
    check(2, tmp_path, level, task)
    assert "collection is off" not in capfd.readouterr().err


@pytest.mark.campaign
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("level", ["L0", "L1", "mix"])
def test_training_is_the_same_bits_on_four(level, task, tmp_path):
    check(4, tmp_path, level, task)


def calls(data, api):
    return [record for name, record in data.items() if name.startswith(f"Distributed.{api}.")]


def test_a_bucket_is_the_sum_of_all_ranks(mix):
    (left,), (right,) = (calls(data, "all_reduce") for data in mix["ddp_hook"])
    assert left["async"] == "complete at stop"  # DDP waits for the future
    sums = [record["input_args"][0]["Mean"] for record in (left, right)]
    for record in (left, right):
        assert record["output"][0]["Mean"] == pytest.approx(sum(sums))
        assert record["output"] == left["output"]


def test_what_one_stage_sends_the_other_receives(mix):
    first, second = mix["pipeline_by_hand"]
    (activation,), (received,) = calls(first, "send"), calls(second, "irecv")
    (gradient,), (returned,) = calls(second, "isend"), calls(first, "recv")
    for sent, got in ((activation, received), (gradient, returned)):
        fingerprint = sent["input_args"][0]["fp"]
        assert got["output"][0]["fp"] == fingerprint
        assert got["input_args"][0] is None  # content of the buffer before the call
        assert sent["group"]["role"] == "source" and got["group"]["role"] == "receiver"


def test_sharded_gradients_and_parameters(mix):
    """fully_shard: whole parameters in forward, reduced shards as gradients."""
    for data in mix["fsdp2"]:
        forward = data["Module.blocks.0.up.Linear.forward.0"]
        assert forward["parameters"]["weight"]["shape"] == [32, 8]
        gradient = data["Module.blocks.0.up.Linear.parameters_grad.0"]["weight"][0]
        assert gradient["type"] == "torch.distributed.tensor.DTensor"
        assert gradient["shape"] == [16, 8]  # the shape of the local shard
        assert gradient["device_mesh"] == [0, 1]
        assert gradient["placements"] == [{"Shard": {"dim": 0}}]
        assert gradient["global_shape"] == [32, 8]
        assert gradient["Norm"] > 0
        assert calls(data, "reduce_scatter_tensor") or calls(data, "reduce_scatter_single")


def test_activations_that_are_spread(mix):
    for data in mix["tensor_parallel"]:
        norm = data["Module.blocks.0.norm.LayerNorm.forward.0"]["output"][0]
        assert (norm["shape"], norm["placements"]) == ([2, 2, 8], [{"Shard": {"dim": 1}}])
        assert norm["global_shape"] == [2, 4, 8]
        gradient = data["Module.blocks.0.norm.LayerNorm.backward.0"]["output"][0]
        assert gradient["type"] == "torch.distributed.tensor.DTensor" and gradient["Norm"] > 0


def test_fsdp_wrappers_are_no_modules(mix):
    for data in mix["fsdp1"]:
        assert not [name for name in data if "FullyShardedDataParallel" in name]
        assert any("._fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.up." in n for n in data)


def filtered(rank, folder):
    path = folder / f"config{rank}.json"
    path.write_text(json.dumps({"dump_path": str(folder / "dump"), "rank": [1], "level": "L1"}))
    debugger = PrecisionDebugger(str(path))
    train("ddp_hook", rank, 2, STEPS, debugger)
    train("fsdp2", rank, 2, STEPS, debugger)


def test_a_rank_that_is_not_wanted_leaves_nothing_and_nobody_waits(tmp_path):
    run_ranks(2, filtered, tmp_path)
    for step in range(2 * STEPS):
        assert os.listdir(tmp_path / "dump" / f"step{step}") == ["rank1"]


def uneven(rank, folder):
    """Only rank 0 calls start(), and only in the first step; only rank 1 calls step()."""
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1")
    for step in range(2):
        if rank == 0 and step == 0:
            debugger.start()
        train("zero1", rank, 2, 1)
        if rank == 1:
            debugger.step()
    debugger.stop()
    return dist.get_rank()


def test_ranks_that_start_and_step_alone(tmp_path):
    assert run_ranks(2, uneven, tmp_path) == [0, 1]
    assert os.listdir(tmp_path) == ["step0"]
    assert os.listdir(tmp_path / "step0") == ["rank0"]


def before_the_group(rank, folder, everyone, environment):
    """Calls start() before init_process_group, and records calls after it."""
    os.environ.update(environment)
    debugger = PrecisionDebugger(dump_path=str(folder / "dump"), level="L1")
    debugger.start()
    everyone.wait()
    torch.relu(torch.tensor(float(rank + 1)))
    debugger.stop()
    store = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=store, rank=rank, world_size=2)
    debugger.start()
    torch.relu(torch.tensor(float(rank + 1)))
    debugger.step()
    debugger.start()
    torch.relu(torch.tensor(float(rank + 1)))
    debugger.stop()
    everyone.wait()  # a rank that exits early breaks the connection
    return os.getpid()


@pytest.mark.parametrize("launcher", [True, False])
def test_processes_that_have_no_group_yet_write_to_different_folders(tmp_path, launcher):
    everyone = multiprocessing.get_context("fork").Barrier(2)
    environment = [{"RANK": str(rank), "WORLD_SIZE": "2"} if launcher else {} for rank in range(2)]
    pids = run_together(
        [(before_the_group, rank, tmp_path, everyone, environment[rank]) for rank in range(2)]
    )
    folders = set(os.listdir(tmp_path / "dump" / "step0"))
    if launcher:
        assert folders == {"rank0", "rank1"}
    else:  # the first process gets the name without a number
        assert folders in ({"rank", f"proc{pid}"} for pid in pids)
    values = []
    for folder in folders:
        data = Dump(tmp_path / "dump" / "step0" / folder).data
        calls = [data[f"Torch.relu.{n}.forward"]["input_args"][0]["Max"] for n in range(2)]
        assert calls[0] == calls[1]
        values.append(calls[0])
    assert sorted(values) == [1.0, 2.0]
    assert set(os.listdir(tmp_path / "dump" / "step1")) == {"rank0", "rank1"}
