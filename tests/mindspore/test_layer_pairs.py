"""Layers, losses and optimizers of MindSpore against those of PyTorch (layer_pairs.py).

A right port is calm at level L0 and mix; a planted mistake is named at its call or its module.

Needs both frameworks: MindSpore in this Python, PyTorch in .venv/.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv/bin"
SCRIPT = Path(__file__).with_name("layer_pairs.py")
UPDATE = r"update of the weights after step \d"
# At L0 no module is the loss: the backward pass of the last layer takes its gradient.
LOSS = r"Cell\.last\.Dense\.backward"
# case: (what is named at L0, at mix)
NAMED = {
    "batch_norm_1d": (r"Cell\.layer\.", r"BatchNorm"),
    "batch_norm_2d": (UPDATE, UPDATE),
    "layer_norm": (r"Cell\.layer\.", r"LayerNorm"),
    "group_norm": (r"Cell\.layer\.", r"group_norm"),
    "instance_norm": (r"Cell\.layer\.", r"group_norm"),
    "rms_norm": (r"Cell\.layer\.", r"Tensor\.__add__"),
    "dropout": (r"Cell\.layer\.", r"Dropout"),
    "embedding": (r"Cell\.layer\.", r"Tensor\.__add__"),
    "attention": (r"Cell\.layer\.", r"__truediv__"),
    "cross_entropy": (LOSS, r"cross_entropy"),
    "nll_loss": (LOSS, r"nll_loss"),
    "mse_loss": (LOSS, r"mse_loss"),
    "l1_loss": (LOSS, r"l1_loss"),
    "smooth_l1_loss": (LOSS, r"smooth_l1_loss"),
    "bce_with_logits": (LOSS, r"full_like"),
    "kl_div": (LOSS, r"kl_div"),
    "sgd": (UPDATE, r"Optimizer\.SGD"),
    "momentum": (UPDATE, r"Optimizer\.Momentum"),
    "adam": (UPDATE, r"Optimizer\.Adam"),
    "adamw": (UPDATE, r"Optimizer\.AdamW"),
    "rmsprop": (UPDATE, r"Optimizer\.RMSProp"),
    "adagrad": (UPDATE, r"Optimizer\.Adagrad"),
}
EVERYDAY = ("batch_norm_2d", "attention")
CAMPAIGN = [case for case in NAMED if case not in EVERYDAY]


def record(framework, python, out, words):
    clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(python), str(SCRIPT), framework, str(out), *words],
        capture_output=True,
        text=True,
        env=clean,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def first_named(binary, out, words, case, level):
    """What the report names first; "": nothing."""
    paths = [out / "mindspore" / words.replace(":", "_"), out / "torch" / f"{case}_{level}"]
    done = subprocess.run(
        [str(part) for part in (binary, "compare", *paths, "-o", out / "report")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = re.search(r"FIRST DIVERGENCE  (.*?)  ", done.stdout)
    return found.group(1) if found else ""


def check(binary, out, cases):
    right = [f"{case}:{level}" for case in cases for level in ("L0", "mix")]
    wrong = [f"{words}:bug" for words in right]
    record("torch", VENV / "python", out / "torch", right)
    record("mindspore", sys.executable, out / "mindspore", right + wrong)
    said = {}
    for words in right + wrong:
        case, level, *bug = words.split(":")
        named = first_named(binary, out, words, case, level)
        expected = NAMED[case][level == "mix"] if bug else r"^$"
        if not re.search(expected, named):
            said[words] = named
    assert said == {}


@pytest.mark.skipif(not (VENV / "msprobe").exists(), reason="no PyTorch: .venv/ was not built")
def test_right_ports_are_calm_and_mistakes_are_named(tmp_path, msprobe_bin):
    check(msprobe_bin, tmp_path, EVERYDAY)


@pytest.mark.campaign
@pytest.mark.skipif(not (VENV / "msprobe").exists(), reason="no PyTorch: .venv/ was not built")
@pytest.mark.parametrize("part", range(4))
def test_all_layers_losses_and_optimizers(tmp_path, msprobe_bin, part):
    check(msprobe_bin, tmp_path, CAMPAIGN[part::4])
