"""Times `msprobe compare` as a whole process, beside the earlier tool when its Python is given.

    python bench/compare/run.py [--peer .cache/peer/bin/python] [--leaves 100000] [--rounds 5]

Two dumps of the same run are made up, one number in a hundred apart: as this version writes them
and as msprobe 26 does. Each round runs every program once, so that they share the machine's moods;
printed are medians and peak resident memory (getrusage), beside reading the same bytes once.
"""

import argparse
import base64
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LEAVES_PER_CALL = 4
APIS = ("linear", "gelu", "layer_norm", "softmax", "dropout")
FRAME = "File train.py, line {line}, in forward, \n x = self.layer{line}(x)"


def tensor(generator, noise, ours):
    """One leaf as the tool writes it; `noise` moves its numbers."""
    numbers = [generator.uniform(-4, 4) for _ in range(4)]
    scale = 1 + (noise if generator.random() < 0.01 else 0)
    leaf = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [8, 128, 256]}
    numbers = [n * scale for n in numbers]
    if ours:
        numbers = [float(f"{n:.8g}") for n in numbers]  # the digits of a float32
    leaf.update(zip(("Max", "Min", "Mean", "Norm"), numbers, strict=True))
    leaf["requires_grad"] = True
    if ours:
        fingerprint = (hash(tuple(leaf.values())[3:]) % 2**64).to_bytes(8, "big")
        leaf["fp"] = base64.urlsafe_b64encode(fingerprint).decode()[:11]
    return leaf


def entries(leaves, noise, ours):
    """Entry name -> entry, in execution order."""
    generator = random.Random(7)
    calls = {}
    for i in range(leaves // LEAVES_PER_CALL):
        api = APIS[i % len(APIS)]
        number = calls.get(api, 0)
        calls[api] = number + 1
        inputs = [tensor(generator, noise, ours) for _ in range(LEAVES_PER_CALL - 1)]
        output = [tensor(generator, noise, ours)]
        yield (
            f"Functional.{api}.{number}.forward",
            {"input_args": inputs, "input_kwargs": {}, "output": output},
        )


def write_dump(folder, leaves, noise, ours):
    """Writes dump.json, stack.json and construct.json in our layout or in that of msprobe 26."""
    folder.mkdir(parents=True)
    head = {"task": "statistics", "level": "L1", "framework": "pytorch", "dump_data_dir": None}
    names = []
    with open(folder / "dump.json", "w") as out:
        if ours:
            head["tool"] = "msprobe 27.0.0"
            out.write(json.dumps(head)[:-1] + ', "data": {\n')
            for i, (name, entry) in enumerate(entries(leaves, noise, ours)):
                names.append(name)
                entry["stack"] = str(i % 64)
                out.write(("" if i == 0 else ",\n") + json.dumps(name) + ": " + json.dumps(entry))
            out.write("\n}}\n")
        else:
            data = dict(entries(leaves, noise, ours))
            names = list(data)
            json.dump({**head, "data": data}, out, indent=1)
    stacks = {
        str(i): [names[i::64], [FRAME.format(line=i)] * 6] for i in range(min(64, len(names)))
    }
    (folder / "stack.json").write_text(json.dumps(stacks, indent=1))
    (folder / "construct.json").write_text(json.dumps(dict.fromkeys(names), indent=1))


def run_once(command, folder):
    """Wall seconds and peak resident bytes of one process (its children included)."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    with open(folder / "log", "wb") as log:
        started = time.perf_counter()
        process = subprocess.Popen([*command, "-o", str(out)], stdout=log, stderr=log)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not list(out.glob("compare_result*.csv")):
        sys.exit(f"error: {' '.join(command)} failed:\n{(folder / 'log').read_text()}")
    return seconds, usage.ru_maxrss * 1024


def read_once(paths):
    """Seconds to read the input files, the floor of any comparison."""
    started = time.perf_counter()
    for path in paths:
        path.read_bytes()
    return time.perf_counter() - started


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--peer", type=Path, help="Python of the earlier tool's venv")
    parser.add_argument("--leaves", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    beside = Path(sys.executable).parent / "msprobe"
    binary = os.environ.get("MSPROBE_BIN", str(beside))
    if not Path(binary).exists():
        sys.exit(f"error: no msprobe program at {binary}; type: make build")

    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        runs, sizes = {}, {}
        for layout, ours in (("layout_27", True), ("layout_26", False)):
            paths = []
            for side, noise in (("target", 1e-3), ("golden", 0.0)):
                write_dump(folder / layout / side, options.leaves, noise, ours)
                paths.append(folder / layout / side / "dump.json")
            flags = ["compare", "-tp", str(paths[0]), "-gp", str(paths[1])]
            files = [file for path in paths for file in path.parent.iterdir()]
            sizes[layout] = sum(file.stat().st_size for file in files)
            runs[("msprobe", layout)] = [binary, *flags]
            if options.peer and not ours:
                runs[("msprobe 26", layout)] = [str(options.peer.parent / "msprobe"), *flags]
            runs[("read the bytes", layout)] = files
        times = {key: [] for key in runs}
        memory = dict.fromkeys(runs, 0)
        for _ in range(options.rounds):
            for key, command in runs.items():
                if key[0] == "read the bytes":
                    times[key].append(read_once(command))
                    continue
                seconds, peak = run_once(command, folder)
                times[key].append(seconds)
                memory[key] = max(memory[key], peak)

    print(f"  {options.leaves} leaves a side, csv, whole process, median of {options.rounds}")
    fastest = statistics.median(times[("msprobe", "layout_26")])
    for key, values in times.items():
        seconds, size = statistics.median(values), sizes[key[1]]
        line = f"  {key[0]:<16}{key[1]:<20}{seconds * 1e3:9.1f} ms"
        line += f"{size / 1e6:8.1f} MB in"
        if memory[key]:
            line += f"{memory[key] / 1e6:8.1f} MB peak, {memory[key] / size:.1f} x the input"
        if key[0] == "msprobe 26":
            line += f"; {seconds / fastest:.0f} x slower"
        print(line)


if __name__ == "__main__":
    main()
