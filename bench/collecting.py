"""Measures the time, memory and bytes that recording costs, and compares them with targets."""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from tables import table, verdict

BENCH = Path(__file__).resolve().parent
PER_RECORD_US = 8.0  # limit in microseconds for the name, the stack and the line of one record
OF_PHYSICS = 1.5  # limit: time for the statistics / time to read the bytes once
OF_DISTINCT = 1.3  # limit: the same / time to read each version of a tensor once
OF_PEER = {"large": 8.0, "small": 30.0}  # msprobe 26 must take this many times longer
OF_RAW = 1 / 0.9  # limit: time for tensor files / time to write the same files alone
# Limits: time for a step's tensors / time to write the same bytes in one go; bytes / all bytes.
OF_ONE_WRITE = {("toy40", "packed"): 1.5, ("gpt", "linked"): 1.2, ("resnet", "linked"): 1.2}
OF_ALL_BYTES = 0.55
NOT_RECORDING = 1.01
HELD_MB = 64
OF_PEER_BYTES = 0.6
OF_GRAD_PROBE = 1.05
OF_FREE_BENCHMARK = 2.0  # its default budget: as much time again as the training takes
OF_STATISTICS = 1.2  # limit: what a baseline costs / what statistics cost
OF_OWN_FRONT = 1.2  # limit: time that a front of an older tool adds / time that our own adds
OLDER_FRONT_SETTINGS = (
    ("toy40", "statistics"),
    ("toy40", "elements"),
    ("gpt", "statistics"),
    ("resnet", "statistics"),
)
PROGRAMS = {"toy40": 1, "gpt": 2, "resnet": 2, "ddp": 2}  # divisor of the number of pairs
SETTINGS = (
    ("L0", "statistics", "statistics"),
    ("L1", "statistics", "statistics"),
    ("mix", "statistics", "statistics"),
    ("L1", "statistics", "md5"),
    ("L1", "tensor", "statistics"),
)


def run_json(command: list, seconds: float | None = None) -> dict:
    """Runs a program of this folder and returns the JSON it prints; exits when it fails."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=seconds
    )
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stderr}")
    return json.loads(done.stdout)


def run_training(python: Path, tool: str, program: str, setting, options, *more) -> dict:
    level, task, summary = setting
    command = [python, BENCH / "train.py", "--tool", tool, "--program", program]
    command += ["--level", level, "--task", task, "--summary", summary]
    pairs = max(2, options.pairs // PROGRAMS[program])
    pairs = min(4, pairs) if task == "tensor" else pairs  # a step writes gigabytes
    return run_json([*command, "--pairs", pairs, "--scratch", options.scratch, *more])


def price(result: dict) -> float:
    """Milliseconds a step: the time that collecting adds, and the time that the idle tool adds."""
    return result["added_ms"] + max(0.0, result["off_ms"] - result["bare_ms"])


def of_distinct(ours: dict) -> float:
    """Added time without that of the records, over the time to read each version of a tensor."""
    read_ms = ours["read_ms"] * (1 - ours["saved_bytes"] / ours["bytes"])
    return (ours["added_ms"] - PER_RECORD_US * 1e-3 * ours["records"]) / read_ms


def judge(ours: dict, theirs: dict | None) -> tuple:
    """(text of the target, verdict) for one row of the table."""
    physics = ours["added_ms"] <= ours["physics_ms"]
    if ours["task"] == "tensor":
        limit = OF_RAW * ours["raw_files_ms"] + ours["physics_ms"]
        return "<= raw files / 0.9 + physics", verdict(ours["added_ms"] <= limit)
    if theirs is None:
        return "<= physics", verdict(physics)
    times = price(theirs) / price(ours)
    if ours["read_ms"] > PER_RECORD_US * 1e-3 * ours["records"]:
        return f"{OF_PEER['large']:.0f} x less or physics", verdict(
            physics or times >= OF_PEER["large"]
        )
    return f"{OF_PEER['small']:.0f} x less and physics", verdict(
        physics and times >= OF_PEER["small"]
    )


def title(result: dict) -> str:
    kind = "md5" if result["summary"] == "md5" else result["task"]
    return f"{result['program']} {result['level']} {kind}"


def bench_training(options) -> list:
    print(
        f"\ntraining: milliseconds added to one step, medians of {options.pairs} steps "
        "(half as many of slow programs); first: to the first recorded step after plain ones"
        f"\n  physics: {OF_PHYSICS} times the time to read tensors "
        f"as those recorded once with our kernel alone, and {PER_RECORD_US:.0f} us a record\n"
        f"  distinct: without {PER_RECORD_US:.0f} us a record, over the time to read each version "
        f"of a tensor once (limit {OF_DISTINCT})\n"
        "  raw: the tensor files' bytes written in one go to the same disk, and in as many files"
    )
    heading = ["program, level, task", "bare ms", "added ms", "records", "us/record", "physics ms"]
    heading += ["first ms", "x physics", "x distinct", "x raw write", "x raw files"]
    heading += ["peer ms", "peer records", "peer / ours"] if options.peer else []
    lines, results = [[*heading, "target", "verdict"]], []
    for program in PROGRAMS:
        for setting in SETTINGS:
            ours = run_training(Path(sys.executable), "ours", program, setting, options)
            results.append(ours)
            reading = OF_PHYSICS * ours["read_ms"]
            ours["physics_ms"] = reading + PER_RECORD_US * 1e-3 * ours["records"]
            raw = ours["raw_write_ms"]
            line = [
                title(ours),
                f"{ours['bare_ms']:.2f}",
                f"{ours['added_ms']:.2f}",
                str(ours["records"]),
                f"{ours['added_ms'] * 1e3 / ours['records']:.1f}",
                f"{ours['physics_ms']:.2f}",
                f"{ours['first_added_ms']:.2f}",
                f"{ours['added_ms'] / ours['physics_ms']:.2f}",
                f"{of_distinct(ours):.2f}" if ours["saved_bytes"] else "",
                f"{ours['added_ms'] / raw:.2f}" if raw else "",
                f"{ours['added_ms'] / ours['raw_files_ms']:.2f}" if raw else "",
            ]
            theirs = None
            if options.peer:
                theirs = run_training(options.peer, "peer", program, setting, options)
                results.append(theirs)
                line += [f"{price(theirs):.2f}", str(theirs["records"])]
                line.append(f"{price(theirs) / price(ours):.1f}")
            lines.append([*line, *judge(ours, theirs)])
            print(f"  {line[0]} ...", file=sys.stderr, flush=True)
    table(lines)
    if options.peer:
        print_sizes(results)
    return results


def bench_tensor_files(options) -> list:
    print(
        "\ntensor files: milliseconds that the tensors of one step cost beyond its statistics "
        "(L1), beside one sequential write of the bytes that are written"
    )
    heading = ["program, files", "names", "files", "MB", "of all", "store ms", "raw write ms"]
    lines, results = [[*heading, "x raw write", "target", "verdict"]], []
    for program in ("toy40", "gpt", "resnet"):
        statistics_only = run_training(Path(sys.executable), "ours", program, SETTINGS[1], options)
        results.append(statistics_only)
        whole = None
        for kind in ("unlinked", "linked", "packed"):
            row = run_training(
                Path(sys.executable), "ours", program, SETTINGS[4], options, "--tensor-files", kind
            )
            results.append(row)
            whole = whole or row["file_bytes"]
            store = row["added_ms"] - statistics_only["added_ms"]
            times = store / row["raw_write_ms"]
            limit = OF_ONE_WRITE.get((program, kind))
            kept = row["file_bytes"] / whole
            met = limit is not None and times <= limit
            if program == "gpt" and kind == "linked":
                met = met and kept <= OF_ALL_BYTES
            lines.append(
                [
                    f"{program} {kind}",
                    str(row["names"]),
                    str(row["files"]),
                    f"{row['file_bytes'] / 1e6:.1f}",
                    f"{kept:.0%}",
                    f"{store:.2f}",
                    f"{row['raw_write_ms']:.2f}",
                    f"{times:.2f}",
                    "" if limit is None else f"<= {limit}",
                    "" if limit is None else verdict(met),
                ]
            )
            print(f"  {lines[-1][0]} ...", file=sys.stderr, flush=True)
    table(lines)
    return results


def bench_optimizers(options) -> list:
    print(
        "\noptimizers: milliseconds that recording adds to a step with AdamW, statistics L1, "
        "without and with entries of its steps"
    )
    heading = ["program", "bare ms", "without ms", "with ms", "difference ms", "physics ms"]
    lines, results = [[*heading, "target", "verdict"]], []
    for program in ("toy40", "gpt", "resnet"):
        rows = [
            run_training(
                Path(sys.executable), "ours", program, SETTINGS[1], options, "--optimizer", kind
            )
            for kind in ("adamw", "recorded")
        ]
        results += rows
        off, on = rows
        # A step reads gradients once, weights and two states twice. Without entries, a fused or
        # foreach step records nothing.
        reading = OF_PHYSICS * (on["read_ms"] - off["read_ms"])
        physics = max(reading, 0) + PER_RECORD_US * 1e-3 * on["records"]
        more = on["added_ms"] - off["added_ms"]
        numbers = (on["bare_ms"], off["added_ms"], on["added_ms"], more, physics)
        lines.append([program, *(f"{number:.2f}" for number in numbers)])
        lines[-1] += ["<= physics", verdict(more <= physics)]
    table(lines)
    return results


def print_sizes(results: list) -> None:
    """Sizes of dump.json, stack.json and construct.json of the same step, written by both tools."""
    print("\nbytes of dump.json, stack.json and construct.json of one step")
    heading = ["program, level, task", "ours", "a record", "peer", "a record", "ours / peer"]
    lines = [[*heading, "target", "verdict"]]
    for ours, theirs in zip(results[::2], results[1::2], strict=True):
        share = ours["json_bytes"] / theirs["json_bytes"]
        line = [title(ours)]
        for each in (ours, theirs):
            line += [str(each["json_bytes"]), f"{each['json_bytes'] / each['records']:.0f}"]
        lines.append(
            [*line, f"{share:.2f}", f"<= {OF_PEER_BYTES}", verdict(share <= OF_PEER_BYTES)]
        )
    table(lines)


def bench_older_fronts(options) -> list:
    print(
        "\nfronts of the older tools: what a step costs more than a bare one, beside our own front"
    )
    lines, results = [["front, program, data", "bare ms", "ours ms", "theirs ms", "ratio"]], []
    lines[0] += ["target", "verdict"]
    command = [sys.executable, BENCH / "older_fronts.py", "--scratch", options.scratch]
    for front in ("hooks", "ptdbg", "ptdbg-0.1"):
        for program, data in OLDER_FRONT_SETTINGS:
            pairs = max(3, options.pairs // PROGRAMS[program] // (2 if data == "elements" else 1))
            asked = ["--front", front, "--program", program, "--data", data, "--pairs", pairs]
            row = run_json([*command, *asked])
            results.append(row)
            ratio = row["added_ratio"]
            numbers = [f"{row[key]:.2f}" for key in ("bare_ms", "ours_ms", "older_ms")]
            lines.append([f"{front} {program} {data}", *numbers, f"{ratio:.2f}"])
            lines[-1] += [f"<= {OF_OWN_FRONT}", verdict(ratio <= OF_OWN_FRONT)]
            print(f"  {lines[-1][0]} ...", file=sys.stderr, flush=True)
    table(lines)
    return results


def bench_idle() -> dict:
    print(
        "\nnot recording: a step's time over that without the tool, processes in turns; the "
        "control is a second process without it",
        flush=True,
    )
    results = run_json([sys.executable, BENCH / "idle.py"])
    lines = [["program", "state", "ratio", "control", "target", "verdict"]]
    for program, states in results.items():
        control = states.pop("control")
        for state, ratio in states.items():
            said = verdict(ratio <= NOT_RECORDING)
            if abs(control - 1) > NOT_RECORDING - 1:
                said = "too noisy to say"
            lines.append(
                [program, state, f"{ratio:.3f}", f"{control:.3f}", f"<= {NOT_RECORDING}", said]
            )
    table(lines)
    return results


def bench_tasks() -> dict:
    print(
        "\ntasks grad_probe (L1) and free_benchmark (default budget): a step's time over that "
        "without the tool, GPT",
        flush=True,
    )
    results = run_json([sys.executable, BENCH / "tasks.py"])
    lines = [["task", "ratio", "control", "target", "verdict"]]
    for task, row in results.items():
        limit = OF_GRAD_PROBE if task == "grad_probe" else OF_FREE_BENCHMARK
        control, said = row["control"], verdict(row["ratio"] <= limit)
        if control is not None and abs(control - 1) > limit - 1:
            said = "too noisy to say"
        lines.append([task, f"{row['ratio']:.3f}", f"{control:.3f}" if control else ""])
        lines[-1] += [f"<= {limit}", said]
    table(lines)
    return results


def bench_baseline(options) -> dict:
    print(
        "\nbaseline: processor milliseconds of a step, statistics mix alone, without weights.json, "
        "and compared with a baseline of equal bits and of other rounding; what is added over "
        "what statistics add",
        flush=True,
    )
    results = run_json([sys.executable, BENCH / "baseline.py", "--scratch", options.scratch])
    lines = [["program, baseline", "plain ms", "statistics ms", "ms", "of statistics"]]
    lines[0] += ["target", "verdict"]
    for program, row in results.items():
        for state, share in row["of_statistics"].items():
            ms = [f"{row['ms'][each]:.2f}" for each in ("plain", "statistics", state)]
            line = [f"{program} {state}", *ms, f"{share:.2f}"]
            judged = state != "no_weights"
            line += [f"<= {OF_STATISTICS}", verdict(share <= OF_STATISTICS)] if judged else ["", ""]
            lines.append(line)
    table(lines)
    return results


def bench_volume(options) -> list:
    print("\nmany records in one step, statistics L1: memory held, bytes written")
    arguments = [BENCH / "volume.py", "--scratch", options.scratch, "--tool"]
    ours = run_json([sys.executable, *arguments, "ours"])
    results = [ours]
    if options.peer:  # fewer records: its time grows with their square
        results.append(run_json([options.peer, *arguments, "peer", "--records", "10000", "40000"]))
    heading = ["tool, records", "held MB", "written MB", "bytes a record", "us/record"]
    lines = [[*heading, "target", "verdict"]]
    per_record = statistics.median(row["written"] / row["records"] for row in ours["rows"])
    for result in results:
        for row in result["rows"]:
            each = row["written"] / row["records"]
            line = [f"{result['tool']} {row['records']}", f"{row['held_mb']:.1f}"]
            line += [f"{row['written'] / 1e6:.1f}", f"{each:.0f}"]
            line.append(f"{row['seconds'] * 1e6 / row['records']:.1f}")
            if result is ours:
                said = verdict(row["held_mb"] <= HELD_MB and each <= 1.05 * per_record)
                line += [f"<= {HELD_MB} MB, linear", said]
            else:
                line += ["", ""]
            lines.append(line)
    table(lines)
    return results
