"""Inputs of the accuracy pre-check: a recorded step of a GPT, parts of a dump, many rows.

python bench/accuracy/inputs.py FOLDER LAYERS       # 22 calls a layer
"""

import csv
import json
import re
import sys
from pathlib import Path

ROW_NAME = re.compile(r"(.*)\.(\d+)\.(forward|backward)\.(.*)")


def record_gpt(folder: Path, layers: int) -> None:
    """Records one forward and backward pass with statistics of every call."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))
    from models import gpt
    from msprobe.pytorch import PrecisionDebugger

    model, batch = gpt.build(0, layers=layers, batch=4)
    debugger = PrecisionDebugger(dump_path=str(folder), level="L1")
    debugger.start(model)
    gpt.loss(model, batch).backward()
    debugger.stop()
    debugger.step()


def call_of(entry: str) -> str:
    return entry.rpartition(".")[0]


def calls_of(dump: Path) -> list:
    """Names of the recorded calls, in their order."""
    return list(dict.fromkeys(map(call_of, json.loads(dump.read_text())["data"])))


def part_of(dump: Path, calls: list, folder: Path) -> Path:
    """A copy of the dump with the entries of these calls alone."""
    content, calls = json.loads(dump.read_text()), set(calls)
    content["data"] = {
        name: entry for name, entry in content["data"].items() if call_of(name) in calls
    }
    folder.mkdir(parents=True)
    path = folder / "dump.json"
    path.write_text(json.dumps(content))
    return path


def many_rows(details: Path, count: int, path: Path) -> Path:
    """The rows of a details file, repeated under new numbers of calls until there are `count`."""
    with details.open(encoding="utf-8-sig", newline="") as file:
        titles, *rows = csv.reader(file)
    names = [ROW_NAME.fullmatch(row[0]).groups() for row in rows]
    calls = 1 + max(int(number) for _, number, _, _ in names)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(titles)
        for index in range(count):
            again, position = divmod(index, len(rows))
            api, number, direction, rest = names[position]
            name = f"{api}.{int(number) + again * calls}.{direction}.{rest}"
            writer.writerow([name, *rows[position][1:]])
    return path


if __name__ == "__main__":
    record_gpt(Path(sys.argv[1]), int(sys.argv[2]))
