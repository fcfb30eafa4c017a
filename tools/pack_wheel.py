"""Packs the two wheels of the CMake flow; the standard library is enough.

    pack_wheel.py --engine FOLDER --ptdbg python/ptdbg_ascend --dist FOLDER [--requires REQUIREMENT]

The engine's FOLDER is what `cmake --install` laid out.
"""

import argparse
import base64
import hashlib
import re
import sys
import sysconfig
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)  # the same files, the same wheel


def project() -> dict:
    """`key = "text"` of pyproject.toml's [project]: tomllib is newer than our oldest Python."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project]")[1]
    return dict(re.findall(r'^([\w-]+) = "(.*)"$', text.split("\n[")[0], re.MULTILINE))


def ptdbg_version(package: Path) -> str:
    source = (package / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE).group(1)


def own_tag() -> str:
    """Of a wheel that only this Python on this platform can use."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    platform = re.sub(r"[^\w]", "_", sysconfig.get_platform())
    return (
        f"{python}-{python}{'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''}-{platform}"
    )


def checksum(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def pack(dist: Path, name: str, version: str, tag: str, files: dict, metadata: list) -> Path:
    """Writes <name>-<version>-<tag>.whl of `files`, path in the wheel -> file."""
    stem = f"{name.replace('-', '_')}-{version}"
    dist.mkdir(parents=True, exist_ok=True)
    wheel = dist / f"{stem}-{tag}.whl"
    is_pure = str(tag.endswith("-none-any")).lower()
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *metadata]
    kind = ["Wheel-Version: 1.0", "Generator: msprobe", f"Root-Is-Purelib: {is_pure}"]
    written = {
        f"{stem}.dist-info/METADATA": head,
        f"{stem}.dist-info/WHEEL": [*kind, f"Tag: {tag}"],
    }
    record = []
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:

        def add(path, data, mode):
            entry = zipfile.ZipInfo(path, EPOCH)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
            record.append(f"{path},{checksum(data)},{len(data)}\n")

        for path, file in sorted(files.items()):
            add(path, file.read_bytes(), file.stat().st_mode & 0o777)
        for path, lines in written.items():
            add(path, "\n".join([*lines, ""]).encode(), 0o644)
        path = f"{stem}.dist-info/RECORD"
        archive.writestr(zipfile.ZipInfo(path, EPOCH), "".join(record) + f"{path},,\n")
    return wheel


def files_of(folder: Path, prefix: str = "") -> dict:
    found = (file for file in folder.rglob("*") if file.is_file())
    return {
        prefix + file.relative_to(folder).as_posix(): file
        for file in found
        if "__pycache__" not in file.parts
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--engine", type=Path, required=True)
    parser.add_argument("--ptdbg", type=Path, required=True)
    parser.add_argument("--dist", type=Path, required=True)
    parser.add_argument("--requires", default="", help="instead of the engine's wheel as a file")
    options = parser.parse_args()

    about = project()
    common = ["License: Apache-2.0", f"Requires-Python: {about['requires-python']}"]
    engine = pack(
        options.dist,
        about["name"],
        about["version"],
        own_tag(),
        files_of(options.engine),
        [f"Summary: {about['description']}", *common],
    )
    # As a file: under this name and in a lower version there is another tool in the index.
    requires = options.requires or f"{about['name']} @ {engine.resolve().as_uri()}"
    ptdbg = pack(
        options.dist,
        "ptdbg_ascend",
        ptdbg_version(options.ptdbg),
        "py3-none-any",
        files_of(options.ptdbg, "ptdbg_ascend/"),
        [
            "Summary: the import name of the older tools, on msprobe",
            *common,
            f"Requires-Dist: {requires}",
        ],
    )
    print(f"{engine}\n{ptdbg}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
