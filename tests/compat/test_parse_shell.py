"""`msprobe -f pytorch parse` of msprobe 1.0, by its guide: the shell and its commands."""

import csv
import subprocess

import numpy as np
import pytest
from ascend_dumps import stored, write_dump


@pytest.fixture
def shell(msprobe_bin, tmp_path):
    def run(*lines, code=0):
        done = subprocess.run(
            [msprobe_bin, "-f", "pytorch", "parse"], input="\n".join(lines), text=True,
            capture_output=True, cwd=tmp_path, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    return run


def test_R_D_S1_the_shell_has_the_commands(shell, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.save(tmp_path / "a.npy", x)
    np.save(tmp_path / "b.npy", x + np.eye(3, 4, dtype=np.float32))
    text = shell("pt -n a.npy", "cn -m a.npy -g b.npy -p 5 -al 0.01 -rl 0.01 -s", "quit")
    assert "[Shape: (3, 4)] [Dtype: float32] [Max: 11.0] [Min: 0.0]" in text
    assert "NumCnt:12 AllClose:False" in text and "ErrorPer:25.00%" in text
    assert (tmp_path / "a.npy.txt").exists()


def test_R_D_S2_two_dumps_of_operators_are_compared(shell, tmp_path):
    x = np.ones((2, 3), np.float16)
    for side, run in (("a", 1697617551412398), ("b", 1697617559999999)):
        (tmp_path / side).mkdir()
        write_dump(tmp_path / side / f"Add.add.1.2.{run}", [(x, "ND", None)], [(x, "ND", None)])
    shell("vc -m a -g b -out t -cmp_path /usr/local/Ascend/msaccucmp.py")
    (path,) = tmp_path.glob("t/batch_compare_*.csv")
    header, *rows = csv.reader(path.open(newline=""))
    assert header[:7] == ["NPU File Name", "Bench File Name", "Mean", "Bench Mean",
                          "Md5 Consistency", "Max Abs Error", "Max Relative Error"]  # fmt: skip
    assert [row[2:7] for row in rows] == [["1.0", "1.0", "True", "0.0", "0.0"]] * 2


# The pairs of `dc -f` in the guide.
@pytest.mark.parametrize(("source", "targets"), [
    ("FRACTAL_NZ", "NCHW NHWC ND"), ("HWCN", "FRACTAL_Z NCHW NHWC"), ("NC1HWC0", "HWCN NCHW NHWC"),
    ("NCHW", "FRACTAL_Z NHWC"), ("NHWC", "FRACTAL_Z HWCN NCHW"), ("NDC1HWC0", "NCDHW ND"),
])  # fmt: skip
def test_R_D_S3_layouts_are_converted(source, targets, shell, tmp_path):
    x = np.arange(2 * 3 * 4 * 5, dtype=np.float32).reshape(2, 3, 4, 5)
    x = x.reshape(2, 3, 2, 2, 5) if source == "NDC1HWC0" else x
    kept = stored(x, source, 16)
    original = x.shape if kept.ndim > x.ndim else None
    write_dump(tmp_path / "op", [(kept, source, original)], [])
    for target in targets.split():
        shell(f"dc -n op -f {target} -out {target}")
        same = source == "FRACTAL_NZ" or source == "NDC1HWC0"  # the last two dimensions; NCDHW
        expected = x if same else stored(x, target, 16)
        assert (np.load(tmp_path / target / "op.input.0.npy") == expected).all()


def test_R_D_S4_a_folder_is_converted(shell, tmp_path):
    (tmp_path / "d").mkdir()
    write_dump(
        tmp_path / "d" / "Add.add.1.2.1697617551412398", [(np.ones(3, "int8"), "ND", None)], []
    )
    shell("cad -m d -out o")
    assert (tmp_path / "o/Add.add/1697617551412398").is_dir()


def test_R_D_S5_other_programs_run_only_with_allow_run(shell, msprobe_bin, tmp_path):
    shell("run touch made", "touch made", code=2)
    assert not (tmp_path / "made").exists()
    subprocess.run([msprobe_bin, "-f", "pytorch", "parse", "--allow-run"], input="run touch made",
                   text=True, cwd=tmp_path, check=True)  # fmt: skip
    assert (tmp_path / "made").exists()
