"""Checkpoints sharded over ranks: every name and value is the same as in the whole model."""

import argparse
import csv
import subprocess

import pytest
import torch
from recording import run_ranks

LAYERS, EXPERTS = 8, 4


def whole_model():
    """The state that one process would save."""
    generator = torch.Generator().manual_seed(3)

    def values(*shape):
        return torch.randn(shape, generator=generator)

    state = {"embedding.word_embeddings.weight": values(12, 4)}
    for layer in range(LAYERS):
        state[f"decoder.layers.{layer}.self_attention.linear_qkv.weight"] = values(12, 4)
        state[f"decoder.layers.{layer}.input_layernorm.weight"] = values(4)
        for expert in range(EXPERTS):
            place = f"decoder.layers.{layer}.mlp.experts.local_experts.{expert}"
            state[f"{place}.linear_fc2.weight"] = values(4, 6)
    return state


def share(state, tensor, stage, virtual, expert, sizes):
    """The shard of one rank for one (virtual) stage; all indices from 0."""
    tensor_ranks, stages, virtual_stages, expert_ranks = sizes
    layers = LAYERS // (stages * virtual_stages)
    experts = EXPERTS // expert_ranks
    first = (virtual * stages + stage) * layers
    found = {}
    for name, value in state.items():
        parts = name.split(".")
        if parts[1] == "layers":
            if not first <= int(parts[2]) < first + layers:
                continue
            parts[2] = str(int(parts[2]) - first)
        elif first:
            continue
        if "local_experts" in parts:
            at = parts.index("local_experts") + 1
            if int(parts[at]) // experts != expert:
                continue
            parts[at] = str(int(parts[at]) % experts)
        if "linear_qkv" in name or "word_embeddings" in name:
            value = value.chunk(tensor_ranks, 0)[tensor]
        elif "linear_fc2" in name:
            value = value.chunk(tensor_ranks, 1)[tensor]
        found[".".join(parts)] = value.clone()
    return found


def save_megatron(folder, state, sizes):
    """Writes iter_0000007. `sizes`: tensor, pipeline, virtual pipeline and expert parallel."""
    tensor_ranks, stages, virtual_stages, expert_ranks = sizes
    arguments = argparse.Namespace(
        tensor_model_parallel_size=tensor_ranks,
        pipeline_model_parallel_size=stages,
        expert_model_parallel_size=expert_ranks,
        num_experts=EXPERTS,
    )
    for tensor in range(tensor_ranks):
        for stage in range(stages):
            for expert in range(expert_ranks):
                saved = {"args": arguments, "iteration": 7}
                for virtual in range(virtual_stages):
                    key = "model" if virtual_stages == 1 else f"model{virtual}"
                    saved[key] = share(state, tensor, stage, virtual, expert, sizes)
                name = f"mp_rank_{tensor:02}"
                name += f"_{stage:03}" if stages > 1 else ""
                name += f"_{expert:03}" if expert_ranks > 1 else ""
                place = folder / "iter_0000007" / name
                place.mkdir(parents=True)
                torch.save(saved, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("7")


def compared(msprobe_bin, tmp_path, target):
    command = [msprobe_bin, "compare", "-tp", target, "-gp", "whole.pt", "--format", "csv"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return list(csv.DictReader(done.stdout.splitlines()))


def differing(rows):
    """Name of each parameter that differs -> index of its worst element."""
    return {r["Bench Name"]: r["Worst Position"] for r in rows if r["Verdict"] != "equal"}


def spoil(state, name):
    """The same model with one element changed."""
    other = {key: value.clone() for key, value in state.items()}
    other[name].view(-1)[-1] += 1
    return other


SIZES = {
    "virtual stages": (1, 2, 2, 1),
    "expert ranks": (1, 1, 1, 2),
    "tensor, pipeline and expert ranks": (2, 2, 1, 2),
    "all of them": (2, 2, 2, 4),
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_shares_of_megatron_are_the_whole_model(msprobe_bin, tmp_path, sizes):
    state = whole_model()
    wrong = "decoder.layers.6.mlp.experts.local_experts.3.linear_fc2.weight"
    save_megatron(tmp_path / "shared", spoil(state, wrong), sizes)
    torch.save(state, tmp_path / "whole.pt")
    rows = compared(msprobe_bin, tmp_path, "shared")
    assert {row["Bench Name"] for row in rows} == set(state), "and nothing else"
    different = {
        row["Bench Name"]: row["Worst Position"] for row in rows if row["Verdict"] != "equal"
    }
    assert different == {wrong: "[3, 5]"}


@pytest.mark.parametrize("name", ["input_layernorm", "self_attention.linear_qkv"])
def test_a_parameter_that_ranks_should_hold_alike_and_do_not(msprobe_bin, tmp_path, name):
    state = whole_model()
    save_megatron(tmp_path / "shared", state, (2, 1, 1, 2))
    torch.save(state, tmp_path / "whole.pt")
    command = [msprobe_bin, "compare", "-tp", "shared", "-gp", "whole.pt"]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "worst parameter" not in said and "not the same on all ranks" not in said
    file = tmp_path / "shared/iter_0000007/mp_rank_01_001/model_optim_rng.pt"
    saved = torch.load(file, weights_only=False)
    key = f"decoder.layers.5.{name}.weight"
    saved["model"][key].view(-1)[0] = 9
    torch.save(saved, file)
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    said = " ".join(said.split())
    assert f"1 parameter of the target is not the same on all ranks that hold it: {key}" in said
    assert "mp_rank_01_001 against mp_rank_0" in said and "9 against " in said


def save_fully_sharded(rank, folder, state):
    """Each process writes its shards; their sizes differ, because the number of rows is odd."""
    import torch.distributed.checkpoint as dcp
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))
    model.load_state_dict(state)
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9)
    model(torch.ones(2, 6)).sum().backward()
    optimizer.step()
    dcp.save({"model": model.state_dict(), "step": 3}, checkpoint_id=str(folder))


@pytest.mark.parametrize("ranks", [2, 3])
def test_shards_that_real_processes_wrote_are_the_whole_model(msprobe_bin, tmp_path, ranks):
    from torch import nn

    torch.manual_seed(5)
    state = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3)).state_dict()
    run_ranks(ranks, save_fully_sharded, tmp_path / "shards", spoil(state, "2.weight"))
    assert len(list((tmp_path / "shards").glob("*.distcp"))) == ranks
    torch.save(state, tmp_path / "whole.pt")
    rows = compared(msprobe_bin, tmp_path, "shards")
    assert {row["Bench Name"] for row in rows} == set(state)
    different = {
        row["Bench Name"]: row["Worst Position"] for row in rows if row["Verdict"] != "equal"
    }
    assert different == {"2.weight": "[2, 6]"}
