"""Rooms stay small enough to understand: includes run one way, and no folder has too many files.

The order of the rooms comes only from CMake: the targets that a room names in DEPENDS.
"""

import re

import pytest
from rooms import ROOT, SOURCES, below, by_folder, included, rooms

MOST_FILES = 32
# Folders that may hold more, and why.
LARGE = {
    "engine/kernels": "a kernel is four files named after it: interface, body, scalar twin, parts",
}
FOLDERS = sorted(by_folder(), key=str)


def test_cmake_is_understood():
    assert len(FOLDERS) >= 20
    assert "msprobe_base" in below("msprobe_verbs")
    assert below("msprobe_base") == {"msprobe_base_messages"}
    assert below("msprobe_base_messages") == frozenset()


def test_no_room_needs_itself():
    def chain(target, path):
        assert target not in path, " -> ".join([*path, target])
        for link in rooms()[target].links:
            chain(link, [*path, target])

    for target in rooms():
        chain(target, [])


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_includes_run_one_way(folder):
    room = by_folder()[folder]
    allowed = {rooms()[target].folder for target in below(room.target)} | {folder}
    # One folder can have two targets: library and program of cli/, bindings and extension.
    wrong = {
        f"{path.relative_to(ROOT)} includes from {place}, which {room.target} does not link"
        for path in room.files()
        for place in included(path)
        if place not in allowed
    }
    assert wrong == set()


def test_each_folder_with_sources_is_a_room():
    folders = {
        path.parent.relative_to(ROOT)
        for source in SOURCES
        for path in (ROOT / source).rglob("*")
        if path.suffix in (".cc", ".h")
    }
    assert folders - set(FOLDERS) == set()


@pytest.mark.parametrize("folder", FOLDERS, ids=str)
def test_a_room_is_no_storeroom(folder):
    count = len(by_folder()[folder].files())
    if str(folder) in LARGE:
        assert count > MOST_FILES, f"{folder} has {count} files: take it off the list of LARGE"
    else:
        assert count <= MOST_FILES, f"{folder} has {count} files, expected at most {MOST_FILES}"


def test_names_say_the_subject():
    """File names say the subject; none is called "more", "shared" or the like."""
    left_over = re.compile(r"(^|_)(more|shared|misc|other|stuff|rest|\d+)$")
    files = [path for room in rooms().values() for path in room.files()]
    assert [str(path) for path in files if left_over.search(path.stem)] == []


def test_the_drawing_shows_the_rooms():
    """The architecture page lists "compare/  model, align, ..." in an order that includes allow."""
    text = (ROOT / "docs/explain/architecture.md").read_text()
    drawn = re.findall(r"^ *([\w/]+)/ +rooms: ([\w, ]+)$", text, re.MULTILINE)
    parents = [folder.parent for folder in FOLDERS if len(folder.parts) > 2]
    wanted = {parent for parent in parents if parents.count(parent) > 1}
    for parent in sorted(wanted, key=str):
        names = dict(drawn).get(parent.as_posix(), "").split(", ")
        room_names = {folder.name for folder in FOLDERS if folder.parent == parent}
        assert set(names) == room_names, f"docs/explain/architecture.md: {parent}/  rooms: ..."
        for i, name in enumerate(names):
            later = {by_folder()[parent / other].target for other in names[i:]}
            target = by_folder()[parent / name].target
            assert not below(target) & later, f"{name} uses a room that is drawn after it"
