"""Real trainings on several processes, compared with the same training on one.

`record.py` trains them and checks that they are as right or as wrong as they should be; `score.py`
reads the comparison. The rest of the programs is the campaign.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.tensor.parallel")

FOLDER = Path(__file__).parent
MSPROBE = Path(sys.executable).parent / "msprobe"
RIGHT = [
    "context_gpt.cp2",
    "ddp_classifier.ddp2",
    "dtensor_tp.sp2",
    "experts.masked2",
    "fsdp_llama.fsdp2",
    "gpt_tp.tp2",
    "lora_fsdp.fsdp4",
    "mesh_gpt-blocked_qkv.tp2",
    "pipe_by_hand.pp2",
]
# With the call that is named, and the ranks that are said to be wrong.
WRONG = {
    "ddp_classifier.ddp4.other_head": ("Functional.linear.5.forward", [2]),
    "fsdp_llama.fsdp2.rotary_from_one": ("Torch.arange.0.forward", [1]),
    "gan_ddp.ddp2.average_of_one_step": ("Tensor.lerp_.0.forward", None),
    "gpt_tp.tp2.proj_not_reduced": ("Functional.linear.5.forward", None),
    "gpt_tp.tp4.fc1_scaled": ("Tensor.__mul__.0.forward", [3]),
    "pipe_by_hand.pp4.layer_of_other_seed": (
        "Functional.multi_head_attention_forward.2.forward",
        [2],
    ),
}
# Both sides with several ranks: right ones, and the first wrong call.
RIGHT_PAIRS = [
    ("dtensor_tp.sp2", "dtensor_tp.tp2"),
    ("fsdp_llama.fsdp4", "fsdp_llama.fsdp2"),
    ("gpt_tp.tp2", "gpt_tp.tp4"),
    ("mlp_grid.dp2tp2", "mlp_grid.dp4"),
    ("mlp_grid.tp4", "mlp_grid.dp4"),
    ("pipe_by_hand.pp4", "pipe_by_hand.pp2"),
]
WRONG_PAIRS = {
    ("gpt_tp.tp4.fc1_scaled", "gpt_tp.tp2"): ("Tensor.__mul__.0.forward", [3]),
    ("mlp_grid.dp2.rows_reversed", "mlp_grid.dp4"): ("Functional.embedding.0.forward", None),
    ("mlp_grid.tp2.hidden_times", "mlp_grid.dp4"): ("Tensor.__mul__.0.forward", [1]),
}


def record(out, names, task="statistics"):
    wanted = {name for each in names for name in (each, f"{each.split('.')[0]}.one")}
    only = "^(" + "|".join(name.replace(".", r"\.") for name in sorted(wanted)) + ")$"
    command = [sys.executable, FOLDER / "record.py", out, "--fork", "--open", "--only", only]
    command += ["--task", task]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    out = tmp_path_factory.mktemp("layouts") / "open"
    pairs = [name for pair in (*RIGHT_PAIRS, *WRONG_PAIRS) for name in pair]
    record(out, [*RIGHT, *WRONG, *pairs])
    return out


def compare(recordings, name, golden=None, more=()):
    golden = recordings / (golden or f"{name.split('.')[0]}.one")
    command = [MSPROBE, "compare", recordings / name, golden]
    command += ["-o", recordings.parent / "out", "--format", "json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_layout_is_calm(recordings, name):
    document = compare(recordings, name)
    assert document["first"] is None
    for step in document["steps"].values():
        (pair,) = step["ranks"].values()
        assert pair["first_divergence"] is None
        assert pair["not_observed"][0].endswith("are sums over ranks")


@pytest.mark.parametrize("name", WRONG)
def test_a_bug_is_named_with_its_rank(recordings, name):
    document = compare(recordings, name)
    (pair,) = document["steps"]["0"]["ranks"].values()
    call, ranks = WRONG[name]
    assert pair["first_divergence"]["target_name"] == call
    assert pair["first_divergence"].get("ranks") == ranks


def test_elements_tell_which_shard_is_wrong(tmp_path):
    """Each rank has other rows of the batch: statistics do not tell whose are the wrong ones."""
    name = "ddp_classifier.ddp4.other_noise"
    out = tmp_path / "open"
    record(out, [name], task="tensor")
    (pair,) = compare(out, name)["steps"]["0"]["ranks"].values()
    assert pair["first_divergence"]["target_name"] == "Functional.linear.0.forward"
    assert pair["first_divergence"]["ranks"] == [3]
    assert "rank 3 is wrong" in pair["first_divergence"]["why"]
    without = compare(out, name, more=["--no-tensor-files"])
    (pair,) = without["steps"]["0"]["ranks"].values()
    assert "ranks" not in pair["first_divergence"]


@pytest.mark.parametrize(("name", "golden"), RIGHT_PAIRS)
def test_two_right_layouts_are_calm(recordings, name, golden):
    document = compare(recordings, name, golden)
    assert document["first"] is None
    for step in document["steps"].values():
        (pair,) = step["ranks"].values()
        assert pair["first_divergence"] is None
        assert pair["not_observed"][0].startswith("target: ")
        assert any(note.startswith("golden: ") for note in pair["not_observed"])


@pytest.mark.parametrize(("name", "golden"), WRONG_PAIRS)
def test_a_bug_in_one_of_two_layouts_is_named(recordings, name, golden):
    document = compare(recordings, name, golden)
    (pair,) = document["steps"]["0"]["ranks"].values()
    call, ranks = WRONG_PAIRS[name, golden]
    assert pair["first_divergence"]["target_name"] == call
    assert pair["first_divergence"].get("ranks") == ranks


@pytest.mark.parametrize(
    ("name", "golden", "parts"),
    [
        ("fsdp_llama.fsdp2.rotary_from_one", "fsdp_llama.one", 2),
        ("gpt_tp.tp4.fc1_scaled", "gpt_tp.tp2", 3),
        ("mlp_grid.tp4", "mlp_grid.dp4", 5),
        ("pipe_by_hand.pp4", "pipe_by_hand.pp2", 1),
    ],
)
def test_parts_say_what_one_process_says(recordings, tmp_path, name, golden, parts):
    for i in range(1, parts + 1):
        command = [MSPROBE, "compare", recordings / name, recordings / golden, "-o", tmp_path]
        subprocess.run([*command, "--part", f"{i}/{parts}"], check=True, capture_output=True)
    command = [MSPROBE, "merge_result", "-i", tmp_path, "-o", tmp_path, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == compare(recordings, name, golden)


def test_runs_of_one_layout_are_compared_rank_by_rank(recordings):
    document = compare(recordings, "gpt_tp.tp4.fc1_scaled", "gpt_tp.tp4")
    assert sorted(document["steps"]["0"]["ranks"]) == ["0", "1", "2", "3"]


def test_every_proof_holds(recordings):
    """What relates joined values is checked by code that does not prove."""
    alone = [(name, f"{name.split('.')[0]}.one") for name in (*RIGHT, *WRONG)]
    for name, golden in (*alone, *RIGHT_PAIRS, *WRONG_PAIRS):
        golden = recordings / golden
        command = [MSPROBE, "compare", recordings / name / "step0", golden / "step0", "--why", "."]
        command += ["-o", recordings.parent / "out"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert "the proof of" not in done.stdout + done.stderr


@pytest.mark.campaign
def test_all_programs(tmp_path):
    """Every right layout is calm, and nine of ten bugs are named at the call or beside it."""
    for command in (
        ["record.py", tmp_path / "all", "--fork"],
        ["score.py", MSPROBE, tmp_path / "all"],
    ):
        done = subprocess.run(
            [sys.executable, FOLDER / command[0], *command[1:]], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    right, bugs = done.stdout.splitlines()[-3:-1]
    assert "BLAMED" not in right, done.stdout
    named = int(bugs.split(" named")[0].split()[-1])
    assert named >= 0.9 * int(bugs.split()[0]), done.stdout
