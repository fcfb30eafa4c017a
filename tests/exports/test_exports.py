"""`compare --perfetto` and `--model-explorer`, read by code that is not ours to write them."""

import collections
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "report_page"))

from page_tools import HOSTILE, WRONG, write_dump

BEGIN, END, COUNTER = 1, 2, 4


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields(data):
    """Field number -> values, of a message in the wire format of Protocol Buffers."""
    found, at = collections.defaultdict(list), 0
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 1:
            value, at = struct.unpack_from("<d", data, at)[0], at + 8
        else:
            assert key & 7 == 2
            size, at = varint(data, at)
            value, at = data[at : at + size], at + size
            assert len(value) == size
        found[key >> 3].append(value)
    return found


def tracks_of(trace):
    """(process, track) -> events (time, type, name, counter), and the descriptors' order."""
    names, events = {}, collections.defaultdict(list)
    for packet in map(fields, fields(trace)[1]):
        assert len(packet[10]) == 1  # the sequence; without it Perfetto drops the packet
        for track in map(fields, packet[60]):
            if track[3]:
                names[track[1][0]] = (fields(track[3][0])[6][0].decode(), "")
            else:
                names[track[1][0]] = (names[track[5][0]][0], track[2][0].decode())
        for event in map(fields, packet[11]):
            name = event[23][0].decode() if event[23] else ""
            counter = event[44][0] if event[44] else None
            events[names[event[11][0]]].append((packet[8][0], event[9][0], name, counter))
    return events


def slices(events):
    """(begin, end, depth, name); the slices of a track must be nested."""
    found, open_slices = [], []
    for time, kind, name, _ in events:
        if kind == BEGIN:
            open_slices.append((time, len(open_slices), name))
        else:
            begin, depth, opened = open_slices.pop()
            found.append((begin, time, depth, opened))
    assert open_slices == []
    return sorted(found)


def compare(binary, folder, *flags):
    command = [binary, "compare", "target", "golden", "-o", "out", *flags]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=60)


@pytest.fixture
def dumps(tmp_path):
    name = f"{HOSTILE}.0.forward"
    write_dump(tmp_path / "target", wrong=True, extra=True, hostile=[name])
    write_dump(tmp_path / "golden", hostile=[name])
    return tmp_path


def test_the_tracks_of_a_trace(dumps, msprobe_bin):
    compare(msprobe_bin, dumps, "--perfetto", "new/run.perfetto-trace")
    tracks = tracks_of((dumps / "new" / "run.perfetto-trace").read_bytes())
    assert list(tracks) == [
        ("comparison", name) for name in ("verdict", "modules", "error", "calls")
    ]
    calls = slices(tracks["comparison", "calls"])
    assert WRONG[0] in [call[3] for call in calls]
    assert f"{HOSTILE}.0.forward" in [call[3] for call in calls]
    assert all(end - begin == 1000 for begin, end, _, _ in calls)
    modules = {
        name: (begin, end) for begin, end, _, name in slices(tracks["comparison", "modules"])
    }
    begin, end = modules["Module.layers.1.mlp.MLP.forward.0"]
    inside = [call[3] for call in calls if begin <= call[0] < end]
    assert inside == ["Functional.linear.1.forward", WRONG[0]]
    first = next(s for s in slices(tracks["comparison", "verdict"]) if s[3] == "introduced")
    assert first[0] == next(call[0] for call in calls if call[3] == WRONG[0])
    errors = {
        time: value for time, kind, _, value in tracks["comparison", "error"] if kind == COUNTER
    }
    assert errors[0] == 0
    assert errors[first[0]] > 1000


def test_ranks_are_processes_and_graphs(tmp_path, msprobe_bin):
    for rank in (0, 1):
        write_dump(tmp_path / "target" / f"rank{rank}", wrong=rank == 1)
        write_dump(tmp_path / "golden" / f"rank{rank}")
    compare(msprobe_bin, tmp_path, "--perfetto", "t", "--model-explorer", "g.json")
    tracks = tracks_of((tmp_path / "t").read_bytes())
    assert {process for process, _ in tracks} == {"rank 0", "rank 1"}
    assert len(slices(tracks["rank 0", "verdict"])) == 1
    graphs = json.loads((tmp_path / "g.json").read_text())["graphs"]
    assert [graph["id"] for graph in graphs] == ["rank 0", "rank 1"]


def test_a_step_that_inherits_blames_no_call_of_its_own(tmp_path, msprobe_bin):
    for step in (0, 1):
        write_dump(tmp_path / "target" / f"step{step}" / "rank", wrong=True)
        write_dump(tmp_path / "golden" / f"step{step}" / "rank")
    compare(msprobe_bin, tmp_path, "--perfetto", "t", "--model-explorer", "g.json")
    tracks = tracks_of((tmp_path / "t").read_bytes())
    verdicts = [{s[3] for s in slices(tracks[f"step {n}", "verdict"])} for n in (0, 1)]
    assert "introduced" in verdicts[0] and verdicts[1] == {"equal", "inherited"}
    graphs = json.loads((tmp_path / "g.json").read_text())["graphs"]
    red = [
        [n["label"] for n in graph["nodes"] if "#d7263d" in json.dumps(n.get("style", ""))]
        for graph in graphs
    ]
    assert red[0] and not red[1]
    assert "first divergence" in json.dumps(graphs[0])
    assert "first divergence" not in json.dumps(graphs[1])


def test_the_graph(dumps, msprobe_bin):
    compare(msprobe_bin, dumps, "--model-explorer", "g.json")
    document = json.loads((dumps / "g.json").read_text())
    assert set(document) == {"label", "graphs"}  # what the viewer knows a graph by
    nodes = {node["id"]: node for node in document["graphs"][0]["nodes"]}
    by_name = {node["label"]: node for node in nodes.values()}
    culprit = by_name[WRONG[0]]
    assert culprit["namespace"] == "forward/layers/1/mlp"
    assert culprit["style"]["backgroundColor"] == "#d7263d"
    made = nodes[culprit["incomingEdges"][0]["sourceNodeId"]]
    assert made["label"] == "Functional.linear.1.forward"
    assert all(
        edge["sourceNodeId"] in nodes
        for node in nodes.values()
        for edge in node.get("incomingEdges", [])
    )
    assert by_name["Functional.gelu.2.backward"]["namespace"].startswith("backward/")


def test_a_file_that_cannot_be_written_is_an_error(dumps, msprobe_bin):
    (dumps / "file").write_text("")
    command = [msprobe_bin, "compare", "target", "golden", "-o", "out", "--perfetto", "file/t"]
    done = subprocess.run(command, cwd=dumps, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "file" in done.stderr
    assert "Functional.gelu.1.forward" in done.stdout  # what was found is printed
