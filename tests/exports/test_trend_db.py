"""The .trend.db files of `data2db`, read with Python's sqlite3."""

import json
import shutil
import sqlite3
import subprocess

import pytest

from recorded import recorded

DATA = recorded("programs/26.2.0")
MONITOR = {
    "actv_0-1.csv": [
        "vpp_stage,name,step,micro_step,norm,min,max,shape,dtype",
        '0,layers.0.mlp.input,0,0,0.8,-3e10,1,"[5, 2]",torch.float32',
        '0,layers.0.mlp.output_0,0,1,0.7,0,1,"[5, 2]",torch.float32',
        '0,layers.0.mlp.input,1,0,0.6,0,1,"[5, 2]",torch.float32',
        '0,layers.0.mlp.output_0,1,1,-inf,0,1,"[5, 2]",torch.float32',
    ],
    "grad_reduced_0-0.csv": [
        "vpp_stage,name,step,norm,nans,shape,dtype",
        '0,module.layers.1.mlp.weight,0,inf,0,"[512, 512]",torch.float32',
        '1,module.layers.1.mlp.weight,0,nan,0,"[512, 512]",torch.float32',
    ],
    "notes.csv": ["not a table of the monitor"],
}
TABLES = {
    "monitoring_targets": ["target_id", "target_name", "vpp_stage", "micro_step"],
    "monitoring_metrics": ["metric_id", "metric_name"],
    "monitoring_tags": ["tag_id", "tag_name", "category", "metric_id"],
    "tag_target_mapping": ["tag_id", "target_id"],
}
TREND = "rank, step, target_name, vpp_stage, micro_step, metric_name"
JOINED = (
    "trend_data JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics USING (metric_id)"
)


def data2db(binary, *arguments):
    command = [binary, "data2db", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def rows(path, query):
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return database.execute(query).fetchall()
    finally:
        database.close()


def columns(path, table):
    return [row[1] for row in rows(path, f"PRAGMA table_info({table})")]


def imported(binary, data, folder, *flags, kind="dump"):
    done = data2db(binary, "--data", data, "--db", folder, *flags)
    assert done.returncode == 0, done.stderr
    path = folder / f"{kind}_data.trend.db"
    assert f"written: {path} " in done.stdout
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    return path


@pytest.fixture
def monitor(tmp_path):
    for rank in (0, 3):
        folder = tmp_path / "monitor" / f"Nov24_09-30-00-rank{rank}-1a2b3c4d"
        folder.mkdir(parents=True)
        for name, lines in MONITOR.items():
            (folder / name).write_text("\n".join(lines) + "\n")
    return tmp_path / "monitor"


def test_dumps(tmp_path, msprobe_bin):
    path = imported(msprobe_bin, DATA / "lstm/mix_statistics", tmp_path / "db")
    for table, names in TABLES.items():
        assert columns(path, table) == names
    keys = ["rank", "step", "target_id", "metric_id"]
    assert columns(path, "trend_data") == [*keys, "norm", "max", "min", "mean"]
    metrics = ["forward", "backward", "recompute", "parameters_grad"]
    assert [name for (name,) in rows(path, "SELECT metric_name FROM monitoring_metrics")] == metrics
    assert columns(path, "global_stats") == ["max_rank", "min_step", "max_step", *metrics]
    assert rows(path, "SELECT * FROM global_stats") == [(0, 0, 1, *["norm,max,min,mean"] * 4)]
    name = "Functional.linear.input.0"
    found = rows(path, f"SELECT {TREND}, norm, max FROM {JOINED} WHERE target_name = '{name}'")
    of_dump = (2.57040739059448, 0.675646960735321)
    assert [(step, metric) for _, step, _, _, _, metric, _, _ in found] == [
        (0, "forward"),
        (0, "backward"),
        (1, "forward"),
        (1, "backward"),
    ]
    assert found[0][6:] == pytest.approx(of_dump, rel=1e-12)
    tags = rows(
        path,
        "SELECT DISTINCT category, tag_name FROM tag_target_mapping JOIN monitoring_tags "
        "USING (tag_id) JOIN monitoring_targets USING (target_id) JOIN monitoring_metrics "
        "USING (metric_id) WHERE target_name = 'Module.lstm.LSTM.bias_hh_l1'",
    )
    assert sorted(tags) == [("default", "Module"), ("index", "LSTM.bias_hh_l1"), ("module", "lstm")]


def test_calls_of_one_name_are_numbered(tmp_path, msprobe_bin):
    data = tmp_path / "run"
    shutil.copytree(DATA / "encoder/mix_statistics/step0", data / "step7")
    path = imported(msprobe_bin, data, tmp_path / "db")
    dump = json.loads((data / "step7/rank/dump.json").read_text())["data"]
    query = f"SELECT {TREND}, norm FROM {JOINED} WHERE target_name = 'Tensor.transpose.output.0'"
    found = {
        (metric, number): (step, norm) for _, step, _, _, number, metric, norm in rows(path, query)
    }
    for call in range(4):  # a call and its backward call are one target
        for metric in ("forward", "backward"):
            norm = dump[f"Tensor.transpose.{call}.{metric}"]["output"][0]["Norm"]
            assert found[metric, call] == (7, pytest.approx(norm, rel=1e-12))
    # Calls 4 to 7 run a second time what the checkpoint did not keep.
    assert {number for metric, number in found if metric == "recompute"} == {0, 1, 2, 3}


def test_micro_steps_are_steps(tmp_path, msprobe_bin):
    value = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [2]}
    value |= {"Max": 2e9, "Min": float("-inf"), "Mean": float("nan"), "Norm": 1.0}
    names = ("forward.0", "backward.0", "forward.1", "backward.1")
    head = {"task": "statistics", "level": "L0", "framework": "pytorch", "dump_data_dir": None}
    for step, used in ((0, names[:2]), (1, names), (2, names)):
        folder = tmp_path / f"run/step{step}/rank0"
        folder.mkdir(parents=True)
        data = {f"Module.a.A.{name}": {"input": [], "output": [value]} for name in used}
        (folder / "dump.json").write_text(json.dumps({**head, "data": data}))
        (folder / "construct.json").write_text(json.dumps(dict.fromkeys(data)))
    query = f"SELECT step, micro_step, metric_name, max, min, mean FROM {JOINED}"
    path = imported(msprobe_bin, tmp_path / "run", tmp_path / "on")
    clamped = (1e9, -1e9 - 1, None)
    assert sorted(rows(path, query)) == sorted(
        (step, 0, metric, *clamped)
        for step in (0, 2, 3, 4, 5)
        for metric in ("forward", "backward")
    )
    path = imported(msprobe_bin, tmp_path / "run", tmp_path / "off", "--micro_step", "false")
    assert sorted({row[:2] for row in rows(path, query)}) == [
        (0, 0),
        (1, 0),
        (1, 1),
        (2, 0),
        (2, 1),
    ]


def test_monitor(monitor, tmp_path, msprobe_bin):
    path = imported(msprobe_bin, monitor, tmp_path / "db", "--process_num", 2, kind="monitor")
    assert columns(path, "trend_data")[4:] == ["norm", "max", "min", "nans"]
    query = f"SELECT {TREND}, norm, max, min, nans FROM {JOINED} WHERE rank = 3"
    assert sorted(rows(path, query), key=str) == sorted(
        [
            (3, 0, "layers.0.mlp.input", 0, 0, "actv", 0.8, 1.0, -1e9, None),
            (3, 1, "layers.0.mlp.output_0", 0, 0, "actv", 0.7, 1.0, 0.0, None),
            (3, 2, "layers.0.mlp.input", 0, 0, "actv", 0.6, 1.0, 0.0, None),
            (3, 3, "layers.0.mlp.output_0", 0, 0, "actv", -1e9 - 1, 1.0, 0.0, None),
            (3, 0, "module.layers.1.mlp.weight", 0, 0, "grad_reduced", 1e9 + 1, None, None, 0.0),
            (3, 0, "module.layers.1.mlp.weight", 1, 0, "grad_reduced", None, None, None, 0.0),
        ],
        key=str,
    )
    assert rows(path, "SELECT * FROM global_stats") == [(3, 0, 3, "norm,max,min", "norm,nans")]
    tags = rows(path, "SELECT DISTINCT category, tag_name FROM monitoring_tags ORDER BY 1, 2")
    assert ("layer", "layers.1") in tags
    assert ("module", "mlp") in tags
    path = imported(msprobe_bin, monitor, tmp_path / "off", "--micro_step", "false", kind="monitor")
    found = rows(path, f"SELECT step, micro_step FROM {JOINED} WHERE rank = 0 AND metric_id = 1")
    assert sorted(found) == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_mapping(tmp_path, msprobe_bin):
    mapping = tmp_path / "mapping.json"
    mapping.write_text(json.dumps({".LSTM": ".Rnn", "Rnn": "R"}))
    data = DATA / "lstm/mix_statistics"
    path = imported(msprobe_bin, data, tmp_path / "db", "--mapping", mapping)
    names = {name for (name,) in rows(path, "SELECT target_name FROM monitoring_targets")}
    assert "Module.lstm.R.input.0" in names
    assert not any("LSTM" in name for name in names)
    mapping.write_text('{"a": 1}')
    done = data2db(msprobe_bin, "--data", data, "--db", tmp_path / "db", "--mapping", mapping)
    assert done.returncode == 2
    assert "mapping.json" in done.stderr


def test_hostile_names(tmp_path, msprobe_bin):
    folder = tmp_path / "Nov24_09-30-00-rank0-1a2b3c4d"
    folder.mkdir()
    name = "x'); DROP TABLE trend_data; --"
    header = b"vpp_stage,name,step,norm\n"
    lines = (
        f'0,"{name}",0,1\n'.encode() + b"0,\xff\xfe,0,2\n0,\x00,0,3\n9,y,99999999999999999999,4\n"
    )
    (folder / "other_0-0.csv").write_bytes(header + lines)
    (folder / "drop table_0-0.csv").write_bytes(header + lines)
    path = imported(msprobe_bin, tmp_path, tmp_path / "db", kind="monitor")
    names = [name for (name,) in rows(path, f"SELECT target_name FROM {JOINED} ORDER BY norm")]
    assert names == [name, "\ufffd\ufffd", "\x00"]


def test_nothing_to_read(tmp_path, msprobe_bin):
    (tmp_path / "empty").mkdir()
    for kind in ("auto", "dump", "monitor"):
        done = data2db(
            msprobe_bin, "--data", tmp_path / "empty", "--db", tmp_path / "db", "--format", kind
        )
        assert done.returncode == 2
        assert "found none" in done.stderr
    assert not (tmp_path / "db").exists()
    done = data2db(msprobe_bin, "--data", tmp_path / "absent", "--db", tmp_path / "db")
    assert done.returncode == 2
    apis = DATA / "encoder/L1_statistics"
    done = data2db(msprobe_bin, "--data", apis, "--db", tmp_path / "db")
    assert done.returncode == 2
    assert "left out" in done.stderr
    assert not (tmp_path / "db").exists()
