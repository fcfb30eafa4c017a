"""The gradient tool of msprobe 1.0: its guide, with recordings of its own and of ours."""

import csv
import json
import shutil
import subprocess

import pytest
import torch
from recording import run_forked

from msprobe import DumpError, FileError, GradComparator, UsageError
from msprobe.core.grad_probe import pictures
from msprobe.pytorch import PrecisionDebugger
from recorded import recorded

TARGET, GOLDEN = recorded("gradients/target"), recorded("gradients/golden")


def table(path):
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.reader(file))


@pytest.fixture(scope="module")
def data(root):
    return root / "tests" / "data" / "gradients"


def train(folder, level="L1", planted=None):
    """Six steps; `planted`: a parameter whose gradient changes from step 3 on."""
    folder.mkdir()
    config = folder / "config.json"
    section = {"grad_level": level, "param_list": [], "bounds": [-1, 0, 1]}
    task = {"task": "grad_probe", "dump_path": str(folder / "dump"), "rank": [], "step": []}
    config.write_text(json.dumps({**task, "grad_probe": section}))
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 40), torch.nn.Tanh(), torch.nn.Linear(40, 30), torch.nn.Linear(30, 2)
    )
    debugger = PrecisionDebugger(str(config))
    debugger.monitor(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(16, 6)
    for step in range(6):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        if planted and step >= 3:
            dict(model.named_parameters())[planted].grad[:20].neg_()
        optimizer.step()


def run(msprobe_bin, *words):
    done = subprocess.run([msprobe_bin, "grad_compare", *words], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_R_D_G1_gradients_are_collected(tmp_path):
    run_forked(train, tmp_path / "run")
    files = sorted(file.name for file in (tmp_path / "run/dump/rank0").iterdir())
    assert files == sorted(
        f"grad_{k}" for i in range(6) for k in (f"directions_{i}.npz", f"summary_{i}.csv")
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_R_D_G2_similarities_are_those_of_the_older_tool(data, rank, msprobe_bin, tmp_path):
    code, _, said = run(msprobe_bin, TARGET, GOLDEN, "-o", tmp_path)
    assert (code, said) == (0, "")
    name = f"rank{rank}/similarities.csv"
    assert table(tmp_path / name) == table(data / "expected" / name)


@pytest.mark.parametrize("level", ["L1", "L2"])
@pytest.mark.parametrize("planted", ["0.weight", "2.weight", "2.bias", "3.weight"])
def test_R_D_G3_the_step_is_found(level, planted, msprobe_bin, tmp_path):
    run_forked(train, tmp_path / "good", level)
    run_forked(train, tmp_path / "bad", level, planted)
    paths = [tmp_path / "bad/dump", tmp_path / "good/dump", "-o", tmp_path / "out"]
    code, said, _ = run(msprobe_bin, *paths, "--format", "json", "--exit-code")
    assert code == 1
    found = json.loads(said)
    assert found["verdict"] == "falls" and found["first_difference"] == 3
    fall = found["first_fall"]
    assert (fall["step"], fall["parameter"], fall["before"]) == (3, planted, 1.0)
    assert fall["others"] == [] and fall["similarity"] < 0.97
    code, said, _ = run(msprobe_bin, *paths)
    assert code == 0
    assert f"FALLS in step 3\n  first fall  step 3, {planted} of rank 0: similarity 1 -> " in said


def test_two_runs_of_one_program_are_the_same(msprobe_bin, tmp_path):
    for name in ("a", "b"):
        run_forked(train, tmp_path / name)
    paths = [tmp_path / "a/dump", tmp_path / "b/dump", "-o", tmp_path / "out"]
    code, said, _ = run(msprobe_bin, *paths, "--exit-code")
    assert code == 0 and said.startswith("msprobe grad_compare: SAME directions\n")
    rows = table(tmp_path / "out/rank0/similarities.csv")
    assert {cell for row in rows[1:] for cell in row[1:]} == {"1.0"}


def test_R_D_G4_the_python_call(data, tmp_path, capfd):
    names = {}
    exec("from msprobe import *", names)
    names["GradComparator"].compare_distributed(str(TARGET), str(GOLDEN), str(tmp_path / "out"))
    assert "first fall  step 3, b.weight" in capfd.readouterr().out
    from msprobe.core.grad_probe.grad_compare import GradComparator as OfItsModule

    assert OfItsModule is names["GradComparator"] is GradComparator
    OfItsModule.compare(TARGET / "rank0", GOLDEN / "rank0", tmp_path / "one")
    expected = table(data / "expected/rank0/similarities.csv")
    assert table(tmp_path / "one/similarities.csv") == expected


def test_errors_of_the_python_call(data, tmp_path):
    with pytest.raises(FileError, match="does not exist"):
        GradComparator.compare_distributed(data / "nothing", GOLDEN, tmp_path)
    with pytest.raises(DumpError, match="expected directions of gradients"):
        GradComparator.compare(TARGET / "rank0/step0", GOLDEN / "rank0", tmp_path)
    with pytest.raises((UsageError, TypeError)):
        GradComparator.compare_distributed(TARGET, 3, tmp_path)


def test_level_L0_has_no_directions(msprobe_bin, tmp_path):
    run_forked(train, tmp_path / "run", "L0")
    paths = [tmp_path / "run/dump"] * 2
    code, _, said = run(msprobe_bin, *paths, "-o", tmp_path / "out")
    assert code == 2 and "found tables only" in said and 'grad_level "L1"' in said


def test_R_D_G5_pictures_of_the_older_tools(msprobe_bin, tmp_path):
    out = tmp_path / "out"
    code, said, error = run(msprobe_bin, TARGET, GOLDEN, "-o", out, "--png")
    assert code == 0, error
    for rank in (0, 1):
        folder = out / f"rank{rank}/similarities_picture"
        names = {row[0] for row in table(out / f"rank{rank}/similarities.csv")[1:]}
        assert {path.name for path in folder.iterdir()} == {f"{n}_similarities.png" for n in names}
        assert f"written: {folder}\n" in said
        for path in folder.iterdir():
            assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000
    GradComparator.compare_distributed(TARGET, GOLDEN, tmp_path / "again", pictures=True)
    assert (tmp_path / "again/rank1/similarities_picture/summary_similarities.png").exists()


def test_a_name_of_a_parameter_is_no_path(tmp_path):
    (tmp_path / "similarities.csv").write_text("step,0\n../../a/$b$,1.0\n" + "x" * 500 + ",\n")
    assert pictures.main([str(tmp_path / "similarities.csv")]) == "2"
    names = [path.name for path in (tmp_path / "similarities_picture").iterdir()]
    assert sorted(names) == [".._.._a_$b$_similarities.png", "x" * 200 + "_similarities.png"]


def test_R_D_G5_plots_are_one_page(msprobe_bin, tmp_path):
    page = tmp_path / "page.html"
    code, said, _ = run(msprobe_bin, TARGET, GOLDEN, "-o", tmp_path / "out", "--html", page)
    text = page.read_text(encoding="utf-8")
    assert code == 0 and f"written: {page}" in said
    # The plots are drawn from packed data (tests/report_page/test_trends.py): parameters and ranks.
    assert 'id="trends"' in text and text.count('data-type="f32"') >= 2
    assert "step 3" in text and "b.weight" in text
    assert "connect-src" not in text and "default-src 'none'" in text and "<link" not in text


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--lowest-first", "2"], "expected a number from 0 to 1"),
        (["--largest-drop", "0.1x"], "expected a number from 0 to 1"),
        (["--largest-drop", "nan"], "expected a number from 0 to 1"),
        (["--format", "csv"], "csv"),
    ],
)
def test_wrong_flags_are_refused(flags, message, msprobe_bin, tmp_path):
    words = [TARGET, GOLDEN, "-o", tmp_path / "out", *flags]
    code, said, error = run(msprobe_bin, *words)
    assert (code, said) == (2, "") and message in error
    assert not (tmp_path / "out").exists()


def test_the_rule_can_be_changed(msprobe_bin, tmp_path):
    words = [TARGET, GOLDEN, "-o", tmp_path, "--exit-code"]
    code, said, _ = run(msprobe_bin, *words, "--largest-drop", "0.5", "--lowest-first", "0.5")
    assert code == 0
    assert said.startswith("msprobe grad_compare: SIMILAR, nothing falls\n")
    assert "from step 3 on, b.weight of rank 0: 17 of 42 elements point elsewhere" in said


def test_a_damaged_file_does_not_hide_the_others(data, msprobe_bin, tmp_path):
    shutil.copytree(TARGET, tmp_path / "target")
    cut = tmp_path / "target/rank0/step1/c.bias.npy"
    cut.write_bytes(cut.read_bytes()[:-1])
    code, said, _ = run(msprobe_bin, tmp_path / "target", GOLDEN, "-o", tmp_path / "out")
    assert code == 2
    assert f"  error       {cut}:128: expected 3 bytes of data" in said
    assert "FALLS in step 3" in said
    good = table(data / "expected/rank0/similarities.csv")
    rows = table(tmp_path / "out/rank0/similarities.csv")
    assert rows[:7] == good[:7] and rows[7] == ["c.bias", "1.0", "", "1.0", "1.0", "1.0"]
    with pytest.raises(DumpError, match="some gradients could not be compared"):
        GradComparator.compare_distributed(tmp_path / "target", GOLDEN, tmp_path / "out")
