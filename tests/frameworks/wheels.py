"""The frameworks' wheels, downloaded once into .cache/frameworks/; nothing of them is installed."""

import subprocess
import sys
import zipfile
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "frameworks"
WHEELS = {
    "verl": "verl==0.9.1",
    "vllm_ascend_first": "vllm_ascend==0.13.0",
    "vllm_ascend": "vllm_ascend==0.18.0",
    "vllm_ascend_main": "vllm_ascend==0.26.0rc1",
    "sglang_first": "sglang==0.5.11",
    "sglang": "sglang==0.5.23",
}
# What is extracted: the few sources that are run, without compiled kernels.
PARTS = ("verl/", "vllm_ascend/worker/", "sglang/srt/model_executor/")


def wheel(name: str) -> Path:
    """The folder with the sources of a wheel. Raises OSError when it cannot be had."""
    folder = CACHE / name
    if (folder / ".complete").exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--dest", str(folder), WHEELS[name]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"{WHEELS[name]}: {done.stderr.strip().splitlines()[-1]}")
    (archive,) = folder.glob("*.whl")
    with zipfile.ZipFile(archive) as opened:
        for file in opened.namelist():
            if file.endswith(".py") and file.startswith(PARTS):
                opened.extract(file, folder)
    archive.unlink()
    (folder / ".complete").touch()
    return folder
