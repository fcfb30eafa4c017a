"""Packs wheels; the standard library is enough.

    pack_wheel.py --old-names --dist FOLDER
    pack_wheel.py --portable WHEEL --dist FOLDER
    pack_wheel.py --engine FOLDER --ptdbg python/ptdbg_ascend --dist FOLDER [--requires REQUIREMENT]

The first form packs msprobe-old-names (packaging/old_names/). The second checks that a wheel needs
only the libraries of glibc, and tags it with the glibc version that it needs. The third packs the
two wheels of the CMake flow (cmake/Wheels.cmake); FOLDER is the result of `cmake --install`.
"""

import argparse
import base64
import hashlib
import platform
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = (1980, 1, 1, 0, 0, 0)  # fixed, so that the same files give the same wheel


def project() -> dict:
    """The text keys of [project] in pyproject.toml; Python 3.10 has no tomllib to read them."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").split("[project]")[1]
    return dict(re.findall(r'^([\w-]+) = "(.*)"$', text.split("\n[")[0], re.MULTILINE))


def ptdbg_version(package: Path) -> str:
    source = (package / "__init__.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE).group(1)


def own_tag() -> str:
    """The tag of a wheel that only this Python on this platform can use."""
    python = f"cp{sys.version_info[0]}{sys.version_info[1]}"
    platform = re.sub(r"[^\w]", "_", sysconfig.get_platform())
    return (
        f"{python}-{python}{'t' if sysconfig.get_config_var('Py_GIL_DISABLED') else ''}-{platform}"
    )


def checksum(data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest())
    return "sha256=" + digest.rstrip(b"=").decode()


def metadata_of(name: str, version: str, *fields: str) -> str:
    about = project()
    common = ["License: Apache-2.0", f"Requires-Python: {about['requires-python']}"]
    head = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    return "\n".join([*head, *common, *fields, ""])


def pack(dist: Path, name: str, version: str, tag: str, files: dict, metadata: str) -> Path:
    """Writes <name>-<version>-<tag>.whl. `files`: path in the wheel -> file."""
    stem = f"{name.replace('-', '_')}-{version}"
    dist.mkdir(parents=True, exist_ok=True)
    wheel = dist / f"{stem}-{tag}.whl"
    is_pure = str(tag.endswith("-none-any")).lower()
    kind = ["Wheel-Version: 1.0", "Generator: msprobe", f"Root-Is-Purelib: {is_pure}"]
    written = {
        f"{stem}.dist-info/METADATA": metadata,
        f"{stem}.dist-info/WHEEL": "\n".join([*kind, f"Tag: {tag}", ""]),
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
        for path, text in written.items():
            add(path, text.encode(), 0o644)
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


def pack_old_names(dist: Path) -> Path:
    """The wheel that makes `ptdbg_ascend` and `torch_npu.hooks` importable in an environment."""
    about = project()
    name = "msprobe-old-names", about["version"]
    packages = ROOT / "python/msprobe/compat/packages"
    files = {
        "msprobe-old-names.pth": ROOT / "packaging/old_names/msprobe-old-names.pth",
        **files_of(packages / "_msprobe_torch_npu", "msprobe_old_names/_msprobe_torch_npu/"),
        **files_of(ROOT / "python/ptdbg_ascend", "msprobe_old_names/ptdbg_ascend/"),
    }
    metadata = metadata_of(
        *name,
        "Summary: the import names ptdbg_ascend and torch_npu.hooks, on msprobe",
        f"Requires-Dist: {about['name']}=={about['version']}",
    )
    return pack(dist, *name, "py3-none-any", files, metadata)


def pack_cmake_flow(engine_folder: Path, ptdbg_folder: Path, requires: str, dist: Path) -> tuple:
    """Packs the engine's wheel and the wheel of ptdbg_ascend, which depends on it."""
    about = project()
    name = about["name"], about["version"]
    metadata = metadata_of(
        *name,
        f"Summary: {about['description']}",
        "Provides-Extra: old-names",
        f"Requires-Dist: msprobe-old-names=={about['version']}; extra == 'old-names'",
    )
    engine = pack(dist, *name, own_tag(), files_of(engine_folder), metadata)
    # The dependency is a file, because the package index has another tool with the same name.
    requires = requires or f"{about['name']} @ {engine.resolve().as_uri()}"
    name = "ptdbg_ascend", ptdbg_version(ptdbg_folder)
    metadata = metadata_of(
        *name,
        "Summary: the import name of the older tools, on msprobe",
        f"Requires-Dist: {requires}",
    )
    files = files_of(ptdbg_folder, "ptdbg_ascend/")
    return engine, pack(dist, *name, "py3-none-any", files, metadata)


def needs(program: Path) -> tuple:
    """(libraries, minor version of glibc 2) that a program or module needs at load time."""
    command = ["readelf", "--wide", "--dynamic", "--version-info", program]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    libraries = set(re.findall(r"\(NEEDED\).*\[(.*)\]", said))
    return libraries, max(int(minor) for minor in re.findall(r"Name: GLIBC_2\.(\d+)", said))


def pack_portable(source: Path, dist: Path) -> Path:
    """Copies a wheel and tags the copy with the oldest glibc that it runs with."""
    glibc = r"(lib(c|m|dl|rt|pthread)|ld-linux.*)\.so\.\d"
    stem = "-".join(source.name.split("-")[:2])
    oldest = 0
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(source) as wheel:
        for info in wheel.infolist():
            file = Path(wheel.extract(info, folder))
            file.chmod((info.external_attr >> 16) & 0o777 or 0o644)
            if file.is_file() and file.read_bytes()[:4] == b"\x7fELF":
                libraries, minor = needs(file)
                foreign = sorted(name for name in libraries if not re.fullmatch(glibc, name))
                if foreign:
                    sys.exit(
                        f"error: {info.filename} of {source.name}: expected libraries of glibc "
                        f"only, found {', '.join(foreign)}; type: make wheel"
                    )
                oldest = max(oldest, minor)
        if not oldest:
            sys.exit(f"error: {source}: expected a program and a module in it, found neither")
        python, abi, _ = source.stem.split("-")[-3:]
        tag = f"{python}-{abi}-manylinux_2_{oldest}_{platform.machine()}"
        about = Path(folder, f"{stem}.dist-info/METADATA").read_text(encoding="utf-8")
        files = files_of(Path(folder))
        for written in ("METADATA", "WHEEL", "RECORD"):
            del files[f"{stem}.dist-info/{written}"]
        return pack(dist, *stem.split("-"), tag, files, about)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--old-names", action="store_true")
    kind.add_argument("--portable", type=Path, metavar="WHEEL")
    kind.add_argument("--engine", type=Path)
    parser.add_argument("--ptdbg", type=Path)
    parser.add_argument("--dist", type=Path, required=True)
    parser.add_argument("--requires", default="", help="instead of the engine's wheel as a file")
    options = parser.parse_args()
    if bool(options.engine) != bool(options.ptdbg):
        parser.error("expected --engine FOLDER and --ptdbg FOLDER together")
    if options.old_names:
        print(pack_old_names(options.dist))
    elif options.portable:
        print(pack_portable(options.portable, options.dist))
    else:
        engine, ptdbg = options.engine, options.ptdbg
        print(*pack_cmake_flow(engine, ptdbg, options.requires, options.dist), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
