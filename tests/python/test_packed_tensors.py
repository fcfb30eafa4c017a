"""The value "packed" of tensor_files: a step's tensors in one file."""

import hashlib
import json
import os
import random
import signal
import subprocess
import time

import numpy as np
import pytest
import torch
from recording import read_dump, run_forked
from test_equal_tensors import PROGRAMS, contents

import msprobe

KILLS = 50


def train(folder, name, keys):
    """Trains two steps; returns a digest of the weights."""
    from msprobe.pytorch import PrecisionDebugger

    build, loss = PROGRAMS[name]
    model, batch = build(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    debugger = None
    if keys is not None:
        (folder / "config.json").write_text(json.dumps({"task": "tensor", "level": "mix", **keys}))
        debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    for _ in range(2):
        if debugger:
            debugger.start(model)
        loss(model, batch).backward()
        optimizer.step()
        if debugger:
            debugger.stop()
            debugger.step()
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    return hashlib.sha256(weights).hexdigest()


def msprobe_says(binary, *words):
    done = subprocess.run([binary, *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("budget", ["0", "64"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_pack_holds_what_the_files_hold(name, budget, tmp_path, msprobe_bin, monkeypatch):
    monkeypatch.setenv("MSPROBE_TENSOR_BUDGET_MB", budget)
    packed, separate = tmp_path / "packed", tmp_path / "separate"
    packed.mkdir()
    separate.mkdir()
    trained = run_forked(train, tmp_path, name, None)
    assert run_forked(train, packed, name, {"tensor_files": "packed"}) == trained
    assert run_forked(train, separate, name, {"tensor_files": "separate"}) == trained
    for step in (0, 1):
        folder = packed / f"out/step{step}/rank/dump_tensor_data"
        assert [file.name for file in folder.iterdir()] == ["tensors.pack"]
    files = read_dump(separate / "out").tensors()
    pack = msprobe.load(packed / "out/step0/rank")
    assert set(pack) == set(files) and len(pack) == len(files)
    for file, tensor in files.items():
        again = torch.from_dlpack(pack[file])
        assert again.dtype == tensor.dtype and again.shape == tensor.shape
        assert torch.equal(again, tensor) or tensor.isnan().any()
    ours, theirs = packed / "out/step0", separate / "out/step0"
    told = msprobe_says(
        msprobe_bin, "compare", "-tp", ours, "-gp", theirs, "-o", tmp_path / "result"
    )
    assert "no tensor data" not in told
    whole = msprobe_says(
        msprobe_bin,
        *("compare", "-tp", ours / "rank/dump_tensor_data"),
        *("-gp", theirs / "rank/dump_tensor_data", "-o", tmp_path / "folders"),
    )
    assert whole
    assert msprobe_says(msprobe_bin, "unpack", packed / "out").count("written") == 2
    unpacked = contents(packed / "out")
    del unpacked["tensors.pack"]
    assert unpacked == contents(separate / "out")


def test_arrays_share_the_memory_of_the_file(tmp_path):
    run_forked(train, tmp_path, "lstm", {"tensor_files": "packed"})
    pack = msprobe.load(tmp_path / "out/step0/rank/dump_tensor_data/tensors.pack")
    name = next(iter(pack))
    array = np.asarray(pack[name])
    assert array.ctypes.data == np.asarray(pack[name]).ctypes.data
    assert not array.flags.writeable
    assert name in pack and "other" not in pack
    with pytest.raises(KeyError, match="other"):
        pack["other"]
    values = array.copy()
    del pack
    assert np.array_equal(array, values, equal_nan=True)
    with pytest.raises(msprobe.FileError, match=r"tensors\.pack"):
        msprobe.load(tmp_path)


def test_a_later_dump_of_separate_files_replaces_the_pack(tmp_path):
    run_forked(train, tmp_path, "lstm", {"tensor_files": "packed"})
    run_forked(train, tmp_path, "lstm", {})
    assert not list(tmp_path.rglob("*.pack*"))


def record_for_ever(folder, pipe):
    from msprobe.pytorch import PrecisionDebugger

    os.environ["MSPROBE_TENSOR_BUDGET_MB"] = "0"
    (folder / "config.json").write_text('{"task": "tensor", "tensor_files": "packed"}')
    debugger = PrecisionDebugger(str(folder / "config.json"), dump_path=str(folder / "out"))
    debugger.start()
    x = torch.ones(3, 50)
    big = torch.zeros(200, 500)
    for n in range(100_000):
        y = torch.add(x if n % 40 else big, n)
        os.write(pipe, f"{n} {y.flatten()[0].item()}\n".encode())


def kill_at_a_random_moment(folder, dice):
    """The last call that returned before the kill, and what it computed."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            record_for_ever(folder, writer)
        finally:
            os._exit(9)
    os.close(writer)
    heard = os.read(reader, 1 << 16)
    deadline = time.monotonic() + dice.uniform(0, 0.25)
    while time.monotonic() < deadline:
        heard += os.read(reader, 1 << 16)
    os.kill(child, signal.SIGKILL)
    while got := os.read(reader, 1 << 16):
        heard += got
    os.close(reader)
    os.waitpid(child, 0)
    return [line.split() for line in heard.decode().splitlines()]


def test_a_kill_loses_no_tensor_of_a_call_that_returned(tmp_path, msprobe_bin):
    dice = random.Random(20)
    torch.set_num_threads(1)  # no threads, which a fork would lose
    for kill in range(KILLS):
        folder = tmp_path / str(kill)
        folder.mkdir()
        calls = kill_at_a_random_moment(folder, dice)
        rank = folder / "out/step0/rank"

        def check(calls, rank):
            pack = msprobe.load(rank)
            for n, value in calls:
                array = np.asarray(pack[f"Torch.add.{n}.forward.output.0.pt"])
                assert array.flat[0] == float(value)
            return {name: np.asarray(pack[name]).tobytes() for name in pack}

        before = check(calls, rank)
        if kill % 10 == 0:
            told = msprobe_says(msprobe_bin, "recover", rank)
            assert "closed: " in told and "tensors.pack\n" in told
            assert "tensor files are named but not" not in told
            assert [file.name for file in rank.glob("dump_tensor_data/*")] == ["tensors.pack"]
            assert check(calls, rank) == before
            assert "closed: " not in msprobe_says(msprobe_bin, "recover", rank)


def test_parse_and_show_find_tensors_in_a_pack_by_their_file_names(tmp_path, msprobe_bin):
    run_forked(train, tmp_path, "lstm", {"tensor_files": "packed"})
    folder = tmp_path / "out/step0/rank/dump_tensor_data"
    names = list(msprobe.load(folder / "tensors.pack"))
    file = folder / names[0]
    lines = f"pt -n {file}\ncn -m {file} -g {file}\nvc -m {folder} -g {folder}\n"
    done = subprocess.run(
        [msprobe_bin, "parse"], input=lines, capture_output=True, text=True, cwd=tmp_path
    )
    assert not done.stderr, done.stderr
    assert f"{len(names)} pairs: {len(names)} equal, 0 differ, 0 not compared" in done.stdout
    assert msprobe_says(msprobe_bin, "show", file).startswith(str(file))
    missing = subprocess.run(
        [msprobe_bin, "show", folder / "no.pt"], capture_output=True, text=True
    )
    assert missing.returncode == 2 and "does not exist" in missing.stderr
