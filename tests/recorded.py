"""Recorded dumps of tests/data: one archive for each folder of many files, unpacked when asked for.

    python tests/recorded.py pack FOLDER      # the folder becomes FOLDER.tar
    python tests/recorded.py unpack FOLDER    # and back, to record it again

Archives are not compressed, so that git stores what a change adds. Equal files are stored once, as
links. The same files give the same archive.
"""

import functools
import hashlib
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / "tests" / "data"
UNPACKED = ROOT / ".cache" / "recorded"


def recorded(name: str) -> Path:
    """A file or folder below tests/data, also if it lies in an archive: "tables/edges/md5"."""
    parts = Path(name).parts
    for count in range(len(parts), 0, -1):
        archive = DATA.joinpath(*parts[: count - 1], f"{parts[count - 1]}.tar")
        if archive.is_file():
            return _unpacked(archive).joinpath(*parts[count:])
    return DATA / name


@functools.cache
def _unpacked(archive: Path) -> Path:
    """The folder with the files of an archive. Tests of several processes may ask at once."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:16]
    place = UNPACKED / digest / archive.stem
    if place.is_dir():
        return place
    UNPACKED.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(dir=UNPACKED))
    unpack(archive, work / archive.stem)
    try:
        work.rename(place.parent)
    except OSError:  # another process was faster
        shutil.rmtree(work)
    return place


def unpack(archive: Path, folder: Path) -> None:
    folder.mkdir()
    with tarfile.open(archive) as tar:
        if hasattr(tarfile, "data_filter"):  # not before Python 3.11.4
            tar.extraction_filter = tarfile.data_filter
        tar.extractall(folder)


def pack(folder: Path, archive: Path) -> None:
    first = {}  # content -> the name under which it is stored
    with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            content = path.read_bytes()
            entry = tarfile.TarInfo(str(path.relative_to(folder)))
            entry.mode = 0o644
            if content and content in first:
                entry.type, entry.linkname = tarfile.LNKTYPE, first[content]
                tar.addfile(entry)
                continue
            first[content] = entry.name
            entry.size = len(content)
            with path.open("rb") as file:
                tar.addfile(entry, file)


def main() -> int:
    if len(sys.argv) < 3 or sys.argv[1] not in ("pack", "unpack"):
        sys.exit(__doc__)
    for name in sys.argv[2:]:
        folder, archive = Path(name), Path(f"{name.rstrip('/')}.tar")
        if sys.argv[1] == "pack":
            pack(folder, archive)
            shutil.rmtree(folder)
        else:
            unpack(archive, folder)
            archive.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
