"""Whether torch.compile runs here."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import torch
f = torch.compile(lambda x: torch.relu(x) + 1, backend="aot_eager")
f(torch.ones(2, requires_grad=True)).sum().backward()
"""


def problem(cache: Path) -> str:
    """The last line of what went wrong, or an empty text; a success is remembered in the cache."""
    done = cache / "compiles"
    if done.exists():
        return ""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    if ran.returncode != 0:
        return ran.stderr.strip().rsplit("\n", 1)[-1]
    cache.mkdir(parents=True, exist_ok=True)
    done.touch()
    return ""
