"""Compiles the simulated NPU for the PyTorch of the Python that runs this file, once:

    python tests/devices/simnpu_build.py        # prints the folder that has the package torch_npu

The folder lies in .cache/simnpu/. Its name has the version of PyTorch and a digest of the sources.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "simnpu"
CACHE = SOURCES.parents[2] / ".cache" / "simnpu"


def why_not():
    """Why it cannot be compiled here; "" when it can."""
    if not shutil.which("g++"):
        return "no compiler (g++)"
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        return "no headers of Python (python3-dev)"
    import torch

    version = tuple(int(part) for part in torch.__version__.split(".")[:2])
    # The hooks and the allocator of a backend had other signatures before.
    return "" if version >= (2, 13) else f"written for PyTorch 2.13, not {torch.__version__}"


def _command(torch, to):
    from torch.utils.cpp_extension import include_paths

    library = Path(torch.__file__).parent / "lib"
    return [
        *(["ccache"] if shutil.which("ccache") else []),
        *("g++", "-std=c++20", "-O1", "-g0", "-fPIC", "-shared", "-w"),
        *(f"-I{each}" for each in [*include_paths(), sysconfig.get_path("include")]),
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}",
        *(str(SOURCES / "sim.cc"), "-o", str(to)),
        *(f"-L{library}", f"-Wl,-rpath,{library}"),
        *("-ltorch", "-ltorch_cpu", "-lc10", "-ltorch_python"),
    ]


def _name(torch):
    digest = hashlib.sha256()
    for source in sorted(
        [*SOURCES.glob("*.h"), *SOURCES.glob("*.cc"), *SOURCES.glob("torch_npu/*.py")]
    ):
        digest.update(source.read_bytes())
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return f"torch-{torch.__version__}-python-{python}-{digest.hexdigest()[:12]}"


def build():
    """The folder that has the package torch_npu; compiles it if it is not there."""
    import torch

    folder = CACHE / _name(torch)
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=CACHE))
    try:
        package = made / "torch_npu"
        package.mkdir()
        for source in (SOURCES / "torch_npu").glob("*.py"):
            shutil.copy(source, package)
        # PyTorch imports the packages of devices itself, by their entry points.
        (made / "torch_npu-0.dist-info").mkdir()
        entry = "[torch.backends]\ntorch_npu = torch_npu:_autoload\n"
        (made / "torch_npu-0.dist-info" / "entry_points.txt").write_text(entry)
        subprocess.run(_command(torch, package / "_sim.so"), check=True)
        made.chmod(0o755)
        os.rename(made, folder)
    except OSError:
        if not folder.exists():  # another process has made it meanwhile
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


if __name__ == "__main__":
    reason = why_not()
    sys.exit(f"the simulated NPU is not compiled: {reason}" if reason else print(build()))
