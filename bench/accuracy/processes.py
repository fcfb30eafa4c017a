"""Wall time and peak memory of a program with all its child processes."""

import subprocess
import sys
import time
from pathlib import Path

INTERVAL = 0.1  # seconds between two looks at the memory


def tree_of(root: int) -> list:
    """The process and its descendants."""
    children = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        children.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def memory_of(pids: list) -> int:
    """Bytes of these processes; a page that several of them share counts once."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) << 10 for line in lines if line.startswith("Pss:"))
    return total


def measure(command: list, folder: Path, made: str) -> tuple:
    """(seconds, bytes) of a program, which must write a file that matches `made` in `folder`."""
    command = [str(part) for part in command]
    log = folder.with_suffix(".log")
    started, peak = time.perf_counter(), 0
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=folder.parent, stdout=file, stderr=file)
        while True:
            try:
                process.wait(INTERVAL)
                break
            except subprocess.TimeoutExpired:
                peak = max(peak, memory_of(tree_of(process.pid)))
    seconds = time.perf_counter() - started
    if process.returncode != 0 or not list(folder.rglob(made)):
        text = log.read_text(errors="replace")
        sys.exit(f"error: {' '.join(command)} ended with {process.returncode}:\n{text[-2000:]}")
    return seconds, peak
