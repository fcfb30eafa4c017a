"""Wrote the files beside it: python write.py (PyTorch 2.13)."""

import argparse
from pathlib import Path

import torch
import torch.distributed.checkpoint as dcp

HERE = Path(__file__).resolve().parent
share = {"decoder.layers.0.mlp.linear_fc2.weight": torch.arange(6.0).reshape(2, 3)}
sizes = argparse.Namespace(pipeline_model_parallel_size=1, expert_model_parallel_size=1)
for rank in ("mp_rank_00", "mp_rank_01"):
    folder = HERE / "megatron" / rank
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({"model": share, "args": sizes, "iteration": 3}, folder / "model_optim_rng.pt")
dcp.save({"w": torch.arange(4.0), "step": 3}, checkpoint_id=str(HERE / "dcp"), no_dist=True)
