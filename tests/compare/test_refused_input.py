"""Broken dumps of some fifty kinds, as target, as golden and as both: the comparison is refused
with exit code 2 and one error that names the file, and leaves nothing behind: no table, no folder.
"""

import json
import os
import subprocess

import numpy as np
import pytest

TENSOR = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2], "Max": 1.0, "Min": 0.0,
          "Mean": 0.5, "Norm": 1.0, "requires_grad": False}  # fmt: skip
CALL = {"input_args": [TENSOR], "input_kwargs": {}, "output": [TENSOR]}
DUMP = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None,
        "data": {"Torch.abs.0.forward": CALL, "Torch.exp.0.forward": CALL}}  # fmt: skip
GOOD = json.dumps(DUMP).encode()


def text(before, after):
    """A dump.json in which one text is another one."""
    assert before in GOOD, before
    return lambda folder: (folder / "dump.json").write_bytes(GOOD.replace(before, after))


def content(raw):
    return lambda folder: (folder / "dump.json").write_bytes(raw)


def header(**members):
    return content(json.dumps({**DUMP, **members}).encode())


def call(value):
    """Every call of the dump is this value."""
    return header(data=dict.fromkeys(DUMP["data"], value))


def value(**members):
    """Every tensor of the dump has these members."""
    broken = {**TENSOR, **members}
    return call({"input_args": [broken], "input_kwargs": {}, "output": [broken]})


def a_link(to):
    return lambda folder: (folder / "dump.json").symlink_to(to)


def a_file(name, raw):
    return lambda folder: (folder / name).write_bytes(raw)


def tensors(damage):
    """A dump of tensors; `damage` changes its only files."""

    def make(folder):
        parts = [{**TENSOR, "data_name": f"{i}.npy"} for i in range(2)]
        data = {"Torch.abs.0.forward": {"input_args": parts[:1], "output": parts[1:]}}
        header(task="tensor", data=data)(folder)
        (folder / "dump_tensor_data").mkdir()
        for i in range(2):
            path = folder / "dump_tensor_data" / f"{i}.npy"
            np.save(path, np.arange(2, dtype=np.float32))
            damage(path)

    return make


KINDS = {
    "no_dump": lambda folder: None,
    "zero_bytes": content(b""),
    "blank": content(b" \n\n"),
    "nul_bytes": content(b"\0" * 100),
    "every_byte": content(bytes(range(256))),
    "half_a_header": content(GOOD[:30]),
    "a_brace": content(b"{"),
    "cut_in_the_first_call": content(GOOD[: GOOD.index(b"abs") + 40]),
    "a_list": content(b"[]"),
    "a_number": content(b"1"),
    "a_text": content(b'"dump"'),
    "null": content(b"null"),
    "no_members": content(b"{}"),
    "no_data": content(b'{"task": "statistics", "level": "L1"}'),
    "data_is_a_list": header(data=[CALL]),
    "data_is_null": header(data=None),
    "data_is_a_text": header(data="calls"),
    "data_is_empty": header(data={}),
    "task_is_a_number": header(task=1),
    "task_is_unknown": header(task="zzz"),
    "level_is_unknown": header(level="L9"),
    "level_is_a_list": header(level=[]),
    "call_is_a_text": call("x"),
    "call_is_null": call(None),
    "call_is_a_number": call(3),
    "calls_without_values": call({"input_args": [], "input_kwargs": {}, "output": []}),
    "values_without_numbers": value(Max=None, Min=None, Mean=None, Norm=None),
    "shape_is_a_text": value(shape="2"),
    "shape_is_negative": value(shape=[-2]),
    "shape_is_huge": text(b"[2]", b"[99999999999999999999]"),
    "shape_overflows": value(shape=[1 << 40, 1 << 40]),
    "dtype_is_a_number": value(dtype=5),
    "maximum_is_a_list": value(Max=[1]),
    "maximum_is_a_text": value(Max="large", Min="large", Mean="large", Norm="large"),
    "number_of_a_million_digits": text(b'"Max": 1.0', b'"Max": ' + b"9" * 10**6),
    "number_is_no_number": text(b'"Max": 1.0', b'"Max": 1.0.0'),
    "deep": content(b'{"task": "statistics", "data": {"a": ' + b"[" * 5000),
    "text_behind_the_end": content(GOOD + b"xx"),
    "not_utf8": text(b"Torch.abs", b"Torch.\xff\xfe"),
    "utf16": content(GOOD.decode().encode("utf-16")),
    "wrong_escape": text(b"Torch.abs", rb"Torch.\q"),
    "end_of_line_in_a_name": text(b"Torch.abs", b"Torch.a\nbs"),
    "csv": content(b"a,b\n1,2\n"),
    "pickle": content(b"\x80\x04]\x94."),
    "zip": content(b"PK\3\4" + b"\0" * 30),
    "gzip": content(b"\x1f\x8b" + b"\0" * 30),
    "a_folder": lambda folder: (folder / "dump.json").mkdir(),
    "a_pipe": lambda folder: os.mkfifo(folder / "dump.json"),
    "a_link_outside": a_link("/etc/passwd"),
    "a_link_to_itself": a_link("dump.json"),
    "a_link_to_nothing": a_link("nothing.json"),
    "a_link_to_a_device": a_link("/dev/zero"),
    "pkl_of_zero_bytes": a_file("a.pkl", b""),
    "pkl_that_is_cut": a_file("a.pkl", b'["x"\n'),
    "pkl_of_wrong_types": a_file("a.pkl", b'["Torch_a_0_forward_output", 0, [], "x", "[]", "q"]\n'),
    "tensor_files_missing": tensors(lambda path: path.unlink()),
    "tensor_files_cut": tensors(lambda path: path.write_bytes(path.read_bytes()[:-5])),
    "tensor_files_of_zero_bytes": tensors(lambda path: path.write_bytes(b"")),
    "npy_without_a_header": a_file("a.npy", b"\x93NUMPY"),
}
# What an older or later tool may have written is read as far as it goes, and compared.
READ_ON_BOTH_SIDES = {
    "task_is_a_number", "task_is_unknown", "level_is_unknown", "level_is_a_list",
    "shape_is_a_text", "shape_is_negative", "shape_is_huge", "shape_overflows",
    "number_of_a_million_digits", "not_utf8", "pkl_of_wrong_types",
}  # fmt: skip
READ_ON_ONE_SIDE = {
    "task_is_a_number", "task_is_unknown", "level_is_unknown", "level_is_a_list",
    "shape_is_a_text", "maximum_is_a_text", "number_of_a_million_digits", "not_utf8",
    "shape_is_negative", "shape_is_huge", "shape_overflows",
    "tensor_files_missing", "tensor_files_cut", "tensor_files_of_zero_bytes",
}  # fmt: skip
EVERY_FILE = ["-o", "out/tables", "--html", "page/p.html", "--markdown", "md/m.md",
              "--junit", "junit/j.xml", "--perfetto", "trace/p", "--vis-db", "graph/g.vis.db",
              "--layer_mapping", "--advisor", "--diff_analyze"]  # fmt: skip
# Verbs that read a dump and write something. A fine dump of APIs alone has no graph, and no
# gradients of grad_probe: these verbs refuse it as well.
VERBS = {
    "graph": "graph_visualize target golden -o out/graphs",
    "graph_of_one": "graph_visualize target -o out/graphs",
    "trend": "data2db --data target --db out/trends",
    "gradients": "grad_compare target golden -o out/gradients --html page/p.html",
    "page": "report target -o page/p.html",
    "show": "show target --html page/p.html",
    "script": "op_generate -i target/dump.json -api Torch.abs.0 -o out/scripts",
    "anomaly": "overflow_check -i target -o out/anomalies",
    "next": "bisect target golden -o out/rounds",
    "checkpoints": "config_check -c target golden -o out/checked",
    "tables": "merge_result -i target -o out/merged -config golden/dump.json",
    "accuracy": "api_precision_compare -npu target/dump.json -gpu golden/dump.json -o out/judged",
}


def make(work, kind, sides):
    for side in ("target", "golden"):
        (work / side).mkdir(parents=True)
        (KINDS[kind] if side in sides else content(GOOD))(work / side)


def run(binary, work, words):
    """Exit code, standard error, and the paths that the command made."""
    before = set(work.rglob("*"))
    done = subprocess.run([binary, *words], cwd=work, capture_output=True, timeout=60)
    new = sorted(str(path.relative_to(work)) for path in set(work.rglob("*")) - before)
    return done.returncode, done.stderr.decode("utf-8"), new


@pytest.mark.parametrize("sides", [("target",), ("golden",), ("target", "golden")])
@pytest.mark.parametrize("kind", KINDS)
def test_compare(msprobe_bin, tmp_path, kind, sides):
    make(tmp_path, kind, sides)
    code, errors, new = run(msprobe_bin, tmp_path, ["compare", "target", "golden", *EVERY_FILE[:2]])
    if kind in (READ_ON_BOTH_SIDES if len(sides) == 2 else READ_ON_ONE_SIDE):
        assert code == 0 and new, errors
        return
    assert code == 2, f"exit code {code}: {errors}"
    lines = errors.splitlines()
    assert lines[0].startswith("error: ") and len(lines) <= 2, errors
    assert all(line.startswith("hint:  ") for line in lines[1:]), errors
    # Both are read at the same time; an error of the target comes first.
    assert sides[0] in errors, f"the file is not named: {errors}"
    assert new == []
    assert run(msprobe_bin, tmp_path, ["compare", "target", "golden", *EVERY_FILE])[2] == []


@pytest.mark.parametrize("verb", VERBS)
def test_other_verbs(msprobe_bin, tmp_path, verb):
    for kind in KINDS:
        make(tmp_path / kind, kind, ("target", "golden"))
        code, errors, new = run(msprobe_bin, tmp_path / kind, VERBS[verb].split())
        assert code in (0, 2), f"{kind}: exit code {code}: {errors}"
        assert code == 0 or (errors.count("error: ") == 1 and new == []), f"{kind}: {new}, {errors}"


def test_ranks(msprobe_bin, tmp_path):
    """Of ranks that are all refused nothing is written, either; also not about all of them."""
    for rank, kind in enumerate(["zero_bytes", "data_is_empty", "half_a_header", "a_list"]):
        for side in ("target", "golden"):
            folder = tmp_path / side / f"rank{rank}"
            folder.mkdir(parents=True)
            (KINDS[kind] if side == "target" else content(GOOD))(folder)
    code, errors, new = run(msprobe_bin, tmp_path, ["compare", "target", "golden", *EVERY_FILE])
    assert (code, new) == (2, []), errors
    assert all(f"target/rank{rank}/dump.json" in errors for rank in (0, 2, 3)), errors


def test_a_rank_without_a_compared_value_has_a_table(msprobe_bin, tmp_path):
    """Another rank was compared; or nothing was, which was allowed."""
    for rank, raw in enumerate([GOOD, b'{"data": {}}']):
        for side in ("target", "golden"):
            folder = tmp_path / side / f"rank{rank}"
            folder.mkdir(parents=True)
            content(raw if side == "target" else GOOD)(folder)
    code, errors, new = run(msprobe_bin, tmp_path, ["compare", "target", "golden", "-o", "out"])
    assert (code, errors) == (0, "")
    kinds = ["finding", "result_rank0", "result_rank1", "summary"]
    names = ["out", *(f"out/compare_{kind}" for kind in kinds)]
    assert [name.split("_20")[0] for name in new] == names
    words = ["compare", "target/rank1", "golden/rank1", "-o", "all", "--allow-nothing-compared"]
    code, errors, new = run(msprobe_bin, tmp_path, words)
    assert (code, errors) == (0, "") and len(new) == 3, new
