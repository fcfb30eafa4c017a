"""Wrote the files beside it: python write.py (PyTorch 2.13)."""

import argparse
import json
import multiprocessing
import os
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

HERE = Path(__file__).resolve().parent
os.chdir(HERE)  # .metadata holds the path that was asked for


def place(name):
    path = HERE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def numbered(*shape, first=0):
    """first, first + 1, ... in this shape."""
    count = torch.Size(shape).numel()
    return torch.arange(first, first + count, dtype=torch.float32).reshape(shape)


def write_equal_shares():
    """megatron/: two tensor ranks that hold the same share."""
    share = {"decoder.layers.0.mlp.linear_fc2.weight": numbered(2, 3)}
    sizes = argparse.Namespace(pipeline_model_parallel_size=1, expert_model_parallel_size=1)
    for rank in ("mp_rank_00", "mp_rank_01"):
        saved = {"model": share, "args": sizes, "iteration": 3}
        torch.save(saved, place(f"megatron/{rank}/model_optim_rng.pt"))


def write_distributed():
    """dcp/: one process. dcp_shards/: two, each with the rows it holds."""
    dcp.save({"w": torch.arange(4.0), "step": 3}, checkpoint_id="dcp", no_dist=True)
    context = multiprocessing.get_context("spawn")
    store = "/tmp/msprobe_write_checkpoints"
    Path(store).unlink(missing_ok=True)
    ranks = [context.Process(target=write_shard, args=(rank, store)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
        assert rank.exitcode == 0


def write_shard(rank, store):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    mesh = init_device_mesh("cpu", (2,))
    state = {
        "rows": distribute_tensor(numbered(3, 2), mesh, [Shard(0)]),
        "columns": distribute_tensor(numbered(2, 3, first=10), mesh, [Shard(1)]),
        "norm": torch.ones(2, dtype=torch.bfloat16),
    }
    dcp.save({"model": state, "step": 3}, checkpoint_id="dcp_shards")
    torch.distributed.destroy_process_group()


def write_files():
    """One file: a model, what its optimizer holds, and numbers. sharded/: two with an index."""
    model = {
        "layers.0.weight": numbered(2, 3),
        "layers.0.bias": torch.tensor([0.5, float("nan")]),
        "emb": numbered(4, 2).t(),
        "count": torch.tensor(7),
        "none": torch.empty(0, 3),
    }
    moments = {0: {"exp_avg": torch.ones(2, 3), "step": 3}}
    saved = {"model": model, "optimizer": {"state": moments, "lr": 0.1}, "epoch": 2}
    torch.save(saved, place("nested.pt"))

    parts = {"pytorch_model-00001-of-00002.bin": ["layers.0.weight"]}
    parts["pytorch_model-00002-of-00002.bin"] = ["layers.0.bias", "count"]
    for file, names in parts.items():
        torch.save({name: model[name] for name in names}, place(f"sharded/{file}"))
    index = {name: file for file, names in parts.items() for name in names}
    text = json.dumps({"metadata": {"total_size": 40}, "weight_map": index}, indent=1)
    place("sharded/pytorch_model.bin.index.json").write_text(text + "\n")


def write_ranks():
    """megatron_ranks/: two tensor ranks, two pipeline stages of one layer each; older names.

    The last rank has another norm, which tensor ranks should hold alike.
    """
    sizes = argparse.Namespace(pipeline_model_parallel_size=2, expert_model_parallel_size=1)
    for tensor in range(2):
        for stage in range(2):
            first = 100 * stage
            qkv = numbered(4, 2, first=first).chunk(2, 0)[tensor]
            fc2 = numbered(2, 4, first=first + 10).chunk(2, 1)[tensor]
            norm = numbered(2, first=first + 20)
            share = {
                "language_model.encoder.layers.0.self_attention.query_key_value.weight": qkv,
                "language_model.encoder.layers.0.mlp.dense_4h_to_h.weight": fc2,
                "language_model.encoder.layers.0.input_norm.weight": norm,
            }
            share = {name: value.clone() for name, value in share.items()}
            if (tensor, stage) == (1, 1):
                share["language_model.encoder.layers.0.input_norm.weight"][1] += 1
                share["language_model.encoder.layers.0.mlp.dense_4h_to_h.weight"] = (
                    fc2.t().contiguous().t()  # column by column in the file
                )
            saved = {"model": share, "args": sizes, "optimizer": {"exp_avg": torch.ones(1)}}
            name = f"iter_0000007/mp_rank_{tensor:02}_{stage:03}/model_optim_rng.pt"
            torch.save(saved, place(f"megatron_ranks/{name}"))
    place("megatron_ranks/latest_checkpointed_iteration.txt").write_text("7\n")


def write_experts():
    """megatron_experts/: two expert ranks of one stage, and two virtual stages of a layer each."""
    sizes = argparse.Namespace(pipeline_model_parallel_size=1, expert_model_parallel_size=2)
    for expert in range(2):
        saved = {"args": sizes}
        for virtual in range(2):
            first = 100 * virtual
            name = "decoder.layers.0.mlp.experts.local_experts.0.linear_fc1.weight"
            norm = "decoder.layers.0.input_layernorm.weight"
            saved[f"model{virtual}"] = {
                name: numbered(2, 2, first=first + 10 * expert),
                norm: numbered(2, first=first + 50),
            }
        torch.save(saved, place(f"megatron_experts/mp_rank_00_{expert:03}/model_optim_rng.pt"))


if __name__ == "__main__":
    write_equal_shares()
    write_distributed()
    write_files()
    write_ranks()
    write_experts()
