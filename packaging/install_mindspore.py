"""Installs MindSpore, without its parts for other devices, and the other packages of a list.

    .cache/mindspore/bin/python packaging/install_mindspore.py tests/mindspore/requirements.txt

Run it with the Python of the environment. MindSpore's wheel unpacks to 2.5 GB, of which 1.9 GB are
libraries for GPUs and Ascend devices, and headers: MindSpore loads such a library only where it
finds the device. Here they are never written, so a small disk is enough: 1.6 GB at most at a time,
0.9 GB at the end.
"""

import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from pathlib import Path

NOT_NEEDED = (
    "mindspore/include/",
    "mindspore/lib/plugin/ascend/",
    "mindspore/lib/plugin/gpu",  # folders: gpu, gpu11.1, gpu11.6
    "mindspore/lib/plugin/libmindspore_ascend",
    "mindspore/lib/plugin/libmindspore_gpu",
    "mindspore/lib/plugin/libmindspore_ops_ascend",
)
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--no-cache-dir")
NETWORK = ("--retries", "2", "--timeout", "30")


def unpack(wheel: Path, packages: Path) -> None:
    """Writes the files of a pure wheel into the folder of packages, except those in NOT_NEEDED."""
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            if not member.filename.startswith(NOT_NEEDED):
                archive.extract(member, packages)


def main() -> int:
    (requirements,) = sys.argv[1:]
    (wanted,) = (
        line.strip()
        for line in Path(requirements).read_text().splitlines()
        if line.startswith("mindspore==")
    )
    packages = Path(sysconfig.get_path("purelib"))
    name, version = wanted.split("==")
    if not (packages / f"{name}-{version}.dist-info").exists():
        # In the environment's own folder: /tmp may be smaller than the wheel.
        with tempfile.TemporaryDirectory(dir=sys.prefix) as folder:
            download = [*PIP, "download", *NETWORK, "--no-deps", "--only-binary=:all:"]
            if subprocess.run([*download, "--dest", folder, wanted]).returncode != 0:
                return 1
            (wheel,) = Path(folder).glob("*.whl")
            try:
                unpack(wheel, packages)
            except OSError as error:
                # A full disk would fail whatever follows, too.
                shutil.rmtree(packages / name, ignore_errors=True)
                print(f"error: {wanted} into {packages}: {error}", file=sys.stderr)
                return 1
    # pip finds MindSpore installed, and adds what it needs.
    return subprocess.run(
        [*PIP, "install", *NETWORK, "--no-compile", "-r", requirements]
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
