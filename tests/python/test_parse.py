"""msprobe parse: the shell, its commands and exit codes, and the layouts of Ascend devices."""

import csv
import itertools
import pickle
import subprocess

import numpy as np
import pytest
from ascend_dumps import stored, to_nchw, write_dump

IMAGES = ("NCHW", "NHWC", "HWCN", "NC1HWC0", "FRACTAL_Z")
PADDED = ("NC1HWC0", "FRACTAL_Z", "FRACTAL_NZ", "NDC1HWC0")


@pytest.fixture
def parse(msprobe_bin, tmp_path):
    def run(*words, lines=None, code=0):
        done = subprocess.run(
            [msprobe_bin, "-f", "pytorch", "parse", *map(str, words)], cwd=tmp_path, text=True,
            input=None if lines is None else "\n".join(lines),
            stdin=subprocess.DEVNULL if lines is None else None, capture_output=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done

    return run


def numbers(shape, dtype):
    rng = np.random.default_rng(sum(shape) + len(dtype))
    if dtype.startswith("complex"):
        return rng.standard_normal(shape) + 1j * rng.standard_normal(shape)
    return rng.integers(-100, 100, shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["int8", "float16", "float32", "int64", "complex128"])
@pytest.mark.parametrize(("source", "target"), [*itertools.permutations(IMAGES, 2)])
def test_layouts_of_images(source, target, dtype, parse, tmp_path):
    x = numbers((17, 5, 2, 3), dtype)
    c0 = 32 if dtype == "int8" else 16
    expected = stored(x, target, c0)
    original = x.shape if source in PADDED else None
    write_dump(
        tmp_path / "Op.x.1.2.1697617551412398", [], [(stored(x, source, c0), source, original)]
    )
    if source in PADDED and target not in PADDED:  # -s is the shape of the result
        more = ["-s", ",".join(map(str, expected.shape))]
    else:
        more = []
    parse("dc", "-n", "Op.x.1.2.1697617551412398", "-f", target, "-out", "o", *more)
    result = np.load(tmp_path / "o" / "Op.x.1.2.1697617551412398.output.0.npy")
    assert result.dtype == dtype and result.shape == expected.shape
    assert (result == expected).all()


@pytest.mark.parametrize("layout", ["ND", "NCHW", "NHWC"])
@pytest.mark.parametrize("shape", [(33, 20), (2, 3, 4, 40), (16, 16), (1, 1)])
def test_layouts_of_matrices(layout, shape, parse, tmp_path):
    if len(shape) != 4 and layout != "ND":
        shape = (1, 2, *shape)
    x = numbers(shape, "float32")
    write_dump(tmp_path / "a", [(stored(x, "FRACTAL_NZ", 16), "FRACTAL_NZ", x.shape)], [])
    parse("dc", "-n", "a", "-f", layout, "-out", "o")
    assert (np.load(tmp_path / "o" / "a.input.0.npy") == x).all()
    np.save(tmp_path / "x.npy", x)  # and back; a .npy file does not say its layout
    parse("dc", "-n", "x.npy", "-l", layout, "-f", "FRACTAL_NZ", "-out", "o")
    assert (np.load(tmp_path / "o" / "x.npy") == stored(x, "FRACTAL_NZ", 16)).all()


@pytest.mark.parametrize("layout", ["NCDHW", "ND"])
def test_layouts_of_volumes(layout, parse, tmp_path):
    x = numbers((2, 19, 3, 4, 5), "float16")
    kept = stored(x, "NDC1HWC0", 16)
    write_dump(tmp_path / "a", [(kept, "NDC1HWC0", x.shape)], [])
    parse("dc", "-n", "a", "-f", layout, "-out", "o")
    assert (np.load(tmp_path / "o" / "a.input.0.npy") == x).all()
    np.save(tmp_path / "x.npy", x)
    parse("dc", "-n", "x.npy", "-l", "NCDHW", "-f", "NDC1HWC0", "-out", "o")
    assert (np.load(tmp_path / "o" / "x.npy") == kept).all()


def test_the_file_states_c0_and_the_original_layout(parse, tmp_path):
    x = numbers((2, 5, 3, 4), "float32")
    nhwc = x.transpose(0, 2, 3, 1)
    write_dump(tmp_path / "a", [], [(stored(x, "NC1HWC0", 8), "NC1HWC0", nhwc.shape, "NHWC")])
    parse("dc", "-n", "a", "-f", "NHWC", "-out", "o")
    assert (np.load(tmp_path / "o" / "a.output.0.npy") == nhwc).all()
    parse("-d", "a", "-t", "npy", "-o", "o26")  # as stored, in the form of msprobe 26
    assert np.load(tmp_path / "o26" / "a.output.0.npy").shape == (2, 1, 3, 4, 8)
    assert (to_nchw(nhwc, "NHWC") == x).all()


def test_what_is_ambiguous_is_refused_in_one_line(parse, tmp_path):
    x = numbers((2, 3, 2, 3), "float32")
    write_dump(tmp_path / "a", [(stored(x, "FRACTAL_Z", 16), "FRACTAL_Z", x.shape)], [])
    write_dump(tmp_path / "b", [(stored(x, "NC1HWC0", 16), "NC1HWC0", None)], [])
    first = parse("dc", "-n", "a", "-f", "NCHW", "-out", "o", code=2)
    assert "can be NCHW [2, 3, 2, 3] and NHWC [2, 3, 2, 3]; -s" in first.stderr
    assert first.stderr.count("\n") == 1
    second = parse("dc", "-n", "b", "-f", "NCHW", "-out", "o", code=2)
    assert "is padded: the shape without padding is needed; -s" in second.stderr
    third = parse("dc", "-n", "b", "-f", "NCHW", "-s", "2,40,2,3", "-out", "o", code=2)
    assert "expected a shape that fits NC1HWC0 [2, 1, 2, 3, 16]" in third.stderr
    assert not list(tmp_path.glob("o/*"))
    for text in ("2,x", "", "-1"):
        bad = parse("dc", "-n", "b", "-f", "NCHW", f"-s={text}", "-out", "o", code=2)
        assert bad.stderr
    assert "one of ND, NCHW" in parse("dc", "-n", "b", "-f", "NCHW8", code=2).stderr


def table(tmp_path):
    (path,) = (tmp_path / "t").glob("batch_compare_*.csv")
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_two_folders_of_dumps_are_compared(parse, tmp_path):
    x = numbers((4, 6), "float32")
    y = x.copy()
    y[2, 3] += 2
    for side, value, run in (("npu", y, 1697617551412398), ("golden", x, 1597617551412398)):
        (tmp_path / side).mkdir()
        write_dump(tmp_path / side / f"Add.a.{run % 7}.2.{run}", [(x, "ND", None)],
                   [(value, "ND", None)])  # fmt: skip
        np.save(tmp_path / side / "Mul.b.output.0.npy", x)
    np.save(tmp_path / "npu" / "Sub.c.output.0.npy", x)
    done = parse("vc", "-m", "npu", "-g", "golden", "-out", "t")
    assert "3 pairs: 2 equal, 1 differ, 0 not compared; 1 tensors without partner" in done.stdout
    rows = {row["NPU File Name"]: row for row in table(tmp_path)}
    assert [*next(iter(rows.values()))] == [
        "NPU File Name", "Bench File Name", "Mean", "Bench Mean", "Md5 Consistency",
        "Max Abs Error", "Max Relative Error", "Message",
    ]  # fmt: skip
    (wrong,) = [row for row in rows.values() if row["Max Abs Error"] == "2.0"]
    assert wrong["NPU File Name"] == "Add.a.0.2.1697617551412398.output.0"
    assert wrong["Bench File Name"].startswith("Add.a.") and wrong["Md5 Consistency"] == "False"
    assert float(wrong["Mean"]) == pytest.approx(float(y.mean()))
    assert float(wrong["Max Relative Error"]) == pytest.approx(2 / abs(float(x[2, 3])))
    missing = rows["Sub.c.output.0.npy"]
    assert missing["Bench File Name"] == "N/A" and missing["Message"] == "only in the target folder"
    parse("--exit-code", "vc", "-m", "npu", "-g", "golden", "-out", "t2", code=1)
    parse("--exit-code", "vc", "-m", "golden", "-g", "golden", "-out", "t3")
    parse("vc", "-m", "npu", "-g", "nowhere", code=2)


def test_exit_codes_of_a_script(parse, tmp_path):
    x = numbers((3, 4), "float32")
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b c.npy", x + 1)
    good = ["# a comment", "", "pt -n a.npy", "cn -m a.npy -g 'b c.npy' -p 2", "quit", "wrong"]
    done = parse(lines=good)
    assert "AllClose:False" in done.stdout and "Parse >>>" not in done.stdout
    parse("--exit-code", lines=good, code=1)
    parse("--exit-code", lines=["cn -m a.npy -g a.npy"])
    failed = parse(
        lines=["pt -n none.npy", "pt -n 'a.npy", "pt", "cn -m a.npy", "pt -n a.npy"], code=2
    )
    assert failed.stderr.count("error:") == 4 and "[Shape: (3, 4)]" in failed.stdout
    assert "Parse >>>" not in failed.stderr
    parse(lines=[])


def test_pt_prints_elements(parse, tmp_path):
    x = np.arange(200, dtype=np.float32).reshape(10, 20)
    np.save(tmp_path / "a.npy", x[::2].T)
    text = parse("pt", "-n", "a.npy", "-s").stdout.splitlines()
    assert [float(word) for line in text[:13] for word in line.split()] == x[::2].T.ravel().tolist()
    np.save(tmp_path / "b.npy", x)
    text = parse("pt", "-n", "b.npy").stdout.splitlines()
    assert len(text[0].split()) == 8 and text[15].split()[-1] == "127.0"
    assert text[16] == "... of 200 elements"
    assert text[17].startswith("[Shape: (10, 20)] [Dtype: float32] [Max: 199.0] [Min: 0.0]")
    assert (np.loadtxt(tmp_path / "a.npy.txt") == x[::2].T.ravel()).all()
    assert not (tmp_path / "b.npy.txt").exists()


@pytest.mark.parametrize("line", ["run touch made", "touch made", "run 'touch' made; touch made"])
def test_other_programs_run_only_where_it_was_allowed(line, parse, tmp_path):
    done = parse(lines=[line], code=2)
    assert "--allow-run" in done.stderr and not (tmp_path / "made").exists()
    if line.startswith("run touch"):
        parse(*line.split(), code=2)
    assert not (tmp_path / "made").exists()
    parse("--allow-run", lines=[line])
    assert (tmp_path / "made").exists()
    parse("--allow-run", lines=["run exit 3"], code=2)


def test_a_program_does_not_read_the_commands(parse, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    assert "[Shape: (3,)]" in parse("--allow-run", lines=["run cat", "pt -n x.npy"]).stdout


def test_a_folder_of_dumps_becomes_folders_of_arrays(parse, tmp_path):
    (tmp_path / "d" / "0").mkdir(parents=True)
    x = numbers((3, 4), "float32")
    for time in (1697617551412398, 1697617551412399):
        write_dump(tmp_path / "d" / "0" / f"Add.a.1.2.{time}", [(x, "ND", None)], [])
    (tmp_path / "d" / "notes.txt").write_text("notes")
    done = parse("cad", "-m", "d", "-out", "o", "-asc", "/usr/local/msaccucmp.py")
    assert "not used" in done.stderr and "notes.txt holds no tensors" in done.stderr
    assert sorted(
        str(path.relative_to(tmp_path / "o")) for path in tmp_path.glob("o/**/*.npy")
    ) == [
        f"0/Add.a/{time}/Add.a.1.2.{time}.input.0.npy"
        for time in (1697617551412398, 1697617551412399)
    ]


def test_hostile_files_are_refused(parse, tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, ("made", "w"))

    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    (tmp_path / "short").write_bytes(b"\x09\0\0\0\0\0\0\0\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x01x")
    for name in ("evil.pt", "short", "none"):
        assert name in parse("pt", "-n", name, code=2).stderr
    assert not (tmp_path / "made").exists()
    (tmp_path / "d").mkdir()
    write_dump(
        tmp_path / "d" / "\x1b[2J.x.1.2.1697617551412398", [(np.ones(2, "int8"), "ND", None)], []
    )
    done = parse("dc", "-n", "d", "-out", "o")
    assert "\x1b" not in done.stdout + done.stderr


def test_msprobe_parse_shows_lines_of_pkl_files_as_before(parse, tmp_path):
    (tmp_path / "d.pkl").write_text(
        '["Torch_add_0_forward_input.0", 0, [], "torch.float32", [2], [1.0, 0.5, 0.75]]\n'
    )
    whole = parse("d.pkl", "Torch_add").stdout
    assert "Torch_add_0_forward_input.0" in whole
    assert parse("pk", "-f", "d.pkl", "-n", "Torch_add").stdout == whole
    assert parse(lines=["pk -f d.pkl -n Torch_add"]).stdout == whole
    assert "a command, or a .pkl file" in parse("d.pkl", code=2).stderr
