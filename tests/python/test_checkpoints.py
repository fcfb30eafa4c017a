"""Checkpoints as other programs write them: `msprobe compare` and `config_check -c`."""

import argparse
import csv
import json
import os
import struct
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch


def model(seed=0):
    generator = torch.Generator().manual_seed(seed)
    state = {
        f"layers.{i}.weight": torch.randn(16, 8, generator=generator, dtype=torch.float32)
        for i in range(4)
    }
    return state | {"emb": torch.randn(5, 3, generator=generator), "step": torch.arange(4)}


def with_one_change(state):
    other = {name: tensor.clone() for name, tensor in state.items()}
    other["layers.2.weight"][3, 4] += 0.5
    return other


def write_safetensors(path, state):
    """Writes the format without its library: length of the JSON header, header, bytes."""
    names = {"float32": "F32", "int64": "I64", "float16": "F16"}
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, tensor in state.items():
        array = tensor.contiguous().numpy()
        header[name] = {
            "dtype": names[str(array.dtype)],
            "shape": list(array.shape),
            "data_offsets": [len(data), len(data) + array.nbytes],
        }
        data += array.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


@pytest.fixture
def compare(msprobe_bin, tmp_path):
    """compare(target, golden): (standard output, rows of the table by name)."""

    def run(target, golden, code=0):
        out = tmp_path / "out"
        command = [msprobe_bin, "compare", "-tp", target, "-gp", golden, "-o", out]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        if code != 0:
            return done.stderr, {}
        (table,) = out.glob("compare_result_*.csv")
        with open(table, newline="") as lines:
            rows = {row["Bench Name"]: row for row in csv.DictReader(lines)}
        table.unlink()
        return done.stdout, rows

    return run


def save_nested(path, state):
    training = {"model": state, "args": argparse.Namespace(lr=0.1, betas=(0.9, 0.99)), "step": 3}
    torch.save(training | {"rng": np.arange(3), "schedule": slice(1, 2)}, path)


def save_flat(path, state):
    torch.save(state, path)


def save_sharded(folder, state, write, extension):
    folder.mkdir()
    stem = "pytorch_model" if extension == "bin" else "model"
    names, index = list(state), {}
    for number, part in enumerate((names[:2], names[2:]), 1):
        file = f"{stem}-{number:05}-of-00002.{extension}"
        write(folder / file, {name: state[name] for name in part})
        index |= dict.fromkeys(part, file)
    (folder / f"{stem}.{extension}.index.json").write_text(json.dumps({"weight_map": index}))
    (folder / "training_args.bin").write_bytes(b"no tensors in it")


def save_distributed(folder, state):
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dcp.save({"model": state}, checkpoint_id=str(folder), no_dist=True)


LAYOUTS = {
    "nested.pt": save_nested,
    "flat.pt": save_flat,
    "model.safetensors": write_safetensors,
    "bin": lambda path, state: save_sharded(path, state, save_flat, "bin"),
    "safetensors": lambda path, state: save_sharded(path, state, write_safetensors, "safetensors"),
    "distributed": save_distributed,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_holds_the_same_model(compare, tmp_path, layout):
    state = model()
    LAYOUTS[layout](tmp_path / layout, with_one_change(state))
    save_flat(tmp_path / "golden.pt", state)
    text, rows = compare(tmp_path / layout, tmp_path / "golden.pt")
    assert set(rows) == set(state)
    verdicts = {name: row["Verdict"] for name, row in rows.items()}
    assert verdicts.pop("layers.2.weight") == "differs"
    assert set(verdicts.values()) == {"equal"}
    worst = rows["layers.2.weight"]
    value = state["layers.2.weight"][3, 4].item()
    assert worst["Worst Position"] == "[3, 4]" == worst["First Position"]
    assert float(worst["Bench at Worst"]) == value
    assert float(worst["MaxAbsErr"]) == pytest.approx(0.5)
    assert "worst parameter: layers.2.weight (torch.float32, [16, 8])" in text
    assert "at [3, 4]" in text and "(0)" not in text
    assert ("compared without model. in front" in text) == (layout in ("nested.pt", "distributed"))


def save_megatron(folder, tensor_ranks, stages, layers, state):
    """Writes iter_0000100, with layers and matrices sharded over ranks."""
    for rank in range(tensor_ranks):
        for stage in range(stages):
            share = {}
            for name, tensor in state.items():
                parts = name.split(".")
                if parts[0] == "layers":
                    if int(parts[1]) // (layers // stages) != stage:
                        continue
                    parts[1] = str(int(parts[1]) % (layers // stages))
                split = {"linear_qkv": 0, "linear_fc2": 1}.get(parts[-2])
                if split is not None and name.endswith("weight"):
                    tensor = tensor.chunk(tensor_ranks, split)[rank]
                share["decoder." + ".".join(parts)] = tensor.clone()
            sizes = argparse.Namespace(
                pipeline_model_parallel_size=stages, expert_model_parallel_size=1
            )
            name = f"mp_rank_{rank:02}" + (f"_{stage:03}" if stages > 1 else "")
            place = folder / "iter_0000100" / name
            place.mkdir(parents=True)
            torch.save({"model": share, "args": sizes}, place / "model_optim_rng.pt")
    (folder / "latest_checkpointed_iteration.txt").write_text("100")


def megatron_model():
    generator = torch.Generator().manual_seed(1)
    kinds = {"linear_qkv.weight": (12, 4), "linear_fc2.weight": (4, 8), "norm.weight": (4,)}
    return {
        f"layers.{layer}.{kind}": torch.randn(shape, generator=generator)
        for layer in range(4)
        for kind, shape in kinds.items()
    }


def test_megatron_models_of_other_parallel_sizes_are_joined(compare, msprobe_bin, tmp_path):
    state = megatron_model()
    other = {name: tensor.clone() for name, tensor in state.items()}
    other["layers.3.linear_fc2.weight"][1, 7] = 9.0
    save_megatron(tmp_path / "a", 2, 2, 4, other)
    save_megatron(tmp_path / "b", 1, 1, 4, state)
    text, rows = compare(tmp_path / "a", tmp_path / "b")
    assert set(rows) == {"decoder." + name for name in state}
    wrong = [name for name, row in rows.items() if row["Verdict"] != "equal"]
    assert wrong == ["decoder.layers.3.linear_fc2.weight"]
    assert "9 against " in text and " at [1, 7]" in text

    command = [msprobe_bin, "config_check", "-c", tmp_path / "a", tmp_path / "b"]
    result = tmp_path / "similarity" / "ckpt.json"
    done = subprocess.run([*command, "-o", result], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    measured = json.loads(result.read_text())
    assert set(measured) == set(rows)
    for name, tensor in state.items():
        theirs, ours = other[name].double(), tensor.double()
        found = measured["decoder." + name]
        assert list(found) == ["l2", "cos", "numel", "shape"]
        assert found["l2"] == pytest.approx((theirs - ours).norm().item())
        cosine = torch.dot(theirs.flatten(), ours.flatten()) / theirs.norm() / ours.norm()
        assert found["cos"] == pytest.approx(cosine.item())
        assert found["numel"] == tensor.numel() and found["shape"] == list(tensor.shape)
    again = subprocess.run([*command, "-o", result], capture_output=True, text=True)
    assert again.returncode == 2 and "exists already" in again.stderr


def test_what_one_side_lacks_and_other_shapes_are_said(compare, msprobe_bin, tmp_path):
    state = model()
    target = {"emb": state["emb"].half(), "step": torch.arange(5), "new": torch.ones(1)}
    save_flat(tmp_path / "t.pt", target)
    save_flat(
        tmp_path / "g.pt", {"emb": state["emb"], "step": torch.arange(4), "old": torch.ones(2)}
    )
    text, rows = compare(tmp_path / "t.pt", tmp_path / "g.pt")
    assert rows["emb"]["Verdict"] == "noise", "half of a float32 is no error by itself"
    assert rows["step"]["Verdict"] == "differs" and "shape" in rows["step"]["Reason"]
    assert rows["old"]["Match"] == "golden only" and rows["N/A"]["NPU Name"] == "new"
    assert "only in the target (1)\n  new" in text and "only in the golden (1)\n  old" in text
    result = tmp_path / "o.json"
    command = [
        msprobe_bin,
        "config_check",
        "-c",
        tmp_path / "t.pt",
        tmp_path / "g.pt",
        "-o",
        result,
    ]
    assert subprocess.run(command, capture_output=True).returncode == 0
    step = json.loads(result.read_text())["step"]
    assert step == {"l2": None, "cos": None, "numel": [5, 4], "shape": [[5], [4]]}


class Trap:
    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return (os.mkdir, (self.file,))


def test_nothing_in_a_checkpoint_is_executed(compare, tmp_path):
    state = model()
    trap = str(tmp_path / "sprung")
    torch.save({"model": state, "args": Trap(trap)}, tmp_path / "t.pt")
    torch.save({"model": state}, tmp_path / "g.pt")
    _, rows = compare(tmp_path / "t.pt", tmp_path / "g.pt")
    assert {row["Verdict"] for row in rows.values()} == {"equal"} and len(rows) == len(state)
    assert not os.path.exists(trap)


def test_a_flipped_bit_costs_its_own_row(compare, tmp_path):
    state = model()
    save_flat(tmp_path / "g.pt", state)
    content = bytearray((tmp_path / "g.pt").read_bytes())
    at = content.find(bytes(state["layers.1.weight"].numpy().tobytes()))
    content[at + 5] ^= 1
    (tmp_path / "t.pt").write_bytes(content)
    text, rows = compare(tmp_path / "t.pt", tmp_path / "g.pt")
    unknown = [name for name, row in rows.items() if row["Verdict"] == "unknown"]
    assert unknown == ["layers.1.weight"]
    assert "do not have the checksum that was stored with them" in text
    (tmp_path / "t.pt").write_bytes(content[: len(content) // 2])
    error, _ = compare(tmp_path / "t.pt", tmp_path / "g.pt", code=2)
    assert "t.pt" in error and "Traceback" not in error


def test_one_tensor_of_each_side_is_in_memory_at_a_time(msprobe_bin, tmp_path):
    """Resident bytes stay far below the size of the files."""
    state = {f"w{i}": torch.full((1 << 21,), float(i)) for i in range(24)}  # 8 MiB each
    save_flat(tmp_path / "t.pt", {"model": state})
    write_safetensors(tmp_path / "g.safetensors", state)
    # A child's ru_maxrss starts at the memory of its parent, so a small program starts the child.
    measure = "import os, sys; pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)"
    measure += "; _, status, usage = os.wait4(pid, 0); print(status, usage.ru_maxrss)"
    command = [sys.executable, "-I", "-c", measure, msprobe_bin, "compare"]
    command += ["-tp", "t.pt", "-gp", "g.safetensors", "-o", "o"]
    environment = os.environ | {"MSPROBE_THREADS": "2"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    status, kilobytes = map(int, done.stdout.splitlines()[-1].split())
    assert status == 0, done.stderr
    assert kilobytes * 1024 < 80e6, "of 2 x 200 MB"


@pytest.mark.parametrize(
    "words, said",
    [
        (["-d"], "config_check -d packs the environment"),
        (["-d", "train.sh"], "config_check -d packs the environment"),
        (["-c", "a.zip", "b.zip"], "packs of settings (config_check -d) are not compared"),
        (["-vc", "a", "b"], "logs of veRL and slime are not read"),
    ],
)
def test_what_config_check_does_not_do_is_said_in_one_line(msprobe_bin, tmp_path, words, said):
    command = [msprobe_bin, "config_check", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: ") and "\nhint:  " in done.stderr
    assert said in done.stderr
    assert not list(tmp_path.iterdir())


def renamed(state, names):
    """The same tensors, each layer under `names` instead of layers."""
    return {key.replace("layers.", names): tensor for key, tensor in state.items()}


@pytest.mark.parametrize(
    "flags, text",
    [
        (["--rename", "s/^ema\\.stack\\.(\\d)/layers.\\1/"], ""),
        (["-cm", "names.yaml"], "ema.stack: layers\n"),
        (
            ["-cm", "names.yaml"],
            "".join(f"ema.stack.{i}.Dense: layers.{i}.Linear\n" for i in range(4)),
        ),
        (
            ["-dm", "names.yaml"],
            "".join(f"ema.stack.{i}.weight: layers.{i}.weight\n" for i in range(4)),
        ),
        # If a wrapper contains the whole target, a name may be given with the wrapper or without.
        (
            ["-dm", "names.yaml"],
            "".join(f"ema.stack.{i}.weight: model.layers.{i}.weight\n" for i in range(4)),
        ),
    ],
)
@pytest.mark.parametrize("verb", ["compare", "config_check"])
def test_parameters_that_are_called_differently_on_purpose(
    msprobe_bin, tmp_path, verb, flags, text
):
    state = model()
    torch.save(renamed(with_one_change(state), "ema.stack."), tmp_path / "t.pt")
    torch.save({"model": state}, tmp_path / "g.pt")
    (tmp_path / "names.yaml").write_text(text)
    paths = ["-tp", "t.pt", "-gp", "g.pt", "--format", "csv"]
    words = paths if verb == "compare" else ["-c", "t.pt", "g.pt", "-o", "o.json"]
    command = [msprobe_bin, verb, *words, *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    if verb == "config_check":
        found = json.loads((tmp_path / "o.json").read_text())
        assert set(found) == set(state), done.stdout
        different = [name for name, numbers in found.items() if numbers["l2"] > 0]
    else:
        rows = list(csv.DictReader(done.stdout.splitlines()))
        assert len(rows) == len(state), done.stdout
        assert {row["NPU Name"] for row in rows} == set(renamed(state, "ema.stack."))
        different = [row["Bench Name"] for row in rows if row["Verdict"] != "equal"]
    assert len(different) == 1 and different[0].endswith("layers.2.weight")


def test_a_rename_that_fits_nothing_is_said(compare, msprobe_bin, tmp_path):
    save_flat(tmp_path / "a.pt", model())
    save_flat(tmp_path / "b.pt", model())
    command = [msprobe_bin, "compare", "-tp", "a.pt", "-gp", "b.pt", "-o", "o"]
    for flags in (["--rename", "s/zzz/y/"], ["--rename", "s/zzz"], ["-cm", "missing.yaml"]):
        done = subprocess.run([*command, *flags], capture_output=True, text=True, cwd=tmp_path)
        if flags[1] == "s/zzz/y/":
            assert done.returncode == 0 and "changes no name of the target" in done.stdout
        else:
            assert done.returncode == 2 and done.stderr.startswith("error: ")


@pytest.mark.parametrize(
    "words, said",
    [("-am", "-am pairs calls"), ("-lm", "-lm needs classes"), ("--rank=0", "--rank")],
)
def test_what_chooses_calls_of_dumps_is_refused(msprobe_bin, tmp_path, words, said):
    torch.save({"w": torch.ones(2)}, tmp_path / "a.pt")
    command = [msprobe_bin, "compare", "-tp", "a.pt", "-gp", "a.pt", "-o", "o", words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr and "checkpoint" in done.stderr and "\nhint:  " in done.stderr
    assert not (tmp_path / "o").exists()
