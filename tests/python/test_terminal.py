"""`msprobe compare` on a terminal: one screen, where no name is cut, and no progress remains."""

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from pathlib import Path

import pytest

ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def on_a_terminal(command, columns, rows, folder):
    """What the command writes to a terminal of that size, and its exit code."""
    main, end = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    environment |= {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    child = subprocess.Popen(
        list(map(str, command)), stdin=end, stdout=end, stderr=end, cwd=folder, env=environment
    )
    os.close(end)
    written = b""
    while True:
        try:
            piece = os.read(main, 1 << 16)
        except OSError:  # the last process has closed its end
            break
        if not piece:
            break
        written += piece
    os.close(main)
    return written.decode(), child.wait()


def screen(written, columns):
    """The lines that remain visible; long lines are wrapped as a terminal wraps them."""
    lines = [""]
    for line in ESCAPES.sub(lambda m: "\0" if m.group() == "\x1b[K" else "", written).split("\n"):
        shown = line.rstrip("\r").split("\r")[-1].split("\0")[-1]
        lines += [shown[i : i + columns] for i in range(0, len(shown), columns)] or [""]
    while lines and not lines[-1]:
        lines.pop()
    return lines[1:]


def tensor(factor, shape):
    return {
        "type": "torch.Tensor",
        "dtype": "torch.float32",
        "shape": shape,
        "Max": 3.0 * factor,
        "Min": -1.0,
        "Mean": 0.5 * factor,
        "Norm": 7.0 * factor,
        "requires_grad": True,
    }


def write_dump(folder, calls, factor, depth=5):
    """Modules with names as in deep models; wrong by `factor` from the third call on.

    `depth` is the number of folders above the script.
    """
    folder.mkdir(parents=True)
    path = "module.decoder.layers.{}.mixture_of_experts.local_experts.{}.linear_fc1"
    names = [f"Module.{path.format(i // 8, i % 8)}.ColumnParallelLinear" for i in range(calls)]
    names += ["Module.модель.层." + "x" * 150 + ".Linear"]
    data, stacks = {}, {}
    for i, name in enumerate(names):
        wrong = factor if i > 2 else 1.0
        entry = f"{name}.forward.0"
        data[entry] = {
            "input_args": [tensor(wrong if i > 3 else 1.0, [4096, 4096])],
            "input_kwargs": {},
            "output": [tensor(wrong, [4096, 4096])],
        }
        line = "    hidden = self.linear_fc1(" + "hidden, " * 30 + ")"
        stacks[str(i)] = [
            [entry],
            [f"File /home/user/{'deep/' * depth}train.py, line {i}, in forward, \n{line}"],
        ]
    top = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
    (folder / "dump.json").write_text(json.dumps(top | {"data": data}))
    (folder / "stack.json").write_text(json.dumps(stacks))


@pytest.mark.parametrize("columns, rows", [(80, 24), (100, 30), (60, 20)])
@pytest.mark.parametrize("factor", [1.0, 2.0], ids=["equal", "wrong"])
def test_the_summary_fits_on_one_screen(msprobe_bin, tmp_path, columns, rows, factor):
    deep = tmp_path / ("run_" + "y" * 100) / "step0"
    write_dump(deep / "target", 300, factor)
    write_dump(deep / "golden", 300, 1.0)
    command = [msprobe_bin, "compare", "-tp", deep / "target", "-gp", deep / "golden"]
    written, code = on_a_terminal([*command, "-o", "out"], columns, rows, tmp_path)
    assert code == 0, written
    shown = screen(written, columns)
    text = "\n".join(shown)
    # One line is left for the prompt. On the smallest screen the finding itself needs more lines.
    if columns > 60 or factor == 1.0:
        assert len(shown) < rows, text
    assert ("FIRST DIVERGENCE" in text) == (factor != 1.0)
    if factor != 1.0:
        # The complete names, and the file and line.
        joined = "".join(line.removeprefix("  | ") for line in shown).replace(" ", "")
        name = "Module.module.decoder.layers.0.mixture_of_experts.local_experts.{}.linear_fc1"
        assert name.format(3) + ".ColumnParallelLinear.forward.0" in joined
        assert f"/home/user/{'deep/' * 5}train.py:3inforward" in joined
        if columns >= 100:
            assert name.format(4) + ".ColumnParallelLinear.forward.0inherited" in joined, text
            assert re.search(r"and \d+ more", text)
    assert "written: " in text and "\x1b[" in written, "colors"
    assert "reading" not in text and "comparing" not in text, "progress is gone"


@pytest.mark.parametrize("columns", [60, 80, 100, 200])
def test_a_very_long_path_is_whole(msprobe_bin, tmp_path, columns):
    write_dump(tmp_path / "target", 20, 2.0, depth=30)
    write_dump(tmp_path / "golden", 20, 1.0, depth=30)
    command = [msprobe_bin, "compare", "target", "golden", "-o", "out"]
    written, _ = on_a_terminal(command, columns, 24, tmp_path)
    joined = "".join(line.removeprefix("  | ") for line in screen(written, columns))
    place = f"/home/user/{'deep/' * 30}train.py:3"
    assert place + "inforward" in joined.replace(" ", "")
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    assert f"  | {place}\n" in piped
    assert "..." not in piped


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_no_colors_where_none_are_wanted(msprobe_bin, tmp_path, setting, monkeypatch):
    write_dump(tmp_path / "target", 5, 2.0)
    write_dump(tmp_path / "golden", 5, 1.0)
    command = ["env", *(f"{k}={v}" for k, v in setting.items()), msprobe_bin, "compare"]
    written, _ = on_a_terminal([*command, "-tp", "target", "-gp", "golden"], 80, 24, tmp_path)
    assert not re.search(r"\x1b\[[0-9;]*m", written)
    assert "FIRST DIVERGENCE" in written


def test_several_ranks_fit_on_one_screen(msprobe_bin, tmp_path):
    for rank in range(64):
        write_dump(tmp_path / "target" / f"rank{rank}", 20, 2.0 if rank % 3 else 1.0)
        write_dump(tmp_path / "golden" / f"rank{rank}", 20, 1.0)
    command = [msprobe_bin, "compare", "-tp", "target", "-gp", "golden", "-o", Path("out")]
    written, code = on_a_terminal(command, 80, 24, tmp_path)
    assert code == 0, written
    shown = screen(written, 80)
    assert len(shown) < 24, "\n".join(shown)


def test_progress_has_per_cent_on_a_terminal_only(msprobe_bin, tmp_path):
    write_dump(tmp_path / "target", 20_000, 2.0)
    write_dump(tmp_path / "golden", 20_000, 1.0)
    slowly = ["env", "MSPROBE_THREADS=1", "nice", "-n", "19"]
    command = [*slowly, msprobe_bin, "compare", "target", "golden", "-o", "out", "--xlsx"]
    written, code = on_a_terminal(command, 80, 24, tmp_path)
    assert code == 0
    lines = re.findall(r"\r\x1b\[K((?:reading|comparing|writing)[^\r]*)", written)
    assert any(re.fullmatch(r"writing compare_result_\d+\.xlsx: \d+%.*", line) for line in lines)
    assert max(map(len, lines)) < 80
    assert "writing" not in "\n".join(screen(written, 80)), "it is removed at the end"
    piped = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert piped.stderr == "" and "%:" not in piped.stdout
