"""tests/recorded.py packs recorded dumps, and finds what is in an archive."""

import tarfile

import recorded


def test_what_is_packed_comes_back(tmp_path, monkeypatch):
    files = {"a/dump.json": b"{}", "a/copy.json": b"{}", "b/other": b"\0\1", "b/empty": b""}
    for name, content in files.items():
        (tmp_path / "26.2" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "26.2" / name).write_bytes(content)
    for name in ("26.2.tar", "again"):
        recorded.pack(tmp_path / "26.2", tmp_path / name)
    assert (tmp_path / "26.2.tar").read_bytes() == (tmp_path / "again").read_bytes()
    with tarfile.open(tmp_path / "26.2.tar") as tar:
        assert [entry.name for entry in tar if entry.islnk()] == ["a/dump.json"]

    monkeypatch.setattr(recorded, "DATA", tmp_path)
    monkeypatch.setattr(recorded, "UNPACKED", tmp_path / "unpacked")
    for name, content in files.items():
        assert recorded.recorded(f"26.2/{name}").read_bytes() == content
    assert recorded.recorded("again") == tmp_path / "again"  # what is not packed
