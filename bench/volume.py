"""Measures memory and bytes written for many records in one step; prints one JSON object.

    python bench/volume.py --tool ours|peer --records 10000 100000 1000000

Each turn of the program calls two functions and their backward on 4 numbers: four records. All
turns are in one step. Bytes written are counted by the kernel (wchar of /proc/self/io). Memory is
the growth of the process since the first record. The same turns run once before the tool is
imported, so that memory which the program itself takes is not counted.
"""

import argparse
import gc
import json
import os
import tempfile
import time
from pathlib import Path

import torch

RECORDS_A_TURN = 4


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 2**20


def bytes_written() -> int:
    fields = Path("/proc/self/io").read_text().split()
    return int(fields[fields.index("wchar:") + 1])


def turns(count: int):
    x = torch.ones(4, requires_grad=True)
    for _ in range(count):
        torch.relu(x.mul(0.5)).backward(x.detach())
        x.grad = None


def files_size(folder: Path) -> dict:
    return {path.name: path.stat().st_size for path in folder.glob("step*/*/*.json")}


def measure(options, folder: Path) -> list:
    config = {"task": "statistics", "level": "L1", "dump_path": str(folder / "dump")}
    config |= {"rank": [], "step": [], "risk_level": "ALL"}
    config["statistics"] = {"scope": [], "list": [], "data_mode": ["all"]}
    (folder / "config.json").write_text(json.dumps(config))
    turns(2000)
    from msprobe.pytorch import PrecisionDebugger

    debugger = PrecisionDebugger(config_path=str(folder / "config.json"))
    rows = []
    for records in options.records:
        debugger.start()
        turns(100)  # memory that the first calls allocate is not counted
        gc.collect()
        memory, written = resident_mb(), bytes_written()
        started = time.perf_counter()
        turns(records // RECORDS_A_TURN)
        held = resident_mb() - memory
        debugger.stop()
        rows.append(
            {
                "records": records,
                "held_mb": held,
                "written": bytes_written() - written,
                "seconds": time.perf_counter() - started,
                "files": files_size(folder / "dump"),
            }
        )
        debugger.step()
        for path in (folder / "dump").glob("step*"):
            path.rename(folder / f"{path.name}_{records}")
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tool", choices=("ours", "peer"), required=True)
    parser.add_argument("--records", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--scratch", help="where the dumps go (default: the temporary folder)")
    options = parser.parse_args()
    os.environ.setdefault("MSPROBE_LOG_LEVEL", "4")
    torch.set_num_threads(1)

    # The tool's own output goes to stderr: stdout has only the result.
    result_file = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory(dir=options.scratch, ignore_cleanup_errors=True) as folder:
        rows = measure(options, Path(folder))
    print(json.dumps({"tool": options.tool, "rows": rows}), file=result_file, flush=True)


if __name__ == "__main__":
    main()
