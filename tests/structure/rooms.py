"""The rooms of the source as CMake builds them: a folder, its files, and what it may include."""

import re
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ("engine", "cli", "python/src")
COMMAND = re.compile(r"^[ \t]*(\w+)[ \t]*\(([^()]*(?:\([^()]*\)[^()]*)*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


@dataclass
class Room:
    target: str  # "msprobe_compare_align"
    folder: Path  # from the root: "engine/compare/align"; None: only a name for other targets
    links: set = field(default_factory=set)  # targets, as CMake names them

    def files(self) -> list:
        """Sources and headers of the folder itself."""
        if self.folder is None:
            return []
        found = (ROOT / self.folder).iterdir()
        return sorted(path for path in found if path.suffix in (".cc", ".h"))


def _words(arguments: str) -> list:
    return re.sub(r"#[^\n]*", "", arguments).replace('"', "").split()


def _behind(words: list, keyword: str) -> list:
    """The words that follow a keyword, up to the next one."""
    if keyword not in words:
        return []
    rest = words[words.index(keyword) + 1 :]
    end = next((i for i, word in enumerate(rest) if word.isupper()), len(rest))
    return rest[:end]


def _room_of(command: str, words: list, folder: Path):
    """The room that a command of a CMakeLists.txt makes, or None."""
    if command == "msprobe_engine_library":
        place = folder.joinpath(*_behind(words, "DIR"))
        links = {f"msprobe_{name}" for name in _behind(words, "DEPENDS")}
        return Room(f"msprobe_{words[0]}", place, links)
    if command == "msprobe_capture_room":
        links = {f"msprobe_capture_{name}" for name in _behind(words, "DEPENDS")}
        return Room(f"msprobe_capture_{words[0]}", folder / words[0], links | {"msprobe_dump"})
    if command == "add_library" and words[0].startswith("msprobe_"):
        return Room(words[0], None if "INTERFACE" in words else folder)
    if command == "nanobind_add_module":
        return Room(words[0], folder)
    return None


@cache
def rooms() -> dict:
    """Target -> room."""
    found = {}
    for source in SOURCES:
        for path in sorted((ROOT / source).rglob("CMakeLists.txt")):
            folder = path.parent.relative_to(ROOT)
            text = re.sub(r"function\(.*?endfunction\(\)", "", path.read_text(), flags=re.DOTALL)
            for command, arguments in COMMAND.findall(text):
                words = _words(arguments)
                room = _room_of(command, words, folder) if words else None
                if room:
                    found[room.target] = room
                elif command == "target_link_libraries" and words[0] in found:
                    found[words[0]].links |= {word for word in words[1:] if "::" not in word}
    for room in found.values():
        room.links &= found.keys()
    return found


@cache
def below(target: str) -> frozenset:
    """The targets that a target may include: what it links, and what those link."""
    links = rooms()[target].links
    return frozenset(links).union(*(below(link) for link in links))


@cache
def by_folder() -> dict:
    return {room.folder: room for room in rooms().values() if room.folder is not None}


def included(path: Path) -> set:
    """The folders of ours that a file includes from, as paths from the root."""
    found = set()
    for name in INCLUDE.findall(path.read_text(encoding="utf-8")):
        place = ROOT / name
        if not place.is_file():
            place = ROOT / "python/src" / name
        if place.is_file():  # else made by CMake, or of another project
            found.add(place.parent.relative_to(ROOT))
    return found
