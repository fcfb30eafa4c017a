"""Whether torch.compile runs here."""

import subprocess
import sys

PROGRAM = """
import torch
f = torch.compile(lambda x: torch.relu(x) + 1, backend="aot_eager")
f(torch.ones(2, requires_grad=True)).sum().backward()
"""


def problem() -> str:
    """The last line of what went wrong, or an empty text."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    return "" if done.returncode == 0 else done.stderr.strip().rsplit("\n", 1)[-1]
